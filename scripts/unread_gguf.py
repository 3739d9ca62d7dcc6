#!/usr/bin/env python3
"""Print which keys and tensors of a GGUF file no reader asks for.

    python scripts/unread_gguf.py FILE [--like ARCHITECTURE]

`--like` reads the file with the reader of another architecture, from which a new one may begin. Without a reader
everything is printed.
"""

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from akunu_py.gguf import GGUFFile
from akunu_py.gguf.architectures import find_reader
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.parts.decoder import Decoder
from akunu_py.gguf.plan import RotaryFactors
from akunu_py.system.errors import AkunuError


class Asked(dict[str, Any]):
    """Metadata that notes what is asked for."""

    def __init__(self, metadata: Any) -> None:
        super().__init__(metadata)
        self.asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self.asked.add(str(key))
        return super().__contains__(key)


def unread(file: GGUFFile, architecture: str, like: str) -> Iterator[str]:
    metadata, placed = Asked(file.metadata), set[str | None]()
    reader = find_reader(like)
    if reader is None:
        yield f"no reader for {like}"
    else:
        plan_strictly = Decoder.plan

        def plan(self: Decoder, *values: Any, **options: Any) -> Any:
            return plan_strictly(self, *values, **{**options, "ignored": ".*"})

        Decoder.plan = plan  # type: ignore[method-assign]  # hybrids make decoders of their own
        try:
            made = reader(Decoder(Keys(metadata, architecture), file.tensors))
            placed = {name for place in made.placements for name in (*place.tensors, *place.scales)}
            if isinstance(made.rotary, RotaryFactors):
                placed |= {made.rotary.tensor, made.rotary.long_tensor}
            # Blocks that predict further tokens.
            further = [name for name in file.tensors if layer_of(name) >= made.num_layers]
            placed |= set(further)
        except AkunuError as error:
            yield f"the reader of {like} says: {error}"
        finally:
            Decoder.plan = plan_strictly  # type: ignore[method-assign]
    yield "keys:"
    for key, value in file.metadata.items():
        if key.startswith(f"{architecture}.") and key not in metadata.asked:
            yield f"  {key} = {value.tolist() if isinstance(value, np.ndarray) else value!r}"
    yield "tensors:"
    layers = defaultdict(list)
    for name, info in file.tensors.items():
        if name not in placed:
            pattern = re.sub(r"^blk\.\d+\.", "blk.{}.", name)
            layers[pattern, info.shape].append(layer_of(name))
    for (pattern, shape), numbers in layers.items():
        yield f"  {pattern} {shape}" + (f" in {numbers}" if numbers != [-1] else "")


def layer_of(name: str) -> int:
    found = re.match(r"blk\.(\d+)\.", name)
    return int(found[1]) if found else -1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--like", metavar="ARCHITECTURE")
    options = parser.parse_args()
    with GGUFFile.open(options.file) as file:
        architecture = str(file.metadata["general.architecture"])
        for line in unread(file, architecture, options.like or architecture):
            print(line)


if __name__ == "__main__":
    main()
