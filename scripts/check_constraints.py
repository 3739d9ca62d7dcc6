"""Check many constrained replies of a model: they have their form, and drafting changes none.

    python scripts/check_constraints.py MODEL RESULTS.jsonl [--forms schemas] [--cases 252]

A case is a random form at one of three temperatures, with one plain reply and one for each of three
drafters. All four must have the same tokens. A reply that ends by itself must fit: a schema by the
`jsonschema` package, an expression by `re`, a grammar by the expression of its language.

RESULTS.jsonl gets a line a case. A run that finds cases there goes on after them. The last line on
the screen is the summary, and the exit status is 1 if a case failed.

With OpenBLAS the engine is reproducible, so that rows of passes have equal bits; it then verifies
drafted trees as chains. AKUNU_BLAS=mlx verifies them as trees.
"""

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from constrained_replies import DRAFTERS, FORMS, replies

from akunu_py import Engine
from akunu_py.cpu.blas import load_blas
from akunu_py.system.errors import AkunuError

MOST_TOKENS = 80
COUNTED = ("replies", "ended", "tokens", "accepted", "tested")


def check(engine, kind, seed):
    """Return the result of a case as a JSON object; `failed` says what is wrong with it."""
    form = FORMS[kind](seed)
    result = {"kind": kind, "seed": seed, "failed": ""}
    began = time.perf_counter()
    try:
        plain, *drafted = replies(engine, seed, form, max_tokens=MOST_TOKENS)
    except AkunuError as error:
        return {**result, "failed": f"{type(error).__name__}: {error.message}"}
    different = [
        name
        for name, reply in zip(DRAFTERS[1:], drafted, strict=True)
        if (reply.token_ids, reply.constraint_met) != (plain.token_ids, plain.constraint_met)
    ]
    ended = plain.finish_reason == "stop"
    if different:
        result["failed"] = f"{', '.join(different)}: not the plain reply"
    elif ended and not (plain.constraint_met and form.fits(plain.text)):
        result["failed"] = f"does not fit: {plain.text!r}"
    return {
        **result,
        "replies": 1 + len(drafted),
        "ended": (1 + len(drafted)) * ended,
        "tokens": len(plain.token_ids),
        "accepted": sum(reply.stats.accepted for reply in drafted),
        "tested": sum(reply.stats.tested for reply in drafted),
        "seconds": round(time.perf_counter() - began, 2),
    }


def summary(kind, results):
    total = Counter()
    for result in results:
        total.update({name: result.get(name, 0) for name in COUNTED})
    failed = sum(bool(result["failed"]) for result in results)
    return (
        f"{kind}: {len(results)} cases, {failed} failed; {total['replies']:,} replies, "
        f"{total['ended']:,} ended by themselves; {total['tokens']:,} tokens with each drafter, "
        f"{total['accepted']:,} of {total['tested']:,} drafted tokens accepted"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("results", type=Path)
    parser.add_argument("--forms", choices=FORMS, default="schemas")
    parser.add_argument("--cases", type=int, default=252)
    given = parser.parse_args()

    lines = given.results.read_text().splitlines() if given.results.exists() else []
    done = {(found["kind"], found["seed"]): found for found in map(json.loads, lines)}
    cases = [(given.forms, seed) for seed in range(given.cases)]
    with Engine.load(given.model, reproducible=not load_blas().own) as engine:
        for case in cases:
            if case in done:
                continue
            done[case] = check(engine, *case)
            with given.results.open("a") as stream:
                stream.write(json.dumps(done[case], ensure_ascii=False) + "\n")
            if done[case]["failed"]:
                print(done[case], flush=True)
    results = [done[case] for case in cases]
    print(summary(given.forms, results))
    sys.exit(any(result["failed"] for result in results))
