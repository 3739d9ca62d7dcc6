"""Weights on disk: headers of safetensors files, checked before MLX maps them, and sizes."""

import contextlib
import json
import math
import os
import re
import struct
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from akunu_py.models.folder_settings import read_json, refuse_pointer, unreadable
from akunu_py.system.errors import ModelFormatError
from akunu_py.system.files import open_to_read

if TYPE_CHECKING:
    from akunu_py.gguf import GGUFFile


Shapes = dict[str, tuple[int, ...]]

_MAX_HEADER_BYTES = 100_000_000
"""Limit of the safetensors library for one file."""

_MAX_DIMENSION = 2**31 - 1
_ITEM_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2,
    "BF16": 2, "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8, "C64": 8,
}  # fmt: skip


def check_weight_files(folder: Path) -> Shapes:
    """Return the shapes of the tensors in a folder's weight files, by name.

    Raises ModelFormatError, naming the file, for a missing file or a header that does not fit its
    file.
    """
    shapes: Shapes = {}
    for path in weight_files(folder):
        shapes |= check_weight_file(path)
    return shapes


def weight_files(folder: Path) -> list[Path]:
    """Return the files with a folder's weights: those that its index names, else all.

    Raises ModelFormatError, naming the file, for a missing file.
    """
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise ModelFormatError(f"{folder} has no model*.safetensors; download the model again")
    index = folder / "model.safetensors.index.json"
    entries = read_json(index).get("weight_map") if index.is_file() else None
    names = set(map(str, entries.values())) if isinstance(entries, dict) else set()
    named = [path for path in files if path.name in names]
    # Tools that write the weights anew, as one file, may leave the index of several behind.
    if named and (lost := names.difference(path.name for path in named)):
        raise ModelFormatError(
            f"{folder} has no {min(lost)[:80]}, which {index.name} names; download it again"
        )
    return named or files


@contextlib.contextmanager
def without_strays(folder: Path) -> Iterator[Path]:
    """Give a folder in which every model*.safetensors counts, as mlx-lm reads them all.

    It is the folder itself, or one with links, which goes at the end: open files stay readable.
    """
    files = weight_files(folder)
    if len(files) == len(list(folder.glob("model*.safetensors"))):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="akunu-") as links:
        for path in (*files, *folder.glob("*.json")):
            (Path(links) / path.name).symlink_to(path.resolve())
        yield Path(links)


def check_weight_file(path: Path) -> Shapes:
    """Return the shapes of the tensors in a file, by name.

    Raises ModelFormatError, naming the file, for one that cannot be read, and a header that does
    not fit it.
    """
    try:
        with open_to_read(path) as stream:
            refuse_pointer(path, stream)
        return read_shapes(path)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ModelFormatError(
            f"{path} is truncated, damaged or not a safetensors file; download it again"
        ) from None
    except OSError as error:
        raise unreadable(path, error) from None


def read_header(path: Path) -> tuple[dict[str, dict[str, Any]], int]:
    """Return the entries of a file's tensors by name, and the bytes of data behind the header.

    The entries have "dtype", "shape" and "data_offsets" as the file states them. Raises ValueError,
    TypeError, AttributeError or RecursionError for a malformed header.
    """
    with open_to_read(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        head = stream.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else size
        if length > min(_MAX_HEADER_BYTES, size - 8):
            raise ValueError("the header is longer than the file")
        tensors: dict[str, dict[str, Any]] = json.loads(stream.read(length))
    # MLX fails on other values, and on names that are not valid Unicode.
    if not all(isinstance(text, str) for text in (tensors.pop("__metadata__", {}) or {}).values()):
        raise TypeError("the metadata are not texts")
    "".join(tensors).encode()
    return tensors, size - 8 - length


def read_shapes(path: Path) -> Shapes:
    """Return the shapes of the tensors in a file, by name.

    Raises ValueError, KeyError, TypeError, AttributeError or RecursionError for a header that does
    not fit its file.
    """
    tensors, data_bytes = read_header(path)
    return {name: _checked_shape(tensor, data_bytes) for name, tensor in tensors.items()}


def _checked_shape(tensor: Any, data_bytes: int) -> tuple[int, ...]:
    shape = tuple(tensor["shape"])
    start, end = tensor["data_offsets"]
    if not all(type(number) is int for number in (*shape, start, end)):
        raise TypeError("a shape or an offset is not a whole number")
    if not all(0 <= number <= _MAX_DIMENSION for number in shape):
        raise ValueError("a shape is out of range")
    # MLX multiplies in 64 bits, where a product can overflow to a small number.
    item_bytes = _ITEM_BYTES.get(tensor["dtype"])
    fits = item_bytes is None or math.prod(shape) * item_bytes == end - start
    if not (0 <= start <= end <= data_bytes and fits):
        raise ValueError("the data of a tensor lies outside the file or has the wrong size")
    return shape


_CLASSES = (
    ("norms", r"norm|(^|\.)ln_"),
    ("embedding", r"^(token_embd|per_layer_token_embd)|embed_tokens|(^|\.)(wte|embeddings?)\."),
    ("output", r"^output\.|lm_head"),
    ("shared experts", r"shexp|shared_expert"),
    ("router", r"ffn_gate_inp|(mlp|moe)\.(gate|router)\.|\.router\."),
    ("experts", r"_exps|experts|switch_mlp"),
    ("state space", r"ssm_|mamba|mixer|shortconv|time_mix|linear_attn|(^|\.)conv"),
    ("attention", r"attn|attention"),
    ("feed-forward", r"ffn_|mlp|feed_forward"),
)
"""Purpose of a tensor, and patterns of its name in GGUF files and MLX folders."""

_PARTS_OF_A_MATRIX = (".scales", ".biases")


class StoredTensor(NamedTuple):
    """A tensor on disk: its name, how it is stored, and its bytes there."""

    name: str
    form: str
    num_bytes: int


def gguf_tensors(file: "GGUFFile") -> Iterator[StoredTensor]:
    """Yield the tensors of a GGUF model, in the file's order."""
    for info in file.tensors.values():
        yield StoredTensor(info.name, info.type.name, info.nbytes)


def folder_tensors(folder: Path, config: Mapping[str, Any]) -> Iterator[StoredTensor]:
    """Yield the tensors of an MLX model; scales and biases of a matrix count as the matrix.

    The folder's files must have passed `check_weight_files`.
    """
    quantization = config.get("quantization") or config.get("quantization_config")
    quantization = quantization if isinstance(quantization, dict) else {}
    for path in weight_files(folder):
        header, _ = read_header(path)
        quantized = {name.removesuffix(".scales") for name in header if name.endswith(".scales")}
        for name, entry in header.items():
            layer, _, part = name.rpartition(".")
            begin, end = entry["data_offsets"]
            form = str(entry["dtype"])
            if layer in quantized and part in {"weight", "scales", "biases"}:
                own = quantization.get(layer)
                form = _form(own if isinstance(own, dict) else quantization)
            yield StoredTensor(name, form, end - begin)


def by_class(tensors: Iterable[StoredTensor]) -> list[dict[str, Any]]:
    """Return number and bytes of matrices and vectors by class and form, largest class first."""
    classes: dict[str, dict[str, list[StoredTensor]]] = {}
    for tensor in tensors:
        forms = classes.setdefault(tensor_class(tensor.name), {})
        forms.setdefault(tensor.form, []).append(tensor)
    sizes = {name: sum(_size(group) for group in forms.values()) for name, forms in classes.items()}
    total = max(1, sum(sizes.values()))
    return [
        {
            "class": name,
            "type": form,
            "tensors": sum(not tensor.name.endswith(_PARTS_OF_A_MATRIX) for tensor in group),
            "bytes": _size(group),
            "share": _size(group) / total,
        }
        for name, forms in sorted(classes.items(), key=lambda item: -sizes[item[0]])
        for form, group in sorted(forms.items(), key=lambda item: -_size(item[1]))
    ]


def _size(tensors: Iterable[StoredTensor]) -> int:
    return sum(tensor.num_bytes for tensor in tensors)


def _form(quantization: Mapping[str, Any]) -> str:
    bits, group = quantization.get("bits"), quantization.get("group_size")
    if not isinstance(bits, int) or not isinstance(group, int):
        return "quantized"
    mode = quantization.get("mode", "affine")
    shown = "" if mode == "affine" or not isinstance(mode, str) else f" {mode}"
    return f"{bits} bit{shown}, groups of {group}"


def tensor_class(name: str) -> str:
    """Return the purpose of a tensor, such as "attention", or "other"."""
    return next((kind for kind, pattern in _CLASSES if re.search(pattern, name)), "other")
