#!/usr/bin/env python3
"""Put load on `akunu serve` on several ranks of this machine, and see how it ends.

    python scripts/load_ranks.py [MODEL | --family qwen3_next] [--ranks 2] [--requests 200]
        [--at-once 8] [--disconnects 50] [--kill RANK ...] [--longest 10]

A family is one of tests/tiny_families.py, of which a random model is made.

Some clients leave in the middle: before, in and after the reading of their prompt. Every other
request must be answered, and asked again alone, the same server must give the same text. Some must
use cached rows meanwhile. Then, with requests under way,

- Ctrl-C reaches all ranks, as from a terminal: all must end in order;
- each rank in turn, or those given, is killed, on a fresh server: all others must end within
  ten seconds, or those of --longest, with an error that names it.

Ends with 1 if something does not hold.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import signal
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from free_ports import free_ports

CHAT = "/v1/chat/completions"
WORDS = ["read", "the", "file", "and", "change", "one", "line", "then", "run", "all", "tests"]
SYSTEMS = [" ".join(WORDS * count) for count in (1, 3, 6)]
FAILURES = (RuntimeError, ValueError, httpx.HTTPError)
"""What a request that is not answered raises."""


@dataclass(frozen=True)
class Ranks:
    """The processes of a server, and the files with what each wrote to standard error."""

    url: str
    processes: list[subprocess.Popen[bytes]]
    errors: list[Path]

    async def end(self, longest_s: float) -> float:
        """Wait for the end of all; return the seconds that it took, or what was waited."""
        begun = time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            for process in self.processes:
                await asyncio.to_thread(process.wait, 3 * longest_s)
        return time.monotonic() - begun

    def error_output(self, rank: int) -> str:
        return self.errors[rank].read_text(errors="replace").strip()


@contextlib.contextmanager
def serving(model: Path, count: int) -> Iterator[Ranks]:
    """Start a server once for each rank, on free ports; kill what is left at the end."""
    ring = [[f"127.0.0.1:{port}"] for port in free_ports(count)]
    command = [
        sys.executable, "-m", "akunu_py", "serve", str(model), "--port", "0", "--cache-memory",
        "16MB", "--max-tokens", "32",
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        hosts = Path(folder) / "ring.json"
        hosts.write_text(json.dumps(ring))
        errors = [Path(folder) / f"{rank}.txt" for rank in range(count)]
        processes = []
        for rank, path in enumerate(errors):
            environment = {**os.environ, "MLX_RANK": str(rank), "MLX_HOSTFILE": str(hosts)}
            stream = stack.enter_context(path.open("wb"))
            process = subprocess.Popen(
                command, env=environment, cwd=ROOT, stdin=subprocess.PIPE, stderr=stream
            )
            processes.append(stack.enter_context(process))
            stack.callback(process.kill)
        while (match := re.search(r"(http://[^\s,;]+)", errors[0].read_text())) is None:
            if any(process.poll() is not None for process in processes):
                sys.exit("".join(path.read_text() for path in errors))
            time.sleep(0.05)
        yield Ranks(match[1], processes, errors)


def requests(rng: random.Random, count: int) -> list[dict[str, object]]:
    """Return requests that share beginnings, streamed and not, greedy and sampled."""
    found = []
    for number in range(count):
        said = " ".join(rng.choices(WORDS, k=rng.randrange(3, 30)))
        if number % 8 == 0:
            # Takes several passes: about a token for each character.
            said = "".join(rng.choices(string.ascii_letters + string.digits, k=1200))
        messages = [
            {"role": "system", "content": rng.choice(SYSTEMS)},
            {"role": "user", "content": said},
        ]
        found.append({
            "messages": messages, "max_tokens": rng.randrange(4, 32), "seed": number,
            "temperature": rng.choice([0, 0.8]), "stream": rng.random() < 0.5,
        })  # fmt: skip
    return found


@dataclass
class Answer:
    """What a client got, as far as it came."""

    text: str = ""
    end: str | None = None
    cached_tokens: int = field(default=0, compare=False)


async def lines(client: httpx.AsyncClient, body: dict[str, object]) -> AsyncIterator[str]:
    async with client.stream("POST", CHAT, json=body) as response:
        if response.status_code != httpx.codes.OK:
            await response.aread()
            raise RuntimeError(f"{response.status_code}: {response.text}")
        async for line in response.aiter_lines():
            yield line


async def ask(client: httpx.AsyncClient, body: dict[str, object]) -> Answer:
    """Return the answer to a request; raises if it is lost."""
    answer = Answer()
    if not body["stream"]:
        found = json.loads("".join([line async for line in lines(client, body)]))
        (choice,) = found["choices"]
        cached = found["usage"]["prompt_tokens_details"]["cached_tokens"]
        return Answer(choice["message"]["content"], choice["finish_reason"], cached)
    async for line in lines(client, body):
        for choice in json.loads(line[6:]).get("choices", ()) if line.startswith("data: {") else ():
            answer.text += choice["delta"].get("content") or ""
            answer.end = choice["finish_reason"] or answer.end
    if answer.end is None:
        raise RuntimeError("a stream ended early")
    return answer


async def leave(client: httpx.AsyncClient, body: dict[str, object], rng: random.Random) -> None:
    """Send a request, and go away after a while or after some events."""
    events = rng.randrange(8)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(rng.expovariate(4) if rng.random() < 0.5 else None):
            async with contextlib.aclosing(
                lines(client, {**body, "stream": True, "max_tokens": 200})
            ) as stream:
                async for line in stream:
                    events -= line.startswith("data: ")
                    if events < 0:
                        return


async def load(ranks: Ranks, options: argparse.Namespace) -> list[str]:
    """Make all requests, then those that were not disturbed alone; return what does not hold."""
    rng = random.Random(options.seed)
    bodies = requests(rng, options.requests)
    leaving = set(rng.sample(range(options.requests), options.disconnects))
    answers: dict[int, Answer] = {}
    wrong: list[str] = []
    numbers = iter(range(options.requests))
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(
        base_url=ranks.url, timeout=300, limits=limits, trust_env=False
    ) as client:

        async def some() -> None:
            for number in numbers:
                try:
                    if number in leaving:
                        await leave(client, bodies[number], rng)
                    else:
                        answers[number] = await ask(client, bodies[number])
                except FAILURES as error:
                    wrong.append(f"request {number} was lost: {error!r}")

        try:
            await asyncio.gather(*(some() for _ in range(options.at_once)))
            alone = {number: await ask(client, bodies[number]) for number in sorted(answers)}
            health = (await client.get("/health")).json()
        except FAILURES as error:
            return [*wrong, f"the server does not stay up: {error!r}", ranks.error_output(0)]
        wrong += [
            f"request {number}: {answers[number]} among others, {answer} alone"
            for number, answer in alone.items()
            if answer != answers[number]
        ]
        if health["status"] != "ok" or health["running"] or health["waiting"]:
            wrong.append(f"the server is not idle and well: {health}")
    reused = sum(answer.cached_tokens > 0 for answer in answers.values())
    if not reused:
        wrong.append("no request used cached rows")
    print(
        f"load: {options.requests} requests, {options.at_once} at a time: {len(leaving)} clients "
        f"left, {len(answers)} answered, {options.requests - len(leaving) - len(answers)} lost, "
        f"{sum('alone' in text for text in wrong)} other texts alone; at least {reused} used "
        "cached rows",
        flush=True,
    )
    return wrong


@contextlib.asynccontextmanager
async def under_load(url: str, options: argparse.Namespace) -> AsyncIterator[None]:
    """Keep requests coming, until the server no longer answers; enter when some are under way."""
    bodies = requests(random.Random(options.seed), 64)
    begun = asyncio.Event()

    async def client(number: int) -> None:
        async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as session:
            # What is cut off by the end of the server is not looked at here.
            with contextlib.suppress(*FAILURES):
                for body in bodies[number :: options.at_once]:
                    async for _ in lines(session, {**body, "stream": True, "max_tokens": 500}):
                        begun.set()

    clients = asyncio.gather(*(client(number) for number in range(options.at_once)))
    await begun.wait()
    await asyncio.sleep(0.5)
    yield
    clients.cancel()
    await asyncio.gather(clients, return_exceptions=True)


async def interrupt(ranks: Ranks, options: argparse.Namespace) -> list[str]:
    """Send Ctrl-C to all ranks; return what does not hold."""
    async with under_load(ranks.url, options):
        for process in ranks.processes:
            process.send_signal(signal.SIGINT)
        taken = await ranks.end(options.longest)
    codes = [process.poll() for process in ranks.processes]
    print(f"Ctrl-C under load: all ended after {taken:.1f} s, with {codes}", flush=True)
    if codes == [128 + signal.SIGINT, *[0] * (len(codes) - 1)]:
        return []
    return [f"after Ctrl-C the ranks ended with {codes}: {ranks.error_output(0)}"]


async def kill(ranks: Ranks, lost: int, options: argparse.Namespace) -> list[str]:
    """Kill a rank; return what does not hold."""
    async with under_load(ranks.url, options):
        ranks.processes[lost].kill()
        taken = await ranks.end(options.longest)
    print(f"rank {lost} killed under load: all ended after {taken:.1f} s", flush=True)
    wrong = []
    if taken > options.longest:
        wrong.append(f"it took {taken:.1f} s to end after rank {lost} was lost")
    for rank, process in enumerate(ranks.processes):
        if rank == lost:
            continue
        code, said = process.poll(), ranks.error_output(rank)
        # Lines of MLX's ring, without their ends, may stand around it.
        told = re.search(rf"Error: rank {lost} .*", said)
        print(f"  rank {rank}, exit code {code}: {told[0] if told else said}", flush=True)
        # The ring crashes at times when a connection breaks (docs/several-machines.md).
        crashed = code == -signal.SIGSEGV and "[ring]" in said
        if not (crashed or (told and code == 1)):
            wrong.append(f"rank {rank} did not tell that rank {lost} was lost")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("model", nargs="?", type=Path, default=ROOT / "models/akunu-tiny.gguf")
    parser.add_argument("--family", help="instead of a model")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--disconnects", type=int, default=50, help="how many of the requests")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kill", type=int, action="append", metavar="RANK")
    parser.add_argument("--longest", type=float, default=10.0, metavar="SECONDS")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.family:
            from model_folders import write_family_folder

            options.model = write_family_folder(Path(folder) / options.family, options.family)
        wrong = run_parts(options)
    print(*wrong or ["everything holds"], sep="\n")
    return int(bool(wrong))


def run_parts(options: argparse.Namespace) -> list[str]:
    """Run all parts; return what does not hold."""
    with serving(options.model, options.ranks) as ranks:
        wrong = asyncio.run(load(ranks, options))
        if any(process.poll() is not None for process in ranks.processes):
            return wrong
        wrong += asyncio.run(interrupt(ranks, options))
    for lost in options.kill or range(options.ranks):
        with serving(options.model, options.ranks) as ranks:
            wrong += asyncio.run(kill(ranks, lost, options))
    return wrong


if __name__ == "__main__":
    sys.exit(main())
