"""DFlash heads in safetensors files with their config.json, as they are published."""

from collections.abc import Mapping
from pathlib import Path

from mlx import nn
from mlx_lm.models.qwen3 import ModelArgs

from akunu_py.drafting.draft_model import MAX_DRAFT_TOKENS
from akunu_py.models.heads.dflash import DFlashHead
from akunu_py.models.heads.families import check_between_layers, decoder_of, shared_layers
from akunu_py.models.heads.head_config import HeadConfig
from akunu_py.models.heads.stored_weights import StoredHead
from akunu_py.models.library_errors import from_library

_MARK = "hidden_norm.weight"
"""A parameter that no other head has; beside `fc`, no model either."""

_KIND = "a DFlash"
_NESTED = "dflash_config"
_LAYERS = f"{_NESTED}.target_layer_ids"

_NOT_RUN: Mapping[str, tuple[object, ...]] = {
    "is_causal": (None, False),
    "causal": (None, False),
    "use_sliding_window": (None, False),
    "input_embedding_scale": (None, 1),
    "output_multiplier": (None, 1),
    "final_logit_softcapping": (None,),
    # DFlash 2's convolutions and its choice among candidates.
    "conv_kernel_size": (None, 0),
    "selector_rank": (None, 0),
}
"""Entries of the config that change the forward pass -> the values with which they do not."""


def find_dflash(source: Path, _: nn.Module) -> StoredHead | None:
    """Return the DFlash head in a file or folder, None where there is none.

    Raises ModelFormatError for a damaged file.
    """
    stored = StoredHead.of(source, lambda name: name.removeprefix("model."))
    return stored if {_MARK, "fc.weight"} <= stored.tensors.keys() else None


def make_dflash(stored: StoredHead, target: nn.Module, architecture: str) -> DFlashHead:
    """Return a DFlash head without weights.

    `architecture` names the target in messages. Raises UnsupportedArchitectureError for a target
    or a head that akunu cannot run, ModelFormatError, naming file and value, for a config that is
    missing, damaged or of another model.
    """
    path = stored.tensors[_MARK].path
    check_between_layers(target, architecture, path, _KIND)
    config = HeadConfig.next_to(path, _KIND)
    _check_variant(path, config)
    _, decoder = decoder_of(target)
    vocabulary, width = decoder.embed_tokens.weight.shape[0], decoder.norm.weight.shape[0]
    args = ModelArgs(
        model_type="qwen3",
        num_hidden_layers=config.integer("num_hidden_layers", high=256),
        # Only the layers are made.
        vocab_size=1,
        tie_word_embeddings=True,
        **config.layer_arguments(width),
    )
    layers = _layers(config, len(target.layers))
    nested = f"{_NESTED}.block_size"
    name = "block_size" if config.value(nested) is None else nested
    with from_library(path, "prediction head"):
        return DFlashHead(
            args,
            shared_layers(target, decoder),
            layers,
            block=config.integer(name, low=2, high=1 + MAX_DRAFT_TOKENS),
            mask=config.integer(f"{_NESTED}.mask_token_id", low=0, high=vocabulary - 1),
            bias=config.flag("attention_bias"),
        )


def _check_variant(path: Path, config: HeadConfig) -> None:
    asked = [
        f"{at}{name}"
        for name, harmless in _NOT_RUN.items()
        for at in ("", f"{_NESTED}.")
        if config.value(f"{at}{name}") not in harmless
    ]
    kinds = config.value("layer_types") or []
    if not isinstance(kinds, list) or any(kind != "full_attention" for kind in kinds):
        asked.append("layer_types besides full_attention")
    config.refuse(path, _KIND, asked)


def _layers(config: HeadConfig, count: int) -> tuple[int, ...]:
    """Return the numbers of the target's layers whose inputs a head takes.

    The config names those whose outputs it takes.
    """
    found = config.value(_LAYERS)
    known = isinstance(found, list) and all(type(number) is int for number in found)
    numbers = tuple(number + 1 for number in found) if known else ()
    ascending = numbers == tuple(sorted(set(numbers)))
    if not numbers or not ascending or numbers[0] < 1 or numbers[-1] >= count:
        wanted = f"layers of the model's {count} before the last, in ascending order"
        raise config.error(_LAYERS, found, wanted)
    total = "num_target_layers"
    stated = f"{_NESTED}.{total}" if config.value(f"{_NESTED}.{total}") is not None else total
    if config.integer(stated, count) != count:
        raise config.error(stated, config.value(stated), f"{count}, as the model has")
    return numbers
