#!/usr/bin/env python3
"""Peak memory of loading and of prompts, next to what is foreseen.

Each model and context has a process of its own: what MLX and the system count never falls there.
`--random` writes llama models with random weights of real shapes to a temporary folder.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

HEADER = (
    "| model | context | KV | weights | caches | pass | foreseen | MLX's peak | resident |\n"
    "|---|--:|---|--:|--:|--:|--:|--:|--:|"
)


def measure(path: Path, context: int, kv_bits: int | None, weights: str) -> str:
    import mlx.core as mx

    from akunu_py import Engine
    from akunu_py.models.load import LoadOptions
    from akunu_py.models.memory_check import PROGRAM_BYTES
    from akunu_py.models.requirements import requirements
    from akunu_py.values.load_options import KVBits

    needs = requirements(path, LoadOptions(weights=weights))
    bits = kv_bits and KVBits(kv_bits)
    mx.clear_cache()
    mx.reset_peak_memory()
    # What is freed goes back at once: otherwise the system counts it as long as nobody wants it.
    mx.set_cache_limit(0)
    with Engine.load(path, weights=weights, context=context, kv_bits=kv_bits) as engine:
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
    return (
        f"| {path.stem} | {context:,} | {kv_bits or 16 * needs.number_bytes // 2} bit | {cells} |"
    )


def write_random(folder: Path) -> list[Path]:
    """Write llamas of two shapes in float16."""
    from gguf_files import write_tiny_llama

    shapes = {
        "llama-45m": {"width": 576, "layers": 10, "heads": 9, "kv_heads": 3, "feed_forward": 1536},
        "llama-20m": {"width": 512, "layers": 6, "heads": 8, "kv_heads": 8, "feed_forward": 1408},
    }
    return [
        write_tiny_llama(
            folder / f"{name}-F16.gguf", quantization="F16", context=8192, seed=1, **shape
        )
        for name, shape in shapes.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--context", type=int, action="append")
    parser.add_argument("--kv-bits", type=int, choices=(4, 8))
    parser.add_argument("--weights", default="auto", choices=("auto", "quantized", "dense"))
    parser.add_argument("--random", action="store_true")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    contexts = arguments.context or [1024, 2048]
    if arguments.one:
        (path,), (context,) = arguments.models, contexts
        print(measure(path, context, arguments.kv_bits, arguments.weights), flush=True)
        return
    print(HEADER, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        paths = [*arguments.models, *(write_random(Path(folder)) if arguments.random else [])]
        for path in paths:
            for context in contexts:
                subprocess.run(
                    [
                        sys.executable, __file__, str(path), "--context", str(context), "--one",
                        "--weights", arguments.weights,
                        *(["--kv-bits", str(arguments.kv_bits)] if arguments.kv_bits else []),
                    ],
                    check=True,
                )  # fmt: skip


if __name__ == "__main__":
    main()
