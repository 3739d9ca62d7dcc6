"""A draft model over its own caches: the `TokenModel` of `DraftModelDrafter`."""

import contextlib
import dataclasses
import logging
from collections.abc import Iterator, Sequence
from typing import ClassVar

import mlx.core as mx
from mlx import nn

from akunu_py.drafting.draft_model import DrawSettings
from akunu_py.models.cache import make_caches
from akunu_py.models.cached_rows import PREFILL_CHUNK, CachedRows
from akunu_py.models.drawing import DrawingModel, num_equal
from akunu_py.models.load import LoadedModel
from akunu_py.system.errors import ConfigError, ContractError
from akunu_py.tokenizers.vocabulary import common_ids
from akunu_py.values.types import GenerationConfig

_log = logging.getLogger(__name__)

_SUBSTITUTE = 0
"""Fed in place of a token that the draft model does not have: its drafts get worse, never
wrong."""


class CachedTokenModel(DrawingModel):
    """Draws continuations of a text with a model of its own.

    Before each draw the caches are brought to the text: rows of drawn tokens that were committed
    stay, the others are dropped, and other committed tokens are fed in one pass. Caches that cannot
    drop rows go back to before the draw, and its committed tokens are fed again in the same pass.

    `common` is the number of ids that the two vocabularies share (`vocabulary.common_ids`).

    Raises ConfigError for a model whose caches can neither drop rows nor be restored.
    """

    what: ClassVar[str] = "the draft model"

    def __init__(self, model: nn.Module, *, context: int, common: int, target_size: int) -> None:
        self._rows: CachedRows | None = CachedRows(model)
        if not self._rows.rollback.supported:
            raise ConfigError(
                "the draft model keeps its context in a cache that cannot roll back after a "
                "rejection; choose another draft model"
            )
        probe = model(mx.zeros((1, 1), dtype=mx.int32), cache=make_caches(model))
        # Evaluated here so that no array stays lazy on the loading thread's stream.
        mx.eval(probe)
        common = min(common, int(probe.shape[-1]))
        super().__init__(context=context, common=common, target_size=target_size)
        # Length of the text that the caches' rows are known to match.
        self._checked = 0

    def beginning(self, prompt: Sequence[int], sampling: DrawSettings) -> Iterator[None]:
        """Feed all but the last token of a prompt, except what the caches already hold.

        Yields at each pause of a pass. A prompt beyond the model's context is not fed, and nothing
        is drawn.
        """
        config = _within(sampling.config, self.common)
        self._begin(prompt, dataclasses.replace(sampling, config=config))
        self._checked = 0
        if len(prompt) >= self.context:
            return
        tokens = [self._known(token) for token in prompt[:-1]]
        with contextlib.closing(self._open_rows.prefilling(tokens)) as prefill:
            while True:
                # Not around the `yield`: other work of this thread has streams of its own.
                with mx.stream(self._stream):
                    if next(prefill, None) is None:
                        break
                yield
        self._checked = len(tokens)

    @property
    def model(self) -> nn.Module:
        """Return the model itself."""
        return self._open_rows.model

    def close(self) -> None:
        self._rows = None
        super().close()

    def _may_guess(self, *, first: bool) -> bool:
        rollback = self._open_rows.rollback
        return rollback.by_length if first else rollback.drops_rows

    def _changing(self) -> contextlib.AbstractContextManager[None]:
        return self._open_rows.changing()

    def _go_back(self) -> bool:
        rows, text = self._open_rows, self._text
        # The text's last token is fed again, since its logits are no longer known.
        end = max(0, len(text) - 1)
        start = min(self._checked, end)
        ahead = rows.tokens[start:]
        kept = num_equal(ahead, [self._known(token) for token in text[start:end]])
        rows.go_back(start + kept)
        self._checked = len(rows.tokens)
        return True

    def _catch_up(self, after: Sequence[int], guessed: Sequence[int] = ()) -> mx.array:
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

    def _feed(self, tokens: mx.array) -> mx.array:
        self.num_passes += 1
        return self._open_rows.feed(tokens)[..., : self.common]

    def _hold(self, tokens: Sequence[int]) -> None:
        self._open_rows.tokens += tokens

    def _drop(self, count: int) -> None:
        self._open_rows.drop(count)

    def _known(self, token: int) -> int:
        return token if token < self.common else _SUBSTITUTE

    @property
    def _open_rows(self) -> CachedRows:
        if self._rows is None:
            raise ContractError("the draft model was closed")
        return self._rows


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
