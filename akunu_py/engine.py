"""The engine: text in, text out, over one loaded model."""

import contextlib
import dataclasses
import difflib
import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from akunu_py.drafting.registry import make_drafter
from akunu_py.errors import ConfigError, ContextOverflowError, EngineStateError
from akunu_py.models.load import LoadedModel, ModelDescription, Weights, load_model
from akunu_py.models.session import Progress, Session
from akunu_py.reply import ReplyStream, Request
from akunu_py.types import GenerationConfig, GenerationResult, Message, Tokenizer

_LOCK_TIMEOUT_S = 1.0

Prompt = str | Sequence[int]
"""Text, or token ids that are used as they are."""


class GenerationOptions(TypedDict, total=False):
    """The fields of `GenerationConfig`, as keyword arguments."""

    max_tokens: int | None
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    penalty_window: int
    logit_bias: dict[int, float]
    seed: int | None
    stop: tuple[str, ...]
    drafter: str
    num_draft_tokens: int


class Engine:
    """A model, its tokenizer and the caches of one conversation.

    One reply is made at a time: a second call from the same thread ends a stream left unfinished,
    one from another thread while a reply is under way raises EngineStateError. The caches keep the
    last conversation, so a call whose prompt begins like it prefills the new tail alone.
    """

    def __init__(
        self, loaded: LoadedModel, *, context: int | None = None, kv_bits: int | None = None
    ) -> None:
        limit = loaded.description.context
        whole = isinstance(context, int) and not isinstance(context, bool)
        if context is not None and not (whole and 2 <= context <= limit):
            raise ConfigError(f"context is {context!r}; this model allows 2 to {limit} tokens")
        self._loaded: LoadedModel | None = loaded
        self._session: Session | None = Session(
            loaded.model, context=context or limit, kv_bits=kv_bits
        )
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
        context: int | None = None,
        kv_bits: int | None = None,
    ) -> Self:
        """Load a GGUF file or an MLX model folder; without a path, the default model.

        `weights` is "quantized" (as in the file), "dense", or "auto": quantized, but float32 dense
        on the CPU backend when they fit, where quantized matrix products are very slow. `context`
        bounds the context, in tokens; `kv_bits`, 4 or 8, quantizes the KV cache.

        Raises ConfigError for a path that is no model or an option out of range, ModelFormatError
        for a file that is not what it claims to be.
        """
        return cls(load_model(path, weights=weights), context=context, kv_bits=kv_bits)

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

    @property
    def tokenizer(self) -> Tokenizer:
        """Return the model's tokenizer."""
        self._check_usable()
        assert self._loaded is not None  # noqa: S101 - _check_usable looked
        return self._loaded.tokenizer

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
        settled = _with_options(config or GenerationConfig(), options)
        if not prompt:
            raise ConfigError("the prompt has no tokens: its text, or what the chat template makes")
        if len(prompt) >= self.context:
            raise ContextOverflowError(
                f"the prompt has {len(prompt)} tokens and the context holds {self.context}, the "
                "reply included; shorten the prompt or load the model with a larger context"
            )
        drafter = make_drafter(settled.drafter, num_draft_tokens=settled.num_draft_tokens)
        for token in settled.logit_bias:
            self._check_id(token, "logit_bias")
        with self._exclusive():
            self._end_reply("this reply was ended by a later call on the same engine")
            reply = ReplyStream(
                self._open_session,
                self.tokenizer,
                Request(tuple(prompt), settled, drafter, progress, continues=continues),
                self._check_usable,
            )
            self._reply = weakref.ref(reply)
        return reply

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


def _with_options(config: GenerationConfig, options: GenerationOptions) -> GenerationConfig:
    names = [field.name for field in dataclasses.fields(GenerationConfig)]
    for name in options:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(names)}"
            raise ConfigError(f"there is no option {name}{hint}")
    return dataclasses.replace(config, **options)
