"""The HTTP server on a free port of 127.0.0.1, with a backend that plays a given script.

What a model would do is given as events; what the wire formats make of a request and of the events
is what the tests look at.
"""

import asyncio
import contextlib
import json
import socket
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

import httpx
import numpy as np
import uvicorn.server
from prometheus_client.parser import text_string_to_metric_families

from akunu_py.server.app import make_app
from akunu_py.server.backend import EmbeddingRequest, Health, ServedModel
from akunu_py.server.events import Accepted, Finished, Usage
from akunu_py.server.reply_response import Patience
from akunu_py.server.running import listen, server_of
from akunu_py.server.security import Access
from akunu_py.server.service import Service
from akunu_py.values.decode_stats import DecodeStats
from akunu_py.values.messages import ToolCall
from akunu_py.values.reply_deltas import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    ContentDelta,
    ReasoningDelta,
)

# Longest wait for what must happen, in seconds: long, since machines are busy at times.
PATIENCE_S = 300

MODEL = ServedModel(
    id="tiny", name="Tiny Model", context=4096, created=1_700_000_000, thinks=True, fills_in=True
)
USAGE = Usage(
    prompt_tokens=30,
    cached_tokens=20,
    completion_tokens=12,
    reasoning_tokens=4,
    prefill_s=0.5,
    decode_s=2.0,
    cache_note="new text",
    stats=DecodeStats(
        steps=5,
        steps_with_draft=4,
        drafted=9,
        accepted=7,
        tested=8,
        output_tokens=12,
        drafted_per_position=(4, 3, 2),
        accepted_per_position=(4, 2, 1),
    ),
)
EMBEDDER = ServedModel(id="embedder", name="E", context=64, replies=False, embeds=True)
ACCEPTED = Accepted(30, 20, "new text")


@dataclass(frozen=True)
class Pause:
    """A wait in the script, in seconds; None until the reply is cancelled or told to go on."""

    seconds: float | None = None


def said(*texts, reason="stop", usage=USAGE):
    """The script of a reply of text."""
    return [ACCEPTED, *map(ContentDelta, texts), Finished(reason, usage)]


def thought(thoughts, *texts):
    return [ACCEPTED, ReasoningDelta(thoughts), *map(ContentDelta, texts), Finished("stop", USAGE)]


def call(index, name, arguments, size=7):
    """The events of one call, its arguments in pieces of `size` characters."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    return [
        CallStart(index, f"call_{index}_{name}"[:40], name),
        *(ArgumentsDelta(index, piece) for piece in pieces),
        CallEnd(index, ToolCall(name, json.loads(text))),
    ]


def called(*calls, before=()):
    """The script of a reply of calls, each given as name and arguments."""
    events = [event for index, one in enumerate(calls) for event in call(index, *one)]
    return [ACCEPTED, *before, *events, Finished("tool_calls", USAGE)]


def embedded(texts):
    """Each text has its number of characters or ids, and its place, as an embedding."""
    sizes = [len(text) for text in texts]
    vectors = np.array([(size, place) for place, size in enumerate(sizes)], np.float32)
    usage = Usage(prompt_tokens=sum(sizes), completion_tokens=0, prefill_s=0.5)
    return [Finished("stop", usage, vectors=vectors)]


class ScriptedReply:
    def __init__(self, script, backend):
        self._script = iter(script)
        # Those of now: an earlier test's reply may end while the next one begins.
        self._paused, self._told = backend.paused, backend.cancelled
        self._cancelled = asyncio.Event()
        self._go_on = asyncio.Event()
        self._pause = None
        self._loop = asyncio.get_running_loop()

    def __aiter__(self):
        return self

    async def _end_pause(self):
        if self._pause is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._pause.when()):
                    await self._go_on.wait()
            self._pause = None

    async def __anext__(self):
        await self._end_pause()  # which a reader may not have waited for
        for step in self._script:
            if isinstance(step, Pause):
                until = None if step.seconds is None else self._loop.time() + step.seconds
                self._pause = asyncio.timeout_at(until)
                self._paused.set()
                await self._end_pause()
                continue
            if isinstance(step, Exception):
                raise step
            return step
        raise StopAsyncIteration

    def cancel(self):
        if not self._cancelled.is_set():
            self._cancelled.set()
            self._go_on.set()
            self._told.set()

    def go_on(self):
        """End a pause, from a test's thread."""
        self._loop.call_soon_threadsafe(self._go_on.set)


@dataclass
class ScriptedBackend:
    """Plays a script for each request, the last one again and again.

    Attributes:
        scripts: events, pauses and exceptions, a list for each reply; or a function of the request.
        embeddings: the script for texts to embed.
        requests: what was asked, in order.
        clients: who asked.
        paused: set when a reply comes to a pause.
        cancelled: set when a reply is cancelled, which also happens at its end.
        replies: those of the requests, in order.
        loaded: models that were asked for without a reply.

    """

    scripts: Sequence = field(default_factory=lambda: [said("Hello", " world")])
    embeddings: Callable = embedded
    served: Sequence[ServedModel] = (MODEL,)
    state: Health = field(default_factory=Health)
    requests: list = field(default_factory=list)
    clients: list = field(default_factory=list)
    paused: threading.Event = field(default_factory=threading.Event)
    cancelled: threading.Event = field(default_factory=threading.Event)
    refusal: Exception | None = None
    replies: list[ScriptedReply] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def submit(self, request, client):
        if self.refusal is not None:
            raise self.refusal
        self.requests.append(request)
        self.clients.append(client)
        if isinstance(request, EmbeddingRequest):
            script = self.embeddings(request.texts)
        elif callable(self.scripts):
            script = self.scripts(request)
        else:
            script = self.scripts[min(len(self.requests), len(self.scripts)) - 1]
        self.replies.append(ScriptedReply(script, self))
        return self.replies[-1]

    async def load(self, model):
        self.loaded.append(model)

    def unload(self, model):
        if self.refusal is not None:
            raise self.refusal
        self.loaded.remove(model)

    async def chat_ids(self, request):
        self.requests.append(request)
        return [0] * sum(len(message.text) for message in request.messages)

    def models(self):
        return self.served

    def health(self):
        return self.state

    @property
    def request(self):
        return self.requests[-1]

    def play(self, *scripts):
        self.scripts = scripts
        self.requests.clear()
        self.replies.clear()


@dataclass
class Running:
    """A running server."""

    url: str
    port: int
    backend: ScriptedBackend
    service: Service
    client: httpx.Client

    def post(self, path, body, **options):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": "application/json"} | options.pop("headers", {})
        return self.client.post(path, content=content, headers=headers, **options)

    def get(self, path, **options):
        return self.client.get(path, **options)

    def socket(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)


async def _hurried_sleep(seconds):
    await asyncio.sleep(min(seconds, 0.01))


# uvicorn looks every 0.1 s whether it should end, and again whether connections have.
uvicorn.server.asyncio = types.SimpleNamespace(**vars(asyncio) | {"sleep": _hurried_sleep})


@contextlib.contextmanager
def running(backend=None, *, access=None, patience=None, defaults=None) -> Iterator[Running]:
    backend = backend or ScriptedBackend()
    # Scripts that pause before they say anything are not to wait for the first event.
    service = Service(backend, patience=patience or Patience(first_s=0.5))
    if defaults is not None:
        service.defaults = defaults
    server = server_of(make_app(service, access or Access()))
    listening = listen("127.0.0.1", 0)
    ready = threading.Event()
    started = server.startup

    async def startup(sockets=None):
        await started(sockets)
        ready.set()

    server.startup = startup
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    assert ready.wait(PATIENCE_S)
    port = listening.getsockname()[1]
    try:
        url = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=url, timeout=PATIENCE_S, trust_env=False) as client:
            yield Running(url, port, backend, service, client)
    finally:
        server.should_exit = True
        server.force_exit = True
        thread.join(PATIENCE_S)
        listening.close()


def samples_of(server):
    """The figures at /metrics, by name and labels."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(server.get("/metrics").text)
        for sample in family.samples
    }


def read_until(server, path, body, words, *, count=1):
    """Return the events of a stream whose first reply pauses until some words came `count` times."""
    text = ""
    with server.client.stream("POST", path, json=body | {"stream": True}) as response:
        for part in response.iter_text():
            text += part
            if text.count(words) >= count:
                server.backend.replies[0].go_on()
    return events_of(SimpleNamespace(text=text))


def events_of(response) -> list[tuple[str | None, dict | str]]:
    """The server-sent events of a response: name and value, "[DONE]" as it is.

    Lines of JSON, as Ollama's clients get them, have no names.
    """
    if response.text.startswith("{"):
        return [(None, json.loads(line)) for line in response.text.splitlines()]
    found = []
    for block in response.text.split("\n\n"):
        if not block:
            continue
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        value = fields["data"]
        found.append((fields.get("event"), value if value == "[DONE]" else json.loads(value)))
    return found
