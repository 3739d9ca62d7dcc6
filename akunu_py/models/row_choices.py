"""Rows of logits to ids on the host: choices, candidates, and the scores of a prompt."""

import itertools
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple, Self

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from akunu_py.protocols import NO_CHOICE, ReplyMasks
from akunu_py.sampling.probabilities import no_choice
from akunu_py.sampling.sampler import SampledToken, Sampler, is_choice
from akunu_py.values.types import TokenLogprob


class PendingChoices(NamedTuple):
    """The choices after the rows of a pass, not read yet."""

    tokens: Sequence[mx.array]
    """The token after each row, uint32 [1], which may be fed to the next pass."""

    to_read: mx.array
    """All that the host gets, in one transfer, uint32: the tokens, the bits of their totals, the
    rows' candidates if they are tracked, and if log probabilities are reported, the ids and the
    bits of those."""

    kind: mx.Dtype

    def queue(self) -> None:
        """Have the device compute them, without waiting."""
        mx.async_eval(self.to_read)  # type: ignore[no-untyped-call]


def row_logprobs(logits: mx.array, tokens: mx.array, count: int) -> tuple[mx.array, mx.array]:
    """Return ids and log probabilities by raw logits [rows, vocab], each [rows, 1 + count].

    They are those of the token after each row, `tokens` [rows], and of the likeliest ones; uint32
    and float32, not evaluated yet.
    """
    wide = logits.astype(mx.float32)
    ids = tokens[:, None]
    if count:
        ids = mx.concatenate([ids, top_candidates(logits, count)], axis=-1)
    values = mx.take_along_axis(wide, ids, axis=-1) - mx.logsumexp(wide, axis=-1, keepdims=True)
    return ids, values


def token_logprobs(ids: Any, values: Any) -> tuple[TokenLogprob, ...]:
    """Return the entries of rows, each the token's own and then those of the likeliest."""
    return tuple(
        TokenLogprob(own[0], found[0], tuple(zip(own[1:], found[1:], strict=True)))
        for own, found in zip(ids, values, strict=True)
    )


class RowChoices:
    """The choices of one reply, by its sampler; the host waits once per pass.

    `fed` are the tokens of the caches' rows before a pass. A row's path are the tokens of the pass
    up to the row. Together they are the text that the row's choice follows. `ends` are the tokens
    that end the reply.
    """

    def __init__(self, sampler: Sampler, vocabulary_size: int, ends: Collection[int] = ()) -> None:
        self.sampler = sampler
        self._ends = ends
        # Candidates of the last pass, (token fed, ids by raw logits, best first).
        self.found: list[tuple[int, list[int]]] = []
        # Log probabilities of the choices of the last pass, if they are reported.
        self.logprobs: list[TokenLogprob] = []
        self._vocabulary_size = vocabulary_size
        self._width = 0
        self._reported: int | None = None
        # Before a position, a mask without the tokens that end a reply.
        self._held_until = 0.0
        self._no_ends = np.zeros(0, np.uint32)

    def track(self, count: int) -> None:
        """Look for the `count` likeliest ids after every row from now on."""
        self._width = min(count, self._vocabulary_size)

    def report(self, count: int) -> None:
        """Report log probabilities of every choice from now on, and of the likeliest tokens."""
        self._reported = min(count, self._vocabulary_size)

    def hold_end(self, end_ids: Collection[int], until: float) -> None:
        """Choose no token that ends the reply before a position, except where nothing else may."""
        mask = np.full(-(-self._vocabulary_size // 32), 0xFFFFFFFF, np.uint32)
        for id_ in end_ids:
            mask[id_ // 32] &= ~np.uint32(1 << id_ % 32)
        self._held_until, self._no_ends = until, mask

    @property
    def needs_tokens(self) -> bool:
        """Whether the host must know the tokens before a row to choose after it."""
        return self.sampler.chain.needs_history or self.sampler.in_turn

    def recent(self, fed: Sequence[int], path: Sequence[int]) -> tuple[int, ...]:
        """Return the tokens up to a row that penalties look at; none without penalties."""
        if self.sampler.in_turn:
            return (*fed, *path)
        window = self.sampler.chain.window
        return (*fed[-window:], *path)[-window:] if self.sampler.chain.needs_history else ()

    def masks(
        self,
        logits: mx.array,  # noqa: ARG002 - for constrained replies
        fed: Sequence[int],
        paths: Sequence[Sequence[int]],
    ) -> Iterable[mx.array | None]:
        """Return the tokens allowed after each row; None for all of them."""
        if len(fed) + len(paths[0]) >= self._held_until:
            return itertools.repeat(None, len(paths))
        no_ends = mx.array(self._no_ends)
        return [no_ends if len(fed) + len(path) < self._held_until else None for path in paths]

    def pending(
        self, logits: mx.array, fed: Sequence[int], paths: Sequence[tuple[int, ...]]
    ) -> PendingChoices:
        """Choose after rows, given logits [1, rows, vocab] and a path for each row."""
        rows = logits.squeeze(0)
        split = mx.split(rows, len(paths))
        if self.sampler.in_turn:
            choices = self._choices_in_turn(list(split), fed, paths)
        else:
            masks = self.masks(logits, fed, paths)
            choices = [
                self.sampler.choice(row, len(fed) + len(path), self.recent(fed, path), mask)
                for row, path, mask in zip(split, paths, masks, strict=True)
            ]
        tokens = [choice.token for choice in choices]
        found = [*tokens, _bits(mx.concatenate([choice.total for choice in choices]))]
        if self._width:
            found.append(top_candidates(rows, self._width).flatten())
        if self._reported is not None:
            several = zip(split, tokens, strict=True)
            logprobs = [row_logprobs(row, token, self._reported) for row, token in several]
            found += (ids.flatten() for ids, _ in logprobs)
            found += (_bits(values) for _, values in logprobs)
        return PendingChoices(tokens, mx.concatenate(found), logits.dtype)

    def _choices_in_turn(
        self,
        rows: Iterable[mx.array],
        fed: Sequence[int],
        paths: Sequence[tuple[int, ...]],
    ) -> list[SampledToken]:
        """Choose after rows one by one, but not behind a token that was not chosen or that ends."""
        none = SampledToken(mx.zeros(1, mx.uint32), mx.full((1, 1), -mx.inf))
        found: dict[tuple[int, ...], SampledToken] = {}
        chosen = []
        for row, path in zip(rows, paths, strict=True):
            before = found.get(path[:-1])
            follows = before is not None and before.token.item() == path[-1]
            if path not in found and (len(path) == 1 or (follows and path[-1] not in self._ends)):
                (mask,) = self.masks(row, fed, (path,))
                found[path] = self.sampler.choice(
                    row, len(fed) + len(path), self.recent(fed, path), mask
                )
            chosen.append(found.get(path, none))
        return chosen

    def read(self, pending: PendingChoices, fed: Sequence[int], sure: int) -> list[int]:
        """Bring choices to the host, `NO_CHOICE` for a row from which none can be.

        `fed` are the tokens of the rows. Raises ModelFormatError for such a row among the first
        `sure` ones, which follow the reply itself.
        """
        count = len(fed)
        read = np.array(pending.to_read.tolist(), np.uint32)
        totals, rest = read[count : 2 * count].view(np.float32).tolist(), read[2 * count :]
        choices = [
            token if is_choice(total) else NO_CHOICE
            for token, total in zip(read[:count].tolist(), totals, strict=True)
        ]
        if NO_CHOICE in choices[:sure]:
            raise no_choice(pending.kind)
        if self._width:
            best, rest = rest[: count * self._width], rest[count * self._width :]
            self.found += zip(fed, best.reshape(count, -1).tolist(), strict=True)
        if self._reported is not None:
            named, values = rest.reshape(2, count, -1)
            self.logprobs += token_logprobs(named.tolist(), values.view(np.float32).tolist())
        return choices

    def find_candidates(self, logits: mx.array, paths: Sequence[tuple[int, ...]]) -> None:
        """Find the candidates of rows [1, rows, vocab] without a choice, if they are tracked."""
        if not self._width:
            return
        ids: list[list[int]] = top_candidates(logits[0], self._width).tolist()  # type: ignore[assignment]
        self.found += [(path[-1], best) for path, best in zip(paths, ids, strict=True)]


class ConstrainedChoices(RowChoices):
    """The choices of a reply in a given form.

    `allowed` gives the masks. It knows the reply up to the last committed token; `start` is the
    number of the prompt's tokens.
    """

    def __init__(
        self,
        sampler: Sampler,
        vocabulary_size: int,
        ends: Collection[int],
        allowed: ReplyMasks,
        start: int,
    ) -> None:
        super().__init__(sampler, vocabulary_size, ends)
        self._allowed = allowed
        self._start = start

    @property
    def needs_tokens(self) -> bool:
        """True: a mask depends on the whole reply before its row."""
        return True

    def masks(
        self, logits: mx.array, fed: Sequence[int], paths: Sequence[Sequence[int]]
    ) -> Iterable[mx.array]:
        """Return the tokens allowed after each row, found while the device computes the logits."""
        mx.async_eval(logits)  # type: ignore[no-untyped-call]
        committed = self._start + self._allowed.num_tokens - len(fed)
        rows = logits.reshape(len(paths), -1)
        return [
            self._mask(rows[row][None], fed, path, path[committed:])
            for row, path in enumerate(paths)
        ]

    def _mask(
        self, logits: mx.array, fed: Sequence[int], path: Sequence[int], reply: Sequence[int]
    ) -> mx.array:
        """Return the mask of a row; without what is optional, unless the model chooses it freely.

        The free choice has the noise of the masked one, so where it is allowed both are the same.
        """
        allowed = self._allowed.mask(reply)
        found = self._allowed.optional(reply)
        if len(fed) + len(path) < self._held_until:
            going_on = allowed & self._no_ends
            if np.any(going_on if found is None else going_on & ~found):
                allowed = going_on
        mask = mx.array(allowed)
        if found is None or self.sampler.in_turn:  # which is not asked twice
            return mask
        optional = mx.array(found)
        free = self.sampler.choice(logits, len(fed) + len(path), self.recent(fed, path), None)
        chosen = (optional[free.token // 32] >> (free.token % 32)) & 1
        return mx.where(chosen == 1, mask, mask & ~optional)


def _bits(numbers: mx.array) -> mx.array:
    """Return the bits of numbers as float32, uint32 [n]."""
    return numbers.flatten().astype(mx.float32).view(mx.uint32)


def top_candidates(logits: mx.array, count: int) -> mx.array:
    """Return the ids of the `count` largest logits of each row, best first, uint32 [n, count].

    `logits` is [n, vocab] with at least `count` finite entries a row. Among equals the lowest id
    comes first. `argpartition` would leave open which of equals it takes. A whole sort would take
    longer, since `count` is small; comparing is exact whatever the kernel.
    """
    ids = mx.arange(logits.shape[-1], dtype=mx.uint32)
    found: list[mx.array] = []
    for _ in range(count):
        if found:
            logits = mx.where(ids == found[-1], -mx.inf, logits)
        found.append(logits.argmax(axis=-1, keepdims=True))
    return mx.concatenate(found, axis=-1)


SCORED_ROWS = 64
"""Most rows of a prompt pass whose logits are needed; a draft has as many, so that the memory of a
pass is counted with them (`pass_memory`)."""


class Scoring(NamedTuple):
    """A prompt whose tokens are to be scored, and how many of the likeliest at each place, too."""

    prompt: Sequence[int]
    top: int


class PromptScores:
    """The log probabilities of a text's tokens but the first; those of a beginning stay valid.

    Entry i is of token i + 1, and comes from row i.
    """

    def __init__(self, text: Sequence[int] = (), top: int = 0) -> None:
        self._first = text[:1]
        # The token and the likeliest ones, [n, 1 + top], and their log probabilities.
        self._ids: NDArray[np.uint32] = np.zeros((0, 1 + top), np.uint32)
        self._values: NDArray[np.float32] = np.zeros((0, 1 + top), np.float32)

    def reach(self, scoring: Scoring) -> int:
        """Return how many of the first entries are those of another text."""
        text, top = scoring
        if self._ids.shape[1] <= top or list(text[:1]) != list(self._first):
            return 0
        count = min(len(self._ids), len(text) - 1)
        differing = np.flatnonzero(self._ids[:count, 0] != np.array(text[1 : count + 1]))
        return int(differing[0]) if differing.size else count

    def first(self, count: int, scoring: Scoring) -> Self:
        """Return the first `count` entries for a text that they are valid for."""
        kept = type(self)(scoring.prompt, scoring.top)
        if count:
            width = 1 + scoring.top
            kept._ids, kept._values = self._ids[:count, :width], self._values[:count, :width]  # noqa: SLF001
        return kept

    def add(self, logits: mx.array, tokens: Sequence[int]) -> None:
        """Add the entries of the tokens that follow rows, given their logits [1, n, vocab].

        Raises ModelFormatError for logits that are not numbers.
        """
        top = self._ids.shape[1] - 1
        followed = mx.array(list(tokens), dtype=mx.uint32)
        ids, values = map(np.array, row_logprobs(logits[0], followed, top))
        if np.isnan(values).any():
            raise no_choice(logits.dtype)
        self._ids = np.concatenate([self._ids, ids])
        self._values = np.concatenate([self._values, values])

    def read(self) -> tuple[TokenLogprob, ...]:
        """Return the entries."""
        return token_logprobs(self._ids.tolist(), self._values.tolist())
