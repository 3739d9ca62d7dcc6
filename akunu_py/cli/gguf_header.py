"""What a GGUF model file holds, read from its header alone: for JSON, and for people."""

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from akunu_py.system.shown_text import size_text

if TYPE_CHECKING:
    from akunu_py.gguf import GGUFFile, MetadataValue, TensorInfo

_SHOWN_CHARACTERS = 60
_SHOWN_ITEMS = 4


def describe_header(path: Path, *, tensors: bool) -> dict[str, Any]:
    """Return the facts of the model of a GGUF file; any part of a split one will do."""
    from akunu_py.gguf.reader import GGUFFile  # numpy would slow --help down

    with GGUFFile.open(path) as file:
        return describe(file, tensors=tensors)


def describe(file: "GGUFFile", *, tensors: bool = True) -> dict[str, Any]:
    """Return the content of a model's file as values that JSON can hold."""
    record: dict[str, Any] = {
        "path": str(file.path),
        "parts": [path.name for path in file.paths],
        "parameters": _parameters(file.tensors.values()),
        "file_bytes": file.nbytes,
        "gguf_version": file.version,
        "num_tensors": len(file.tensors),
        "quantization": _quantization(file.tensors.values()),
        "metadata": {key: _json_value(value) for key, value in file.metadata.items()},
    }
    if tensors:
        record["tensors"] = [
            {
                "name": tensor.name,
                "type": tensor.type.name,
                "shape": list(tensor.shape),
                "bytes": tensor.nbytes,
                "part": tensor.part,
            }
            for tensor in file.tensors.values()
        ]
    return record


def _parameters(tensors: Iterable["TensorInfo"]) -> int:
    return sum(math.prod(tensor.shape) for tensor in tensors)


def _quantization(tensors: Iterable["TensorInfo"]) -> list[dict[str, Any]]:
    """Return tensors, parameters and bytes of each type, the largest first.

    Of types with a fitted form also the bits of a weight that stays quantized, in either form.
    """
    from akunu_py.gguf.quants.forms import FITTED, form_of  # numpy

    def bits(name: str) -> dict[str, float]:
        if name not in FITTED:
            return {}
        exact, fitted = (form_of(name, fitted=fitted) for fitted in (False, True))
        return {"exact_bits": exact.bits_per_weight, "fitted_bits": fitted.bits_per_weight}

    by_type: dict[str, list[TensorInfo]] = {}
    for tensor in tensors:
        by_type.setdefault(tensor.type.name, []).append(tensor)
    sizes = {name: sum(tensor.nbytes for tensor in group) for name, group in by_type.items()}
    total = sum(sizes.values())
    return [
        {
            "type": name,
            "tensors": len(by_type[name]),
            "parameters": _parameters(by_type[name]),
            "bytes": size,
            "share": size / total,
            **bits(name),
        }
        for name, size in sorted(sizes.items(), key=lambda item: -item[1])
    ]


def _json_value(value: "MetadataValue") -> Any:
    """Return a metadata value for JSON: an array by its length and first items."""
    if isinstance(value, float):
        # JSON has no numbers that are not finite.
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bool | int | str):
        return value
    first = value[:_SHOWN_ITEMS] if isinstance(value, list) else value[:_SHOWN_ITEMS].tolist()
    return {"length": len(value), "first": [_json_value(item) for item in first]}


def header_lines(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield the facts of `describe` as lines: no control characters, none of them long."""
    parts = len(record["parts"])
    yield from _table(
        [
            ("parameters", f"{record['parameters']:,} in {record['num_tensors']} tensors"),
            ("size", size_text(record["file_bytes"]) + (f" in {parts} files" if parts > 1 else "")),
            ("GGUF version", str(record["gguf_version"])),
        ]
    )
    yield "\nquantization"
    yield from _table(
        [(f"  {group['type']}", _share(group)) for group in record["quantization"]]
        or [("  none", "the file has no tensors")]
    )
    yield "\nmetadata"
    yield from _table(
        [(f"  {_plain(key)}", _value(value)) for key, value in record["metadata"].items()]
    )
    if "tensors" in record:
        yield "\ntensors"
        yield from _table(
            [
                (
                    f"  {_plain(tensor['name'])}",
                    f"{tensor['type']:8s} {'x'.join(map(str, tensor['shape'])):>16} "
                    f"{size_text(tensor['bytes']):>10}"
                    + (f"  part {tensor['part'] + 1}" if parts > 1 else ""),
                )
                for tensor in record["tensors"]
            ]
        )


def _share(group: Mapping[str, Any]) -> str:
    size = size_text(group["bytes"])
    bits = ""
    if "fitted_bits" in group:
        exact, fitted = group["exact_bits"], group["fitted_bits"]
        bits = f"  {exact:g} bits a weight in memory, {fitted:g} with exact-weights false"
    return f"{group['tensors']:5d} tensors  {size:>10}  {group['share']:6.1%}{bits}"


def _table(rows: list[tuple[str, str]]) -> Iterator[str]:
    width = max((len(name) for name, _ in rows), default=0)
    return (f"{name:{width}}  {value}" for name, value in rows)


def _plain(text: str) -> str:
    """Return a text on one line: as it is where it prints, else quoted and escaped; cut."""
    return text if text.isprintable() and len(text) <= _SHOWN_CHARACTERS else _quoted(text)


def _quoted(text: str) -> str:
    if len(text) <= _SHOWN_CHARACTERS:
        return repr(text)
    return f"{text[:_SHOWN_CHARACTERS]!r}... ({len(text):,} characters)"


def _value(value: Any) -> str:
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, dict):
        first = ", ".join(_value(item) for item in value["first"])
        more = ", ..." if value["length"] > len(value["first"]) else ""
        return f"[{first}{more}] ({value['length']:,} items)"
    return str(value)
