#!/usr/bin/env python3
"""Measure tokenizers: seconds until one is ready, megabytes of text a second in and out.

    python scripts/measure_tokenizers.py FILE.gguf [...] [--repeat 5]

Ready: from the file's metadata to a tokenizer, the best of the repeats; reading the file is apart.
The text is source code, prose and other scripts, 1 MB of it.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from akunu_py.gguf import GGUFFile
from akunu_py.tokenizers import from_gguf

PROSE = (
    "It was late when they reached the harbour; nobody had waited. \u201cWe'll go back at 6:45,\u201d "
    "she said, and counted 1,250 steps.\n\n"
)
FOREIGN = "Größe und Maß. Привет, мир! 你好,世界。 こんにちは 안녕하세요 नमस्ते 🦙👍🏽\n"
SIZE = 1_000_000


def best(function: Callable[[], object], repeat: int) -> float:
    times = []
    for _ in range(repeat):
        started = time.perf_counter()
        function()
        times.append(time.perf_counter() - started)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    part = Path(__file__).read_text() + PROSE * 20 + FOREIGN * 10
    text = part * (SIZE // len(part.encode()) + 1)
    size = len(text.encode()) / 1e6
    print("| file | tokens | read s | ready s | encode MB/s | decode MB/s |")
    print("|---|---|---|---|---|---|")
    for path in arguments.files:
        started = time.perf_counter()
        with GGUFFile.open(path) as file:
            metadata = dict(file.metadata)
        read = time.perf_counter() - started
        ready = best(lambda metadata=metadata: from_gguf(metadata), arguments.repeat)
        tokenizer = from_gguf(metadata)
        ids = tokenizer.encode(text)
        encode = best(lambda tokenizer=tokenizer: tokenizer.encode(text), arguments.repeat)
        decode = best(lambda tokenizer=tokenizer, ids=ids: tokenizer.decode(ids), arguments.repeat)
        print(
            f"| {path.name} | {tokenizer.vocabulary_size} | {read:.2f} | {ready:.2f} | "
            f"{size / encode:.1f} | {size / decode:.1f} |"
        )


if __name__ == "__main__":
    main()
