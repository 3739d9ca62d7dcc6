#!/usr/bin/env python3
"""Print which families verify trees in one pass, and where a tree pays, for lab/docs/methods.md.

Families: tiny random models with adversarial trees, against mlx-lm's plain loop, as in
tests/models/test_session_trees.py; takes minutes. Where a tree pays: the budget's rule over the
curves of lab/akunu_lab/replay/cost_curves.json, lambda at its optimum.
"""

import heapq
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests")]

from marked_pages import parser_of, print_or_write

CELLS = [(temperature, size) for temperature in (0.0, 0.8) for size in (5, 40)]
NUM_TOKENS = 40

RATES = [(0.3, 0.1, 0.05), (0.5, 0.15, 0.08), (0.7, 0.12, 0.05), (0.9, 0.04, 0.02)]
"""How often a node's first, second and third child is right."""


NOTE = """\
Each family answers four prompts with 40 tokens, greedy and at temperature 0.8, drafted with random trees of 3 to 12
nodes, and is compared with mlx-lm's plain loop (float32, CPU). Differences of logits are a share of a row's largest."""


def best_tree(rates, size=60):
    """Return the best tree of that size in which every node has children with these rates."""
    from akunu_lab.drafting.draft_trees import TreeBuilder

    builder = TreeBuilder()
    waiting = [(-rate, rank, -1) for rank, rate in enumerate(rates)]
    heapq.heapify(waiting)
    while len(builder) < size:
        reach, rank, parent = heapq.heappop(waiting)
        node = builder.add(parent, rank, rates[rank])
        for child, rate in enumerate(rates):
            heapq.heappush(waiting, (reach * rate, child, node))
    return builder.draft(range(size), "grown")


def paying_tree(draft, curve):
    """Return the part of a draft with the most tokens for its time, and these a plain step."""
    from akunu_lab.drafting.draft_trees import reaches
    from akunu_py.api import TreePrices

    speed, before = 1.0, 0.0
    while speed - before > 1e-9:
        before = speed
        prices = TreePrices(
            draft.confidence, lambda rows, rate=before: rate * (curve.cost(1 + rows) - 1), None
        )
        kept, _ = draft.cut_tree(prices)
        speed = (1 + sum(reaches(kept, kept.confidence))) / curve.cost(1 + len(kept))
    return kept, speed


def shapes() -> str:
    from akunu_lab.replay.curves import shipped_curves

    lines = [
        "| curve | " + " | ".join(" / ".join(map(str, rates)) for rates in RATES) + " |",
        "|---|" + "---|" * len(RATES),
    ]
    for name, curve in shipped_curves().items():
        cells = []
        for rates in RATES:
            kept, speed = paying_tree(best_tree(rates), curve)
            _, alone = paying_tree(best_tree(rates[:1]), curve)
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

    replies = same = chains = singles = 0
    farthest = 0.0
    for name in TAKEN:
        from_chains, from_rows, _ = largest_differences(
            build_family(name), variant_of(name).kv_bits
        )
        chains += from_chains == 0
        singles += from_rows == 0
        farthest = max(farthest, from_chains, from_rows)
        cells = [tree_cell(Family(name), *cell, NUM_TOKENS) for cell in CELLS]
        replies += len(cells)
        same += sum(cell.difference is None for cell in cells)
        print(f"{name}: {from_chains:.1e}, {from_rows:.1e}; {same} of {replies}", file=sys.stderr)
    summary = (
        f"{len(TAKEN)} configurations take trees; {same} of {replies} replies are the same. Logits "
        f"are bit-equal to those of chains in {chains}, of single rows in {singles}; the largest "
        f"difference is {farthest:.1e}. They are {'; '.join(TAKEN)}."
    )
    lines = [*textwrap.wrap(summary, 120), "", "Verified as chains:", ""]
    reasons: dict[str, list[str]] = {}
    for name in FALL_BACK:
        cell = tree_cell(Family(name), 0.8, 12, NUM_TOKENS)
        outcome = "" if cell.difference is None else f" (differs at token {cell.difference})"
        reasons.setdefault(cell.refusal, []).append(name + outcome)
    for reason, names in reasons.items():
        lines += textwrap.wrap(f"- {reason}: {'; '.join(names)}", 120, subsequent_indent="  ")
    return "\n".join(lines)


def main() -> None:
    options = parser_of(__doc__, "../lab/docs/methods.md").parse_args()
    print_or_write(
        "../lab/docs/methods.md",
        "describe_trees.py",
        lambda: f"{shapes()}\n\n### Families\n\n{NOTE}\n\n{families()}",
        write=options.write,
    )


if __name__ == "__main__":
    main()
