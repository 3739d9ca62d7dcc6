"""How a model's weights are stored on disk, by purpose."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from akunu_py.models.weight_files import read_header, weight_files

if TYPE_CHECKING:
    from akunu_py.gguf import GGUFFile

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
