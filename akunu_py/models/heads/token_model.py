"""Heads that draw tokens: one over its own cache, and one that guesses blocks."""

import contextlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar, cast

import mlx.core as mx
from mlx import nn

from akunu_py.drafting.draft_model import DrawnToken, DrawSettings, GoesOn, Guess
from akunu_py.models.cached_rows import PREFILL_CHUNK
from akunu_py.models.drawing import DrawingModel
from akunu_py.models.heads.head import BlockHead, CachedHead, DraftOutput, WalkStep
from akunu_py.models.rollback.caches import RollbackCaches
from akunu_py.protocols import Hidden
from akunu_py.sampling.draft_sampler import Draw
from akunu_py.system.errors import ConfigError, ContractError


class StateQueue:
    """Hidden states in order, as rows of the arrays in which they came."""

    def __init__(self) -> None:
        self._pieces: deque[tuple[mx.array, int, int]] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, states: mx.array, start: int, end: int) -> None:
        """Add rows `start` to before `end` of states [1, rows, width]."""
        # Not cut yet: the array may still be computed, and may be read by another thread.
        self._pieces.append((states, start, end))
        self._count += end - start

    def first(self, count: int) -> mx.array:
        """Return the first `count` states, [1, count, width]."""
        found: list[mx.array] = []
        for states, start, end in self._pieces:
            if count <= 0:
                break
            taken = min(count, end - start)
            found.append(states[:, start : start + taken])
            count -= taken
        return mx.concatenate(found, axis=1)

    def drop(self, count: int) -> None:
        """Drop the first `count` states."""
        self._count -= count
        while count:
            states, start, end = self._pieces.popleft()
            taken = min(count, end - start)
            if start + taken < end:
                self._pieces.appendleft((states, start + taken, end))
            count -= taken

    def keep(self, count: int) -> None:
        """Drop all but the first `count` states."""
        while self._count > max(0, count):
            states, start, end = self._pieces.pop()
            taken = min(self._count - max(0, count), end - start)
            if start < end - taken:
                self._pieces.append((states, start, end - taken))
            self._count -= taken


_Head = TypeVar("_Head", bound=nn.Module)


class HeadDrawing(DrawingModel, Generic[_Head]):
    """Draws with a prediction head, until it is closed."""

    what: ClassVar[str] = "the prediction head"
    at_once = 1
    _head: _Head | None

    @property
    def hidden(self) -> Hidden:
        takes: Hidden = self._open_head.takes
        return takes

    def close(self) -> None:
        self._head = None
        super().close()

    @property
    def _open_head(self) -> _Head:
        if self._head is None:
            raise ContractError(f"{self.what} was closed")
        return self._head


class HeadTokenModel(HeadDrawing[CachedHead]):
    """Draws continuations of a text with a prediction head of the target itself.

    A slot of the head's cache is a pair: the target's state of row i and token i + 1. So the head
    is one token behind the target, and pairs are fed as the target hands over its states: those of
    a prompt in passes beside the target's, those of committed tokens with the next draw. A draw
    feeds the pair of the last token, whose output predicts the first token to draw. For further
    tokens the head's own state takes the place of the target's. The slots of a draw, and of the
    pair it begins with, are dropped before the next one: a pair has the target's state.

    Slots stay from reply to reply as far as the text is the same. Where the target goes back to a
    row among them, the state of that row is no longer known, so its slot stays as it is, with the
    token that used to follow. Where the target reuses rows whose states the head never saw, the
    head begins with an empty cache: attention is relative, so the head only sees less text.

    `vocabulary_size` is the number of the target's logits.

    Raises ConfigError for a head whose caches cannot drop slots.
    """

    def __init__(self, head: CachedHead, *, context: int, vocabulary_size: int) -> None:
        self._head = head
        self._caches: list[Any] = []
        # False within a change, and after an interrupted one.
        self._settled = True
        self._begin_slots(0)
        if not self._rollback.by_length:
            raise ConfigError(
                "the prediction head keeps its context in a cache that cannot drop rows; leave "
                "heads out"
            )
        state, token = mx.zeros((1, 1, head.width)), mx.zeros((1, 1), dtype=mx.int32)
        probe = head.logits(head(state, token, head.make_cache()))
        # Evaluated here so that no array stays lazy on the loading thread's stream.
        mx.eval(probe)
        size = min(vocabulary_size, int(probe.shape[-1]))
        super().__init__(
            context=context, common=size, target_size=vocabulary_size, drawable=_guessed(head, size)
        )

    def begin_states(self, prompt: Sequence[int], held: int) -> None:
        # Otherwise the target's rows come from another text than the head's slots.
        same = self._text[:held] == list(prompt[:held])
        if not (same and self._keep_states(held) and self._next_state == held):
            self._begin_slots(held)
        self._text = list(prompt)

    def observe_states(self, states: object, start: int, end: int) -> None:
        """Take in states; pairs are fed once there are enough of them for a pass."""
        if not isinstance(states, mx.array):
            raise ContractError(f"the target's states are a {type(states).__name__}, not an array")
        if not self._settled:
            return
        self._states.add(states, start, end)
        with mx.stream(self._stream):
            while self._num_pairs > PREFILL_CHUNK:
                self._feed_pairs(PREFILL_CHUNK)

    def beginning(self, prompt: Sequence[int], sampling: DrawSettings) -> Iterator[None]:
        """Feed the pairs of a prompt that are not fed yet, except the last."""
        if self._text != list(prompt):
            # The target hands over no states: nothing is drawn.
            self._begin_slots(0)
        self._begin(prompt, sampling)
        if self._settled and self._num_pairs > 1:
            with mx.stream(self._stream):
                self._feed_pairs(self._num_pairs - 1)
            yield

    def close(self) -> None:
        self._caches = []
        self._states = StateQueue()
        super().close()

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        before, self._settled = self._settled, False
        yield
        self._settled = before

    def _go_back(self) -> bool:
        if not self._settled:
            return False
        self._drop(self._num_drawn)
        return self._num_pairs > 0 and self._next_state >= len(self._text) - 1

    def _catch_up(self, after: Sequence[int], guessed: Sequence[int] = ()) -> mx.array:  # noqa: ARG002
        self._own_state = self._run(*self._last_pairs())[:, -1:]
        logits = self._logits(self._own_state)
        for token in after:
            logits = self._feed(mx.array([token]))
        return logits

    def _feed(self, tokens: mx.array) -> mx.array:
        self._num_drawn += 1
        self._own_state = self._run(self._own_state, tokens)
        return self._logits(self._own_state)

    def _drop(self, count: int) -> None:
        with self._changing():
            self._rollback.drop(count)
            self._num_drawn -= count

    @property
    def _next_pair(self) -> int:
        """Place of the state of the first pair that is not in the cache for good."""
        return self._first_state + self._num_slots

    @property
    def _next_state(self) -> int:
        """Place of the state that the target hands over next."""
        return self._next_pair + len(self._states)

    @property
    def _num_pairs(self) -> int:
        """Number of states that are waiting and whose next token is known."""
        return min(len(self._states), len(self._text) - 1 - self._next_pair)

    def _begin_slots(self, first: int) -> None:
        """Begin with an empty cache, at the state of row `first`."""
        self._caches = self._open_head.make_cache()
        self._rollback = RollbackCaches(self._caches)
        self._first_state = first
        # Slots of pairs of the text, and behind them those of the last draw.
        self._num_slots = self._num_drawn = 0
        # States from `_next_pair` on; that of the last pair stays, since each draw feeds it.
        self._states = StateQueue()
        # The state that the last pass of a draw returned.
        self._own_state = mx.zeros((1, 0, self._open_head.width))
        self._settled = True

    def _keep_states(self, count: int) -> bool:
        """Keep the first `count` states of the text and their slots; return False without any."""
        if not self._settled or count <= self._first_state:
            return False
        self._drop(self._num_drawn)
        surplus = max(0, self._next_pair - count)
        with self._changing():
            self._rollback.drop(surplus)
            self._num_slots -= surplus
        self._states.keep(count - self._next_pair)
        return True

    def _pairs(self, count: int) -> tuple[mx.array, mx.array]:
        """Return the next `count` pairs: states [1, count, width] and token ids [count]."""
        start = self._next_pair + 1
        return self._states.first(count), mx.array(self._text[start : start + count])

    def _last_pairs(self) -> tuple[mx.array, mx.array]:
        """Return the pairs that a draw begins with; the slot of the last is dropped after it."""
        while self._num_pairs > PREFILL_CHUNK:
            self._feed_pairs(PREFILL_CHUNK)
        count = self._num_pairs
        pairs = self._pairs(count)
        self._settle(count - 1)
        self._num_drawn = 1
        return pairs

    def _feed_pairs(self, count: int) -> None:
        """Feed pairs for good, and wait for them."""
        self._drop(self._num_drawn)
        with self._changing():
            # The states are dropped: of a head with one layer only keys and values are computed.
            self._run(*self._pairs(count))
            mx.eval([cache.state for cache in self._caches])
            self._settle(count)

    def _settle(self, count: int) -> None:
        """Count the slots of the next pairs as those of the text."""
        self._num_slots += count
        self._states.drop(count)

    def _run(self, states: mx.array, tokens: mx.array) -> mx.array:
        """Run a pass over pairs; return the head's states [1, n, width]."""
        self.num_passes += 1
        found: mx.array = self._open_head(states, tokens[None], self._caches)
        return found

    def _logits(self, states: mx.array) -> mx.array:
        return self._open_head.logits(states)[..., : self.common]


def _guessed(head: CachedHead, size: int) -> mx.array | None:
    """Return the ids below `size` that a head guesses, int32 [n]; None for all."""
    output = head.get("lm_head")
    if not isinstance(output, DraftOutput):
        return None
    ids: list[int] = output.ids.tolist()  # type: ignore[assignment]
    guessed = mx.array([token for token in ids if token < size], dtype=mx.int32)
    mx.eval(guessed)
    return guessed


class BlockTokenModel(HeadTokenModel):
    """Draws with a head that guesses a block of tokens in one pass.

    Its cache, if it has one, has the target's states alone, and a block leaves nothing in it. Each
    token is drawn by its own row of the block. What a head estimates of the token's chance takes
    the place of its probability.
    """

    def __init__(self, head: BlockHead, *, context: int, vocabulary_size: int) -> None:
        super().__init__(head, context=context, vocabulary_size=vocabulary_size)
        self.at_once = head.num_guessed
        # Rows that a draw may need, the way through them, and the chance of the last one's token.
        self._limit = 0
        self._step: WalkStep = _not_begun
        self._chance: mx.array | None = None

    def draw(
        self,
        limit: int,
        goes_on: GoesOn | None = None,
        guess: Guess | None = None,
        *,
        after: Sequence[int] = (),
    ) -> list[DrawnToken]:
        """Draw tokens to follow the text and `after`, which take places of the block."""
        self._limit = min(limit, self.at_once - len(after))
        return super().draw(self._limit, goes_on, guess, after=after)

    def close(self) -> None:
        self._step = _not_begun
        super().close()

    def _catch_up(self, after: Sequence[int], guessed: Sequence[int] = ()) -> mx.array:  # noqa: ARG002
        states, tokens = self._last_pairs()
        known = mx.concatenate([tokens, mx.array(list(after), dtype=tokens.dtype)])
        head = cast("BlockHead", self._open_head)
        self._step = head.walk(self._run(states, known), self._limit)
        return self._feed(known[-1:])

    def _feed(self, tokens: mx.array) -> mx.array:
        """Return the logits of the place behind a token of the block."""
        logits, self._chance = self._step(tokens)
        return logits[..., : self.common]

    def _draw_token(self, logits: mx.array, position: int, recent: Sequence[int] = ()) -> Draw:
        draw = super()._draw_token(logits, position, recent)
        if self._chance is None:
            return draw
        # Where nothing can be drawn, the probability is not a number.
        chance = mx.where(mx.isfinite(draw.measures[0]), self._chance, draw.measures[:1])
        return replace(draw, measures=mx.concatenate([chance, draw.measures[1:]]))


def _not_begun(_: mx.array) -> tuple[mx.array, None]:
    raise ContractError("a place of a block was asked for before the block was begun")
