"""Sound models to mutate: small ones of each kind that akunu loads."""

import math
import random
import struct
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from akunu_py.gguf.header import BLOCK_TYPES
from akunu_py.gguf.quants.forms import SUPPORTED_TYPES
from gguf_fuzzing.documents import Document, Tensor, Value, parse

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from gguf_files import write_tiny_llama
from tiny_architectures.builder import BUILDERS, build

GROUPS = ("plain", "split", "types", "architecture")
"""Small models of each vocabulary; in parts; of each quantization type; of each architecture."""

_SMALL = {"width": 32, "layers": 1, "heads": 2, "kv_heads": 1, "feed_forward": 32, "context": 64}
_KINDS: dict[str, dict[str, object]] = {
    "bpe-q8_0": {"quantization": "Q8_0", "tied": False},
    "bpe-f32": {"quantization": "F32", "chat_template": None},
    "bpe-f16": {"quantization": "F16", "rope_frequencies": True},
    "spm-q4_0": {"quantization": "Q4_0", "vocabulary": "spm"},
    "spm-q4_1": {"quantization": "Q4_1", "vocabulary": "spm", "tied": False},
    "spm-bf16": {"quantization": "BF16", "vocabulary": "spm", "chat_template": None},
}
_WIDE = {"width": 256, "layers": 1, "heads": 2, "kv_heads": 2, "feed_forward": 256, "tied": False}
_MATRICES = 9  # of such a model
_BY_NAME = {block.name: block for block in BLOCK_TYPES.values()}
_TO_SPLIT = ("bpe-q8_0", "spm-q4_0")
_PARTS = 3


@dataclass(frozen=True, slots=True)
class Seed:
    """A sound model: its files in order, taken apart; each group is drawn equally often."""

    group: str
    name: str
    files: tuple[Document, ...]

    def file_names(self) -> list[str]:
        if len(self.files) == 1:
            return ["model.gguf"]
        count = len(self.files)
        return [f"model-{index + 1:05d}-of-{count:05d}.gguf" for index in range(count)]


def _number(kind: int, form: str, number: int) -> Value:
    return Value(kind, (struct.pack(form, number),))


def split(whole: Document, count: int) -> tuple[Document, ...]:
    """Split a document as `llama-gguf-split --no-tensor-first-split` does."""
    documents = []
    ends = [*sorted(tensor.offset for tensor in whole.tensors), len(whole.data)]
    for index in range(count):
        keys = [
            (b"split.no", _number(2, "<H", index)),
            (b"split.count", _number(2, "<H", count)),
            (b"split.tensors.count", _number(5, "<i", len(whole.tensors))),
        ]
        pairs = [*whole.pairs, *keys] if index == 0 else keys
        tensors, data = [], b""
        for tensor in whole.tensors[index - 1 :: count - 1] if index else ():
            end = ends[ends.index(tensor.offset) + 1]
            tensors.append(Tensor(tensor.name, tensor.shape, tensor.kind, len(data)))
            data += whole.data[tensor.offset : end]
        documents.append(Document(pairs, tensors, data))
    return tuple(documents)


def _with_types(whole: Document, names: list[str]) -> Document:
    """Give the matrices other types, in turn, and random blocks."""
    draw = random.Random(0)
    tensors, data = [], b""
    ends = [*sorted(tensor.offset for tensor in whole.tensors), len(whole.data)]
    turn = 0
    for tensor in whole.tensors:
        block = BLOCK_TYPES[tensor.kind]
        raw = whole.data[tensor.offset : ends[ends.index(tensor.offset) + 1]]
        if len(tensor.shape) > 1:
            block = _BY_NAME[names[turn % len(names)]]
            turn += 1
            size = math.prod(tensor.shape) // block.block_elements * block.block_bytes
            # Without the high bits any two bytes are a small, finite float16.
            raw = bytes(byte & 0x3F for byte in draw.randbytes(size))
        tensors.append(replace(tensor, kind=block.id, offset=len(data)))
        data += raw + bytes(-len(raw) % 32)
    return replace(whole, tensors=tensors, data=data)


def _written(group: str, folder: Path) -> list[Seed]:
    """Return the seeds of a group that are files on their own."""
    path = folder / "seed.gguf"
    if group == "architecture":
        return [
            Seed(group, f"architecture-{name}", (parse(build(name).write(path).read_bytes()),))
            for name in BUILDERS
        ]
    if group == "types":
        wide = parse(write_tiny_llama(path, **_WIDE).read_bytes())  # type: ignore[arg-type]
        types = [name for name in SUPPORTED_TYPES if _BY_NAME[name].block_elements > 1]
        return [
            Seed(group, f"types-{start}", (_with_types(wide, types[start : start + _MATRICES]),))
            for start in range(0, len(types), _MATRICES)
        ]
    seeds = []
    for name, options in _KINDS.items():
        raw = write_tiny_llama(path, **{**_SMALL, **options}).read_bytes()  # type: ignore[arg-type]
        seeds.append(Seed(group, name, (parse(raw),)))
    return seeds


def make_seeds(groups: Sequence[str] = GROUPS) -> list[Seed]:
    """Return the seeds of some groups, always the same ones."""
    seeds = []
    with tempfile.TemporaryDirectory() as name:
        for group in groups:
            found = _written("plain" if group == "split" else group, Path(name))
            if group == "split":
                found = [
                    Seed(group, f"split-{seed.name}", split(seed.files[0], _PARTS))
                    for seed in found
                    if seed.name in _TO_SPLIT
                ]
            seeds += found
    return seeds
