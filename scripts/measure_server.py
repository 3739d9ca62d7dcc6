#!/usr/bin/env python3
"""Measure what HTTP costs: one stream through `akunu serve` and by the engine, in turns.

    python scripts/measure_server.py [MODEL] [--pairs 24] [--max-tokens 64]

The server is a process of its own; this one has the engine and the client, and only one of the two
works at a time. Both answer the same prompts greedily, from a cold cache, each pair in another
order. Ratios are medians over pairs of the server's speed over the engine's, with 95 % intervals
from resampled pairs: tokens a second of the whole reply, tokens a second after the first one, and
the inverse of the time to the first token. MODEL is the default model unless it is given; run with
AKUNU_BLAS=auto, on cores where nothing else runs.
"""

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import httpx

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "scripts")]

from agent_session import FILES, LINES, TASKS, result_of
from compare_servers import started

from akunu_py.bench.metrics import TimedPair, median_speedup
from akunu_py.engine.engine import Engine
from akunu_py.model_store.default_model import fetched_model_path

CHAT = "/v1/chat/completions"
CONTEXT = 2048
Messages = list[dict[str, str]]


@dataclass(frozen=True)
class Timed:
    """Seconds to the first text and to the end, and tokens of the reply."""

    first_s: float
    total_s: float
    tokens: int
    text: str


def prompts(count: int, lines: int) -> list[Messages]:
    """Return conversations of one message that no other begins like."""
    found = []
    for number in range(count):
        read = {
            "path": FILES[number % len(FILES)],
            "first": LINES[number // len(FILES) % len(LINES)],
        }
        task = TASKS[number % len(TASKS)]
        text = f"{number}. {task}\n\n{result_of('read_file', read, lines)}\n\nWrite it again."
        found.append([{"role": "user", "content": text}])
    return found


def by_engine(engine: Engine, messages: Messages, max_tokens: int) -> Timed:
    engine.reset()
    start = time.perf_counter()
    first = 0.0
    stream = engine.stream_chat(messages, max_tokens=max_tokens, temperature=0.0)
    for event in stream:
        if event.text and not first:
            first = time.perf_counter() - start
    total = time.perf_counter() - start
    result = stream.result
    return Timed(first, total, len(result.token_ids), result.text)


def by_server(client: httpx.Client, messages: Messages, max_tokens: int) -> Timed:
    body = {
        "messages": messages, "max_tokens": max_tokens, "temperature": 0.0, "stream": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    start = time.perf_counter()
    first, tokens, text = 0.0, 0, ""
    with client.stream("POST", CHAT, json=body) as response:
        response.raise_for_status()
        for line in response.iter_lines():
            if not line.startswith("data: {"):
                continue
            chunk = json.loads(line.removeprefix("data: "))
            added = "".join(one["delta"].get("content") or "" for one in chunk["choices"])
            text += added
            if added and not first:
                first = time.perf_counter() - start
            tokens = (chunk.get("usage") or {}).get("completion_tokens", tokens)
    return Timed(first, time.perf_counter() - start, tokens, text)


def report(pairs: Sequence[tuple[Timed, Timed]]) -> list[str]:
    """Return the table; each pair is the engine's reply and the server's."""
    figures: dict[str, Callable[[Timed], tuple[int, float]]] = {
        "whole reply": lambda one: (one.tokens, one.total_s),
        "after the first token": lambda one: (one.tokens - 1, one.total_s - one.first_s),
        "to the first token": lambda one: (1, one.first_s),
    }
    table = [
        "| | engine, median s | server, median s | server's speed / engine's | 95 % | pairs |",
        "|---|---|---|---|---|---|",
    ]
    for name, figure in figures.items():
        ratio = median_speedup([
            TimedPair(str(number), *figure(direct), *figure(served))
            for number, (direct, served) in enumerate(pairs)
        ])  # fmt: skip
        seconds = [median(figure(pair[side])[1] for pair in pairs) for side in (0, 1)]
        cells = [name, *(f"{one:.3f}" for one in seconds)]
        cells.append("" if ratio.ratio is None else f"{ratio.ratio:.3f}")
        table.append(f"| {' | '.join([*cells, ratio.range_text('.3f'), str(ratio.pairs)])} |")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model", nargs="?", type=Path, help="a GGUF file or an MLX folder")
    parser.add_argument("--pairs", type=int, default=24)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--lines", type=int, default=20, help="lines of code in a prompt")
    options = parser.parse_args()
    model = options.model or fetched_model_path()
    if model is None:
        parser.error("the default model is not there; run: akunu models pull smollm2")
    command = [
        sys.executable, "-m", "akunu_py", "serve", str(model), "--port", "0", "--context",
        str(CONTEXT), "--cache-memory", "0",
    ]  # fmt: skip
    pairs = []
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(started(command, {"PYTHONPATH": str(ROOT)}))
        client = stack.enter_context(httpx.Client(base_url=url, timeout=600, trust_env=False))
        engine = stack.enter_context(Engine.load(model, context=CONTEXT))
        warm_up, *asked = prompts(options.pairs + 1, options.lines)
        by_engine(engine, warm_up, options.max_tokens)
        by_server(client, warm_up, options.max_tokens)
        for number, messages in enumerate(asked):
            if number % 2:
                served = by_server(client, messages, options.max_tokens)
                direct = by_engine(engine, messages, options.max_tokens)
            else:
                direct = by_engine(engine, messages, options.max_tokens)
                served = by_server(client, messages, options.max_tokens)
            if direct.text != served.text:
                print(f"the replies to prompt {number + 1} differ", file=sys.stderr)
            pairs.append((direct, served))
    print("\n".join(report(pairs)))


if __name__ == "__main__":
    main()
