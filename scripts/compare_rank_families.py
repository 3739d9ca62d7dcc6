#!/usr/bin/env python3
"""Every family that mlx-lm can split, on loopback ranks: docs/several-machines.md has the results.

    python scripts/compare_rank_families.py [--ranks 2] [FAMILY ...]

A family is a name of `tests/tiny_families.py` or `tests/rank_families.py`, with "/1" for one head
of keys, which makes a pipeline of those that have one. For each it prints how a tiny random model
is split, a rank's share of the weights, the largest difference of a logit from one rank's (float32,
relative to the largest logit), how many of 70 rows differ by more than 1e-4, and whether texts,
greedy and sampled, equal one rank's, and texts with drafts those without.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import rank_child
from rank_runs import run
from tiny_families import FAMILIES

from akunu_py.models.ranks import split
from akunu_py.system.errors import ConfigError

PIPELINES = ("qwen2/1", "qwen3_moe/1", "ministral3/1", "glm4_moe/1")


def way(name: str, count: int) -> str:
    """Return how a family is split; raise ConfigError where it cannot be."""
    found = split.prepare(rank_child.family(name), split.PlannedGroup(0, count), name)
    return "pipeline" if found.way == "pipeline" else "parts"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", default=[*FAMILIES, *PIPELINES])
    parser.add_argument("--ranks", type=int, default=2)
    arguments = parser.parse_args()
    ways, refused = {}, []
    for name in arguments.families:
        try:
            ways[name] = way(name, arguments.ranks)
        except ConfigError:
            refused.append(name)
    print("refused:", ", ".join(refused), flush=True)
    print("| family | way | share | difference | rows apart | as one rank | drafted as plain |")
    print("|---|---|--:|--:|--:|---|---|", flush=True)
    left = list(ways)
    while left:
        with tempfile.TemporaryDirectory() as folder:
            results = run(Path(folder), arguments.ranks, [rank_child.__file__, *left])
        lines = results[0][1].splitlines()
        for found in map(json.loads, lines):
            alone = found["same_text_as_alone"] == ["greedy", "sampled"]
            drafted = not found["differing_drafts"] and found["reuse"]
            cells = (
                found["name"], ways[found["name"]], f"{found['share']:.2f}",
                f"{found['distance'] / found['scale']:.1e}", found["rows_apart"],
                "yes" if alone else "no", "yes" if drafted else "no",
            )  # fmt: skip
            print("|", " | ".join(map(str, cells)), "|", flush=True)
        if len(lines) < len(left):
            # The ranks end together; the rest is run by others.
            reason = results[0][2].strip().splitlines() or ["?"]
            print(f"| {left[len(lines)]} | failed: {reason[-1]} |", flush=True)
        left = left[len(lines) + 1 :]


if __name__ == "__main__":
    main()
