"""Several proposals of a draft model for each position: a tree with a trunk.

At each position k tokens are drawn from the same row of the draft model, so the further ones cost
no pass. The draft continues only after the first of them, along the trunk. With rejection this is
iterative speculative sampling with k draws at a position (SpecInfer, Miao et al. 2023,
arXiv:2305.09781, algorithm 2).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akunu_lab.drafting.draft_trees import TreeDraft
from akunu_lab.drafting.shaped import ShapedDrafter
from akunu_py.api import ConfigError, Draft, GenerationConfig

MAX_PROPOSALS = 8


class ProposalsDrafter(ShapedDrafter):
    """A `ShapedDrafter` with `num_proposals` tokens, 2 to 8, for each position.

    `num_draft_tokens` limits the whole tree: its depth is that number over `num_proposals`, at
    least 1.

    Coupled proposals are the k best tokens under q and the target's own noise. The target's choice
    is compared with each, so the output is the stream of plain decoding. With `rejection` proposals
    are independent draws; equal draws share a node, which is tried as often as it was drawn
    (`draw_counts`). At temperature 0 they are the likeliest tokens, which are not draws from q
    (`draft_probabilities` is None).

    Raises ConfigError as `ShapedDrafter` does, and for proposals out of range.
    """

    def __init__(self, *model: Any, num_proposals: int, **settings: Any) -> None:
        if not 2 <= num_proposals <= MAX_PROPOSALS:
            raise ConfigError(f"num_proposals is {num_proposals}; give 1 to {MAX_PROPOSALS}")
        super().__init__(*model, **settings)
        self.num_proposals = num_proposals
        self._certain = False
        self._trunk: list[int] = []
        # Depth and number of draws of each node of the last draft.
        self._depths: list[int] = []
        self._counts: list[int] = []

    def begin_reply(
        self, config: GenerationConfig, seed: int, check: Callable[[], None] | None = None
    ) -> None:
        """Draw with these transforms and this seed; `check` may raise while the prompt is fed."""
        super().begin_reply(config, seed, check)
        if self._sampling is not None:
            self._certain = self._sampling.config.temperature == 0

    def propose(self, limit: int) -> Draft:
        limit = min(limit, self.num_draft_tokens)
        width = max(1, min(self.num_proposals, limit))
        tokens: list[int] = []
        parents: list[int] = []
        confidence: list[float] = []
        self._trunk, self._depths, self._counts = [], [], []
        parent = -1
        # Draws are always kept; likeliest tokens only if their probability is above 0.
        independent = self._rejection and not self._certain
        for depth, drawn in enumerate(self._drawn(limit // width)):
            first = len(tokens)
            nodes: dict[int, int] = {}
            for token, q in ((drawn.token, drawn.probability), *drawn.others[: width - 1]):
                if token in nodes:
                    self._counts[nodes[token]] += 1
                elif q > 0 or not nodes or independent:
                    nodes[token] = len(tokens)
                    tokens.append(token)
                    parents.append(parent)
                    confidence.append(q)
                    self._depths.append(depth)
                    self._counts.append(1)
            self._trunk.append(first)
            parent = first
        odds = () if self._rejection else tuple(confidence)
        return TreeDraft(
            tuple(tokens), tuple(parents), self.name, 0, odds,
            length=self._length_trace, drawn=len(tokens),
        )  # fmt: skip

    def draft_probabilities(self) -> NDArray[np.float64] | None:
        """Return q [n, vocab] of the nodes of the last draft; None at temperature 0.

        Raises ContractError for coupled draws.
        """
        rows = super().draft_probabilities()
        return None if rows is None or self._certain else rows[self._depths]

    def draw_counts(self) -> tuple[int, ...]:
        """Return how often each node was drawn."""
        return tuple(self._counts)

    def without_branches(self, draft: Draft) -> Draft:
        """Return the trunk of the last draft, which replaces the draft.

        The trunk has the first draw at each position, so its tokens are still draws from q; the
        tokens of the likeliest path would not be.
        """
        trunk = self._trunk
        self._depths = list(range(len(trunk)))
        self._counts = [1] * len(trunk)
        self._trunk = list(self._depths)
        odds = tuple(draft.confidence[node] for node in trunk) if draft.confidence else ()
        tokens = (draft.tokens[node] for node in trunk)
        return Draft.chain(tokens, draft.source, 0, odds, length=draft.length, drawn=len(trunk))
