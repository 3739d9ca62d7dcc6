#!/usr/bin/env python3
"""Measure how long opening a GGUF file takes, and how much memory it takes.

    python scripts/measure_reader.py [FILE.gguf ...]

Without a file: vocabularies of 150,000 and 262,144 tokens made here, with as many merges or scores
as real ones have, and a table of 1,000 tensors. Each file is opened in a process of its own; the first time and
the median of 15 are shown, and the most memory that Python and numpy held (of one opening more).
Opening reads and checks the whole header; no weights are touched.
"""

import argparse
import json
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_REPEATS = 15
_VOCABULARIES = {
    "150k tokens, 150k merges": (150_000, 150_000),
    "262k tokens, 515k merges": (262_144, 515_000),
}
_TENSORS = 1000


def _texts(key: str, texts: list[str]) -> bytes:
    items = b"".join(struct.pack("<Q", len(raw)) + raw for raw in (text.encode() for text in texts))
    head = struct.pack("<Q", len(key)) + key.encode()
    return head + struct.pack("<IIQ", 9, 8, len(texts)) + items


def _numbers(key: str, count: int) -> bytes:
    head = struct.pack("<Q", len(key)) + key.encode()
    return head + struct.pack("<IIQ", 9, 5, count) + struct.pack("<i", 1) * count


def write_vocabulary(path: Path, tokens: int, merges: int) -> None:
    """Write a file with texts as long as those of real vocabularies, one in eight not ASCII."""
    texts = [("Ġtok" if index % 8 == 0 else "tok") + str(index) for index in range(tokens)]
    pairs = [f"tok{index} {index % 977}" for index in range(merges)]
    metadata = [
        _texts("tokenizer.ggml.tokens", texts),
        _texts("tokenizer.ggml.merges", pairs),
        _numbers("tokenizer.ggml.token_type", tokens),
    ]
    table = []
    for index in range(_TENSORS):
        name = f"blk.{index}.attn_q.weight".encode()
        table.append(
            struct.pack("<Q", len(name)) + name + struct.pack("<IQIQ", 1, 8, 0, 32 * index)
        )
    head = struct.pack("<4sIQQ", b"GGUF", 3, _TENSORS, len(metadata))
    raw = head + b"".join(metadata) + b"".join(table)
    path.write_bytes(raw + bytes(-len(raw) % 32 + 32 * _TENSORS))


def measure(path: Path) -> dict[str, float]:
    """Open a file in this process; return seconds and bytes."""
    from akunu_py.gguf.reader import GGUFFile

    times = []
    for _ in range(_REPEATS):
        started = time.perf_counter()
        file = GGUFFile.open(path)
        times.append(time.perf_counter() - started)
        file.close()
        del file
    tracemalloc.start()
    with GGUFFile.open(path):
        _, peak = tracemalloc.get_traced_memory()
    return {"first": times[0], "median": statistics.median(times), "memory": peak}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the opening of GGUF files.")
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        sys.path.insert(0, str(ROOT))
        print(json.dumps(measure(options.measure)))
        return
    with tempfile.TemporaryDirectory() as folder:
        files = {path.name: path for path in options.files}
        if not files:
            for name, (tokens, merges) in _VOCABULARIES.items():
                files[name] = Path(folder) / f"{tokens}.gguf"
                write_vocabulary(files[name], tokens, merges)
        print(f"{'file':30s} {'size':>9s} {'first':>9s} {'median':>9s} {'memory':>9s}")
        for name, path in files.items():
            command = [sys.executable, __file__, "--measure", str(path)]
            found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
            print(
                f"{name:30s} {path.stat().st_size / 1e6:6.1f} MB {found['first']:7.3f} s "
                f"{found['median']:7.3f} s {found['memory'] / 1e6:6.0f} MB"
            )


if __name__ == "__main__":
    main()
