#!/usr/bin/env python3
"""Fit the weights that the drafter `auto` starts from, on text made from the standard library.

    python lab/scripts/fit_auto_drafter.py [--share 0.4] [--seed 0] [--output FILE]

The weights come from the drafter's own online rule: from a smooth start it drafts the examples of
lab/scripts/drafter_examples.py, which are in random order and under cost curves invented here, three
times over at falling rates, and those of the last time are averaged. This is done for all kinds of
examples together and for some alone, and the result is lowered towards the lowest. The file says
what they were fitted on. `akunu bench replay` judges them, on replies that models wrote.
"""

import argparse
import json
import math
import platform
import random
from collections.abc import Iterable
from pathlib import Path

from drafter_examples import Example, fingerprint, make_examples

from akunu_py.drafting.auto import AutoDrafter, AutoState, calibration, features
from akunu_py.drafting.memory import Memory
from akunu_py.gguf import GGUFFile
from akunu_py.tokenizers import from_gguf
from akunu_py.values.cost_curve import CostCurve

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = ROOT / "akunu_py/drafting/auto/start_weights.json"
VOCABULARY = ROOT / "models/akunu-tiny.gguf"
MAX_REPLY = 1500
MAX_DRAFT = 64
STRETCH = 12  # examples of one kind in a row, as use comes in stretches
RATES = (0.02, 0.01, 0.005)
# The part of the way from the smooth start to the fitted weights that is gone: the full way is too
# sure of this text. Fitted on the code among the examples and measured on the prose of other files,
# and the other way round, a quarter did better than a half.
KEPT = 0.25
# Then the weights go down half of the way to the lowest of those that kinds of text alone lead to:
# a draft that is too long costs more than one that is too short, and what is sure in one kind of
# text is not in another.
GROUPS = (
    ("chat edit", "edit file", "patch"),
    ("class", "continue"),
    ("free", "passage", "summary"),
)
CAUTION = 0.5
# Where the fit starts: the chance that a match of 0, 1, 2, ... tokens (features.MATCH_SHARE) goes on,
# and how it moves with the share of the vote, on the logistic scale.
MATCH_CHANCES = (0.25, 0.3, 0.45, 0.6, 0.68, 0.75, 0.8, 0.84, 0.87, 0.9, 0.92, 0.94, 0.95)
SHARE_STEPS = (-1.5, -1.0, -0.6, -0.2, 0.0, 0.2)
OUTCOME_STEPS = (-0.36, -0.18, 0.0, 0.18, 0.36)  # by how often it was right
OUTCOME_TRUST = (0.5, 0.75, 1.0)  # by how often it was tried

# Invented: nearly free rows, rows that cost a tenth each, steps, and rows that hardly ever pay.
CURVES = {
    "gentle": CostCurve({1: 1.0, 2: 1.05, 21: 2.0}),
    "rising": CostCurve({1: 1.0, 3: 1.15, 5: 1.5, 9: 2.2}),
    "step": CostCurve({1: 1.0, 4: 1.4, 5: 1.8, 9: 3.0}, flat=(13, 32)),
    "steep": CostCurve({1: 1.0, 2: 1.6, 9: 6.0}),
}


Reply = tuple[list[int], list[int]]
"""Ids of a prompt and of the reply to it."""


def tokenize(examples: Iterable[Example], vocabulary: Path) -> dict[str, list[Reply]]:
    """Return the examples as (prompt, reply) ids by kind, each reply with its end."""
    tokenizer = from_gguf(GGUFFile.open(vocabulary).metadata)
    end = min(tokenizer.end_ids)
    by_kind: dict[str, list[Reply]] = {}
    for example in examples:
        ids = tokenizer.encode(example.reply)
        reply = ids[:MAX_REPLY] if len(ids) > MAX_REPLY else [*ids, end]
        by_kind.setdefault(example.kind, []).append((tokenizer.encode(example.prompt), reply))
    return by_kind


def smooth_start() -> list[float]:
    """Return weights that grow with match length, share of the vote and past outcomes."""
    weights = [0.0] * features.NUM_WEIGHTS
    for row, chance in enumerate(MATCH_CHANCES):
        for column, step in enumerate(SHARE_STEPS):
            place = features.MATCH_SHARE + row * features.NUM_SHARES + column
            weights[place] = math.log(chance / (1 - chance)) + step
    for table in range(3):
        place = features.OUTCOMES + table * features.NUM_OUTCOMES + 1
        for trust in OUTCOME_TRUST:
            for step in OUTCOME_STEPS:
                weights[place] = trust * step
                place += 1
    return weights


def replay(drafter: AutoDrafter, prompt: list[int], reply: list[int]) -> None:
    """Show a drafter a recorded reply as a target's choices."""
    drafter.observe(prompt)
    position, size = 0, len(reply)
    while position < size:
        limit = min(MAX_DRAFT, size - position - 1)
        right = 0
        for token in drafter.propose(limit).tokens if limit > 0 else ():
            if token != reply[position + right]:
                break
            right += 1
        output = tuple(reply[position : position + right + 1])
        drafter.observe(output)
        position += len(output)


def fit(by_kind: dict[str, list[Reply]], seed: int) -> list[float]:
    """Return the averaged weights that this text leads to."""
    rng = random.Random(seed)
    state = AutoState(calibration=calibration.Calibration(smooth_start()))
    sums = [0.0] * features.NUM_WEIGHTS
    count = 0
    for number, rate in enumerate(RATES):
        calibration.WEIGHT_RATE = rate
        stretches = [
            (kind, replies[start : start + STRETCH])
            for kind, replies in by_kind.items()
            for start in range(0, len(replies), STRETCH)
        ]
        rng.shuffle(stretches)
        memories = {kind: Memory() for kind in by_kind}
        for kind, replies in stretches:
            curve = CURVES[rng.choice(sorted(CURVES))]
            state.finish()
            state.memory = memories[kind]
            for prompt, reply in replies:
                replay(AutoDrafter(state=state, curve=curve), prompt, reply)
                if number == len(RATES) - 1:
                    sums = [a + b for a, b in zip(sums, state.calibration.weights, strict=True)]
                    count += 1
    return [total / count for total in sums]


def cautious_start(by_kind: dict[str, list[Reply]], seed: int) -> list[float]:
    """Return the weights to ship: a part of the way to the fitted ones, lowered for caution."""
    fitted = fit(by_kind, seed)
    alone = [fit({kind: by_kind[kind] for kind in group}, seed) for group in GROUPS]
    weights = []
    for first, together, lowest in zip(smooth_start(), fitted, map(min, *alone), strict=True):
        weight = first + KEPT * (together - first)
        weights.append(weight + CAUTION * min(0.0, lowest - weight))
    return weights


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--share", type=float, default=0.4, help="of the library's files")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--vocabulary", type=Path, default=VOCABULARY, help="a GGUF file")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    examples = make_examples(options.seed, options.share)
    by_kind = tokenize(examples, options.vocabulary)
    weights = cautious_start(by_kind, options.seed)
    about = {
        "made_by": "lab/scripts/fit_auto_drafter.py",
        "text": "edits, patches, completions, quotations and documentation made by script from "
        "the Python standard library (PSF-2.0)",
        "python": platform.python_version(),
        "share": options.share,
        "seed": options.seed,
        "examples": {kind: len(replies) for kind, replies in by_kind.items()},
        "reply_tokens": sum(len(reply) for found in by_kind.values() for _, reply in found),
        "text_sha256": fingerprint(examples),
        "vocabulary": options.vocabulary.name,
        "rates": RATES,
        "kept": KEPT,
        "caution": CAUTION,
    }
    lines = json.dumps({"about": about, "weights": [round(w, 3) for w in weights]}, indent=1)
    options.output.write_text(lines + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
