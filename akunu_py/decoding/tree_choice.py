"""Why a drafted tree was verified as it was: for whoever reads a trace, told when asked.

While decoding only references are kept; the sums are made where somebody wants them.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from akunu_py.decode_stats import TreeCut, TreePart, TreeReason, TreeVerified
from akunu_py.draft_trees import reaches, shared_out, subtree
from akunu_py.types import Draft


class RowCosts:
    """What so many rows more cost, in plain steps, and what that time would bring elsewhere.

    Called with a number of rows it returns the price in tokens, `rate` times the cost, and keeps
    the cost.
    """

    def __init__(self, cost: Callable[[int], float], rate: float) -> None:
        self._cost = cost
        self.rate = rate
        self.known: dict[int, float] = {0: 0.0}

    def __call__(self, rows: int) -> float:
        """Return the price of so many rows."""
        cost = self.known[rows] = self._cost(rows)
        return self.rate * cost


@dataclass(frozen=True, slots=True)
class TreeEstimate:
    """What a budget went by.

    Attributes:
        probabilities: of the nodes, given their parents.
        costs: of rows beyond those of a plain step, in plain steps.
        rate: tokens that the time of a plain step brings elsewhere.
        checking: plain steps that a comparison with a step in flight costs more than one; None
            where none was in flight.
        path: probabilities of what was verified, where that was weighed by itself, as a chain.

    """

    probabilities: Sequence[float]
    costs: Mapping[int, float]
    rate: float
    checking: float | None
    path: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class TreeChoice:
    """A drafted tree and what of it was verified; `estimate` is None where nothing was weighed."""

    proposed: Draft
    kept: Draft
    reason: TreeReason
    estimate: TreeEstimate | None = None

    @classmethod
    def weighed(
        cls, proposed: Draft, kept: Draft, gain: float, estimate: TreeEstimate, *, taken: bool
    ) -> "TreeChoice":
        """Return a budget's choice: `gain` is what it expected, `taken` whether trees may be."""
        if not taken:
            return cls(proposed, kept, "target", estimate)
        return cls(proposed, kept, "gain" if gain > 0 or not kept.tokens else "probe", estimate)

    @property
    def verified(self) -> TreeVerified:
        """What was verified."""
        if not self.kept.tokens:
            return "nothing"
        return "chain" if self.kept.is_chain else "tree"

    def explain(self) -> TreeCut:
        """Return what all of the tree, and what is left of it, was expected to bring."""
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
    """Return what verifying a draft brings beyond plain decoding; `found` has what rows cost."""
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
    """Return which nodes of a tree those of a part of it are; siblings differ in their tokens."""
    nodes = {
        (parent, token): node
        for node, (parent, token) in enumerate(zip(draft.parents, draft.tokens, strict=True))
    }
    found: list[int] = []
    for parent, token in zip(kept.parents, kept.tokens, strict=True):
        found.append(nodes[-1 if parent < 0 else found[parent], token])
    return found


class TreeCounts:
    """What the trees of a reply were verified as."""

    def __init__(self) -> None:
        self._verified: Counter[TreeVerified] = Counter()
        self._refused = 0

    def add(self, choice: TreeChoice) -> None:
        """Count one."""
        self._verified[choice.verified] += 1
        self._refused += choice.reason == "target"

    def __str__(self) -> str:
        """Return them as a sentence, "" where there was none."""
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
