#!/usr/bin/env python3
"""Measure costs: the loop against mlx-lm's generate_step, a pass by its rows, the drafter a token.

    python scripts/measure_costs.py [MODEL.gguf] [--tokens 200] [--pairs 20]

The loop: both sides get the same token ids and the same model, run in turn (which goes first
alternates), and give token ids; neither detokenizes. Speeds are tokens a second from after the
prefill to the last token. The figure is the ratio of the two in each pair; median, and the
quartiles. A pass: its time over m rows relative to one row, at the end of the same prompt. The
drafter: microseconds a token or draft over source text.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
from mlx_lm.generate import generate_step
from mlx_lm.sample_utils import make_sampler

from akunu_py.decoding.loop import decode
from akunu_py.drafting import NgramDrafter, PlainDrafter, WindowedNgramDrafter
from akunu_py.models.load import load_model
from akunu_py.models.session import Session
from akunu_py.sampling.sampler import Sampler
from akunu_py.sampling.transforms import TransformChain
from akunu_py.values.types import GenerationConfig

PROMPT = (
    "def read_table(path, separator=',', strict=True):\n"
    '    """Read rows from a text file."""\n'
    "    rows = []\n"
    "    with open(path) as stream:\n"
    "        for line in stream:\n"
)


def decode_speed_mlx_lm(model: object, ids: list[int], count: int, temperature: float) -> float:
    sampler = make_sampler(temp=temperature)
    steps = generate_step(mx.array(ids), model, max_tokens=count, sampler=sampler)
    next(steps)
    started = time.perf_counter()
    for _ in steps:
        pass
    return (count - 1) / (time.perf_counter() - started)


def decode_speed_akunu(session: Session, ids: list[int], count: int, temperature: float) -> float:
    chain = TransformChain.from_config(
        GenerationConfig(temperature=temperature), session.vocabulary_size
    )
    session.reset()
    session.begin(ids, Sampler(chain, 0, session.vocabulary_size), count)
    steps = decode(session, PlainDrafter(), ids[-1], num_draft_tokens=4, max_tokens=count)
    next(steps)
    started = time.perf_counter()
    for _ in steps:
        pass
    return (count - 1) / (time.perf_counter() - started)


def compare_loops(path: Path | None, tokens: int, pairs: int) -> None:
    loaded = load_model(path)
    ids = loaded.tokenizer.encode(PROMPT)
    session = Session(loaded.model, context=loaded.description.context)
    print(f"{loaded.description.name}, {loaded.description.weights} weights, {tokens} tokens")
    print("| temperature | akunu tokens/s | mlx-lm tokens/s | ratio, median | quartiles |")
    print("|---|---|---|---|---|")
    for temperature in (0.0, 0.7):
        sides: dict[str, Callable[[], float]] = {
            "akunu": lambda t=temperature: decode_speed_akunu(session, ids, tokens, t),
            "mlx-lm": lambda t=temperature: decode_speed_mlx_lm(loaded.model, ids, tokens, t),
        }
        speeds: dict[str, list[float]] = {name: [] for name in sides}
        for run in sides.values():
            run()  # warm-up: kernels are compiled at first use
        for pair in range(pairs):
            for name in sides if pair % 2 else reversed(sides):
                speeds[name].append(sides[name]())
        ratios = [a / b for a, b in zip(speeds["akunu"], speeds["mlx-lm"], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        ours, theirs = (statistics.median(speeds[name]) for name in sides)
        print(
            f"| {temperature} | {ours:.1f} | {theirs:.1f} | {middle:.3f} | {low:.3f}-{high:.3f} |"
        )


def pass_costs(path: Path | None, repeats: int = 60) -> None:
    loaded = load_model(path)
    ids = loaded.tokenizer.encode(PROMPT)
    session = Session(loaded.model, context=loaded.description.context)
    chain = TransformChain.from_config(GenerationConfig(), session.vocabulary_size)
    sampler = Sampler(chain, 0, session.vocabulary_size)
    session.begin(ids, sampler, 1000)
    times: dict[int, list[float]] = {rows: [] for rows in range(1, 10)}
    for _ in range(repeats):
        for rows, taken in times.items():
            saved = session._rows.rollback.save()
            started = time.perf_counter()
            # Internal, so that a pass over one row is timed alone, without the step in flight.
            session._choose_rows(tuple(ids[:rows]))
            taken.append(time.perf_counter() - started)
            session._rows.rollback.restore(saved)
    one = statistics.median(times[1])
    print(f"\nOne row: {one * 1e3:.2f} ms")
    print("| rows of a pass | " + " | ".join(map(str, times)) + " |")
    print("|---" * (len(times) + 1) + "|")
    cells = (f"{statistics.median(taken) / one:.2f}" for taken in times.values())
    print("| time, relative to one row | " + " | ".join(cells) + " |")


def drafter_costs(path: Path | None) -> None:
    loaded = load_model(path)
    text = Path(__file__).read_text(encoding="utf-8") * 3
    ids = loaded.tokenizer.encode(text)
    print(f"\n{len(ids)} tokens of source text")
    print("| drafter | prompt intake, us a token | observe, us a token | propose, us a draft |")
    print("|---|---|---|---|")
    half = len(ids) // 2
    for kind in (NgramDrafter, WindowedNgramDrafter):
        best = [float("inf")] * 3
        for _ in range(7):
            drafter = kind()
            started = time.perf_counter()
            drafter.observe(ids[:half])
            taken = [(time.perf_counter() - started) / half]
            observing, proposing, drafts = 0.0, 0.0, 0
            for token in ids[half:]:
                started = time.perf_counter()
                drafter.observe((token,))
                observed = time.perf_counter()
                drafts += len(drafter.propose(4)) > 0
                proposing += time.perf_counter() - observed
                observing += observed - started
            taken += [observing / (len(ids) - half), proposing / (len(ids) - half)]
            best = [min(pair) for pair in zip(best, taken, strict=True)]
        intake, observe, propose = (value * 1e6 for value in best)
        print(f"| {kind.name} | {intake:.2f} | {observe:.2f} | {propose:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=20)
    options = parser.parse_args()
    compare_loops(options.model, options.tokens, options.pairs)
    pass_costs(options.model)
    drafter_costs(options.model)


if __name__ == "__main__":
    main()
