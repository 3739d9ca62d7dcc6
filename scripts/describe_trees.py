#!/usr/bin/env python3
"""Write into docs/methods.md which families verify trees in one pass, and where a tree pays.

    python scripts/describe_trees.py          print the table
    python scripts/describe_trees.py --write  into docs/methods.md, between its markers

Families: tiny random models with adversarial trees, against mlx-lm's plain loop, as in
tests/models/test_session_trees.py; takes minutes. Where a tree pays: the budget's rule over the
curves of akunu_py/bench/replay/cost_curves.json, lambda at its optimum.
"""

import argparse
import heapq
import sys
from pathlib import Path

from marked_pages import write_between

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "methods.md"
START = "<!-- scripts/describe_trees.py writes from here -->"
END = "<!-- end of describe_trees.py -->"

sys.path.insert(0, str(ROOT / "tests"))

CELLS = [(temperature, size) for temperature in (0.0, 0.8) for size in (5, 40)]
NUM_TOKENS = 40


RATES = [(0.3, 0.1, 0.05), (0.5, 0.15, 0.08), (0.7, 0.12, 0.05), (0.9, 0.04, 0.02)]
"""How often a node's first, second and third child is right."""


NOTE = """\
The table shows the largest difference of logits between trees and chains, and between trees and single rows, as a
share of a row's largest logit. *Replies the same* compares four replies of 40 tokens, drafted with random trees of 3
to 12 nodes, with mlx-lm's plain loop: greedy and at temperature 0.8, float32, on the CPU."""


def grown(rates, size=60):
    """Return the best tree of that size in which every node has children with these rates."""
    from akunu_py.values.draft_trees import TreeBuilder

    builder = TreeBuilder()
    waiting = [(-rate, rank, -1) for rank, rate in enumerate(rates)]
    heapq.heapify(waiting)
    while len(builder) < size:
        reach, rank, parent = heapq.heappop(waiting)
        node = builder.add(parent, rank, rates[rank])
        for child, rate in enumerate(rates):
            heapq.heappush(waiting, (reach * rate, child, node))
    return builder.draft(range(size), "grown")


def paying(draft, curve):
    """Return the part of a draft with the most tokens for its time, and these a plain step."""
    from akunu_py.decoding.tree_budget import paying_part
    from akunu_py.values.draft_trees import part, reaches

    speed, before = 1.0, 0.0
    while speed - before > 1e-9:
        before = speed
        best = paying_part(
            draft, draft.confidence, lambda rows, rate=before: rate * (curve.cost(1 + rows) - 1),
            in_flight=False,
        )  # fmt: skip
        kept = part(draft, best.nodes)
        speed = (1 + sum(reaches(kept, kept.confidence))) / curve.cost(1 + len(kept))
    return kept, speed


def shapes() -> str:
    from akunu_py.bench.replay.curves import shipped_curves

    lines = [
        "| curve | " + " | ".join(" / ".join(map(str, rates)) for rates in RATES) + " |",
        "|---|" + "---|" * len(RATES),
    ]
    for name, curve in shipped_curves().items():
        cells = []
        for rates in RATES:
            kept, speed = paying(grown(rates), curve)
            _, alone = paying(grown(rates[:1]), curve)
            shape = "chain" if kept.is_chain else "tree"
            against = "" if kept.is_chain else f", a chain {alone:.2f}"
            text = f"{shape} of {len(kept)}: {speed:.2f}{against}"
            cells.append(text if len(kept) else "nothing")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def families() -> str:
    from family_models import build_family, variant_of
    from rollback_matrix import Family
    from tree_matrix import FALL_BACK, TAKEN, largest_differences, tree_cell

    lines = [
        "| family | from chains | from single rows | passes over trees | nodes accepted | replies the same |",
        "|---|---|---|---|---|---|",
    ]
    chains = singles = 0
    for name in TAKEN:
        from_chains, from_rows, count = largest_differences(
            build_family(name), variant_of(name).kv_bits
        )
        chains += from_chains == 0
        singles += from_rows == 0
        cells = [tree_cell(Family(name), *cell, NUM_TOKENS) for cell in CELLS]
        same = sum(cell.difference is None for cell in cells)
        passes, accepted = (
            sum(getattr(cell, what) for cell in cells) for what in ("passes", "accepted")
        )
        apart = " | ".join(f"{value:.1e}" if value else "0" for value in (from_chains, from_rows))
        lines.append(f"| {name} | {apart} | {passes} | {accepted} | {same} of {len(cells)} |")
        print(lines[-1], file=sys.stderr)
    summary = (
        f"{len(TAKEN)} configurations, {count} rows each; bit-equal to chains: {chains}, to single "
        f"rows: {singles}. Verified as chains:"
    )
    lines += ["", summary, ""]
    reasons: dict[str, list[str]] = {}
    for name in FALL_BACK:
        cell = tree_cell(Family(name), 0.8, 12, NUM_TOKENS)
        outcome = "" if cell.difference is None else f" (differs at token {cell.difference})"
        reasons.setdefault(cell.refusal, []).append(name + outcome)
    lines += [f"- {reason}: {'; '.join(names)}" for reason, names in reasons.items()]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="into docs/methods.md")
    arguments = parser.parse_args()
    text = f"{shapes()}\n\n### Families\n\n{NOTE}\n\n{families()}"
    if not arguments.write:
        print(text)
        return
    write_between(DOCUMENT, START, END, text)


if __name__ == "__main__":
    main()
