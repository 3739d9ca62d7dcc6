"""Explanations for traces: how much of a drafted tree was verified, and why.

Decoding only keeps references; the sums are computed when somebody asks for them.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from akunu_py.values.decode_stats import TreeCut, TreePart, TreeReason, TreeVerified
from akunu_py.values.draft_trees import reaches, shared_out, subtree
from akunu_py.values.types import Draft


class RowCosts:
    """Costs of extra rows, in plain steps.

    A call with a number of rows returns their price in tokens, `rate` times the cost, and keeps the
    cost in `known`.
    """

    def __init__(self, cost: Callable[[int], float], rate: float) -> None:
        self._cost = cost
        self.rate = rate
        self.known: dict[int, float] = {0: 0.0}

    def __call__(self, rows: int) -> float:
        """Return the price of a number of rows, in tokens."""
        cost = self.known[rows] = self._cost(rows)
        return self.rate * cost


@dataclass(frozen=True, slots=True)
class TreeEstimate:
    """The estimate behind a budget's decision.

    Attributes:
        probabilities: probability of each node, given its parent.
        costs: cost of a number of rows beyond a plain step, in plain steps.
        rate: lambda, in tokens per plain step.
        checking: cost of the comparison with a step in flight beyond one plain step; None if no
            step was in flight.
        path: probabilities of the verified chain, if it was estimated on its own.

    """

    probabilities: Sequence[float]
    costs: Mapping[int, float]
    rate: float
    checking: float | None
    path: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class TreeChoice:
    """A drafted tree and the part that was verified; `estimate` is None without a budget."""

    proposed: Draft
    kept: Draft
    reason: TreeReason
    estimate: TreeEstimate | None = None

    @classmethod
    def weighed(
        cls, proposed: Draft, kept: Draft, gain: float, estimate: TreeEstimate, *, taken: bool
    ) -> "TreeChoice":
        """Return a budget's choice; `taken` says whether the target took the tree."""
        if not taken:
            return cls(proposed, kept, "target", estimate)
        return cls(proposed, kept, "gain" if gain > 0 or not kept.tokens else "probe", estimate)

    @property
    def verified(self) -> TreeVerified:
        """The shape of the verified part."""
        if not self.kept.tokens:
            return "nothing"
        return "chain" if self.kept.is_chain else "tree"

    def explain(self) -> TreeCut:
        """Return what the whole tree and the verified part were expected to bring."""
        found = self.estimate
        return TreeCut(
            nodes=len(self.proposed),
            verified=self.verified,
            reason=self.reason,
            kept=_expected(self.kept, self._kept_probabilities(), found),
            whole=_expected(self.proposed, () if found is None else found.probabilities, found),
            rate=None if found is None else found.rate,
        )

    def _kept_probabilities(self) -> Sequence[float]:
        found = self.estimate
        if found is None or found.path:
            return () if found is None else found.path
        chances = shared_out(self.proposed, found.probabilities)
        return [chances[node] for node in _places(self.proposed, self.kept)]


def _expected(draft: Draft, probabilities: Sequence[float], found: TreeEstimate | None) -> TreePart:
    """Return the tokens and the cost that a draft adds to plain decoding; `found` has costs."""
    if found is None:
        return TreePart(len(draft))
    chances = shared_out(draft, probabilities)
    reach = reaches(draft, chances)
    if found.checking is None:
        return TreePart(len(draft), sum(reach), found.costs[len(draft)])
    # The first level is compared with the step in flight; the pass has one branch's rows.
    tokens, cost = 0.0, found.checking if draft.tokens else 0.0
    for root, parent in enumerate(draft.parents):
        if parent < 0 and chances[root] > 0:
            below = subtree(draft, root)[1:]
            tokens += sum(reach[node] for node in below)
            cost += chances[root] * found.costs[len(below)]
    return TreePart(len(draft), tokens, cost)


def _places(draft: Draft, kept: Draft) -> list[int]:
    """Return the places in a tree of the nodes of its part; siblings differ in their tokens."""
    nodes = {
        (parent, token): node
        for node, (parent, token) in enumerate(zip(draft.parents, draft.tokens, strict=True))
    }
    found: list[int] = []
    for parent, token in zip(kept.parents, kept.tokens, strict=True):
        found.append(nodes[-1 if parent < 0 else found[parent], token])
    return found


class TreeCounts:
    """Counts how the trees of a reply were verified."""

    def __init__(self) -> None:
        self._verified: Counter[TreeVerified] = Counter()
        self._refused = 0

    def add(self, choice: TreeChoice) -> None:
        """Count a tree."""
        self._verified[choice.verified] += 1
        self._refused += choice.reason == "target"

    @property
    def verified(self) -> int:
        """Return the number of passes over trees."""
        return self._verified["tree"]

    def __str__(self) -> str:
        """Return the counts as a sentence, or "" without trees."""
        total = self._verified.total()
        if not total:
            return ""
        words = (
            f"{total} tree{'' if total == 1 else 's'} drafted: verified as trees "
            f"{self._verified['tree']}, as chains {self._verified['chain']}, not at all "
            f"{self._verified['nothing']}"
        )
        if self._refused:
            return f"{words}; {self._refused} of them since the model takes chains"
        return f"{words}; as much as paid"
