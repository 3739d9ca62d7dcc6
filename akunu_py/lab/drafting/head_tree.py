"""Trees of a prediction head's guesses, as Medusa verifies them.

At each place of a draft the head tells its k likeliest tokens, and every choice among them is a
path. Medusa (Cai et al. 2024, arXiv:2401.10774, section 2.3.3) verifies the part of this tree that
was likeliest on a calibration set. Here the part is chosen for each draft, by the probabilities of
its own tokens, so it needs no calibration.
"""

import heapq
import itertools

from akunu_py.drafting.prediction_head import HeadModel, PredictionHeadDrafter
from akunu_py.system.errors import ConfigError
from akunu_py.values.draft_trees import TreeBuilder
from akunu_py.values.types import Draft, GenerationConfig

NUM_DRAFT_TOKENS = 16


class HeadTreeDrafter(PredictionHeadDrafter):
    """A `PredictionHeadDrafter` with `num_proposals` tokens, 2 to 8, for each place.

    `num_draft_tokens` limits the nodes of the tree. A place has the same tokens behind each of
    those before it; a head whose guesses depend on them, unlike Medusa's, guessed behind the first.

    Raises ConfigError as `PredictionHeadDrafter` does.
    """

    def __init__(self, head: HeadModel, *, num_proposals: int, num_draft_tokens: int) -> None:
        super().__init__(head, num_draft_tokens=num_draft_tokens)
        self.num_proposals = num_proposals

    def propose(self, limit: int) -> Draft:
        limit = min(limit, self.num_draft_tokens)
        places = [((drawn.token, drawn.probability), *drawn.others) for drawn in self._drawn(limit)]
        builder, counter = TreeBuilder(), itertools.count()
        # (-reach, number, parent, place, rank): the children of a node one after another, so that
        # the next in rank is offered when its likelier sibling is taken.
        waiting = [(-places[0][0][1], next(counter), -1, 0, 0)] if places else []
        while waiting and len(builder) < limit:
            reach, _, parent, place, rank = heapq.heappop(waiting)
            token, q = places[place][rank]
            if q <= 0:
                continue
            node = builder.add(parent, token, q)
            for at, next_place, next_rank, base in (
                (parent, place, rank + 1, reach / q),
                (node, place + 1, 0, reach),
            ):
                if next_place < len(places) and next_rank < len(places[next_place]):
                    odds = base * places[next_place][next_rank][1]
                    heapq.heappush(waiting, (odds, next(counter), at, next_place, next_rank))
        return builder.draft(range(len(builder)), self.name)


def check_head_tree(config: GenerationConfig, _num_draft_tokens: int) -> None:
    """Raise ConfigError for a configuration that trees of a head cannot follow."""
    if config.num_proposals > 1 and config.draft_sampling == "rejection":
        raise ConfigError(
            "draft_sampling is 'rejection', and trees of a prediction head are verified by match; "
            "leave it or num_proposals out"
        )
