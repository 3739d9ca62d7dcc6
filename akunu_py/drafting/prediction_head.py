"""The drafter that asks a prediction head of the model itself (`--drafter mtp`).

Multi-token prediction: Gloeckle et al. 2024 (arXiv:2404.19737), DeepSeek-V3 (arXiv:2412.19437). A
head guesses the token after the next from the model's own hidden state.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from akunu_py.drafting.draft_model import DraftModelDrafter, TokenModel
from akunu_py.protocols import Hidden, KeptRows
from akunu_py.values.types import Draft

NUM_DRAFT_TOKENS = 4
"""Most heads are trained for one token ahead, and guess each further one from a guess."""


class HeadModel(TokenModel, Protocol):
    """A prediction head that draws tokens, from hidden states that it is handed."""

    @property
    def hidden(self) -> Hidden:
        """Return which hidden states it takes."""

    @property
    def at_once(self) -> int:
        """Return how many tokens one pass guesses; where it is more than one, these are all."""

    def begin_states(self, prompt: Sequence[int], held: int) -> None:
        """Begin a reply; see `Drafter`."""

    def observe_states(self, states: object, start: int, end: int) -> None:
        """Take in hidden states; see `Drafter`."""


@runtime_checkable
class RowReader(Protocol):
    """A head that also reads the keys and values of the target's rows."""

    def use_rows(self, rows: KeptRows) -> None:
        """Read rows here from now on; called before `begin_states`."""


def default_length(head: HeadModel) -> int:
    """Return how many tokens a head drafts at most unless it is told otherwise."""
    return NUM_DRAFT_TOKENS if head.at_once == 1 else head.at_once


class PredictionHeadDrafter(DraftModelDrafter):
    """Drafts with a prediction head, as `DraftModelDrafter` does with a model.

    Raises as `DraftModelDrafter` does.
    """

    name = "mtp"

    def __init__(
        self,
        head: HeadModel,
        *,
        num_draft_tokens: int | None = None,
        rejection: bool = False,
    ) -> None:
        most = default_length(head) if num_draft_tokens is None else num_draft_tokens
        super().__init__(head, num_draft_tokens=most, rejection=rejection)
        self.further_passes = 1 if head.at_once == 1 else 0
        self.hidden = head.hidden
        self._head = head

    def begin_states(self, prompt: Sequence[int], held: int) -> None:
        self._head.begin_states(prompt, held)

    def observe_states(self, states: object, start: int, end: int) -> None:
        self._head.observe_states(states, start, end)

    def use_rows(self, rows: KeptRows) -> None:
        if isinstance(self._head, RowReader):
            self._head.use_rows(rows)

    def extend(self, before: Draft, limit: int) -> Draft:
        """Draft at most min(limit, num_draft_tokens - len(before)) tokens after a chain.

        A head has no states of the model behind the committed text. It guesses each from the one
        before, whoever drafted the tokens, and the guesses get worse.
        """
        return super().extend(before, min(limit, self.num_draft_tokens - len(before)))

    def _first_passes(self, before: Draft) -> int:
        return 1 + self.further_passes * len(before)
