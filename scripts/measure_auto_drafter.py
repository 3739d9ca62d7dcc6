#!/usr/bin/env python3
"""Measure the drafter `auto` on recorded replies: normalised speed by file, and its own time.

    python scripts/measure_auto_drafter.py TRACES VOCABULARY.gguf CURVES.json [--half B] [--seed N]

TRACES is a folder of JSON lines with `id`, `prompt`, `output` and, for turns of a conversation,
`session`; a session's items stand in order. CURVES holds {"curves": {name: {"points": {rows: cost},
"flat_after": rows, "flat_until": rows}}}. Sessions are split into halves by a hash of their name, A
and B; --seed splits them otherwise. Nothing is fitted: the figures are those of a half that nobody
tuned on. Each file begins with an empty memory; the weights persist from file to file (--fresh: they
do not). `akunu bench replay` compares with other drafters; this stays small, to work on this one.
"""

import argparse
import hashlib
import json
import math
import time
from pathlib import Path

from drafter_replay import Reply, normalised_speed

from akunu_py.cost_curve import CostCurve
from akunu_py.drafting import AutoDrafter, AutoState, Memory
from akunu_py.drafting.occurrences import OccurrenceIndex
from akunu_py.gguf import GGUFFile
from akunu_py.tokenizers import from_gguf
from akunu_py.types import Tokenizer

MAX_REPLY = 1500
LONG_PROMPT = 32_000


def read_curves(path: Path) -> dict[str, CostCurve]:
    curves = {}
    for name, found in json.loads(path.read_text(encoding="utf-8"))["curves"].items():
        flat = (found["flat_after"], found["flat_until"]) if "flat_after" in found else None
        points = {int(rows): cost for rows, cost in found["points"].items()}
        curves[name] = CostCurve(points, flat)
    return curves


def half_of(item: dict[str, str], seed: int) -> str:
    """Return A or B, by the last bit of the hash of the item's session or id."""
    key = str(item.get("session") or item["id"])
    digest = hashlib.sha256((f"{seed}:{key}" if seed else key).encode()).digest()
    return "AB"[digest[-1] & 1]


def read_traces(folder: Path, tokenizer: Tokenizer) -> dict[str, list[tuple[dict, Reply]]]:
    """Return by file the items, tokenized, each reply with its end where it is not cut."""
    files: dict[str, list[tuple[dict, Reply]]] = {}
    end = min(tokenizer.end_ids)
    for path in sorted(folder.glob("*.jsonl")):
        items = files.setdefault(path.stem, [])
        for line in path.read_text(encoding="utf-8").splitlines():
            item = json.loads(line)
            ids = tokenizer.encode(item["output"])
            reply = ids[:MAX_REPLY] if len(ids) > MAX_REPLY else [*ids, end]
            items.append((item, (tokenizer.encode(item["prompt"]), reply)))
    return files


def intake_cost(files: dict[str, list[tuple[dict, Reply]]]) -> float:
    """Return the seconds a token of a long prompt takes, the best of five."""
    prompt: list[int] = []
    for _, (ids, reply) in (pair for items in files.values() for pair in items):
        prompt += ids + reply
        if len(prompt) >= LONG_PROMPT:
            break
    best = math.inf
    for _ in range(5):
        index = OccurrenceIndex()
        started = time.thread_time()
        index.extend(prompt[:LONG_PROMPT])
        best = min(best, time.thread_time() - started)
    return best / len(prompt[:LONG_PROMPT])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("traces", type=Path)
    parser.add_argument("vocabulary", type=Path)
    parser.add_argument("curves", type=Path)
    parser.add_argument("--half", choices=("A", "B", "both"), default="B")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fresh", action="store_true")
    options = parser.parse_args()
    files = read_traces(options.traces, from_gguf(GGUFFile.open(options.vocabulary).metadata))
    print(f"Prompt intake: {intake_cost(files) * 1e6:.2f} us a token of {LONG_PROMPT}")
    print("Times are of the thread, in us a pass: propose and observe together.")
    print(
        "| curve | geometric mean | lowest | mean us | p50 | p90 | p99 | "
        + " | ".join(files)
        + " |"
    )
    print("|---" * (len(files) + 7) + "|")
    for name, curve in read_curves(options.curves).items():
        state = AutoState()
        speeds, times = [], []
        for items in files.values():
            state.finish()
            state.memory = Memory()
            if options.fresh:
                state = AutoState()
            chosen = [
                reply
                for item, reply in items
                if options.half in {"both", half_of(item, options.seed)}
            ]
            speeds.append(
                normalised_speed(
                    chosen, curve, lambda s=state, c=curve: AutoDrafter(state=s, curve=c), times
                )
            )
        mean = math.exp(sum(map(math.log, speeds)) / len(speeds))
        times.sort()
        costs = [sum(times) / len(times), *(times[int(len(times) * q)] for q in (0.5, 0.9, 0.99))]
        cells = [f"{mean:.3f}", f"{min(speeds):.3f}", *(f"{cost * 1e6:.0f}" for cost in costs)]
        print(
            f"| {name} | " + " | ".join([*cells, *(f"{s:.2f}" for s in speeds)]) + " |", flush=True
        )


if __name__ == "__main__":
    main()
