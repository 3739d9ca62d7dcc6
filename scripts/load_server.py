#!/usr/bin/env python3
"""Put load on `akunu serve` with a small model, and check that nothing is lost and nothing leaks.

    python scripts/load_server.py [MODEL] [--part PART ...] [--minutes 10] [--streams 32]
        [--disconnects 1000] [--sockets 200] [--requests 10000]

Parts, each against a server of its own:

- streams: so many streamed replies at once, for so many minutes.
- disconnects: clients that leave at a random moment: before, in and after the prompt's prefill.
- sockets: half-open connections, one half of which never finish their headers, the other half their
  bodies, while others are served.
- requests: short requests, one after another from 16 clients.

Every request must end with an answer, or with 503 and Retry-After, after which it is sent again. The
server's memory, threads, open files and cache are read every second from its process and /metrics;
their means in each third of the time after a warm-up are printed, and the last may exceed the first
only by little. At the end the server must be idle and healthy. Ends with 1 if
something does not hold. Works on Linux (/proc).
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

import httpx

ROOT = Path(__file__).parent.parent
CHAT = "/v1/chat/completions"
WARM_UP = 0.2
"""Share of the time in which caches fill."""

MOST_GROWTH = {"memory MB": 16.0, "threads": 1.0, "files": 8.0, "cache MB": 8.0}
"""By how much the mean of the last third may exceed that of the first.

Memory grows while `auto` remembers replies, up to 200,000 tokens or about 30 MB.
"""

CLIENTS = 16
WORDS = ["read", "the", "file", "and", "change", "one", "line", "then", "run", "all", "tests"]


@dataclass
class Server:
    """A running server; `samples` are figures of its process and of /metrics, by name."""

    url: str
    process: subprocess.Popen[str]
    samples: list[dict[str, float]] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    async def sample(self, client: httpx.AsyncClient) -> dict[str, float]:
        metrics = (await client.get("/metrics")).text
        process = Path("/proc") / str(self.process.pid)
        status = (process / "status").read_text()
        return {
            "memory MB": int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024,
            "threads": int(re.search(r"Threads:\s+(\d+)", status)[1]),
            "files": sum(1 for _ in (process / "fd").iterdir()),
            "cache MB": figure(metrics, "akunu_prefix_cache_bytes") / 2**20,
            "running": figure(metrics, "akunu_requests_running"),
            "waiting": figure(metrics, "akunu_requests_waiting"),
        }


def figure(metrics: str, name: str) -> float:
    return float(re.search(rf"^{name} (\S+)$", metrics, re.MULTILINE)[1])


@contextlib.contextmanager
def serving(model: Path) -> Iterator[Server]:
    command = [
        sys.executable, "-m", "akunu_py", "serve", str(model), "--port", "0", "--parallel", "4",
        "--cache-memory", "16MB", "--max-tokens", "32",
    ]  # fmt: skip
    variables = {**os.environ, "AKUNU_SERVE_QUEUE": "24"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=variables)
    try:
        for line in process.stderr:
            if match := re.search(r"(http://[^\s,;]+)", line):
                break
        else:
            sys.exit("the server did not start")
        yield Server(match[1], process)
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        process.kill()
        process.wait()


@dataclass
class Load:
    """What the clients of a part have seen."""

    server: Server
    client: httpx.AsyncClient
    rng: random.Random
    counts: Counter[str] = field(default_factory=Counter)

    def body(self, **options: object) -> dict[str, object]:
        """A request with one of a few system messages, and a question of its own."""
        words = " ".join(self.rng.choices(WORDS, k=self.rng.randrange(3, 30)))
        system = " ".join(WORDS * self.rng.randrange(1, 4))
        messages = [{"role": "system", "content": system}, {"role": "user", "content": words}]
        return {"messages": messages, "max_tokens": self.rng.randrange(1, 24), **options}

    async def send(self, body: dict[str, object]) -> None:
        """Send a request until it is answered; raises if it is lost."""
        self.counts["requests"] += 1
        while True:
            async with self.client.stream("POST", CHAT, json=body) as response:
                lines = [line async for line in response.aiter_lines()]
            if response.status_code == 503:
                self.counts["503, sent again"] += 1
                await asyncio.sleep(int(response.headers["retry-after"]))
                continue
            response.raise_for_status()
            if body.get("stream"):
                complete = lines[-2] == "data: [DONE]" and '"finish_reason":"' in lines[-4]
            else:
                complete = json.loads("".join(lines))["choices"][0]["finish_reason"] is not None
            if not complete:
                raise RuntimeError(f"a reply was not complete: {lines[-4:]}")
            self.counts["answered"] += 1
            return

    async def leave(self) -> None:
        """Send a request, and go away at a random moment."""
        body = json.dumps(self.body(stream=True, max_tokens=64)).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        sent = head.encode() + body
        stop = self.rng.randrange(len(sent) // 2, 2 * len(sent))
        writer.write(sent[:stop])
        await writer.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.rng.expovariate(4)):
                while await reader.read(1000):
                    pass
        if self.rng.random() < 0.5:
            writer.transport.abort()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        self.counts["left"] += 1


async def streams(load: Load, options: argparse.Namespace) -> None:
    end = time.monotonic() + options.minutes * 60

    async def one() -> None:
        while time.monotonic() < end:
            await load.send(load.body(stream=True))

    await asyncio.gather(*(one() for _ in range(options.streams)))


async def disconnects(load: Load, options: argparse.Namespace) -> None:
    async def some(count: int) -> None:
        for number in range(count):
            await load.leave()
            if number % 10 == 0:
                await load.send(load.body())

    await asyncio.gather(*(some(options.disconnects // CLIENTS + 1) for _ in range(CLIENTS)))


async def sockets(load: Load, options: argparse.Namespace) -> None:
    """Hold half-open connections; the server closes each, those in the body after a minute."""
    halves = (
        b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
        b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\n{",
    )
    opened = []
    for number in range(options.sockets):
        reader, writer = await asyncio.open_connection("127.0.0.1", load.server.port)
        writer.write(halves[number % 2])
        opened.append((reader, writer))
    slowest = 0.0

    async def wait_until_closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(options.body_s + 30):
            with contextlib.suppress(ConnectionError):
                while await reader.read(1000):
                    pass
        writer.close()
        load.counts["closed by the server"] += 1

    waiting = asyncio.gather(*(wait_until_closed(*one) for one in opened))
    while not waiting.done():
        start = time.monotonic()
        (await load.client.get("/health")).raise_for_status()
        slowest = max(slowest, time.monotonic() - start)
        await load.send(load.body())
        await asyncio.sleep(0.2)
    await waiting
    load.counts["slowest /health, ms"] = round(slowest * 1000)


async def requests(load: Load, options: argparse.Namespace) -> None:
    async def some(count: int) -> None:
        for _ in range(count):
            await load.send(load.body(max_tokens=2))

    await asyncio.gather(*(some(options.requests // CLIENTS) for _ in range(CLIENTS)))


PARTS: dict[str, Callable[[Load, argparse.Namespace], Coroutine[None, None, None]]] = {
    one.__name__: one for one in (streams, disconnects, sockets, requests)
}


@contextlib.asynccontextmanager
async def watch_server(server: Server, client: httpx.AsyncClient) -> AsyncIterator[None]:
    async def watch() -> None:
        while True:
            server.samples.append(await server.sample(client))
            await asyncio.sleep(1)

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def run(name: str, server: Server, options: argparse.Namespace) -> list[str]:
    """Run a part; print what was seen, and return what does not hold."""
    wrong = []
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
    start = time.monotonic()
    async with (
        httpx.AsyncClient(
            base_url=server.url, timeout=300, limits=limits, trust_env=False
        ) as client,
        httpx.AsyncClient(base_url=server.url, timeout=60, trust_env=False) as watcher,
    ):
        load = Load(server, client, random.Random(0))
        async with watch_server(server, watcher):
            await PARTS[name](load, options)
        taken = time.monotonic() - start
        for _ in range(100):
            last = await server.sample(watcher)
            if not last["running"] + last["waiting"]:
                break
            await asyncio.sleep(0.1)
        else:
            wrong.append("replies were left under way")
        if (await watcher.get("/health")).json()["status"] != "ok":
            wrong.append("the worker is not alive")
    counts = ", ".join(f"{what}: {count}" for what, count in load.counts.items())
    print(f"{name}: {taken:.0f} s; {counts}")
    if load.counts["requests"] != load.counts["answered"]:
        wrong.append("requests were lost")
    samples = server.samples[int(len(server.samples) * WARM_UP) :]
    third = max(1, len(samples) // 3)
    for what, most in MOST_GROWTH.items():
        first, middle, final = (
            mean(sample[what] for sample in part)
            for part in (samples[:third], samples[third:-third] or samples, samples[-third:])
        )
        print(f"  {what}: {first:.1f}, {middle:.1f}, {final:.1f} by thirds", flush=True)
        if final - first > most and not options.ignore_growth:
            wrong.append(f"{what} grew by {final - first:.1f}")
    return [f"{name}: {what}" for what in wrong]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("model", nargs="?", type=Path, default=ROOT / "models/akunu-tiny.gguf")
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--disconnects", type=int, default=1000)
    parser.add_argument("--sockets", type=int, default=200)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--body-s", type=float, default=60, help="the server's limit for a body")
    parser.add_argument(
        "--ignore-growth", action="store_true", help="print growth only: a short run is a warm-up"
    )
    options = parser.parse_args()
    wrong = []
    for name in options.part or PARTS:
        with serving(options.model) as server:
            wrong += asyncio.run(run(name, server, options))
    print(*wrong or ["everything holds"], sep="\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
