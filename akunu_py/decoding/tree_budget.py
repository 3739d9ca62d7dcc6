"""The part of a drafted tree that pays.

The rule of `akunu_py.decoding.budget` applied to trees: the nodes are taken in the order of their
reach, as many as maximise E[tokens] - lambda cost. Often they all lie on one path, a chain.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from akunu_py.values.draft_trees import reaches, scale_siblings, subtree
from akunu_py.values.types import Draft

Price = Callable[[int], float]
"""Price, in tokens, of a number of rows beyond a plain step: lambda times their cost."""


@dataclass(frozen=True, slots=True)
class PayingPart:
    """Nodes to verify, in order, and their gain: expected tokens less the price."""

    nodes: tuple[int, ...]
    gain: float


def paying_part(
    draft: Draft,
    probabilities: Sequence[float],
    price: Price,
    *,
    in_flight: bool,
    checking: float = 0.0,
) -> PayingPart:
    """Return the part with the largest gain over a plain step; empty if nothing pays.

    `probabilities` are those of each node given its parent. With a step in flight, its result is
    compared with the children of the root, at the price `checking`; the pass then has the row of
    the right child and the rows kept below it. A child of the root with nothing worth verifying
    below it is left out: it would only end the pipeline.
    """
    scaled = scale_siblings(draft, probabilities)
    reach = reaches(draft, scaled)
    if not in_flight:
        return _best(range(len(draft)), reach, price)
    kept: list[int] = []
    gain = -checking
    for root, parent in enumerate(draft.parents):
        if parent >= 0 or scaled[root] <= 0:
            continue
        below = subtree(draft, root)[1:]
        best = _best(below, [reach[node] / scaled[root] for node in below], price)
        if best.nodes:
            kept += [root, *best.nodes]
            gain += scaled[root] * best.gain
    if gain <= 0:
        return PayingPart((), 0.0)
    return PayingPart(tuple(sorted(kept)), gain)


def _best(nodes: Sequence[int], reach: Sequence[float], price: Price) -> PayingPart:
    # A node follows its parent: its reach is never larger, and the sort is stable.
    order = sorted(range(len(nodes)), key=lambda place: -reach[place])
    tokens, size, most = 0.0, 0, 0.0
    for count, place in enumerate(order, start=1):
        tokens += reach[place]
        gain = tokens - price(count)
        if gain > most:
            size, most = count, gain
    return PayingPart(tuple(sorted(nodes[place] for place in order[:size])), most)
