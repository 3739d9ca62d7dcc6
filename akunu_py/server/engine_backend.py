"""The backend of an engine: requests become jobs of the worker, and its events those of a reply."""

import asyncio
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Self, TypeVar

from akunu_py.drafting.auto.drafter import MEMORY
from akunu_py.engine.engine import Engine
from akunu_py.engine.reasoning import reasoning_marks
from akunu_py.protocols import Tokenizer
from akunu_py.server.backend import (
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    Health,
    Request,
    ServedModel,
)
from akunu_py.server.checkpoints import Checkpoints
from akunu_py.server.conversation_memory import ReasoningMemory, ToolMemory
from akunu_py.server.errors import panics_as_errors
from akunu_py.server.events import (
    Accepted,
    Decoded,
    Event,
    Finished,
    Logprob,
    Logprobs,
    Usage,
)
from akunu_py.server.token_texts import ShownTokens, TokenTexts
from akunu_py.server.worker import Prepared, ReplyJob, Worker
from akunu_py.system.errors import ConfigError
from akunu_py.tokenizers.gguf_tokenizer import GGUFTokenizer
from akunu_py.tool_calls.enforceable import enforceable
from akunu_py.values.messages import Message
from akunu_py.values.reply_deltas import (
    CallEnd,
    CallStart,
    ContentDelta,
    ReasoningDelta,
    ReplyDelta,
)
from akunu_py.values.types import GenerationResult, StreamEvent


class Chats:
    """Asks a worker for replies of one model to conversations.

    Laying out and tokenizing a long conversation takes a while, so an event loop calls `ask` in a
    thread. Calls may come from several threads.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._checkpoints: tuple[Engine, Checkpoints] | None = None
        self._reasoning = ReasoningMemory()
        self._tools = ToolMemory()
        self._lock = threading.Lock()

    def ask(self, request: ChatRequest, client: str) -> ReplyJob:
        """Ask for the reply to a conversation.

        Reasoning that the client left out of earlier replies is put back, and tools that came later
        are told of where they came. Raises as `Engine.chat` and `Worker.ask` do.
        """
        # Now, since it may take a while, and `prepare` is called with the model's lock.
        enforceable(request.tools)

        def prepare(engine: Engine) -> Prepared:
            with self._lock:
                said, arranged = self._tools.arrange(
                    client, self._reasoning.restore(client, request.messages), request.tools
                )
            call = engine.check_chat(
                said,
                request.config,
                tools=arranged,
                tool_choice=request.tool_choice,
                continued=request.continued,
            )
            places = self._checkpoints_of(engine).of(
                said, arranged, call.prompt, call.choice.config
            )
            expected = engine.prompt_ids(request.prediction) if request.prediction else ()
            return Prepared(call, places, expected)

        return self._worker.ask(prepare, model=request.model, client=client, respell=True)

    def _checkpoints_of(self, engine: Engine) -> Checkpoints:
        """Return the finder of an engine, which a model has one after another."""
        if self._checkpoints is None or self._checkpoints[0] is not engine:
            self._checkpoints = engine, Checkpoints(engine)
        return self._checkpoints[1]

    def remember(self, messages: Sequence[Message], reply: Message, client: str) -> None:
        """Keep the reasoning of a finished reply, for a client that sends back only the answer."""
        with self._lock:
            self._reasoning.remember(client, messages, reply)


_Seen = TypeVar("_Seen")

_MOST_TOKENS = 300_000
"""Of the texts of a request for embeddings, as with OpenAI."""


class EngineBackend:
    """Answers requests with the replies of a worker; used from one event loop.

    Prompts are laid out and tokenized in threads of the loop's pool.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._chats = defaultdict[str, Chats](partial(Chats, worker))
        self._tokens: dict[str, TokenTexts] = {}

    def submit(self, request: Request, client: str) -> "EngineReply":
        """Queue a request, as `Backend.submit` does."""
        if isinstance(request, CompletionRequest):
            return EngineReply(
                lambda: self._complete(request, client),
                self._token_texts,
                echo=request.prompt if request.echo else None,
            )
        if isinstance(request, EmbeddingRequest):
            return EngineReply(lambda: self._embed(request, client), self._token_texts)
        chats = self._chats[request.model]
        return EngineReply(
            lambda: chats.ask(request, client),
            self._token_texts,
            one_call=not request.parallel_tool_calls,
            remember=lambda reply: chats.remember(request.messages, reply, client),
        )

    def _embed(self, request: EmbeddingRequest, client: str) -> ReplyJob:
        def prepare(engine: Engine) -> Prepared:
            texts = engine.check_texts(
                request.texts, dimensions=request.dimensions, prompt_name=request.prompt_name,
                truncate=request.truncate,
            )  # fmt: skip
            if texts.num_tokens > _MOST_TOKENS:
                raise ConfigError(
                    f"the texts have {texts.num_tokens:,} tokens together; send at most "
                    f"{_MOST_TOKENS:,} in a request"
                )
            return Prepared(texts)

        return self._worker.ask(prepare, model=request.model, client=client)

    async def load(self, model: str) -> None:
        await self._look(model, lambda _: None)

    def unload(self, model: str) -> None:
        self._worker.unload(model)

    async def chat_ids(self, request: ChatRequest) -> Sequence[int]:
        return await self._look(
            request.model,
            lambda engine: engine.chat_ids(
                request.messages, request.tools, request.config, continued=request.continued
            ),
        )

    async def tokenizer(self, model: str) -> Tokenizer:
        return await self._look(model, lambda engine: engine.tokenizer)

    async def _look(self, model: str, look: Callable[[Engine], _Seen]) -> _Seen:
        """Return a function's result for the engine of a model, which is loaded for it."""
        found: list[_Seen] = []
        ask = partial(self._worker.ask, lambda engine: found.append(look(engine)), model=model)
        job = await asyncio.to_thread(ask)
        async for _ in job.events:
            pass
        return found[-1]

    def models(self) -> Sequence[ServedModel]:
        models = self._worker.models
        return tuple(replace(one.description, idle_left_s=models.idle_left(one)) for one in models)

    def health(self) -> Health:
        return self._worker.health()

    def _complete(self, request: CompletionRequest, client: str) -> ReplyJob:
        def prepare(engine: Engine) -> Prepared:
            if request.suffix is not None and isinstance(engine.tokenizer, GGUFTokenizer):
                if not isinstance(request.prompt, str):
                    raise ConfigError("prompt holds token ids; with a suffix it is a text")
                ids = engine.tokenizer.encode_fill(request.prompt, request.suffix)
            else:
                ids = engine.prompt_ids(request.prompt)
            call = replace(
                engine.check(ids, request.config),
                scored=request.config.logprobs if request.echo else None,
                reads_only=request.reads_only,
            )
            return Prepared(call)

        return self._worker.ask(prepare, model=request.model, client=client)

    def _token_texts(self, job: ReplyJob) -> TokenTexts:
        """Return the texts of the tokens of a job that was prepared."""
        known = self._tokens.get(job.model.id)
        if known is None or known.tokenizer is not job.tokenizer:
            known = self._tokens[job.model.id] = TokenTexts(job.tokenizer)
        return known


class EngineReply:
    """The events of one job; the job is made in a thread first.

    Args:
        ask: makes the job.
        tokens: finds the texts of the tokens of a job.
        one_call: whether the reply ends after its first call.
        echo: the prompt if the reply begins with it; then no token is left out of log
            probabilities.
        remember: called with the message of a whole reply to a conversation.

    """

    def __init__(
        self,
        ask: Callable[[], ReplyJob],
        tokens: Callable[[ReplyJob], TokenTexts],
        *,
        one_call: bool = False,
        echo: str | Sequence[int] | None = None,
        remember: Callable[[Message], None] = lambda _: None,
    ) -> None:
        self._asking = asyncio.ensure_future(asyncio.to_thread(ask))
        self._tokens = tokens
        self._one_call = one_call
        self._echo = echo
        self._echoed = False
        self._remember = remember
        self._ready: deque[Event] = deque()
        self._note = ""
        self._shown: ShownTokens | None = None  # where log probabilities are asked for
        self._reasoning_tokens = 0
        self._accepted = self._rejected = 0  # tokens of a prediction
        self._decoded = Decoded(0, 0)
        self._has_call = False

    def cancel(self) -> None:
        self._asking.add_done_callback(_cancel)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        with panics_as_errors():
            return await self._next()

    async def _next(self) -> Event:
        # The reader may stop waiting; the job is made all the same, and cancelled then.
        job = await asyncio.shield(self._asking)
        while not self._ready:
            event = await anext(job.events)
            if isinstance(event, StreamEvent):
                self._add(event, job)
                continue
            if isinstance(event, Accepted):
                self._note = event.cache_note
            self._ready.append(event)
        return self._ready.popleft()

    def _add(self, event: StreamEvent, job: ReplyJob) -> None:
        """Add the events of a step."""
        if self._echo is not None and not self._echoed:
            self._add_prompt(self._echo, event, job)
        if event.step is not None:
            before = self._decoded
            self._decoded = Decoded(before.num_tokens + len(event.token_ids), before.num_passes + 1)
            self._ready.append(self._decoded)
        deltas: Sequence[ReplyDelta] = event.deltas
        if job.prepared.call.plan is None:
            # All of its text, in which other replies would have reasoning.
            deltas = [
                ContentDelta(one.text, one.source, one.place, one.begin) for one in event.pieces
            ]
        if any(isinstance(delta, ReasoningDelta) for delta in deltas):
            self._reasoning_tokens += len(event.token_ids)
        if job.prepared.prediction and event.step is not None:
            detail = event.step.detail
            for token in detail.drafted if detail is not None else ():
                self._accepted += token.source == MEMORY and token.accepted is True
                self._rejected += token.source == MEMORY and token.accepted is False
        shown = self._shown
        if event.logprobs and shown is None:
            plan, texts = job.prepared.call.plan, self._tokens(job)
            marks = {**reasoning_marks(job.tokenizer), **(plan.marks if plan else {})}
            shown = self._shown = ShownTokens(texts, marks, keeps_all=self._echo is not None)
        if shown is not None:
            shown.add(event.logprobs, event.text)
        for delta in deltas:
            if self._has_call:
                break  # what follows the only call is left out
            if shown is not None and isinstance(delta, ContentDelta):
                self._add_logprobs(shown.show(delta))
            elif shown is not None and isinstance(delta, CallStart):
                self._add_logprobs(shown.rest(ended=False), ContentDelta(""))
            self._ready.append(delta)
            if self._one_call and isinstance(delta, CallEnd):
                self._has_call = True
                job.cancel()
        if (result := event.result) is not None:
            if shown is not None:
                self._add_logprobs(shown.rest(ended=True), ContentDelta(""))
            if result.message is not None and result.finish_reason != "cancelled":
                self._remember(result.message)
            self._ready.append(self._finished(result))

    def _add_logprobs(self, found: Sequence[Logprob], *text: ContentDelta) -> None:
        """Add how likely tokens were, before their text; what was held back has an empty one."""
        if found:
            self._ready += (Logprobs(tuple(found)), *text)

    def _add_prompt(self, echo: str | Sequence[int], event: StreamEvent, job: ReplyJob) -> None:
        """Add the prompt, with its first event."""
        self._echoed = True
        tokens, given = self._tokens(job), echo if isinstance(echo, str) else None
        if event.prompt_logprobs is not None:
            found = tokens.prompt(job.prompt, event.prompt_logprobs, given)
            self._ready.append(Logprobs(tuple(found)))
        self._ready.append(ContentDelta(tokens.text(job.prompt) if given is None else given))

    def _finished(self, result: GenerationResult) -> Finished:
        return Finished(
            "tool_calls" if self._has_call else result.finish_reason,
            Usage(
                prompt_tokens=result.num_prompt_tokens,
                cached_tokens=result.num_cached_tokens,
                completion_tokens=len(result.token_ids),
                reasoning_tokens=self._reasoning_tokens,
                accepted_predictions=self._accepted,
                rejected_predictions=self._rejected,
                prefill_s=result.prefill_s,
                decode_s=result.decode_s,
                cache_note=self._note,
                stats=result.stats,
            ),
            result.stop_text,
        )


def _cancel(asking: "asyncio.Future[ReplyJob]") -> None:
    if not asking.cancelled() and asking.exception() is None:
        asking.result().cancel()
