"""How a draft was drawn: what rejection sampling must know of a drafter, besides the tokens.

The law of the output is the target's only if what a drafter says here is true:

- A draw comes from the distribution given for it, given the tokens before it on its path.
- Whether a token is drawn at a position may depend on what is known before the draw: the history,
  the draft so far, q there. It must not depend on the token drawn there or on anything computed
  from it. Dropping an unlikely token after it was drawn, or cutting a whole draft to its best
  length, biases the output.
- Draws are fresh: the noise that drew a token which was then discarded is not used again at that
  position by a drafter that remembers anything of the discarded draft (a running entropy, say).
  Keying the noise by where the draft began as well as by position is enough.
"""

from dataclasses import dataclass

from akunu_py.errors import ContractError
from akunu_py.lab.verifying.rejection import Rows
from akunu_py.protocols import CountedDraws, Drafter, OrderedDraws, SampledDrafter
from akunu_py.types import Draft


@dataclass(frozen=True, slots=True)
class DraftLaw:
    """How a draft was drawn, checked against it.

    Attributes:
        rows: distributions [n, vocab], or None where all tokens were certain.
        draws: (node, its row) of each draw.
        ordered: whether `draws` is the order drawn; if not, siblings are tried in random order.

    """

    rows: Rows | None
    draws: tuple[tuple[int, int], ...]
    ordered: bool

    def by_parent(self, draft: Draft) -> dict[int, list[tuple[int, int]]]:
        """Return the draws that follow each node, -1 the last committed token."""
        found: dict[int, list[tuple[int, int]]] = {}
        for draw in self.draws:
            found.setdefault(draft.parents[draw[0]], []).append(draw)
        return found


def certain(draft: Draft) -> DraftLaw:
    """Return the law of a draft whose tokens are functions of the history: one-hot q."""
    return DraftLaw(None, tuple((node, node) for node in range(len(draft))), ordered=True)


def draft_law(drafter: Drafter, draft: Draft) -> DraftLaw:
    """Return how a drafter's last draft was drawn.

    A drafter that is no `SampledDrafter` draws nothing: its tokens are functions of the history.

    Raises ContractError where draws and draft, or draws and rows, do not fit.
    """
    size = len(draft)
    if not size or not isinstance(drafter, SampledDrafter):
        return certain(draft)
    rows = drafter.draft_probabilities()
    if rows is None:
        return certain(draft)
    draws: tuple[tuple[int, int], ...]
    ordered = isinstance(drafter, OrderedDraws)
    if isinstance(drafter, OrderedDraws):
        draws = tuple((node, row) for row, node in enumerate(drafter.draw_order()))
        nodes = sorted({node for node, _ in draws})
        fits = nodes == list(range(size))
    elif isinstance(drafter, CountedDraws):
        counts = drafter.draw_counts()
        fits = len(counts) == size and all(count >= 1 for count in counts)
        draws = tuple((node, node) for node, count in enumerate(counts) for _ in range(count))
    else:
        draws, fits = tuple((node, node) for node in range(size)), True
    needed = len(draws) if ordered else size
    if not fits or rows.ndim != 2 or len(rows) != needed:
        raise ContractError(
            f"the drafter {draft.source!r} drafted {size} tokens and gave {len(draws)} draws of "
            f"them and probabilities of shape {rows.shape}; every token needs a draw, and every "
            "draw a row"
        )
    return DraftLaw(rows, draws, ordered)
