"""A draft model over its own caches: the `TokenModel` of `DraftModelDrafter`."""

import contextlib
import dataclasses
import gc
import logging
import math
from collections.abc import Iterator, Sequence
from itertools import takewhile

import mlx.core as mx
import numpy as np
from mlx import nn
from numpy.typing import NDArray

from akunu_py.drafting.draft_model import DrawnToken, DrawSettings, GoesOn, Guess
from akunu_py.errors import ConfigError, ContractError
from akunu_py.keyed_noise import Purpose
from akunu_py.models.cache import make_caches
from akunu_py.models.cached_rows import PREFILL_CHUNK, CachedRows
from akunu_py.models.load import LoadedModel
from akunu_py.sampling.draft_sampler import DraftSampler, Draw
from akunu_py.sampling.probabilities import probabilities
from akunu_py.sampling.transforms import TransformChain
from akunu_py.tokenizers.vocabulary_match import common_ids
from akunu_py.types import GenerationConfig

_log = logging.getLogger(__name__)

_SUBSTITUTE = 0
"""Fed in place of a token that the draft model does not have: its drafts get worse, never
wrong."""


class CachedTokenModel:
    """Draws continuations of a text with a model; implements `akunu_py.drafting.TokenModel`.

    Before each draw the caches are brought to the text: rows of drawn tokens that were committed
    stay, the others are dropped, and other committed tokens are fed in one pass. Caches that cannot
    drop rows go back to before the draw, and its committed tokens are fed again in the same pass.

    A draw takes one pass a token. The next pass is queued before the last token is read, so the
    host waits once a draft. With penalties or guesses it waits for each pass.

    `common` is the number of ids that the two vocabularies share (`tokenizers.vocabulary_match`):
    no other id is drawn, and q is normalised over these. `target_size` is the number of the
    target's logits. Where logits are not numbers nothing is drawn, with one warning.

    Raises ConfigError for a model whose caches can neither drop rows nor be restored.
    """

    def __init__(self, model: nn.Module, *, context: int, common: int, target_size: int) -> None:
        self._rows: CachedRows | None = CachedRows(model)
        if not self._rows.rollback.supported:
            raise ConfigError(
                "the draft model keeps its context in a cache that cannot roll back after a "
                "rejection; choose another draft model"
            )
        self.context = context
        self._stream = mx.new_thread_local_stream(mx.default_device())
        probe = model(mx.zeros((1, 1), dtype=mx.int32), cache=make_caches(model))
        # Evaluated here so that no array stays lazy on the loading thread's stream.
        mx.eval(probe)
        self.common = min(common, int(probe.shape[-1]))
        self._target_size = target_size
        self._sampler: DraftSampler | None = None
        self._independent = False
        self._text: list[int] = []
        # Length of the text that the caches' rows are known to match.
        self._checked = 0
        self._draws: list[Draw] = []
        self._warned = False
        self.num_passes = 0

    def beginning(self, prompt: Sequence[int], sampling: DrawSettings) -> Iterator[None]:
        """Feed all but the last token of a prompt, except what the caches already hold.

        Yields at each pause of a pass. A prompt beyond the model's context is not fed, and nothing
        is drawn.
        """
        config = _within(sampling.config, self.common)
        self._independent = sampling.independent
        purpose = Purpose.DRAFT if sampling.independent else Purpose.TARGET
        chain = TransformChain.from_config(config, self.common)
        self._sampler = DraftSampler(
            chain, sampling.seed, self.common, purpose, num_proposals=sampling.num_proposals
        )
        self._text = list(prompt)
        self._checked = 0
        self._draws = []
        if len(prompt) >= self.context:
            return
        rows = [self._known(token) for token in prompt[:-1]]
        with contextlib.closing(self._open_rows.prefilling(rows)) as prefill:
            while True:
                # Not around the `yield`: other work of this thread has streams of its own.
                with mx.stream(self._stream):
                    if next(prefill, None) is None:
                        break
                yield
        self._checked = len(rows)

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

        Guesses are not used where caches cannot drop rows. Raises ContractError before `begin`.
        """
        self._draws = []
        limit = min(limit, self.context - len(self._text) - len(after))
        if limit <= 0 or (goes_on is not None and not goes_on(())):
            return []
        rows = self._open_rows
        if rows.rollback.replays:
            guess = None
        with mx.stream(self._stream):
            try:
                self._go_back()
                with rows.changing():
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
        with mx.stream(self._stream):
            for place, draw in enumerate(self._draws):
                found[place, : self.common] = probabilities(draw.row[0], greedy=greedy)
        return found

    @property
    def model(self) -> nn.Module:
        """Return the model itself."""
        return self._open_rows.model

    def close(self) -> None:
        """Drop the model and its caches."""
        self._rows = None
        self._draws = []
        self._sampler = None
        gc.collect()
        mx.clear_cache()

    def _draw_ahead(
        self, limit: int, goes_on: GoesOn | None, after: Sequence[int]
    ) -> list[DrawnToken]:
        """Draw with one pass a token, each queued before the previous token is read."""
        sampler, rows = self._active_sampler, self._open_rows
        position = len(self._text) + len(after)
        draws = [sampler.draw(self._catch_up(after)[:, 0], position)]
        drawn: list[DrawnToken] = []
        mx.async_eval(draws[0].tokens, draws[0].measures)  # type: ignore[no-untyped-call]
        fed = 0
        while len(draws) < limit:
            logits = self._feed(draws[-1].tokens[:1])[:, 0]
            fed += 1
            draws.append(sampler.draw(logits, position + len(draws)))
            mx.async_eval(draws[-1].tokens, draws[-1].measures)  # type: ignore[no-untyped-call]
            if goes_on is not None:
                drawn.append(_read(draws[len(drawn)]))
                if not goes_on(drawn):
                    # The draw that is queued already is dropped.
                    del draws[len(drawn) :]
                    break
        drawn += [_read(draw) for draw in draws[len(drawn) :]]
        rows.tokens += [token.token for token in drawn[:fed]]
        self._keep(draws)
        return drawn

    def _draw_checked(
        self, limit: int, goes_on: GoesOn | None, guess: Guess | None, after: Sequence[int]
    ) -> list[DrawnToken]:
        """Draw with passes over guessed tokens; each gives one token more. Wait for each pass.

        A row's draw counts only if all guesses before it equal the draws there.
        """
        sampler, rows = self._active_sampler, self._open_rows
        window = sampler.chain.window
        before = [*self._text[-window:], *after]
        start = len(self._text) + len(after)
        draws: list[Draw] = []
        drawn: list[DrawnToken] = []
        while len(drawn) < limit and (not drawn or goes_on is None or goes_on(drawn)):
            ids = [token.token for token in drawn]
            guessed: tuple[int, ...] = ()
            if guess is not None and (drawn or rows.rollback.by_length):
                guessed = tuple(guess([*after, *ids], limit - len(ids) - 1))
                guessed = tuple(takewhile(lambda token: 0 <= token < self.common, guessed))
            if drawn:
                fed = (ids[-1], *guessed)
                logits = self._feed(mx.array(fed))
                rows.tokens += fed
            else:
                logits = self._catch_up(after, guessed)
            found: list[Draw] = []
            for place in range(len(guessed) + 1):
                recent = [*before, *ids, *guessed[:place]][-window:]
                recent = [token for token in recent if token < self.common]
                found.append(sampler.draw(logits[:, place], start + len(ids) + place, recent))
            read = [_read(draw) for draw in found]
            right = _num_equal(guessed, [token.token for token in read])
            rows.drop(len(guessed) - right)
            draws += found[: right + 1]
            drawn += read[: right + 1]
        self._keep(draws)
        return drawn

    def _catch_up(self, after: Sequence[int], guessed: Sequence[int] = ()) -> mx.array:
        """Feed the rest of the text, then `after`, then the guesses.

        Returns logits [1, 1 + guesses, common]: before the guesses, and after each of them.
        """
        rows = self._open_rows
        waiting = [self._known(token) for token in self._text[len(rows.tokens) :]]
        while len(waiting) > PREFILL_CHUNK:
            rows.feed_apart(waiting[:PREFILL_CHUNK])
            del waiting[:PREFILL_CHUNK]
            self.num_passes += 1
        self._checked = len(self._text)
        if after and not rows.rollback.by_length:
            # The place to go back to is the end of the text.
            rows.feed_apart(waiting)
            self.num_passes += 1
            rows.mark("draw")
            waiting = []
        fed = [*waiting, *(self._known(token) for token in after), *guessed]
        logits = self._feed(mx.array(fed))
        rows.tokens += fed
        if not after:
            rows.mark("draw")
        return logits[:, len(fed) - len(guessed) - 1 :]

    def _go_back(self) -> None:
        """Drop the rows of drawn tokens that were not committed, and the last token's row."""
        rows, text = self._open_rows, self._text
        # The text's last token is fed again, since its logits are no longer known.
        end = max(0, len(text) - 1)
        start = min(self._checked, end)
        ahead = rows.tokens[start:]
        kept = _num_equal(ahead, [self._known(token) for token in text[start:end]])
        rows.go_back(start + kept)
        self._checked = len(rows.tokens)

    def _feed(self, tokens: mx.array) -> mx.array:
        """Run a pass; return the logits of the common ids, [1, n, common]."""
        self.num_passes += 1
        return self._open_rows.feed(tokens)[..., : self.common]

    def _possible(self, drawn: list[DrawnToken]) -> list[DrawnToken]:
        """Return the tokens before the first row from which nothing can be drawn.

        A draft may end there: that depends only on q, not on a token drawn from it.
        """
        possible = list(takewhile(lambda token: token.probability > 0, drawn))
        del self._draws[len(possible) :]
        if len(possible) < len(drawn) and not self._warned:
            self._warned = True
            _log.warning("logits of the draft model are not numbers; nothing is drafted there")
        return possible

    def _keep(self, draws: list[Draw]) -> None:
        if self._independent:
            self._draws = draws

    def _known(self, token: int) -> int:
        return token if token < self.common else _SUBSTITUTE

    @property
    def _open_rows(self) -> CachedRows:
        if self._rows is None:
            raise ContractError("the draft model was closed")
        return self._rows

    @property
    def _active_sampler(self) -> DraftSampler:
        if self._sampler is None:
            raise ContractError("the draft model was asked before it was given a prompt")
        return self._sampler


def make_token_model(draft: LoadedModel, target: LoadedModel, target_size: int) -> CachedTokenModel:
    """Return a draft model that draws ids of the target's vocabulary.

    `target_size` is the number of the target's logits. Warns of a draft model that is not smaller
    than the target, or has a shorter context, beyond which nothing is drafted.

    Raises ConfigError if the vocabularies differ or the draft model cannot roll back.
    """
    common = common_ids(target.tokenizer.token_texts(), draft.tokenizer.token_texts())
    ours, theirs = target.description, draft.description
    if theirs.parameters >= ours.parameters:
        _log.warning(
            "the draft model %s has %d million parameters and the model %s has %d million; "
            "drafting with it will hardly pay off",
            theirs.name, theirs.parameters // 10**6, ours.name, ours.parameters // 10**6,
        )  # fmt: skip
    if theirs.context < ours.context:
        _log.info(
            "the draft model %s sees %d tokens, the model %d: nothing is drafted beyond the first",
            theirs.name, theirs.context, ours.context,
        )  # fmt: skip
    return CachedTokenModel(
        draft.model,
        context=theirs.context,
        common=min(common, target_size),
        target_size=target_size,
    )


def _within(config: GenerationConfig, common: int) -> GenerationConfig:
    """Return the config without biases of ids that the draft model does not have."""
    biases = {token: bias for token, bias in config.logit_bias.items() if token < common}
    return dataclasses.replace(config, logit_bias=biases)


def _read(draw: Draw) -> DrawnToken:
    """Wait for a draw and bring it to the host."""
    tokens: list[int] = draw.tokens.tolist()  # type: ignore[assignment]
    measures: list[float] = draw.measures.tolist()  # type: ignore[assignment]
    # Logits that are not numbers, or all -inf: a token of probability 0 stands for none.
    if not all(map(math.isfinite, measures)):
        measures = [*[0.0] * len(tokens), 1.0]
    others = tuple(zip(tokens[1:], measures[1:-1], strict=True))
    return DrawnToken(tokens[0], measures[0], measures[-1], others)


def _num_equal(ours: Sequence[int], theirs: Sequence[int]) -> int:
    """Return the length of the longest common prefix."""
    pairs = zip(ours, theirs, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
