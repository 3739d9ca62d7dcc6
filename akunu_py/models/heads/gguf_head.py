"""Heads in GGUF files: the block after a model's layers, with further tensors named `nextn`.

llama.cpp's converters write a head as a usual block of the architecture. So akunu plans it by the
architecture's reader, as a model of one layer. `nextn.eh_proj` takes the embedding before the state
in every architecture; `nextn.shared_head_norm`, `embed_tokens` and `shared_head_head` may be
absent, and then are the model's own (llama.cpp's `src/models/qwen35.cpp`).
"""

import dataclasses
from collections.abc import Mapping

from mlx import nn

from akunu_py.gguf.architectures import read_plan
from akunu_py.gguf.header import MetadataValue
from akunu_py.gguf.parts.decoder import head_block
from akunu_py.gguf.plan import ModelPlan, Placement
from akunu_py.gguf.reader import GGUFFile, TensorInfo
from akunu_py.models.heads.families import decoder_of, make_head, required_family, single_layer
from akunu_py.models.heads.head import PredictionHead
from akunu_py.system.errors import ModelFormatError, UnsupportedArchitectureError

_REQUIRED = {"eh_proj": "eh_proj", "enorm": "enorm", "hnorm": "hnorm"}
_OPTIONAL = {"embed_tokens": "embed_tokens", "shared_head_head": "lm_head"}
"""Tensor of a head -> module of `PredictionHead`."""

_NORM = "nextn.shared_head_norm.weight"
_WHOLE_MODEL = ("token_embd.weight", "output.weight", "output_norm.weight", "rope_freqs.weight")
_SINGLE_LAYER = {
    "block_count": 1, "full_attention_interval": 1, "leading_dense_block_count": 0,
}  # fmt: skip
"""Keys of a model whose only layer has attention, and experts where the model has them."""

_FURTHER, _RECURRENT = "nextn_predict_layers", "attention.recurrent_layers"


def plan_mtp(
    file: GGUFFile, target: nn.Module, architecture: str
) -> tuple[PredictionHead, ModelPlan] | None:
    """Return the head in an open file, without its weights, and where these come from.

    None where the file has none. Raises UnsupportedArchitectureError for a target whose heads
    akunu does not run, and for a head of another family; ModelFormatError, naming file and tensor,
    for one that is incomplete, damaged or of another model. `architecture` names the target.
    """
    block = head_block(file.tensors)
    if block is None:
        return None
    family = required_family(target, architecture)
    own = str(file.metadata["general.architecture"])
    if own not in family.architectures:
        raise UnsupportedArchitectureError(
            f"the prediction head in {file.path} is one of the architecture {own[:80]!r}, "
            "which this model does not take; use the head of this model"
        )
    single = single_layer(target, family)
    root, _ = decoder_of(single)
    try:
        plan = _plan(file, block, own, root)
        head = make_head(target, single, family)
    except ModelFormatError as error:
        # The block was planned as the first.
        raise type(error)(error.message.replace("blk.0.", f"blk.{block}.")) from None
    vocabulary = decoder_of(target)[1].embed_tokens.weight.shape[0]
    placed = {placement.path for placement in plan.placements}
    head.add_own(placed, vocabulary, head.width)
    return head, plan


def _plan(file: GGUFFile, block: int, architecture: str, root: str) -> ModelPlan:
    """Return the plan of a head, for the paths of `PredictionHead`.

    `root` is the path of the decoder in the architecture's class.
    """
    prefix = f"blk.{block}."
    of_block = {
        name.removeprefix(prefix): info
        for name, info in file.tensors.items()
        if name.startswith(prefix)
    }
    tensors = {name: file.tensors[name] for name in _WHOLE_MODEL if name in file.tensors}
    tensors |= {
        f"blk.0.{name}": info for name, info in of_block.items() if not name.startswith("nextn.")
    }
    if _NORM in of_block:
        tensors["output_norm.weight"] = of_block[_NORM]
    whole = read_plan(_single_layer_metadata(file, architecture), tensors)

    def own_path(path: str) -> str | None:
        rest = path.removeprefix(f"{root}.")
        return f"body.{rest}" if rest.startswith(("layers.", "norm.")) else None

    placements = [
        dataclasses.replace(
            item,
            path=path,
            tensors=tuple(tensors[name].name for name in item.tensors),
            scales=tuple(name and tensors[name].name for name in item.scales),
        )
        for item in whole.placements
        if (path := own_path(item.path))
    ]
    placements += _nextn_placements(of_block)
    return dataclasses.replace(
        whole,
        placements=tuple(placements),
        # It rotates as the target does.
        rotary=None,
        constants={
            path: value for name, value in whole.constants.items() if (path := own_path(name))
        },
    )


def _nextn_placements(of_block: Mapping[str, TensorInfo]) -> list[Placement]:
    placements = []
    known = {_NORM}
    for name, module in (_REQUIRED | _OPTIONAL).items():
        tensor = f"nextn.{name}.weight"
        known.add(tensor)
        if tensor in of_block:
            placements.append(Placement(path=f"{module}.weight", tensors=(of_block[tensor].name,)))
        elif name in _REQUIRED:
            raise ModelFormatError(
                f"the tensor 'blk.0.{tensor}' is missing; the file is incomplete: download it again"
            )
    unknown = {name for name in of_block if name.startswith("nextn.")} - known
    if unknown:
        raise ModelFormatError(
            f"it has a tensor 'blk.0.{min(unknown)}' that akunu does not know there; use a "
            "conversion of the plain model"
        )
    return placements


def _single_layer_metadata(file: GGUFFile, architecture: str) -> dict[str, MetadataValue]:
    """Return a file's metadata as that of a model of which only the head's block is left."""
    prefix = f"{architecture}."
    absent = {prefix + _FURTHER, prefix + _RECURRENT}
    metadata = {name: value for name, value in file.metadata.items() if name not in absent}
    return metadata | {prefix + key: value for key, value in _SINGLE_LAYER.items()}
