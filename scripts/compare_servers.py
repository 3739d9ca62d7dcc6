#!/usr/bin/env python3
"""Compare `akunu serve` with mlx-lm's and llama.cpp's servers: the same prompts at once, in turns.

    python scripts/compare_servers.py [MODEL.gguf] [--program NAME ...] [--streams 1,2,4,8]
        [--sets 8] [--prompts 8] [--max-tokens 64] [--threads 1]

A set is some of the shipped prompts, mixed, none of which continues another. Each server answers
all sets, streamed and greedily, so many prompts of a set at once; sets go to one server after
another, which is first by turns. For each number of streams the servers are started anew and warmed
up with a set of their own, so each prompt is new to its server.

Times are the processor time of a server's process, prompts included, which other programs on the
machine hardly change. `first` is that time from the sending of prompts to the first text of each
reply, the mean over replies, and `first, s` the same by the clock. A ratio has a 95 % interval from resampled sets. Works on Linux.

mlx-lm reads the weights of the file from folders that akunu and mlx-lm convert. `mlx-lm` computes
with packed weights and akunu's kernels in its process, `mlx-lm-dense` with float32 and OpenBLAS;
with what its own wheel brings it is slower than either. llama.cpp is xllamacpp's build.
"""

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
from measure_start import seconds

from akunu_py.bench.bootstrap import LEAST_SESSIONS, Floats, estimate, session_weights
from akunu_py.bench.workloads import CATEGORIES, Prompt, load_prompts
from akunu_py.model_store.default_model import fetched_model_path

AKUNU = "akunu"
_MLX_LM = (
    "from akunu_py.cpu import load_kernels; load_kernels(); from mlx_lm.server import main; main()"
)
_LLAMA_CPP = """
import sys, time, xllamacpp
parameters = xllamacpp.CommonParams()
parameters.model.path, parameters.port, parameters.n_parallel = sys.argv[1], *map(int, sys.argv[2:4])
parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = int(sys.argv[4])
parameters.n_ctx, parameters.n_gpu_layers, parameters.verbosity = 4096 * parameters.n_parallel, 0, 0
parameters.ui = parameters.fit_params = False
server = xllamacpp.Server(parameters)
time.sleep(1e6)
"""


def commands(model: Path, folder: Path, streams: int, threads: int) -> dict[str, list[str]]:
    """Return how each program's server is started, but for its port."""
    python, places = sys.executable, str(max(streams, 1))
    served = [python, "-m", "akunu_py", "serve", str(model), "--parallel", places, "--port"]
    mlx_lm = [python, "-c", _MLX_LM, "--decode-concurrency", places, "--model"]
    return {
        AKUNU: served,
        "akunu-plain": [*served[:-1], "--drafter", "none", "--port"],
        "mlx-lm": [*mlx_lm, str(folder / "packed"), "--port"],
        "mlx-lm-dense": [*mlx_lm, str(folder / "dense"), "--port"],
        "llama.cpp": [python, "-c", _LLAMA_CPP, str(model), "PORT", places, str(threads)],
    }


def convert(model: Path, folder: Path) -> None:
    """Write the model's weights for mlx-lm, packed as in the file and dense."""
    packed, dense = str(folder / "packed"), str(folder / "dense")
    akunu = [sys.executable, "-m", "akunu_py", "--quiet", "models", "convert"]
    seconds([*akunu, str(model), packed, "--compute-type", "float32"])
    mlx_lm = [sys.executable, "-m", "mlx_lm", "convert", "--hf-path", packed, "--mlx-path", dense]
    seconds([*mlx_lm, "--dequantize", "--dtype", "float32"])


@dataclass(frozen=True, slots=True)
class Reply:
    """What a client saw: tokens as the server counts them, and how long the first text took.

    `cpu_s` are seconds of the server's processor time, `wall_s` of the clock.
    """

    prompt_tokens: int
    tokens: int
    cpu_s: float
    wall_s: float


@dataclass(frozen=True, slots=True)
class Server:
    port: int
    process: subprocess.Popen[bytes]

    def cpu_s(self) -> float:
        """Return the processor time of all threads of the process; it has no children."""
        # The clock of another process, as clock_getcpuclockid(3) of Linux numbers it.
        return time.clock_gettime(~self.process.pid << 3 | 2)

    def answer(self, prompt: Prompt, max_tokens: int) -> Reply:
        chat = prompt.kind == "chat"
        body = {"messages": prompt.messages} if chat else {"prompt": prompt.text}
        body |= {"max_tokens": max_tokens, "temperature": 0, "stream": True}
        body["stream_options"] = {"include_usage": True}
        path = "/v1/chat/completions" if chat else "/v1/completions"
        first, usage, began = (), {}, (self.cpu_s(), time.perf_counter())
        with contextlib.closing(HTTPConnection("127.0.0.1", self.port, timeout=600)) as connection:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                raise RuntimeError(f"{prompt.id}: {response.read().decode():.300}")
            for line in response:
                if not line.startswith(b"data: {"):
                    continue
                event = json.loads(line[6:])
                usage = event.get("usage") or usage
                if not first and any(
                    one.get("text") or one.get("delta", {}).get("content")
                    for one in event["choices"]
                ):
                    first = self.cpu_s() - began[0], time.perf_counter() - began[1]
        return Reply(usage["prompt_tokens"], usage["completion_tokens"], *first)

    def answer_set(
        self, prompts: Sequence[Prompt], streams: int, max_tokens: int
    ) -> tuple[float, list[Reply]]:
        """Answer `streams` prompts at once, then the next ones; return processor seconds, and replies."""
        began, replies = self.cpu_s(), list[Reply]()
        with ThreadPoolExecutor(streams) as clients:
            for start in range(0, len(prompts), streams):
                some = prompts[start : start + streams]
                replies += clients.map(self.answer, some, [max_tokens] * streams)
        return self.cpu_s() - began, replies


@contextlib.contextmanager
def serving(name: str, command: Sequence[str], threads: int, log: Path) -> Iterator[Server]:
    """Start a server and wait until it answers; `log` gets its words."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    at = command.index("PORT") if "PORT" in command else len(command)
    variables = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))
    with log.open("wb") as words:
        process = subprocess.Popen(
            [*command[:at], str(port), *command[at + 1 :]],
            stdout=words, stderr=words, env=os.environ | variables,
        )  # fmt: skip
    try:
        for _ in range(600):
            if process.poll() is not None:
                sys.exit(f"the server of {name} ended: {log.read_text(errors='replace')[-500:]}")
            with (
                contextlib.suppress(OSError),
                contextlib.closing(HTTPConnection("127.0.0.1", port)) as c,
            ):
                c.request("GET", "/v1/models")
                if c.getresponse().status == 200:
                    break
            time.sleep(0.2)
        yield Server(port, process)
    finally:
        process.kill()
        process.wait()


def sets(count: int, size: int) -> list[list[Prompt]]:
    """Return `count` sets of `size` prompts for measuring, and one before them for warming up."""
    found = [prompt for prompt in load_prompts() if not prompt.turn]
    of = {name: [one for one in found if one.category == name] for name in CATEGORIES}
    mixed = [one for row in zip(*of.values(), strict=False) for one in row]
    if count < LEAST_SESSIONS or (count + 1) * size > len(mixed):
        sys.exit(
            f"--sets {count} of --prompts {size} are {(count + 1) * size} prompts with the set to warm "
            f"up; give at least {LEAST_SESSIONS} sets, and no more than {len(mixed)} prompts"
        )
    return [mixed[at * size : (at + 1) * size] for at in range(count + 1)]


def table(streams: int, seen: Mapping[str, Sequence[tuple[float, list[Reply]]]]) -> Iterator[str]:
    """Return a line for each server; ratios are above 1 where akunu is ahead."""
    weights = session_weights([str(at) for at in range(len(seen[AKUNU]))], name="servers")

    def figures(name: str) -> list[Floats]:
        """Return tokens a second and the two times to the first text, each in all resamples."""
        cpu, answered = zip(*seen[name], strict=True)
        sums = np.array([np.sum([astuple(one) for one in some], axis=0) for some in answered])
        _, tokens, *firsts = (weights @ sums).T
        replies = weights @ [len(some) for some in answered]
        return [
            tokens / (weights @ cpu),
            *(first / replies for first in firsts),
        ]

    akunu = figures(AKUNU)
    for name, rounds in seen.items():
        cells = [str(streams), name]
        for place, (own, theirs) in enumerate(zip(akunu, figures(name), strict=True)):
            found = estimate(theirs / own if place else own / theirs, len(rounds))
            cells += [f"{theirs[0]:.2f}", f"{found.ratio:.2f} ({found.range_text('.2f')})"]
        read, made = np.sum(
            [(r.prompt_tokens, r.tokens) for _, some in rounds for r in some], axis=0
        )
        yield f"| {' | '.join([*cells, str(read), str(made)])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("model", nargs="?", type=Path, help="a GGUF file; else the default model")
    parser.add_argument("--program", action="append", help="leave out the others but akunu")
    parser.add_argument("--streams", default="1,2,4,8")
    parser.add_argument("--sets", type=int, default=8)
    parser.add_argument("--prompts", type=int, default=8, help="of a set")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="the converted model, made once"
    )
    options = parser.parse_args()
    model = options.model or fetched_model_path()
    warm_up, *measured = sets(options.sets, options.prompts)
    times = "".join(f" | {time} | of akunu's" for time in ("first, CPU s", "first, s"))
    print(f"| streams | server | tokens/CPU s | akunu's of its{times} | read | made |")
    print(f"|{'---|' * 10}")
    with contextlib.ExitStack() as kept:
        temporary = Path(kept.enter_context(tempfile.TemporaryDirectory()))
        folder = options.keep or temporary
        if not (folder / "dense").exists():
            convert(model, folder)
        for streams in map(int, options.streams.split(",")):
            found = commands(model, folder, streams, options.threads)
            names = [AKUNU, *(name for name in options.program or found if name != AKUNU)]
            seen = {name: [] for name in names}
            with contextlib.ExitStack() as running:
                servers = {
                    name: running.enter_context(
                        serving(name, found[name], options.threads, temporary / f"{name}.log")
                    )
                    for name in names
                }
                for server in servers.values():
                    server.answer_set(warm_up, streams, options.max_tokens)
                for number, prompts in enumerate(measured):
                    turn = number % len(names)
                    for name in names[turn:] + names[:turn]:
                        one = servers[name].answer_set(prompts, streams, options.max_tokens)
                        seen[name].append(one)
                        print(streams, number, name, *one, file=sys.stderr, flush=True)
            print(*table(streams, seen), sep="\n", flush=True)


if __name__ == "__main__":
    main()
