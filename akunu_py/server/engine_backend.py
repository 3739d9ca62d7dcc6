"""The backend of an engine: requests become jobs of the worker, and its events those of a reply."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Self

from akunu_py.engine.engine import Engine
from akunu_py.errors import ConfigError
from akunu_py.messages import Message
from akunu_py.reply_deltas import CallEnd, ContentDelta, ReasoningDelta, ReplyDelta
from akunu_py.server.backend import Health, ServedModel
from akunu_py.server.chats import Chats
from akunu_py.server.events import Accepted, Event, Finished, Loading, Prefilled, Usage
from akunu_py.server.reply_events import Loading as WorkerLoading
from akunu_py.server.reply_events import Prefilled as WorkerPrefilled
from akunu_py.server.reply_events import Started
from akunu_py.server.requests import ChatRequest, CompletionRequest, Request
from akunu_py.server.system_messages import as_notes, keeps_in_place
from akunu_py.server.worker import Job, Prepared, Worker
from akunu_py.tokenizers.gguf_tokenizer import GGUFTokenizer
from akunu_py.types import GenerationResult, StreamEvent


class EngineBackend:
    """Answers requests with the replies of a worker; used from one event loop.

    Prompts are laid out and tokenized in threads of the loop's pool. `places` is the number of
    replies that the worker makes at once.
    """

    def __init__(self, worker: Worker, *, places: int) -> None:
        self._worker = worker
        self._places = places
        self._chats = {model.id: Chats(worker, model.id) for model in worker.models}
        self._in_place: dict[str, bool] = {}

    def submit(self, request: Request, client: str) -> "EngineReply":
        """Queue a request, as `Backend.submit` does."""
        if isinstance(request, CompletionRequest):
            return EngineReply(lambda: self._complete(request, client))
        chats = self._chats[request.model]
        return EngineReply(
            lambda: self._chat(request, client),
            one_call=not request.parallel_tool_calls,
            remember=lambda reply: chats.remember(request.messages, reply, client),
        )

    async def count_tokens(self, request: ChatRequest) -> int:
        """Return the number of tokens of a conversation's prompt; its model is loaded for that."""
        counts: list[int] = []

        def count(engine: Engine) -> None:
            counts.append(
                len(
                    engine.chat_ids(
                        self._placed(request.model, engine, request.messages), request.tools
                    )
                )
            )

        job = await asyncio.to_thread(self._worker.ask, count, model=request.model)
        async for _ in job.events:
            pass
        return counts[-1]

    def models(self) -> Sequence[ServedModel]:
        """Return the models."""
        return tuple(model.description for model in self._worker.models)

    def health(self) -> Health:
        """Return the state of the worker."""
        state, models = self._worker.health(), self._worker.models
        return Health(
            state="ok" if state.alive else "dead",
            running=state.running,
            waiting=state.waiting,
            places=self._places,
            cache_bytes=models.cache_bytes,
            loading=models.loading,
            loads=models.counts.loads,
            evictions=models.counts.evictions,
            unloads=models.counts.unloads,
        )

    def _chat(self, request: ChatRequest, client: str) -> Job:
        choice, tools = request.tool_choice, request.tools
        if choice.names:
            tools = tuple(tool for tool in tools if tool.name in choice.names)
        named = choice.mode == "required" and len(choice.names) == 1
        return self._chats[request.model].ask(
            request.messages,
            request.config,
            tools=tools,
            tool_choice={"name": choice.names[0]} if named else choice.mode,
            client=client,
            placed=partial(self._placed, request.model),
        )

    def _complete(self, request: CompletionRequest, client: str) -> Job:
        def prepare(engine: Engine) -> Prepared:
            if request.suffix is not None and isinstance(engine.tokenizer, GGUFTokenizer):
                if not isinstance(request.prompt, str):
                    raise ConfigError("prompt holds token ids; with a suffix it is a text")
                ids = engine.tokenizer.encode_fill(request.prompt, request.suffix)
            else:
                ids = engine.prompt_ids(request.prompt)
            return Prepared(engine.check(ids, request.config))

        return self._worker.ask(prepare, model=request.model, client=client)

    def _placed(self, model: str, engine: Engine, said: Sequence[Message]) -> Sequence[Message]:
        """Return a conversation with later system messages where the template writes them."""
        if all(message.role != "system" for message in said[1:]):
            return said
        known = self._in_place.get(model)
        if known is None:
            tokenizer = engine.tokenizer
            known = self._in_place[model] = keeps_in_place(
                lambda messages: tokenizer.decode(
                    tokenizer.encode_chat(messages), with_control=True
                )
            )
        return said if known else as_notes(said)


class EngineReply:
    """The events of one job; the job is made in a thread first.

    Args:
        ask: makes the job.
        one_call: whether the reply ends after its first call.
        remember: called with the message of a whole reply to a conversation.

    """

    def __init__(
        self,
        ask: Callable[[], Job],
        *,
        one_call: bool = False,
        remember: Callable[[Message], None] = lambda _: None,
    ) -> None:
        self._asking = asyncio.ensure_future(asyncio.to_thread(ask))
        self._one_call = one_call
        self._remember = remember
        self._ready: deque[Event] = deque()
        self._note = ""
        self._reasoning_tokens = 0
        self._has_call = False

    def cancel(self) -> None:
        """End the job within one turn, also if it is still being made."""
        self._asking.add_done_callback(_cancel)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        # The reader may stop waiting; the job is made all the same, and cancelled then.
        job = await asyncio.shield(self._asking)
        while not self._ready:
            event = await anext(job.events)
            match event:
                case WorkerLoading(model):
                    self._ready.append(Loading(model))
                case Started(total, cached, reason):
                    self._note = reason
                    self._ready.append(Accepted(total, cached, reason))
                case WorkerPrefilled(done):
                    self._ready.append(Prefilled(done))
                case StreamEvent():
                    self._add(event, job)
        return self._ready.popleft()

    def _add(self, event: StreamEvent, job: Job) -> None:
        """Add the events of a step."""
        deltas: Sequence[ReplyDelta] = event.deltas
        if job.call.plan is None and event.text:
            deltas = (ContentDelta(event.text),)
        if any(isinstance(delta, ReasoningDelta) for delta in deltas):
            self._reasoning_tokens += len(event.token_ids)
        for delta in deltas:
            if self._has_call:
                break  # what follows the only call is left out
            self._ready.append(delta)
            if self._one_call and isinstance(delta, CallEnd):
                self._has_call = True
                job.cancel()
        if (result := event.result) is not None:
            if result.message is not None and result.finish_reason != "cancelled":
                self._remember(result.message)
            self._ready.append(self._finished(result))

    def _finished(self, result: GenerationResult) -> Finished:
        return Finished(
            "tool_calls" if self._has_call else result.finish_reason,
            Usage(
                prompt_tokens=result.num_prompt_tokens,
                cached_tokens=result.num_cached_tokens,
                completion_tokens=len(result.token_ids),
                reasoning_tokens=self._reasoning_tokens,
                prefill_s=result.prefill_s,
                decode_s=result.decode_s,
                cache_note=self._note,
                stats=result.stats,
            ),
        )


def _cancel(asking: "asyncio.Future[Job]") -> None:
    if not asking.cancelled() and asking.exception() is None:
        asking.result().cancel()
