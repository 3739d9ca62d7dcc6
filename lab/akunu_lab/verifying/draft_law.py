"""The law of a draft: the distributions and draws that rejection sampling needs besides the tokens.

The output follows the target's distribution only if a drafter keeps these rules:

- A draw comes from the distribution given for it, conditional on the tokens before it on its path.
- Whether a token is drawn at a position may depend on anything known before the draw: the history,
  the draft so far, q at the position. It must not depend on the drawn token or on anything computed
  from it. Dropping an unlikely token after its draw, or cutting a draft to its best length, biases
  the output.
- Draws are fresh. If a drafter remembers anything of a discarded draft (a running entropy, say), it
  must not use the noise of a discarded token again at that position. Keying the noise by the
  beginning of the draft as well as by position is enough.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from akunu_lab.verifying.rejection import Rows
from akunu_py.api import ContractError, Draft, Drafter


class DrawsTrees:
    """What a drafter that draws trees says besides `Drafter.draft_probabilities`.

    A drafter of another class may have some of these methods as well.
    """

    def draw_order(self) -> Sequence[int] | None:
        """Return the node of each draw, in the order drawn; a token drawn twice appears twice.

        Siblings are tried in this order, and `draft_probabilities` has a row for each draw. So this
        also serves draws from different distributions: several drafters, or draws without
        replacement, whose q excludes the tokens drawn before. None stands for one draw a node.
        """
        return None

    def draw_counts(self) -> Sequence[int] | None:
        """Return how often each node was drawn, at least once; None where equal draws are apart.

        Siblings must be independent draws from one distribution; they are tried in random order,
        each as often as it was drawn.
        """
        return None

    def without_branches(self, draft: Draft) -> Draft:
        """Return a chain of the last draft, a tree, chosen independently of its tokens.

        Called for a target that takes no trees, even if the tree is a chain because its draws were
        equal. Afterwards probabilities and counts describe the chain.
        """
        return draft


def asked(drafter: object, method: str) -> Any:
    """Return a method of `DrawsTrees`, of a drafter that has it or not."""
    return getattr(drafter, method, None) or getattr(DrawsTrees(), method)


@dataclass(frozen=True, slots=True)
class DraftLaw:
    """The distributions and draws of a draft, checked against its nodes."""

    rows: Rows | None
    """Distributions [n, vocab]; None if all tokens were certain."""

    draws: tuple[tuple[int, int], ...]
    """(node, row) of each draw."""

    ordered: bool
    """Whether `draws` is in the order of drawing; if not, siblings are tried in random order."""

    def by_parent(self, draft: Draft) -> dict[int, list[tuple[int, int]]]:
        """Return the draws after each node; -1 stands for the last committed token."""
        found: dict[int, list[tuple[int, int]]] = {}
        for draw in self.draws:
            found.setdefault(draft.parents[draw[0]], []).append(draw)
        return found


def certain(draft: Draft) -> DraftLaw:
    """Return the law of a draft whose tokens follow from the history: one-hot q."""
    return DraftLaw(None, tuple((node, node) for node in range(len(draft))), ordered=True)


def draft_law(drafter: Drafter, draft: Draft) -> DraftLaw:
    """Return the law of a drafter's last draft.

    Raises ContractError if the draws do not match the draft or the rows.
    """
    size = len(draft)
    rows = Drafter.of(drafter).draft_probabilities() if size else None
    if rows is None:
        return certain(draft)
    draws: tuple[tuple[int, int], ...]
    order, counts = asked(drafter, "draw_order")(), asked(drafter, "draw_counts")()
    if order is not None:
        draws = tuple((node, row) for row, node in enumerate(order))
        nodes = sorted({node for node, _ in draws})
        fits = nodes == list(range(size))
    elif counts is not None:
        fits = len(counts) == size and all(count >= 1 for count in counts)
        draws = tuple((node, node) for node, count in enumerate(counts) for _ in range(count))
    else:
        draws, fits = tuple((node, node) for node in range(size)), True
    needed = size if order is None else len(draws)
    if not fits or rows.ndim != 2 or len(rows) != needed:
        raise ContractError(
            f"the drafter {draft.source!r} drafted {size} tokens and gave {len(draws)} draws of "
            f"them and probabilities of shape {rows.shape}; every token needs a draw, and every "
            "draw a row"
        )
    return DraftLaw(rows, draws, ordered=order is not None)
