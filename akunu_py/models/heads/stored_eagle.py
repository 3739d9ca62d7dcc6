"""EAGLE-3 heads in safetensors files with their config.json, as they are published.

SpecForge and Model Optimizer write the authors' layout. The config of vLLM's speculators has the
layer in `transformer_layer_config`. Configs may name the base model's architecture, so heads are
known by their tensors.
"""

import re
from pathlib import Path

from mlx import nn
from mlx_lm.models.llama import ModelArgs

from akunu_py.models.heads.eagle import EagleHead
from akunu_py.models.heads.families import check_between_layers, decoder_of, is_of, shared_layers
from akunu_py.models.heads.head_config import HeadConfig
from akunu_py.models.heads.stored_weights import StoredHead
from akunu_py.models.library_errors import from_library

_KIND = "an EAGLE-3"
_LAYER = re.compile(r"(?:model\.)?(?:midlayer|layers\.0)\.")
_MARK = "midlayer.hidden_norm.weight"
"""A parameter that no other head has."""

_NOT_RUN = ("fc_norm", "norm_before_fc", "norm_output")
"""Variants of the forward pass that the config may ask for."""

_NESTED = "transformer_layer_config"
_IDS = "eagle_aux_hidden_state_layer_ids"


def find_eagle(source: Path, _: nn.Module) -> StoredHead | None:
    """Return the EAGLE-3 head in a file or folder, None where there is none.

    Raises ModelFormatError for a damaged file.
    """
    stored = StoredHead.of(source, _own_name)
    return stored if _MARK in stored.tensors else None


def _own_name(name: str) -> str | None:
    # "t2d" says whether the target's tokens are among the head's, which follows from "d2t".
    own = _LAYER.sub("midlayer.", name, count=1).removeprefix("model.")
    return None if name == "t2d" else own


def make_eagle(stored: StoredHead, target: nn.Module, architecture: str) -> EagleHead:
    """Return an EAGLE-3 head without weights; its output head has the rows that it guesses.

    `architecture` names the target in messages. Raises UnsupportedArchitectureError for a target
    or a head that akunu cannot run, ModelFormatError, naming file and value, for a config that is
    missing, damaged or of another model.
    """
    path = stored.tensors[_MARK].path
    check_between_layers(target, architecture, path, _KIND)
    config = stored.config(path, _KIND)
    _check_variant(path, config, stored)
    _, decoder = decoder_of(target)
    vocabulary, width = decoder.embed_tokens.weight.shape[0], decoder.norm.weight.shape[0]
    nested = config.value(_NESTED) is not None
    args = _arguments(
        config, f"{_NESTED}." if nested else "", width, stored.num_guessed or vocabulary
    )
    layers = _layers(config, target)
    (window,) = config.windows(1, f"{_NESTED}." if nested else "")
    # vLLM takes it for true in the nested layout, where it is left out.
    normed = config.flag("norm_before_residual", default=nested)
    with from_library(path, "prediction head"):
        shared = shared_layers(target, decoder)
        head = EagleHead(args, shared, layers, norm_before_residual=normed, window=window)
    if "embed_tokens.weight" in stored.tensors:
        head.embed_tokens = nn.Embedding(vocabulary, width)
    return head


def _check_variant(path: Path, config: HeadConfig, stored: StoredHead) -> None:
    settings = [f"{at}{name}" for name in _NOT_RUN for at in ("", "eagle_config.", f"{_NESTED}.")]
    asked = [name for name in settings if config.flag(name)]
    asked += config.unknown_forms(at=("", "eagle_config.", f"{_NESTED}."))
    # DeepSpec's name of the layers, whose heads compute in another way as well.
    asked += config.unknown_forms({"target_layer_ids": (None,)})
    if config.flag("use_sliding_window") and config.value("layer_types") is None:
        asked.append("use_sliding_window without layer_types")
    if not config.flag("eagle_config.use_aux_hidden_state", default=True):
        asked.append("eagle_config.use_aux_hidden_state false")
    if "fc.weight" not in stored.tensors:
        asked.append("no tensor fc.weight")
    config.refuse(path, _KIND, asked)


def _arguments(config: HeadConfig, at: str, width: int, size: int) -> ModelArgs:
    """Return the arguments of a head's layer, whose names in the config begin with `at`.

    `width` is the model's, `size` the number of tokens that the head guesses.
    """
    common = config.layer_arguments(width, at)
    if config.integer("target_hidden_size", width) != width:
        value = config.value("target_hidden_size")
        raise config.error("target_hidden_size", value, f"{width}, as the model has")
    if config.integer(f"{at}num_hidden_layers", 1) != 1:
        name = f"{at}num_hidden_layers"
        raise config.error(name, config.value(name), "1, the layer of an EAGLE-3 head")
    return ModelArgs(
        model_type="llama",
        num_hidden_layers=1,
        vocab_size=size,
        attention_bias=config.flag(f"{at}attention_bias"),
        mlp_bias=config.flag(f"{at}mlp_bias"),
        **common,
    )


def _layers(config: HeadConfig, target: nn.Module) -> tuple[int, ...]:
    """Return the numbers of the target's layers whose inputs a head takes.

    Where the config names none they are 2, half of all, and the last but two, as in the authors'
    code. Files count in two ways. Where the first number is 1 the layers' outputs are meant, else
    their inputs; so SGLang tells them apart (#25454), but for gpt-oss, whose heads always count
    inputs (#32334). vLLM always takes inputs.
    """
    count = len(target.layers)
    name = _IDS if config.value(_IDS) is not None else f"eagle_config.{_IDS}"
    found = config.value(name)
    numbers = [2, count // 2, count - 3] if found is None else found
    known = isinstance(numbers, list) and all(type(number) is int for number in numbers)
    if known and numbers[:1] == [1] and not is_of(target, "gpt_oss"):
        numbers = [number + 1 for number in numbers]
    ascending = known and len(numbers) == 3 and numbers == sorted(set(numbers))
    if not ascending or numbers[0] < 0 or numbers[-1] >= count:
        wanted = f"three of the model's {count} layers, in ascending order"
        raise config.error(name, found, wanted)
    return tuple(numbers)
