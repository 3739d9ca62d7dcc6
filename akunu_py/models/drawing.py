"""Draws of drafted tokens, one pass a token, whatever the passes are run on."""

import abc
import contextlib
import gc
import logging
import math
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import ClassVar

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from akunu_py.drafting.draft_model import DrawnToken, DrawSettings, GoesOn, Guess
from akunu_py.models.device import drafts_stream, on_cpu
from akunu_py.sampling.draft_sampler import DraftSampler, Draw
from akunu_py.sampling.probabilities import probabilities
from akunu_py.sampling.transforms import TransformChain
from akunu_py.system.errors import ContractError
from akunu_py.values.keyed_noise import Purpose

_log = logging.getLogger(__name__)


class DrawingModel(abc.ABC):
    """Draws continuations of a text; a `akunu_py.drafting.draft_model.TokenModel`.

    A draw takes one pass a token. On a GPU the next one is queued before the last token is read, so
    the host waits once a draft. On a CPU a queued pass that turns out to be unwanted would cost all
    of its time, so the host asks first. With penalties or guesses it waits for each pass.
    Subclasses run the passes and keep the caches.

    Only ids below `common` are drawn, of these only the `drawable` ones, int32 [n], ascending, if
    they are given, and q is normalised over these. `target_size` is the number of the target's
    logits. Where logits are not numbers nothing is drawn, with one warning.
    """

    what: ClassVar[str]
    """What draws, for messages."""

    def __init__(
        self, *, context: int, common: int, target_size: int, drawable: mx.array | None = None
    ) -> None:
        # Most tokens of a text.
        self.context = context
        self.common = common
        self.num_passes = 0
        self._stream = drafts_stream()
        self._target_size = target_size
        self._drawable = drawable
        self._sampler: DraftSampler | None = None
        self._independent = False
        self._text: list[int] = []
        self._draws: list[Draw] = []
        self._warned = False

    @abc.abstractmethod
    def beginning(self, prompt: Sequence[int], sampling: DrawSettings) -> Iterator[None]:
        """Take in a prompt, yielding between passes."""

    def extend(self, tokens: Sequence[int]) -> None:
        """Take in committed tokens; the next draw runs the passes over them."""
        self._text += tokens

    def draw(
        self,
        limit: int,
        goes_on: GoesOn | None = None,
        guess: Guess | None = None,
        *,
        after: Sequence[int] = (),
    ) -> list[DrawnToken]:
        """Draw tokens to follow the text and `after`; see the protocol.

        Guesses are not used where caches cannot drop rows. Raises ContractError before `beginning`.
        """
        self._draws = []
        limit = min(limit, self.context - len(self._text) - len(after))
        if limit <= 0 or (goes_on is not None and not goes_on(())):
            return []
        if not self._may_guess(first=False):
            guess = None
        with mx.stream(self._stream):
            try:
                if not self._go_back():
                    return []
                with self._changing():
                    self._active_sampler.begin_draft(len(self._text))
                    if guess is None and not self._active_sampler.chain.needs_history:
                        drawn = self._draw_ahead(limit, goes_on, after)
                    else:
                        drawn = self._draw_checked(limit, goes_on, guess, after)
                return self._possible(drawn)
            finally:
                # A pass may still be running, and its thread must not end before it.
                mx.synchronize(self._stream)

    def probabilities(self) -> NDArray[np.float64]:
        """Return q [n, target's vocabulary] for each token of the last draw.

        They are float64, computed from the same numbers as the draws; each row sums to 1. Raises
        ContractError for coupled draws.
        """
        if not self._independent:
            raise ContractError("the last draw was coupled to the target's, so it is not from q")
        greedy = self._active_sampler.chain.greedy
        found = np.zeros((len(self._draws), self._target_size))
        ids = slice(self.common) if self._drawable is None else np.array(self._drawable)
        with mx.stream(self._stream):
            for place, draw in enumerate(self._draws):
                found[place, ids] = probabilities(draw.row[0], greedy=greedy)
        return found

    def close(self) -> None:
        """Drop the model and its caches."""
        self._draws = []
        self._sampler = None
        gc.collect()
        mx.clear_cache()

    def _may_guess(self, *, first: bool) -> bool:  # noqa: ARG002 - for models with caches
        """Return whether guesses can be checked, in the first pass of a draw or in a later one."""
        return False

    def _changing(self) -> contextlib.AbstractContextManager[None]:
        """Frame every change of caches, if any, which an interrupt may leave half done."""
        return contextlib.nullcontext()

    @abc.abstractmethod
    def _go_back(self) -> bool:
        """Drop the rows of drawn tokens that were not committed; return whether draws can begin."""

    @abc.abstractmethod
    def _catch_up(self, after: Sequence[int], guessed: Sequence[int] = ()) -> mx.array:
        """Feed the rest of the text, then `after`, then the guesses.

        Returns logits [1, 1 + guesses, common]: before the guesses, and after each of them.
        """

    @abc.abstractmethod
    def _feed(self, tokens: mx.array) -> mx.array:
        """Run a pass over drawn tokens [n]; return the logits of common ids, [1, n, common]."""

    def _hold(self, tokens: Sequence[int]) -> None:  # noqa: B027 - unless rows are kept
        """Take note which tokens the last passes of `_feed` were run over."""

    def _drop(self, count: int) -> None:  # noqa: B027 - unless rows are kept
        """Drop the rows of the last `count` tokens."""

    def _begin(self, prompt: Sequence[int], sampling: DrawSettings) -> None:
        """Draw for a reply to this prompt with these settings from now on."""
        self._independent = sampling.independent
        purpose = Purpose.DRAFT if sampling.independent else Purpose.TARGET
        chain = TransformChain.from_config(sampling.config, self.common)
        self._sampler = DraftSampler(
            chain,
            sampling.seed,
            self.common,
            purpose,
            num_proposals=sampling.num_proposals,
            drawable=self._drawable,
            entropy=sampling.entropy,
        )
        self._text = list(prompt)
        self._draws = []

    def _draw_ahead(
        self, limit: int, goes_on: GoesOn | None, after: Sequence[int]
    ) -> list[DrawnToken]:
        """Draw with one pass a token; on a GPU each is queued before the last token is read."""
        position = len(self._text) + len(after)
        draws = [self._draw_token(self._catch_up(after)[:, 0], position)]
        drawn: list[DrawnToken] = []
        mx.async_eval(draws[0].tokens, draws[0].measures)  # type: ignore[no-untyped-call]
        fed, queues = 0, not on_cpu()

        def wants_more() -> bool:
            if goes_on is None:
                return True
            drawn.append(_read(draws[len(drawn)]))
            return goes_on(drawn)

        while len(draws) < limit and (queues or wants_more()):
            logits = self._feed(draws[-1].tokens[:1])[:, 0]
            fed += 1
            draws.append(self._draw_token(logits, position + len(draws)))
            mx.async_eval(draws[-1].tokens, draws[-1].measures)  # type: ignore[no-untyped-call]
            if queues and not wants_more():
                # The draw that is queued already is dropped.
                del draws[len(drawn) :]
                break
        drawn += [_read(draw) for draw in draws[len(drawn) :]]
        self._hold([token.token for token in drawn[:fed]])
        self._keep(draws)
        return drawn

    def _draw_checked(
        self, limit: int, goes_on: GoesOn | None, guess: Guess | None, after: Sequence[int]
    ) -> list[DrawnToken]:
        """Draw with passes over guessed tokens; each gives one token more. Wait for each pass.

        A row's draw counts only if all guesses before it equal the draws there.
        """
        window = self._active_sampler.chain.window
        before = [*self._text[-window:], *after]
        start = len(self._text) + len(after)
        draws: list[Draw] = []
        drawn: list[DrawnToken] = []
        while len(drawn) < limit and (not drawn or goes_on is None or goes_on(drawn)):
            ids = [token.token for token in drawn]
            guessed: tuple[int, ...] = ()
            if guess is not None and self._may_guess(first=not drawn):
                guessed = tuple(guess([*after, *ids], limit - len(ids) - 1))
                guessed = tuple(takewhile(lambda token: 0 <= token < self.common, guessed))
            if drawn:
                fed = (ids[-1], *guessed)
                logits = self._feed(mx.array(fed))
                self._hold(fed)
            else:
                logits = self._catch_up(after, guessed)
            found: list[Draw] = []
            for place in range(len(guessed) + 1):
                recent = [*before, *ids, *guessed[:place]][-window:]
                recent = [token for token in recent if token < self.common]
                found.append(self._draw_token(logits[:, place], start + len(ids) + place, recent))
            read = [_read(draw) for draw in found]
            right = num_equal(guessed, [token.token for token in read])
            self._drop(len(guessed) - right)
            draws += found[: right + 1]
            drawn += read[: right + 1]
        self._keep(draws)
        return drawn

    def _draw_token(self, logits: mx.array, position: int, recent: Sequence[int] = ()) -> Draw:
        """Draw from logits [1, common]; see `DraftSampler.draw`."""
        return self._active_sampler.draw(logits, position, recent)

    def _possible(self, drawn: list[DrawnToken]) -> list[DrawnToken]:
        """Return the tokens before the first row from which nothing can be drawn.

        A draft may end there: that depends only on q, not on a token drawn from it.
        """
        possible = list(takewhile(lambda token: token.probability > 0, drawn))
        del self._draws[len(possible) :]
        if len(possible) < len(drawn) and not self._warned:
            self._warned = True
            _log.warning("logits of %s are not numbers; nothing is drafted there", self.what)
        return possible

    def _keep(self, draws: list[Draw]) -> None:
        if self._independent:
            self._draws = draws

    @property
    def _active_sampler(self) -> DraftSampler:
        if self._sampler is None:
            raise ContractError(f"{self.what} was asked before it was given a prompt")
        return self._sampler


def num_equal(ours: Sequence[int], theirs: Sequence[int]) -> int:
    """Return the length of the longest common prefix."""
    pairs = zip(ours, theirs, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _read(draw: Draw) -> DrawnToken:
    """Wait for a draw and bring it to the host."""
    tokens: list[int] = draw.tokens.tolist()  # type: ignore[assignment]
    measures: list[float] = draw.measures.tolist()  # type: ignore[assignment]
    # Logits that are not numbers, or all -inf: a token of probability 0 stands for none.
    if not all(map(math.isfinite, measures)):
        measures = [*[0.0] * len(tokens), 1.0]
    others = tuple(zip(tokens[1:], measures[1:-1], strict=True))
    return DrawnToken(tokens[0], measures[0], measures[-1], others)
