"""Draft trees: several continuations where more than one is likely.

A tree is the prefix tree of several drafters' drafts (SpecInfer, Miao et al. 2023,
arXiv:2305.09781, section 3). Each node is followed by the candidates that the target had when the
node's token was last fed (token recycling, Luo et al. 2024, arXiv:2408.08696). The likeliest nodes
come first, so that a budget, or a target that only takes chains, can keep a part.
"""

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import replace

from akunu_lab.drafting.draft_trees import TreeBuilder, reaches
from akunu_py.api import ConfigError, Draft, Drafter, make_drafter

NUM_DRAFT_TOKENS = 16

MAX_TOKENS = 100_000  # most tokens with candidates; the least recently fed are dropped first
_NUM_BRANCHES = 3
_MIN_REACH = 0.02  # least probability of a node that is worth a row on some machine
_DEPTHS = 4  # places in a source's chain that are told apart; the last one includes all beyond
_DECAY = 0.97
_START_TRIES = 2.0
_START_RATES = (0.5, 0.15, 0.05)
"""Prior hit rates of the target's first, second and third candidate."""

_Kind = tuple[str, int]
"""Name of a source and place in its chain, or "candidate" and its rank."""


class _Rates:
    """Hit rates of nodes by kind, with more weight for recent outcomes."""

    def __init__(self) -> None:
        self._cells: dict[_Kind, list[float]] = {}

    def rate(self, kind: _Kind) -> float:
        """Return the hit rate of a kind."""
        right, tries = self._cell(kind)
        return right / tries

    def count(self, kind: _Kind, right: bool) -> None:
        """Add an outcome."""
        cell = self._cell(kind)
        cell[0] = cell[0] * _DECAY + right
        cell[1] = cell[1] * _DECAY + 1.0

    def _cell(self, kind: _Kind) -> list[float]:
        cell = self._cells.get(kind)
        if cell is None:
            name, place = kind
            start = _START_RATES[min(place, 2)] if name == "candidate" else 0.5
            cell = self._cells[kind] = [start * _START_TRIES, _START_TRIES]
        return cell


class TreeDrafter(Drafter):
    """Trees from several drafters and the target's candidates (`--drafter tree`).

    `sources` draft chains or trees; the default ones are lookup and n-grams. The confidence of a
    node is the hit rate of its kind: of its source at its place, or of its rank among candidates. A
    source's own confidence is used where there is one.

    Raises ConfigError for a negative number of draft tokens or of branches.
    """

    name = "tree"

    def __init__(
        self,
        sources: Sequence[Drafter] | None = None,
        *,
        num_draft_tokens: int = NUM_DRAFT_TOKENS,
        num_branches: int = _NUM_BRANCHES,
    ) -> None:
        for name, count in (("num_draft_tokens", num_draft_tokens), ("num_branches", num_branches)):
            if count < 0:
                raise ConfigError(f"{name} is {count}; give 0 or more")
        self.num_draft_tokens = num_draft_tokens
        self.num_branches = num_branches
        self._sources: Sequence[Drafter] = (
            (make_drafter("lookup"), make_drafter("ngram"))
            if sources is None
            else tuple(Drafter.of(source) for source in sources)
        )
        self._learners = [part for part in self._sources if part.reads_candidates]
        # Ordered by when their tokens were last fed.
        self._candidates: dict[int | None, tuple[int, ...]] = {}
        self._rates = _Rates()
        self._last: int | None = None
        self._draft = Draft.empty(self.name)
        self._kinds: list[list[_Kind]] = []

    def observe_candidates(self, rows: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Remember the best candidates after each row's token; later rows replace earlier ones."""
        for learner in self._learners:
            learner.observe_candidates(rows)
        table = self._candidates
        for token, candidates in rows:
            table.pop(token, None)
            table[token] = tuple(candidates[: self.num_branches])
        while len(table) > MAX_TOKENS:
            del table[next(iter(table))]

    def observe(self, tokens: Sequence[int]) -> None:
        if not tokens:
            return
        for siblings, taken in self._draft.walk(tokens):
            for node in siblings:
                for kind in self._kinds[node]:
                    self._rates.count(kind, node == taken)
        self._draft = Draft.empty(self.name)
        self._last = tokens[-1]
        for source in self._sources:
            source.observe(tokens)

    def propose(self, limit: int) -> Draft:
        """Draft the likeliest nodes that are likely enough, up to min(limit, num_draft_tokens)."""
        limit = min(limit, self.num_draft_tokens)
        if limit <= 0 or self._last is None:
            self._draft = Draft.empty(self.name)
            return self._draft
        builder = TreeBuilder()
        kinds: list[list[_Kind]] = []
        match_length = 0
        for source in self._sources:
            draft = source.propose(limit)
            match_length = max(match_length, draft.match_length)
            own = [(draft.source, min(depth, _DEPTHS)) for depth in draft.depths()]
            confidence = draft.confidence or [self._rates.rate(kind) for kind in own]
            for node, kind in zip(builder.graft(draft, confidence), own, strict=True):
                _note(kinds, node, kind)
        self._add_candidates(builder, kinds, limit)
        nodes = builder.best(limit, _MIN_REACH)
        self._kinds = [kinds[node] for node in nodes]
        origins = tuple("+".join(dict.fromkeys(name for name, _ in own)) for own in self._kinds)
        self._draft = replace(builder.draft(nodes, self.name, match_length), origins=origins)
        return self._draft

    def _add_candidates(self, builder: TreeBuilder, kinds: list[list[_Kind]], limit: int) -> None:
        """Add the candidates of largest reach, up to the limit of nodes."""
        rates = [self._rates.rate(("candidate", rank)) for rank in range(self.num_branches)]
        # (-reach, number, parent, token, rank); the number keeps equals in order.
        waiting: list[tuple[float, int, int, int, int]] = []
        counter = itertools.count()

        def offer(node: int, token: int | None, reach: float) -> None:
            for rank, candidate in enumerate(self._candidates.get(token, ())):
                entry = (-reach * rates[rank], next(counter), node, candidate, rank)
                heapq.heappush(waiting, entry)

        offer(-1, self._last, 1.0)
        whole = builder.draft(range(len(builder)), self.name)
        for node, reach in enumerate(reaches(whole, whole.confidence)):
            offer(node, whole.tokens[node], reach)
        added = 0
        while waiting and added < limit and -waiting[0][0] >= _MIN_REACH:
            reach, _, parent, token, rank = heapq.heappop(waiting)
            known = len(builder)
            node = builder.add(parent, token, rates[rank])
            _note(kinds, node, ("candidate", rank))
            if node == known:
                added += 1
                offer(node, token, -reach)


def _note(kinds: list[list[_Kind]], node: int, kind: _Kind) -> None:
    """Add a kind to a node; nodes are numbered in the order in which they were added."""
    if node == len(kinds):
        kinds.append([])
    kinds[node].append(kind)
