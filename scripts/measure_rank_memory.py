#!/usr/bin/env python3
"""Memory that each rank takes to load its part of a model: docs/several-machines.md has figures.

    python scripts/measure_rank_memory.py MODEL [--ranks 1 2 4] [--weights quantized]

Each rank loads in a process of its own, alone: loading needs no other rank. For each it prints the
weights that it keeps, MLX's peak, the process's peak of anonymous memory (which the system cannot
take back) above what it had before, and the bytes that it read through MLX or a map of the file.
"""

import argparse
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

HEADER = (
    "| model | rank | way | weights kept | foreseen | MLX's peak | anonymous | files |\n"
    "|---|---|---|--:|--:|--:|--:|--:|"
)


def resident(kind: str) -> int:
    """Return a figure of this process's memory, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"Rss{kind}:"):
            return 1024 * int(line.split()[1])
    raise RuntimeError("this system does not tell")


def measure(path: Path, number: int, count: int, weights: str) -> dict[str, float]:
    """Load one part; return what it took, in bytes."""
    import mlx.core as mx
    from mlx.utils import tree_flatten

    from akunu_py.models.load import LoadOptions, load_model
    from akunu_py.models.ranks.split import PlannedGroup
    from akunu_py.models.requirements import requirements

    group = PlannedGroup(number, count) if count > 1 else None
    options = LoadOptions(weights=weights)
    needs = requirements(path, options, group)
    mx.clear_cache()
    # What is freed goes back at once: otherwise the system counts it as long as nobody wants it.
    mx.set_cache_limit(0)
    mx.reset_peak_memory()
    before = {kind: resident(kind) for kind in ("Anon", "File")}
    most = dict(before)
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            for kind, size in most.items():
                most[kind] = max(size, resident(kind))
            time.sleep(0.005)

    watching = threading.Thread(target=watch)
    watching.start()
    loaded = load_model(path, options, group=group)
    done.set()
    watching.join()
    return {
        "way": needs.way or "whole",
        "kept": sum(array.nbytes for _, array in tree_flatten(loaded.model.parameters())),
        "foreseen": needs.weights_bytes,
        "peak": mx.get_peak_memory(),
        "anonymous": most["Anon"] - before["Anon"],
        "files": most["File"] - before["File"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--weights", default="quantized", choices=("auto", "quantized", "dense"))
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one is not None:
        (path,), (count,) = arguments.models, arguments.ranks
        print(json.dumps(measure(path, arguments.one, count, arguments.weights)))
        return
    print(HEADER, flush=True)
    for path in arguments.models:
        for count in arguments.ranks:
            for number in range(count):
                command = [
                    sys.executable, __file__, str(path), "--ranks", str(count),
                    "--weights", arguments.weights, "--one", str(number),
                ]  # fmt: skip
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
                found = json.loads(done.stdout)
                way = found.pop("way")
                cells = " | ".join(f"{size / 1e6:,.0f}" for size in found.values())
                print(f"| {path.stem} | {number} of {count} | {way} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
