#!/usr/bin/env python3
"""Replay an agent's session on akunu's server and on others with the same weights, turn by turn.

    python scripts/compare_servers.py model.gguf --keep FOLDER [--turns 8] [--max-tokens 48]
        [--blas LIBRARY] [--peer mlx-lm] [--peer llama.cpp]

Servers: akunu with and without drafts, mlx-lm's (`mlx_lm.server`) on the same MLX folder in float32,
and llama.cpp's (by xllamacpp) on the GGUF file, which computes with its quantized weights. FOLDER
keeps the converted model. On Linux MLX's own BLAS is very slow: --blas names one, such as
libopenblas.so, which akunu and mlx-lm then both load. All use --threads threads.

Each server has a conversation of its own: a message that asks for something, files and results of
searches as an agent would send them, and the server's own replies as it wrote them, greedily. All
servers are started first, and each turn goes to one after another in rotating order. What was
prefilled and reused is the servers' own count.
"""

import argparse
import contextlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "scripts")]

from agent_session import SYSTEM, TASKS, result_of
from measure_start import convert

CHAT = "/v1/chat/completions"
PATIENCE_S = 300
STEPS = (
    ("read_file", {"path": "plain.py", "first": 1}, "Write this file again."),
    ("grep", {"path": "ngram.py", "text": "self._"}, "Which of these lines change?"),
    ("read_file", {"path": "ngram_settings.py", "first": 31}, "Write the first class again."),
    ("run_tests", {"path": "ngram.py"}, "What failed?"),
    ("read_file", {"path": "lookup.py", "first": 1}, "Write it again with shorter comments."),
    ("edit_file", {"path": "lookup.py", "line": 61, "new": "pass"}, "Write the changed lines."),
)

LLAMA_CPP = """
import sys, time, xllamacpp
parameters = xllamacpp.CommonParams()
parameters.model.path = sys.argv[1]
parameters.n_ctx = 8192
parameters.n_parallel = 1
parameters.n_gpu_layers = int(sys.argv[3])
parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = int(sys.argv[2])
parameters.verbosity = 0
parameters.warmup = parameters.fit_params = parameters.ui = False
server = xllamacpp.Server(parameters)
print(server.listening_address, flush=True)
time.sleep(1e6)
"""


@dataclass(frozen=True)
class Turn:
    """Seconds of a request, its tokens by the server's count, and its reply."""

    seconds: float
    prompt: int
    cached: int
    reply: int
    text: str

    @property
    def prefilled(self) -> int:
        return self.prompt - self.cached


@dataclass
class Server:
    """A running server, and the conversation with it."""

    name: str
    client: httpx.Client
    model: str
    messages: list[dict[str, str]] = field(
        default_factory=lambda: [{"role": "system", "content": SYSTEM}]
    )
    turns: list[Turn] = field(default_factory=list)

    def ask(self, text: str, max_tokens: int) -> None:
        self.messages.append({"role": "user", "content": text})
        body = {
            "model": self.model, "messages": self.messages, "max_tokens": max_tokens,
            "temperature": 0.0,
        }  # fmt: skip
        started = time.perf_counter()
        response = self.client.post(CHAT, json=body)
        seconds = time.perf_counter() - started
        response.raise_for_status()
        reply = response.json()
        said = reply["choices"][0]["message"]["content"] or ""
        usage = reply["usage"]
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        self.messages.append({"role": "assistant", "content": said})
        self.turns.append(
            Turn(seconds, usage["prompt_tokens"], cached, usage["completion_tokens"], said)
        )


@contextlib.contextmanager
def started(command: Sequence[str], environment: Mapping[str, str], port: int = 0) -> Iterator[str]:
    """Run a server; yields its address, which it prints unless a port is given."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, **environment},
        )  # fmt: skip
        try:
            yield _address(process, log, port)
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()


def _address(process: subprocess.Popen[str], log: object, port: int) -> str:
    for _ in range(PATIENCE_S * 10):
        log.seek(0)
        said = log.read()
        if process.poll() is not None:
            sys.exit(f"{' '.join(process.args[:4])} ended: {said[-1000:]}")
        found = re.search(r"(http://[0-9.:]+)", said)
        url = f"http://127.0.0.1:{port}" if port else found and found[1]
        if url:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{url}/health", timeout=5, trust_env=False).status_code == 200:
                    return url
        time.sleep(0.1)
    sys.exit(f"{' '.join(process.args[:4])} did not start")


def servers(options: argparse.Namespace, folder: Path, stack: contextlib.ExitStack) -> list[Server]:
    """Start all servers."""
    threads = str(options.threads)
    environment = {
        "OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads, "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    if options.blas:
        environment["LD_PRELOAD"] = str(options.blas.resolve())
    else:
        environment["AKUNU_BLAS"] = "mlx"
    python = [sys.executable, "-m"]
    serve = [*python, "akunu_py", "serve", str(folder), "--port", "0"]
    found: dict[str, tuple[list[str], int, str]] = {
        "akunu": (serve, 0, ""),
        "akunu, no drafts": ([*serve, "--drafter", "none"], 0, ""),
    }
    if "mlx-lm" in options.peer:
        ask = ["--model", str(folder), "--port", str(options.port)]
        found["mlx-lm"] = ([*python, "mlx_lm", "server", *ask], options.port, "default_model")
    if "llama.cpp" in options.peer and importlib.util.find_spec("xllamacpp"):
        layers = "999" if sys.platform == "darwin" else "0"
        command = [sys.executable, "-c", LLAMA_CPP, str(options.model), threads, layers]
        found["llama.cpp"] = (command, 0, "default")
    made = []
    for name, (command, port, model) in found.items():
        own = environment if name != "llama.cpp" else {}
        url = stack.enter_context(started(command, own, port))
        client = httpx.Client(base_url=url, timeout=PATIENCE_S, trust_env=False)
        stack.enter_context(client)
        if not model:
            model = client.get("/v1/models").json()["data"][0]["id"]
        made.append(Server(name, client, model))
    return made


def message(number: int, lines: int) -> str:
    """Return what the agent sends in a turn: a task first, then results."""
    name, arguments, wish = STEPS[number % len(STEPS)]
    task = f"{TASKS[number // len(STEPS) % len(TASKS)]}\n\n" if number % len(STEPS) == 0 else ""
    return f"{task}Result of {name} {arguments}:\n{result_of(name, arguments, lines)}\n\n{wish}"


def report(made: Sequence[Server]) -> list[str]:
    """Return the table of seconds and prefilled tokens by turn."""
    names = [server.name for server in made]
    table = [
        f"| turn | {' | '.join(f'{name}: s | prefilled' for name in names)} |",
        f"|---|{'---|---|' * len(names)}",
    ]
    for number in range(len(made[0].turns)):
        turns = [server.turns[number] for server in made]
        cells = " | ".join(f"{turn.seconds:.1f} | {turn.prefilled}" for turn in turns)
        table.append(f"| {number + 1} | {cells} |")
    sums = [
        (sum(turn.seconds for turn in one.turns), sum(turn.prefilled for turn in one.turns))
        for one in made
    ]
    table.append(f"| all | {' | '.join(f'{s:.1f} | {count}' for s, count in sums)} |")
    table.append("")
    first = made[0]
    for server in made:
        equal = sum(
            mine.text == theirs.text for mine, theirs in zip(first.turns, server.turns, strict=True)
        )
        last, replies = server.turns[-1], sum(turn.reply for turn in server.turns)
        table.append(
            f"{server.name}: last prompt {last.prompt} tokens, {replies} tokens of replies, "
            f"{equal} of {len(server.turns)} replies as akunu's"
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model", type=Path, help="a GGUF file")
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="the converted model, made once"
    )
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--lines", type=int, default=30, help="lines of a tool's result")
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--blas", type=Path, help="a BLAS for akunu and mlx-lm")
    parser.add_argument("--port", type=int, default=8765, help="for mlx-lm's server")
    parser.add_argument(
        "--peer", action="append", choices=("mlx-lm", "llama.cpp"), help="both unless given"
    )
    options = parser.parse_args()
    options.peer = options.peer or ["mlx-lm", "llama.cpp"]
    if not options.model.is_file():
        parser.error(f"{options.model} is not a file; give a GGUF file")
    with contextlib.ExitStack() as stack:
        folder = options.keep
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "mlx"
        if not folder.exists():
            convert(options.model, folder)
        made = servers(options, folder, stack)
        for number in range(options.turns):
            text = message(number, options.lines)
            turn = number % len(made)
            for server in [*made[turn:], *made[:turn]]:
                server.ask(text, options.max_tokens)
    print("\n".join(report(made)))


if __name__ == "__main__":
    main()
