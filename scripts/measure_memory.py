#!/usr/bin/env python3
"""Peak memory of loading and of prompts, next to what is foreseen.

One model and context a process: what MLX and the system count never falls there.
"""

import argparse
import resource
from pathlib import Path

import mlx.core as mx
import numpy as np

from akunu_py import Engine
from akunu_py.models.load import LoadOptions
from akunu_py.models.memory_check import PROGRAM_BYTES
from akunu_py.models.requirements import requirements
from akunu_py.values.load_options import KVBits

HEADER = (
    "| model | context | KV | weights | caches | pass | foreseen | MLX's peak | resident |\n"
    "|---|--:|---|--:|--:|--:|--:|--:|--:|"
)


def measure(path: Path, context: int, bits: KVBits | None, weights: str) -> str:
    needs = requirements(path, LoadOptions(weights=weights))
    mx.clear_cache()
    mx.reset_peak_memory()
    # What is freed goes back at once: otherwise the system counts it as long as nobody wants it.
    mx.set_cache_limit(0)
    with Engine.load(path, weights=weights, context=context, kv_bits=bits) as engine:
        prompt = np.random.default_rng(0).integers(300, size=context - 8).tolist()
        engine.generate(prompt, max_tokens=8, temperature=1.0, seed=0)
        tokens = min(context, needs.context)
        parts = (
            needs.weights_bytes,
            needs.cache_bytes(tokens, kv_bits=bits),
            needs.working_bytes(tokens, kv_bits=bits),
        )
        peak = mx.get_peak_memory()
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    figures = [*parts, sum(parts) + PROGRAM_BYTES, peak, resident]
    cells = " | ".join(f"{figure / 1e6:,.0f}" for figure in figures)
    return f"| {path.stem} | {context:,} | {bits or 16 * needs.number_bytes // 2} bit | {cells} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--kv-bits", type=int, choices=(4, 8))
    parser.add_argument("--weights", default="auto", choices=("auto", "quantized", "dense"))
    options = parser.parse_args()
    print(
        HEADER, measure(options.model, options.context, options.kv_bits, options.weights), sep="\n"
    )


if __name__ == "__main__":
    main()
