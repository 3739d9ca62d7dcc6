#!/usr/bin/env python3
"""Measure the drafter `auto`: normalised speed by file, its own time, and that by context length.

    python scripts/measure_auto_drafter.py TRACES VOCABULARY.gguf CURVES.json [--half B] [--seed N]
    python scripts/measure_auto_drafter.py TRACES VOCABULARY.gguf CURVES.json --contexts
    python scripts/measure_auto_drafter.py --lengths

TRACES is a folder of JSON lines with `id`, `prompt`, `output` and, for turns of a conversation,
`session`; a session's items stand in order. CURVES holds {"curves": {name: {"points": {rows: cost},
"flat_after": rows, "flat_until": rows}}}. Sessions are split into halves by a hash of their name, A
and B; --seed splits them otherwise. Nothing is fitted: the figures are those of a half that nobody
tuned on. Each file begins with an empty memory; the weights persist from file to file (--fresh: they
do not). `akunu bench replay` compares with other drafters; this stays small, to work on this one.

--contexts measures the time of passes in eight replies of each file, after prompts of 2,000, 8,000
and 32,000 tokens: text of the file's other sessions, and the reply's own prompt, if need be its end.
Each reply begins from a fresh state. Of three rounds the least time of each pass counts.

--lengths needs no files: contexts of 1,024 to 131,072 tokens of the standard library's source, and
of functions that repeat themselves with other names, which have the most occurrences to look at;
the reply is the context's end once more, every twentieth token changed. All times are of the
thread, the clock's own included: what else the machine does counts only through its caches.
"""

import argparse
import hashlib
import json
import math
import random
import sysconfig
import time
from pathlib import Path

from drafter_replay import Reply, normalised_speed, replay

from akunu_py.drafting import AutoDrafter, AutoState, Memory
from akunu_py.drafting.occurrences import OccurrenceIndex
from akunu_py.gguf import GGUFFile
from akunu_py.protocols import Tokenizer
from akunu_py.tokenizers import from_gguf
from akunu_py.values.cost_curve import CostCurve

ROOT = Path(__file__).resolve().parent.parent
MAX_REPLY = 1500
LONG_PROMPT = 32_000
PROMPTS = (2000, 8000, 32_000)
PROMPT_REPLIES, PROMPT_REPLY, ROUNDS = 8, 400, 3
CONTEXTS = (1024, 8192, 32_768, 131_072)
LENGTH_REPLY = 1000
LENGTH_CURVE = CostCurve({1: 1.0, 2: 1.05, 21: 2.0})  # long drafts pay: the most work a pass
REPEATED = """
def read_{name}(self, path, *, limit=None):
    \"\"\"Return the {name} of a file.\"\"\"
    with open(path, encoding="utf-8") as stream:
        lines = [line.strip() for line in stream]
    if limit is not None:
        lines = lines[:limit]
    self.{name} = [int(line) for line in lines if line]
    return self.{name}
"""


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


def intake_cost(prompt: list[int]) -> float:
    """Return the seconds a token of a prompt takes, the best of five."""
    best = math.inf
    for _ in range(5):
        index = OccurrenceIndex()
        started = time.thread_time()
        index.extend(prompt)
        best = min(best, time.thread_time() - started)
    return best / len(prompt)


def microseconds(times: list[float]) -> list[str]:
    """Return mean, p50, p90 and p99 of seconds, in microseconds."""
    times = sorted(times)
    found = (sum(times) / len(times), *(times[int(len(times) * q)] for q in (0.5, 0.9, 0.99)))
    return [f"{value * 1e6:.0f}" for value in found]


def source_tokens(tokenizer: Tokenizer, count: int) -> list[int]:
    """Return tokens of the standard library's files, in the order of their names."""
    ids: list[int] = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        ids += tokenizer.encode(path.read_text(encoding="utf-8", errors="replace"))
        if len(ids) >= count:
            break
    return ids[:count]


def repeated_tokens(tokenizer: Tokenizer, count: int) -> list[int]:
    """Return tokens of one function over and over, under names that come back irregularly."""
    rng = random.Random(0)
    names = ["rows", "totals", "weights", "prices", "heights", "sizes", "ages", "scores"]
    pieces = {name: tokenizer.encode(REPEATED.format(name=name)) for name in names}
    ids: list[int] = []
    while len(ids) < count:
        ids += pieces[rng.choice(names)]
    return ids[:count]


def preceded(items: list[tuple[dict, Reply]], place: int, size: int) -> Reply | None:
    """Return a reply behind a prompt of `size` tokens, or None if other sessions have too few.

    A session's items share text, so the prompt begins with text of other sessions alone.
    """
    item, (prompt, reply) = items[place]
    other: list[int] = []
    for further, (ids, answer) in items[place + 1 :] + items[:place]:
        if further.get("session") is None or further["session"] != item.get("session"):
            other += ids + answer
    wanted = max(0, size - len(prompt))
    if len(other) < wanted:
        return None
    return other[:wanted] + prompt[-size:], reply[:PROMPT_REPLY]


def measure_contexts(
    files: dict[str, list[tuple[dict, Reply]]], curves: dict[str, CostCurve]
) -> None:
    """Print the times of passes after prompts of each size."""
    print("| curve | file | prompt | tokens a pass | mean us | p50 | p90 | p99 |")
    print("|---" * 8 + "|")
    for name, curve in curves.items():
        for file, items in files.items():
            for size in PROMPTS:
                places = range(0, len(items), max(1, len(items) // PROMPT_REPLIES))
                replies = [preceded(items, place, size) for place in places]
                if None in replies:
                    continue
                rounds: list[list[float]] = []
                for _ in range(ROUNDS):
                    rounds.append([])
                    for prompt, reply in replies:
                        replay(AutoDrafter(curve=curve), prompt, reply, curve, rounds[-1])
                least = [min(times) for times in zip(*rounds, strict=True)]
                tokens = sum(len(reply) for _, reply in replies) / len(least)
                cells = [name, file, str(size), f"{tokens:.1f}", *microseconds(least)]
                print("| " + " | ".join(cells) + " |", flush=True)


def measure_lengths(tokenizer: Tokenizer) -> None:
    """Print the times of passes and of the prompt's intake for contexts of growing length."""
    print("| text | tokens | intake us a token | mean us | p50 | p90 | p99 |")
    print("|---" * 7 + "|")
    for name, make in (("source", source_tokens), ("repeated", repeated_tokens)):
        whole = make(tokenizer, max(CONTEXTS))
        for size in CONTEXTS:
            prompt = whole[:size]
            rng = random.Random(size)
            reply = [
                rng.choice(prompt) if rng.random() < 0.05 else token
                for token in prompt[-LENGTH_REPLY:]
            ]
            times: list[float] = []
            for _ in range(3):
                replay(AutoDrafter(curve=LENGTH_CURVE), prompt, reply, LENGTH_CURVE, times)
            cells = [name, str(size), f"{intake_cost(prompt) * 1e6:.2f}", *microseconds(times)]
            print("| " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("traces", type=Path, nargs="?")
    parser.add_argument("vocabulary", type=Path, nargs="?")
    parser.add_argument("curves", type=Path, nargs="?")
    parser.add_argument("--half", choices=("A", "B", "both"), default="B")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--contexts", action="store_true")
    parser.add_argument("--lengths", action="store_true")
    options = parser.parse_args()
    if options.lengths:
        model = options.vocabulary or ROOT / "models/akunu-tiny.gguf"
        measure_lengths(from_gguf(GGUFFile.open(model).metadata))
        return
    if options.curves is None:
        parser.error("give TRACES, VOCABULARY and CURVES, or --lengths")
    files = read_traces(options.traces, from_gguf(GGUFFile.open(options.vocabulary).metadata))
    if options.contexts:
        measure_contexts(files, read_curves(options.curves))
        return
    prompt = [token for items in files.values() for _, (ids, _) in items for token in ids]
    print(
        f"Prompt intake: {intake_cost(prompt[:LONG_PROMPT]) * 1e6:.2f} us a token of {LONG_PROMPT}"
    )
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
        cells = [f"{mean:.3f}", f"{min(speeds):.3f}", *microseconds(times)]
        print(
            f"| {name} | " + " | ".join([*cells, *(f"{s:.2f}" for s in speeds)]) + " |", flush=True
        )


if __name__ == "__main__":
    main()
