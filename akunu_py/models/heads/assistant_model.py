"""Gemma 4's assistant over the target's rows, as a model that draws tokens."""

from collections.abc import Iterator, Sequence
from typing import cast

import mlx.core as mx

from akunu_py.drafting.draft_model import DrawnToken, DrawSettings, GoesOn, Guess
from akunu_py.models.heads.assistant import Assistant, Kept
from akunu_py.models.heads.token_model import HeadDrawing, StateQueue
from akunu_py.protocols import KeptRows
from akunu_py.system.errors import ContractError


class AssistantTokenModel(HeadDrawing[Assistant]):
    """Draws continuations of a text with Gemma 4's assistant.

    The assistant has no cache: a draw begins with the target's state of the row before the last
    token's, and reads the keys and values of the rows up to there in the target's caches. So
    nothing has to be rolled back, and nothing is read with a prompt. Where the target reuses all
    rows of a prompt, that state is not known, and the first step of the reply drafts nothing.

    `vocabulary_size` is the number of the target's logits.
    """

    def __init__(self, assistant: Assistant, *, context: int, vocabulary_size: int) -> None:
        self._head = assistant
        self._rows: KeptRows | None = None
        self._states = StateQueue()
        # Place of the row whose state comes next.
        self._next_state = 0
        self._own_state = mx.zeros((1, 0, assistant.width))
        # What a draw attends to; empty between draws, since the target writes into its arrays.
        self._kept: Kept = {}
        size = min(vocabulary_size, int(assistant.embed_tokens.weight.shape[0]))
        super().__init__(context=context, common=size, target_size=vocabulary_size)

    def use_rows(self, rows: KeptRows) -> None:
        """Read the target's rows here; see `akunu_py.drafting.prediction_head.RowReader`."""
        self._rows = rows

    def begin_states(self, prompt: Sequence[int], held: int) -> None:
        self._states = StateQueue()
        self._next_state = held
        self._text = list(prompt)

    def observe_states(self, states: object, start: int, end: int) -> None:
        """Take in states, of which a draw needs the last, or the last but one."""
        if not isinstance(states, mx.array):
            raise ContractError(f"the target's states are a {type(states).__name__}, not an array")
        self._states.add(states, start, end)
        self._next_state += end - start
        # With a step in flight, the last one is that of the text's last token.
        self._states.drop(max(0, len(self._states) - 2))

    def beginning(self, prompt: Sequence[int], sampling: DrawSettings) -> Iterator[None]:
        if self._text != list(prompt):
            # The target hands over no states: nothing is drawn.
            self.begin_states(prompt, 0)
        self._begin(prompt, sampling)
        return iter(())

    def draw(
        self,
        limit: int,
        goes_on: GoesOn | None = None,
        guess: Guess | None = None,
        *,
        after: Sequence[int] = (),
    ) -> list[DrawnToken]:
        try:
            return super().draw(limit, goes_on, guess, after=after)
        finally:
            self._kept = {}

    def close(self) -> None:
        self._rows = None
        self._states = StateQueue()
        super().close()

    def _go_back(self) -> bool:
        """Find the state and the rows that a draw begins with; return whether they are known."""
        end = len(self._text) - 1
        known = end - (self._next_state - len(self._states))
        if self._rows is None or not 0 < known <= len(self._states):
            return False
        self._own_state = self._states.first(known)[:, -1:]
        kept = {}
        for kind, source in self._open_head.sources.items():
            rows = self._rows.read(source.cache, end, source.most)
            if rows is None:
                return False
            kept[kind] = cast("tuple[mx.array, mx.array]", rows)
        self._kept = kept
        return True

    def _catch_up(self, after: Sequence[int], guessed: Sequence[int] = ()) -> mx.array:  # noqa: ARG002
        logits = self._feed(mx.array(self._text[-1:]))
        for token in after:
            logits = self._feed(mx.array([token]))
        return logits

    def _feed(self, tokens: mx.array) -> mx.array:
        self.num_passes += 1
        assistant = self._open_head
        states = assistant(self._own_state, tokens[None], self._kept, len(self._text) - 1)
        self._own_state = assistant.state(states)
        return assistant.logits(states)[..., : self.common]
