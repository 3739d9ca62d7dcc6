"""Heads in safetensors files: among a model's weights, beside them, or in a folder of their own.

Names are those of the checkpoints and of the programs that split them:

    mtp.*, language_model.mtp.*   Qwen's checkpoints, and MLX folders that kept their heads
    model.layers.N.*              DeepSeek and GLM: the layer after the model's N layers
    model.mtp_layers.0.*          MiMo
    the same without a prefix     side-cars, and folders of types like `qwen3_5_mtp` (mlx-vlm)

With a tensor `d2t` among them, a head guesses only some tokens (`head`).
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import mlx.core as mx
from mlx import nn

from akunu_py.models.folder_settings import read_folder_config
from akunu_py.models.heads.families import decoder_of, make_head, required_family, single_layer
from akunu_py.models.heads.head import PredictionHead
from akunu_py.models.heads.stored_weights import OFFSETS, StoredHead
from akunu_py.models.library_errors import from_library

_SIDE_CARS = (
    "mtp.safetensors",
    "mtp/weights.safetensors",
    "mtp/model.safetensors",
    "model-mtp.safetensors",
)
"""Files of a model's folder that hold its head: MTPLX's, vllm-mlx's and Rapid-MLX's."""

_PREFIXED = (
    re.compile(r"(?:language_model\.|model\.){0,2}mtp\.(?P<rest>.+)"),
    re.compile(r"model\.mtp_layers\.0\.(?P<rest>.+)"),
)
_LAYER = re.compile(r"(?:language_model\.|model\.){1,2}layers\.(?P<layer>\d+)\.(?P<rest>.+)")

_NAMES = {
    "eh_proj": ("fc", "eh_proj", "input_proj"),
    "enorm": ("pre_fc_norm_embedding", "enorm", "token_layernorm"),
    "hnorm": ("pre_fc_norm_hidden", "hnorm", "hidden_layernorm"),
    "norm": ("norm", "shared_head.norm", "shared_head_norm", "final_layernorm"),
    "embed_tokens": ("embed_tokens",),
    "lm_head": ("shared_head.head", "lm_head"),
}
_PART_OF = {name: part for part, names in _NAMES.items() for name in names}
"""Name in a checkpoint -> part of the head. Every other tensor is one of the head's layer."""

_HEADS_ALONE = ("eh_proj", "enorm", "hnorm")
"""Parts that only heads have."""

_OWN_LAYER = re.compile(r"(?:layers\.0|mtp_block)\.")
_EXPERT = re.compile(r"(.+\.mlp)\.experts\.(\d+)\.((?:gate|up|down)_proj\.\w+)")


def find_mtp(source: Path, target: nn.Module) -> StoredHead | None:
    """Return a head for a target, as `find_layer_head` does."""
    return find_layer_head(source, len(target.layers))


def find_layer_head(source: Path, num_layers: int) -> StoredHead | None:
    """Return the head in a safetensors file or a folder, None if it has none.

    The folder is that of a model, with the head beside its weights or among them, or of a head
    alone. `num_layers` is the number of the model's layers. Raises ModelFormatError for a damaged
    file. Paths are those in a model of one layer, whose other parts are absent.
    """
    if source.is_file():
        return _find(source, num_layers, bare=True)
    for name in _SIDE_CARS:
        path = source / name
        if path.is_file() and (head := _find(path, num_layers, bare=True)):
            return head
    alone = str(read_folder_config(source)["model_type"]).endswith("_mtp")
    return _find(source, num_layers, bare=alone)


def _find(source: Path, num_layers: int, *, bare: bool) -> StoredHead | None:
    """Return the head in a file or folder; with `bare`, names may lack the prefix."""
    head = StoredHead.of(source, lambda name: _place(_without_prefix(name, num_layers)))
    if not head.tensors and bare:
        head = StoredHead.of(source, lambda name: _place(name.removeprefix("model.")))
        # The other names are those of any model.
        known = any(f"model.{part}.weight" in head.tensors for part in _HEADS_ALONE)
        return head if known else None
    return head if head.tensors else None


def _without_prefix(name: str, num_layers: int) -> str | None:
    """Return the name of a head's tensor within the head, None for other tensors."""
    for pattern in _PREFIXED:
        if found := pattern.fullmatch(name):
            return found["rest"]
    found = _LAYER.fullmatch(name)
    return found["rest"] if found and found["layer"] == str(num_layers) else None


def _place(rest: str | None) -> str | None:
    """Return the place of a head's tensor in a model of one layer; None for further heads."""
    if rest is None or rest == OFFSETS:
        return rest
    module, _, suffix = rest.rpartition(".")
    if part := _PART_OF.get(module):
        return f"{part}.{suffix}" if part == "lm_head" else f"model.{part}.{suffix}"
    if found := _OWN_LAYER.match(rest):
        rest = rest[found.end() :]
    elif rest.startswith("layers."):
        return None
    return f"model.layers.0.{rest}"


def make_mtp(stored: StoredHead, target: nn.Module, architecture: str) -> PredictionHead:
    """Return the head of a target without its weights; `architecture` names it in a message.

    Raises UnsupportedArchitectureError for a target whose heads akunu does not run,
    ModelFormatError for a head that is damaged or of another model.
    """
    family = required_family(target, architecture)
    _, decoder = decoder_of(target)
    vocabulary = decoder.embed_tokens.weight.shape[0]
    with from_library(stored.place, "prediction head"):
        head = make_head(target, single_layer(target, family), family)
        paths = {_path(name) for name in stored.tensors}
        head.add_own(paths, vocabulary, head.width, stored.num_guessed)
    return head


def arrange_mtp(
    stored: StoredHead, arrays: dict[str, mx.array], target: nn.Module
) -> dict[str, mx.array]:
    """Return the arrays of a model of one layer by their paths in the head."""
    family = required_family(target, "")
    with from_library(stored.place, "prediction head"):
        # Classes drop it where the target has none, and a head may have one all the same.
        output = {name: array for name, array in arrays.items() if name.startswith("lm_head.")}
        arrays = {name: array for name, array in arrays.items() if name not in output}
        if family.minus_one:
            arrays = _with_whole_norms(_with_stacked_experts(arrays))
        sanitized = single_layer(target, family).sanitize(arrays)
        return {_path(name): array for name, array in sanitized.items()} | output


def _with_stacked_experts(arrays: dict[str, mx.array]) -> dict[str, mx.array]:
    """Return arrays with one stack in place of the matrices of single experts.

    The classes of Qwen's families do that only for some layouts, and one of them adds 1 to norms
    as it does.
    """
    stacks: dict[str, dict[int, mx.array]] = {}
    others = {}
    for name, array in arrays.items():
        if found := _EXPERT.fullmatch(name):
            stacks.setdefault(f"{found[1]}.switch_mlp.{found[3]}", {})[int(found[2])] = array
        else:
            others[name] = array
    for name, experts in stacks.items():
        if sorted(experts) != list(range(len(experts))):
            raise ValueError(
                f"it has the experts {sorted(experts)} for {name} and not those between"
            )
        others[name] = mx.stack([experts[number] for number in range(len(experts))])
    return others


def _with_whole_norms(arrays: dict[str, mx.array]) -> dict[str, mx.array]:
    """Return arrays with 1 added to the weights of norms that are stored less 1.

    Checkpoints store them less 1, and the files of some converters have them whole, whatever their
    names; one program wrote heads with both (oMLX #1507). So the numbers decide. The weights of the
    two norms around a layer's attention are near 1, and so are those of the last norm, which is
    judged by itself. Norms before the projection are about 0.3 to 0.6, and norms of queries may be
    anything: no number of theirs tells (oMLX #3750). They are as the layer's norms are.
    """
    last = "model.norm.weight"
    inner = [f"model.layers.0.{name}_layernorm.weight" for name in ("input", "post_attention")]
    shifted = set()
    if _are_less_one(arrays, inner):
        shifted |= {
            name
            for name, array in arrays.items()
            if name.endswith("norm.weight") and array.ndim == 1
        } - {last}
    if _are_less_one(arrays, [last]):
        shifted.add(last)
    return {
        name: array.astype(mx.float32) + 1 if name in shifted else array
        for name, array in arrays.items()
    }


def _are_less_one(arrays: Mapping[str, mx.array], names: Iterable[str]) -> bool:
    """Return whether weights of norms that are near 1 are stored less 1."""
    weights = [arrays[name].astype(mx.float32) for name in names if name in arrays]
    return bool(weights) and bool((mx.concatenate(weights).mean() < 0.5).item())


def _path(name: str) -> str:
    """Return the path in a head of a parameter of the model of one layer."""
    path = name.removeprefix("language_model.").removeprefix("model.")
    return f"body.{path}" if path.startswith(("layers.", "norm.")) else path
