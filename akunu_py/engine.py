"""The engine: text in, text out, over one loaded model."""

import contextlib
import dataclasses
import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, Unpack

import numpy as np
from numpy.typing import NDArray

from akunu_py.decoding.budget import BudgetState
from akunu_py.drafting.registry import make_drafter
from akunu_py.errors import ConfigError, ContextOverflowError, EngineStateError
from akunu_py.generation_options import GenerationOptions, with_options
from akunu_py.models.budget_memory import BudgetMemory
from akunu_py.models.load import (
    ComputeType,
    LoadedModel,
    LoadOptions,
    ModelDescription,
    Weights,
    load_model,
)
from akunu_py.models.padded import PADDED_ROWS, PaddedModel
from akunu_py.models.pass_times import ROWS, PassTimes, measure_passes
from akunu_py.models.session import Progress, Session
from akunu_py.reply import ReplyStream, Request
from akunu_py.types import GenerationConfig, GenerationResult, Message, Tokenizer

_LOCK_TIMEOUT_S = 1.0

Prompt = str | Sequence[int]
"""Text, or token ids that are used as they are."""


class Engine:
    """A model, its tokenizer and the caches of one conversation.

    One reply is made at a time: a second call from the same thread ends a stream left unfinished,
    one from another thread while a reply is under way raises EngineStateError. The caches keep the
    last conversation, so a call whose prompt begins like it prefills the new tail alone.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        *,
        context: int | None = None,
        kv_bits: int | None = None,
        reproducible: bool = False,
    ) -> None:
        limit = loaded.description.context
        if reproducible:
            # The rows of a padding lie beyond the last token; they, too, need positions.
            limit -= PADDED_ROWS
        whole = isinstance(context, int) and not isinstance(context, bool)
        if context is not None and not (whole and 2 <= context <= limit):
            raise ConfigError(f"context is {context!r}; this model allows 2 to {limit} tokens")
        self._loaded: LoadedModel | None = loaded
        self._padded_rows = PADDED_ROWS if reproducible else None
        model = PaddedModel(loaded.model) if reproducible else loaded.model
        self._session: Session | None = Session(model, context=context or limit, kv_bits=kv_bits)
        self._kv_bits = kv_bits
        self._memory: BudgetMemory | None = None
        self.description: ModelDescription = loaded.description
        self.context: int = self._session.context
        # Weak, so that a stream dropped by its reader is over and not in the way.
        self._reply: weakref.ref[ReplyStream] | None = None
        self._lock = threading.Lock()
        self._pid = os.getpid()

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        weights: Weights = "auto",
        compute_type: ComputeType = "auto",
        exact_weights: bool = False,
        q6k: Literal["planes", "8bit"] = "planes",
        pre_tokenizer: str | None = None,
        context: int | None = None,
        kv_bits: int | None = None,
        reproducible: bool = False,
    ) -> Self:
        """Load a GGUF file or an MLX model folder; without a path, the default model.

        `context` bounds the context, in tokens; `kv_bits`, 4 or 8, quantizes the KV cache;
        `reproducible` gives every pass the same number of rows, so that drafting cannot change a
        token on any device, at a price that `akunu tune` measures. The other options are those of
        `akunu_py.models.load.LoadOptions`: whether weights stay quantized, what is computed in, the
        forms of GGUF types that MLX has not, and how texts are split.

        Raises ConfigError for a path that is no model or an option out of range, ModelFormatError
        for a file that is not what it claims to be.
        """
        options = LoadOptions(
            weights=weights,
            compute_type=compute_type,
            exact_weights=exact_weights,
            q6k=q6k,
            pre_tokenizer=pre_tokenizer,
        )
        loaded = load_model(path, options, context=context)
        return cls(loaded, context=context, kv_bits=kv_bits, reproducible=reproducible)

    def generate(
        self,
        prompt: Prompt,
        config: GenerationConfig | None = None,
        *,
        progress: Progress | None = None,
        **options: Unpack[GenerationOptions],
    ) -> GenerationResult:
        """Continue a prompt; the chat template is not applied.

        Control tokens written out in a text are taken as such, so that a prompt can be laid out by
        hand; `chat` never does that with what a message says.
        Options override the config's fields. `progress` is called with prompt tokens done and in
        all.

        Raises ConfigError for options or token ids out of range or an empty prompt,
        ContextOverflowError for a prompt that leaves no room, EngineStateError for a closed or
        busy engine.
        """
        return _exhaust(self.stream(prompt, config, progress=progress, **options))

    def stream(
        self,
        prompt: Prompt,
        config: GenerationConfig | None = None,
        *,
        progress: Progress | None = None,
        **options: Unpack[GenerationOptions],
    ) -> ReplyStream:
        """Continue a prompt as `generate` does, event by event."""
        self._check_usable()
        if isinstance(prompt, str):
            if not prompt:
                raise ConfigError("the prompt is empty; give some text")
            ids = self.tokenizer.encode(prompt, parse_special=True)
        else:
            ids = self._checked_ids(prompt)
        return self._start(ids, config, progress, options, continues=True)

    def chat(
        self,
        messages: Sequence[Message],
        config: GenerationConfig | None = None,
        *,
        progress: Progress | None = None,
        **options: Unpack[GenerationOptions],
    ) -> GenerationResult:
        """Answer a conversation, laid out by the model's chat template.

        Raises as `generate` does, and ConfigError for malformed messages or a model without a
        template.
        """
        return _exhaust(self.stream_chat(messages, config, progress=progress, **options))

    def stream_chat(
        self,
        messages: Sequence[Message],
        config: GenerationConfig | None = None,
        *,
        progress: Progress | None = None,
        **options: Unpack[GenerationOptions],
    ) -> ReplyStream:
        """Answer a conversation as `chat` does, event by event."""
        self._check_usable()
        ids = self.tokenizer.encode_chat(messages)
        return self._start(ids, config, progress, options, continues=False)

    def logits(self, token_ids: Sequence[int]) -> NDArray[np.float32]:
        """Return the model's logits after each token, float32 [n, vocab].

        The conversation's caches are left alone. Raises as `generate` does.
        """
        ids = self._checked_ids(token_ids)
        if len(ids) > self.context:
            raise ContextOverflowError(
                f"{len(ids)} tokens do not fit into the context of {self.context}"
            )
        with self._exclusive():
            self._end_reply("this reply was ended by a later call on the same engine")
            return self._open_session.logits(ids)

    def tune(
        self, prompt: Prompt, *, repeats: int = 7, progress: Progress | None = None
    ) -> PassTimes:
        """Measure what passes cost after a prompt of that length, and remember it for budgets.

        Takes about a hundred plain steps for each of `repeats`. The conversation is forgotten.
        `progress` is called with rounds done and in all. Raises as `generate` does.
        """
        self._check_usable()
        ids = self._checked_ids(
            self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        )
        if len(ids) + 2 * max(ROWS) > self.context:
            raise ContextOverflowError(
                f"{len(ids)} tokens and a pass of {max(ROWS)} do not fit into the context of "
                f"{self.context}; measure with fewer"
            )
        with self._exclusive():
            self._end_reply("this reply was ended by a measurement on the same engine")
            times = measure_passes(self._open_session, ids, repeats=repeats, progress=progress)
            self._budget_memory().learn(times)
        return times

    @property
    def tokenizer(self) -> Tokenizer:
        """Return the model's tokenizer."""
        self._check_usable()
        assert self._loaded is not None  # noqa: S101 - _check_usable looked
        return self._loaded.tokenizer

    @property
    def reproducible(self) -> bool:
        """Return whether every pass has one number of rows."""
        return self._padded_rows is not None

    @property
    def vocabulary_size(self) -> int:
        """Return the number of logits, which may exceed the tokenizer's ids."""
        return self._open_session.vocabulary_size

    def reset(self) -> None:
        """Forget the conversation: the next call prefills its whole prompt."""
        with self._exclusive():
            self._end_reply("this reply was ended by a reset of the engine")
            self._open_session.reset()

    def close(self) -> None:
        """Give the memory back. A second call does nothing."""
        if self._loaded is None:
            return
        with self._exclusive():
            self._end_reply("the engine was closed")
            session = self._open_session
            if self._memory is not None:
                self._memory.save(new_samples=1)
            self._loaded = None
            self._session = None
            session.close()

    def __enter__(self) -> Self:
        self._check_usable()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _start(
        self,
        prompt: list[int],
        config: GenerationConfig | None,
        progress: Progress | None,
        options: GenerationOptions,
        *,
        continues: bool,
    ) -> ReplyStream:
        """Check what can be checked before the first event, and make the stream."""
        settled = with_options(config or GenerationConfig(), options)
        if not prompt:
            raise ConfigError("the prompt has no tokens: its text, or what the chat template makes")
        if len(prompt) >= self.context:
            raise ContextOverflowError(
                f"the prompt has {len(prompt)} tokens and the context holds {self.context}, the "
                "reply included; shorten the prompt or load the model with a larger context"
            )
        if self._padded_rows is not None:
            most = min(settled.num_draft_tokens, self._padded_rows - 1)
            settled = dataclasses.replace(settled, num_draft_tokens=most)
        drafter = make_drafter(settled.drafter, num_draft_tokens=settled.num_draft_tokens)
        for token in settled.logit_bias:
            self._check_id(token, "logit_bias")
        with self._exclusive():
            self._end_reply("this reply was ended by a later call on the same engine")
            reply = ReplyStream(
                self._open_session,
                self.tokenizer,
                Request(
                    tuple(prompt),
                    settled,
                    drafter,
                    progress,
                    continues=continues,
                    budgets=self._budgets(settled),
                ),
                self._check_usable,
            )
            self._reply = weakref.ref(reply)
        return reply

    def _budgets(self, config: GenerationConfig) -> BudgetState | None:
        """Return what budgets have learned so far, written down now and then; None without one."""
        if config.draft_budget == "always" or config.drafter == "none":
            return None
        memory = self._budget_memory()
        memory.save()
        return memory.state

    def _budget_memory(self) -> BudgetMemory:
        if self._memory is None:
            assert self._loaded is not None  # noqa: S101 - the callers looked
            self._memory = BudgetMemory(
                self.description,
                self._loaded.model,
                kv_bits=self._kv_bits,
                padded_rows=self._padded_rows,
            )
        return self._memory

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Hold the engine for a call; refuse, rather than queue, where another call takes long."""
        self._check_usable()
        if not self._lock.acquire(timeout=_LOCK_TIMEOUT_S):
            raise EngineStateError("the engine is busy in another thread; load one for each thread")
        try:
            yield
        finally:
            self._lock.release()

    def _end_reply(self, reason: str) -> None:
        """End a stream left unfinished; refuse where another thread is at it."""
        self._check_usable()
        reply = self._reply() if self._reply else None
        if reply is None or reply.finished:
            return
        mine = reply.thread is threading.current_thread() or not reply.thread.is_alive()
        if reply.executing or not mine:
            raise EngineStateError(
                "the engine is making a reply, in another thread or around this callback; wait "
                "for it, cancel it, or load one engine for each thread"
            )
        reply.close(reason)
        self._reply = None

    def _check_usable(self) -> None:
        if self._loaded is None:
            raise EngineStateError("the engine is closed; load it again")
        if os.getpid() != self._pid:
            raise EngineStateError(
                "the engine was loaded before a fork and cannot be used after it; load the model "
                "in the child process"
            )

    @property
    def _open_session(self) -> Session:
        self._check_usable()
        assert self._session is not None  # noqa: S101 - _check_usable looked
        return self._session

    def _checked_ids(self, token_ids: Sequence[int]) -> list[int]:
        try:
            ids = list(token_ids)
        except TypeError:
            raise ConfigError(
                f"the prompt is a {type(token_ids).__name__}; give text or token ids"
            ) from None
        if not ids:
            raise ConfigError("the prompt is empty; give at least one token id")
        for token in ids:
            self._check_id(token, "the prompt")
        return [int(token) for token in ids]

    def _check_id(self, token: int, place: str) -> None:
        whole = isinstance(token, int | np.integer) and not isinstance(token, bool)
        if not whole or not 0 <= token < self.vocabulary_size:
            raise ConfigError(
                f"{place} holds {token!r}; token ids are whole numbers from 0 to "
                f"{self.vocabulary_size - 1}"
            )


def _exhaust(stream: ReplyStream) -> GenerationResult:
    with stream:
        for _ in stream:
            pass
    assert stream.result is not None  # noqa: S101 - the last event carries the result
    return stream.result
