#!/usr/bin/env python3
"""Compare `akunu serve` with mlx-lm's and llama.cpp's servers: the same prompts at once, in turns.

    python scripts/compare_servers.py [MODEL.gguf] [--program NAME ...] [--streams 1,2,4,8]
        [--sets 8] [--prompts 8] [--max-tokens 64] [--threads 1] [--keep FOLDER]

A set is some of the shipped prompts, mixed, none of which continues another. The servers answer each
set one after another, streamed and greedily, with the given number of prompts at once; which server
begins alternates. For each number of streams they are started anew and warmed up with another set.

Times are the processor time of a server's process, prompts included, which other work on the machine
hardly changes. `first` is that from sending a prompt to the first text of its reply, the mean over
replies, and `first, s` the same by the clock. Ratios are above 1 where akunu is ahead, and have 95 %
intervals from resampled sets. Works on Linux.

mlx-lm reads folders that akunu and mlx-lm convert from the file. `mlx-lm` computes with packed weights
and akunu's kernels, `mlx-lm-dense` in float32 with the OpenBLAS that akunu brings; with its own wheel
alone it is slower than either. llama.cpp is xllamacpp's build.
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
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple

import numpy as np
from measure_start import convert

from akunu_py.bench.bootstrap import LEAST_SESSIONS, Ratio
from akunu_py.bench.workloads import CATEGORIES, Prompt
from akunu_py.model_store.known_models import fetched_model_path

AKUNU = "akunu"
PROGRAMS = ("akunu-plain", "mlx-lm", "mlx-lm-dense", "llama.cpp", "llama.cpp-ngram-mod")
_MLX_LM = "import akunu_py.cpu; akunu_py.cpu.load_kernels(); from mlx_lm.server import main; main()"
_LLAMA_CPP = """
import sys, time, xllamacpp
parameters = xllamacpp.CommonParams()
parameters.model.path, parameters.port, parameters.n_parallel = sys.argv[1], *map(int, sys.argv[2:4])
parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = int(sys.argv[4])
parameters.n_ctx, parameters.n_gpu_layers, parameters.verbosity = 4096 * parameters.n_parallel, 0, 0
parameters.ui = parameters.fit_params = False
kinds = xllamacpp.common_speculative_type
parameters.speculative.types = [getattr(kinds, f"COMMON_SPECULATIVE_TYPE_{sys.argv[5]}")]
server = xllamacpp.Server(parameters)
time.sleep(1e6)
"""


class Reply(NamedTuple):
    """Tokens of a reply as its server counts them, and the time to its first text."""

    prompt_tokens: int
    tokens: int
    cpu_s: float
    wall_s: float


class Server:
    """A program's server at `port`; `log` gets its words."""

    def __init__(self, command: Sequence[str], port: int, threads: int, log: Path) -> None:
        self._port = port
        limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))
        with log.open("wb") as words:
            self.process = subprocess.Popen(
                command, stdout=words, stderr=words, env=os.environ | limits
            )
        while True:
            if self.process.poll() is not None:
                sys.exit(f"{log.stem} ended: {log.read_text(errors='replace')[-500:]}")
            with contextlib.suppress(OSError), contextlib.closing(self._connect()) as connection:
                connection.request("GET", "/v1/models")
                if connection.getresponse().status == 200:
                    return
            time.sleep(0.2)

    def _connect(self) -> HTTPConnection:
        return HTTPConnection("127.0.0.1", self._port, timeout=600)

    def _times(self) -> np.ndarray:
        """Return the processor time of the process, which has no children, and the clock."""
        # Linux numbers the clock of another process so: clock_getcpuclockid(3).
        return np.array([time.clock_gettime(~self.process.pid << 3 | 2), time.perf_counter()])

    def answer(self, prompt: Prompt, max_tokens: int) -> Reply:
        chat = prompt.kind == "chat"
        body = {"messages": prompt.messages} if chat else {"prompt": prompt.text}
        body |= {"max_tokens": max_tokens, "temperature": 0, "stream": True}
        body["stream_options"] = {"include_usage": True}
        first, usage, began = None, {}, self._times()
        with contextlib.closing(self._connect()) as connection:
            path = "/v1/chat/completions" if chat else "/v1/completions"
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                raise RuntimeError(f"{prompt.id}: {response.read().decode():.300}")
            for line in response:
                event = json.loads(line[6:]) if line.startswith(b"data: {") else {}
                usage = event.get("usage") or usage
                texts = (
                    one.get("text", one.get("delta", {}).get("content"))
                    for one in event.get("choices", ())
                )
                if first is None and any(texts):
                    first = self._times() - began
        return Reply(usage["prompt_tokens"], usage["completion_tokens"], *first)

    def answer_set(self, prompts: Sequence[Prompt], streams: int, max_tokens: int) -> np.ndarray:
        """Answer so many prompts at once, then the next ones.

        Returns processor seconds, the number of replies, and the sums of the figures of `Reply`.
        """
        began, replies = self._times()[0], list[Reply]()
        with ThreadPoolExecutor(streams) as clients:
            for start in range(0, len(prompts), streams):
                some = prompts[start : start + streams]
                replies += clients.map(self.answer, some, [max_tokens] * streams)
        return np.array([self._times()[0] - began, len(replies), *np.sum(replies, axis=0)])


def commands(model: Path, folder: Path, streams: int, threads: int) -> dict[str, list[str]]:
    """Return how each program's server is started; PORT stands for its port."""
    served = [sys.executable, "-m", "akunu_py", "serve", str(model), "--port", "PORT"]
    served += ["--parallel", str(streams)]
    mlx_lm = [sys.executable, "-c", _MLX_LM, "--port", "PORT", "--decode-concurrency", str(streams)]
    settings = [str(model), "PORT", str(streams), str(threads)]
    llama_cpp = [sys.executable, "-c", _LLAMA_CPP, *settings]
    return {
        AKUNU: served,
        "akunu-plain": [*served, "--drafter", "none"],
        "mlx-lm": [*mlx_lm, "--model", str(folder / "packed")],
        "mlx-lm-dense": [*mlx_lm, "--model", str(folder / "dense")],
        "llama.cpp": [*llama_cpp, "NONE"],
        "llama.cpp-ngram-mod": [*llama_cpp, "NGRAM_MOD"],
    }


@contextlib.contextmanager
def serving(
    found: Mapping[str, Sequence[str]], threads: int, folder: Path
) -> Iterator[dict[str, Server]]:
    """Start the servers of these commands, and end them."""
    servers: dict[str, Server] = {}
    try:
        for name, command in found.items():
            with socket.socket() as taken:
                taken.bind(("127.0.0.1", 0))
                port = taken.getsockname()[1]
            words = [str(port) if word == "PORT" else word for word in command]
            servers[name] = Server(words, port, threads, folder / f"{name}.log")
        yield servers
    finally:
        for server in servers.values():
            server.process.kill()
            server.process.wait()


def sets(count: int, size: int) -> list[list[Prompt]]:
    """Return `count` sets of `size` prompts for measuring, and one before them for warming up."""
    found = [prompt for prompt in Prompt.load() if not prompt.turn]
    of = [[one for one in found if one.category == name] for name in CATEGORIES]
    mixed = [one for row in zip(*of, strict=False) for one in row]
    if count < LEAST_SESSIONS or (count + 1) * size > len(mixed):
        sys.exit(
            f"{count} sets of {size} prompts and one to warm up cannot be made; give at least "
            f"--sets {LEAST_SESSIONS}, and no more than {len(mixed)} prompts"
        )
    return [mixed[at * size : (at + 1) * size] for at in range(count + 1)]


def table(streams: int, seen: Mapping[str, Sequence[np.ndarray]]) -> Iterator[str]:
    """Return a line for each server, of what `answer_set` returned."""
    weights = Ratio.weights([str(at) for at in range(len(seen[AKUNU]))], name="servers")
    figures = {}
    for name, rounds in seen.items():
        cpu, replies, read, made, *firsts = (weights @ np.array(rounds)).T
        figures[name] = made / cpu, *(first / replies for first in firsts)
        cells = [str(streams), name]
        for place, (own, theirs) in enumerate(zip(figures[AKUNU], figures[name], strict=True)):
            found = Ratio.estimate(theirs / own if place else own / theirs, len(rounds))
            cells += [f"{theirs[0]:.2f}", f"{found.ratio:.2f} ({found.range_text('.2f')})"]
        yield f"| {' | '.join([*cells, f'{read[0]:.0f}', f'{made[0]:.0f}'])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("model", nargs="?", type=Path, help="a GGUF file; else the default model")
    parser.add_argument("--program", action="append", choices=PROGRAMS, help="akunu and these only")
    parser.add_argument("--streams", default="1,2,4,8")
    parser.add_argument("--sets", type=int, default=8)
    parser.add_argument("--prompts", type=int, default=8, help="of a set")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="for the converted model")
    options = parser.parse_args()
    model, programs = options.model or fetched_model_path(), options.program or PROGRAMS
    warm_up, *measured = sets(options.sets, options.prompts)
    times = "".join(f" | {time} | of akunu's" for time in ("first, CPU s", "first, s"))
    print(f"| streams | server | tokens/CPU s | akunu's of its{times} | read | made |")
    print(f"|{'---|' * 10}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        if any("mlx-lm" in name for name in programs) and not (folder / "dense").exists():
            convert(model, folder / "dense", folder / "packed")
        for streams in map(int, options.streams.split(",")):
            found = commands(model, folder, streams, options.threads)
            names = [AKUNU, *programs]
            seen = {name: [] for name in names}
            chosen = {name: found[name] for name in names}
            with serving(chosen, options.threads, Path(temporary)) as servers:
                for number, prompts in enumerate([warm_up, *measured]):
                    turn = number % len(names)
                    for name in names[turn:] + names[:turn]:
                        one = servers[name].answer_set(prompts, streams, options.max_tokens)
                        seen[name].append(one)
                        print(streams, number, name, *one, file=sys.stderr, flush=True)
            warm = {name: rounds[1:] for name, rounds in seen.items()}
            print(*table(streams, warm), sep="\n", flush=True)


if __name__ == "__main__":
    main()
