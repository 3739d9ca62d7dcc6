"""Trees of a prediction head's guesses, as Medusa verifies them.

At each place of a draft the head tells its k likeliest tokens, and every choice among them is a
path. Medusa (Cai et al. 2024, arXiv:2401.10774, section 2.3.3) verifies the part of this tree that
was likeliest on a calibration set. Here the part is chosen for each draft, by the probabilities of
its own tokens, so it needs no calibration.
"""

import heapq
import itertools
from typing import Any

from akunu_lab.drafting.draft_trees import TreeBuilder
from akunu_py.api import ConfigError, Draft, DrafterSetup, PredictionHeadDrafter

NUM_DRAFT_TOKENS = 16


class HeadTreeDrafter(PredictionHeadDrafter):
    """A `PredictionHeadDrafter` with `num_proposals` tokens, 2 to 8, for each place.

    `num_draft_tokens` limits the nodes of the tree. A place has the same tokens behind each of
    those before it; a head whose guesses depend on them, unlike Medusa's, guessed behind the first.

    Raises ConfigError as `PredictionHeadDrafter` does.
    """

    def __init__(self, *head: Any, num_proposals: int, **settings: Any) -> None:
        super().__init__(*head, **settings)
        self.num_proposals = num_proposals

    def propose(self, limit: int) -> Draft:
        limit = min(limit, self.num_draft_tokens)
        places = [((drawn.token, drawn.probability), *drawn.others) for drawn in self._drawn(limit)]
        builder, counter = TreeBuilder(), itertools.count()
        # (-reach, number, reach of the parent, parent, place, rank); numbers keep equals in order.
        waiting: list[tuple[float, int, float, int, int, int]] = []

        def offer(parent: int, above: float, place: int, rank: int) -> None:
            if place < len(places) and rank < len(places[place]):
                reach = above * places[place][rank][1]
                heapq.heappush(waiting, (-reach, next(counter), above, parent, place, rank))

        offer(-1, 1.0, 0, 0)
        while waiting and len(builder) < limit:
            reach, _, above, parent, place, rank = heapq.heappop(waiting)
            if not reach:
                break
            node = builder.add(parent, *places[place][rank])
            offer(parent, above, place, rank + 1)
            offer(node, -reach, place + 1, 0)
        return builder.draft(range(len(builder)), self.name)


def check_head_tree(setup: DrafterSetup) -> None:
    """Raise ConfigError for a configuration that trees of a head cannot follow."""
    if setup.options.num_proposals > 1 and setup.rejection:
        raise ConfigError(
            "draft_sampling is 'rejection', and trees of a prediction head are verified by match; "
            "leave it or num_proposals out"
        )
