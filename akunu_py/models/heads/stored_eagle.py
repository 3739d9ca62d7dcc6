"""EAGLE-3 heads in safetensors files with their config.json, as they are published.

SpecForge and Model Optimizer write the authors' layout. The config of vLLM's speculators has the
layer in `transformer_layer_config`. Configs may name the base model's architecture, so heads are
known by their tensors.
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path

import mlx.core as mx
from mlx import nn
from mlx_lm.models.llama import ModelArgs

from akunu_py.models.heads.eagle import EagleHead
from akunu_py.models.heads.families import (
    check_between_layers,
    decoder_of,
    drop_copies,
    set_draft_vocabulary,
    shared_layers,
)
from akunu_py.models.heads.head_config import HeadConfig
from akunu_py.models.heads.stored_weights import (
    OFFSETS,
    StoredTensor,
    fill_head,
    place_of,
    read_ids,
    read_tensors,
    shape_of,
)
from akunu_py.models.library_errors import from_library
from akunu_py.models.weight_files import check_weight_file
from akunu_py.system.errors import UnsupportedArchitectureError

_KIND = "an EAGLE-3"
_LAYER = re.compile(r"(?:model\.)?(?:midlayer|layers\.0)\.")
_MARK = "midlayer.hidden_norm.weight"
"""A parameter that no other head has."""

_NOT_RUN = ("fc_norm", "norm_before_fc", "norm_output", "use_sliding_window")
"""Variants of the forward pass that the config may ask for."""

_NESTED = "transformer_layer_config"
_IDS = "eagle_aux_hidden_state_layer_ids"


def find_eagle(source: Path) -> dict[str, StoredTensor] | None:
    """Return the tensors of the EAGLE-3 head in a file or folder, by their paths in an `EagleHead`.

    None where there is none. Raises ModelFormatError for a damaged file.
    """
    paths = [source] if source.is_file() else sorted(source.glob("model*.safetensors"))
    stored = {
        _LAYER.sub("midlayer.", name, count=1).removeprefix("model."): StoredTensor(path, name)
        for path in paths
        for name in check_weight_file(path)
        # Whether the target's tokens are among the head's, and frequencies: both follow.
        if name != "t2d" and not name.endswith("rotary_emb.inv_freq")
    }
    return stored if _MARK in stored else None


def open_eagle(
    stored: Mapping[str, StoredTensor], target: nn.Module, architecture: str
) -> EagleHead:
    """Return the EAGLE-3 head with these tensors, without its weights.

    `architecture` names the target in messages. Raises UnsupportedArchitectureError for a target
    or a head that akunu cannot run, ModelFormatError, naming file and value, for a config that is
    missing, damaged or of another model.
    """
    head = _empty_head(stored, target, architecture)
    if OFFSETS in stored:
        set_draft_vocabulary(head, target, mx.zeros(shape_of(stored[OFFSETS]), dtype=mx.int32))
    return head


def load_eagle(
    stored: Mapping[str, StoredTensor],
    target: nn.Module,
    architecture: str,
    kind: mx.Dtype,
    *,
    dense: bool,
) -> EagleHead:
    """Return the EAGLE-3 head with these tensors and their weights.

    Quantized weights keep their form, unless they are to be `dense`, in float32; all others, and
    scales, become `kind`, the type of the target's activations.

    Raises as `open_eagle` does, ModelFormatError, naming file and tensor, for a head that is
    incomplete, damaged or of another model, and ConfigError for numbers that `kind` cannot hold.
    """
    head = _empty_head(stored, target, architecture)
    place = place_of(stored)
    with from_library(place, "prediction head"):
        arrays = read_tensors(stored)
    offsets = arrays.pop(OFFSETS, None)
    fill_head(head, arrays, place, kind, dense=dense)
    drop_copies(head, target)
    if offsets is not None:
        vocabulary = decoder_of(target)[1].embed_tokens.weight.shape[0]
        set_draft_vocabulary(head, target, read_ids(offsets, stored[OFFSETS], vocabulary))
        mx.eval(head.parameters())
    return head


def _empty_head(
    stored: Mapping[str, StoredTensor], target: nn.Module, architecture: str
) -> EagleHead:
    """Return a head whose output head has a row for each token that it guesses."""
    path = stored[_MARK].path
    check_between_layers(target, architecture, path, _KIND)
    config = HeadConfig.beside(path, _KIND)
    _check_variant(path, config, stored)
    _, decoder = decoder_of(target)
    vocabulary, width = decoder.embed_tokens.weight.shape[0], decoder.norm.weight.shape[0]
    nested = config.value(_NESTED) is not None
    size = math.prod(shape_of(stored[OFFSETS])) if OFFSETS in stored else vocabulary
    args = _arguments(config, f"{_NESTED}." if nested else "", width, size)
    layers = _layers(config, len(target.layers))
    # vLLM takes it for true in the nested layout, where it is left out.
    normed = config.flag("norm_before_residual", default=nested)
    with from_library(path, "prediction head"):
        head = EagleHead(args, shared_layers(target, decoder), layers, norm_before_residual=normed)
    if "embed_tokens.weight" in stored:
        head.embed_tokens = nn.Embedding(vocabulary, width)
    return head


def _check_variant(path: Path, config: HeadConfig, stored: Mapping[str, StoredTensor]) -> None:
    """Raise UnsupportedArchitectureError for a head that is computed in another way."""
    settings = [f"{at}{name}" for name in _NOT_RUN for at in ("", "eagle_config.", f"{_NESTED}.")]
    asked = [name for name in settings if config.flag(name)]
    if not config.flag("eagle_config.use_aux_hidden_state", default=True):
        asked.append("eagle_config.use_aux_hidden_state false")
    if "fc.weight" not in stored:
        asked.append("no tensor fc.weight")
    if asked:
        raise UnsupportedArchitectureError(
            f"{path} is {_KIND} head of a kind that akunu does not run: it has "
            f"{', '.join(asked)}; use another head of this model, or leave it out"
        )


def _arguments(config: HeadConfig, at: str, width: int, size: int) -> ModelArgs:
    """Return the arguments of a head's layer, whose names in the config begin with `at`.

    `width` is the model's, `size` the number of tokens that the head guesses.
    """
    for name in (f"{at}hidden_size", "target_hidden_size"):
        if config.integer(name, width) != width:
            raise config.error(name, config.value(name), f"{width}, as the model has")
    if config.integer(f"{at}num_hidden_layers", 1) != 1:
        name = f"{at}num_hidden_layers"
        raise config.error(name, config.value(name), "1, the layer of an EAGLE-3 head")
    if config.value(f"{at}hidden_act") not in (None, "silu"):
        raise config.error(f"{at}hidden_act", config.value(f"{at}hidden_act"), "silu")
    heads = config.integer(f"{at}num_attention_heads")
    groups = config.integer(f"{at}num_key_value_heads", heads)
    if heads % groups:
        raise config.error(f"{at}num_key_value_heads", groups, f"a divisor of {heads}")
    base, rope = config.rotation(at)
    return ModelArgs(
        model_type="llama",
        hidden_size=width,
        num_hidden_layers=1,
        intermediate_size=config.integer(f"{at}intermediate_size"),
        num_attention_heads=heads,
        num_key_value_heads=groups,
        head_dim=config.integer(f"{at}head_dim", width // heads or 1),
        rms_norm_eps=config.number(f"{at}rms_norm_eps", 1e-6, high=1),
        vocab_size=size,
        max_position_embeddings=config.integer(f"{at}max_position_embeddings", 2048, high=2**40),
        attention_bias=config.flag(f"{at}attention_bias"),
        mlp_bias=config.flag(f"{at}mlp_bias"),
        rope_theta=base,
        rope_scaling=rope,
    )


def _layers(config: HeadConfig, count: int) -> tuple[int, ...]:
    """Return the numbers of the target's layers whose inputs a head takes.

    Where the config names none they are 2, half of all, and the last but two, as in the authors'
    code. Files count in two ways. Where the first number is 1 the layers' outputs are meant, else
    their inputs; so SGLang tells them apart (#25454). vLLM always takes inputs.
    """
    name = _IDS if config.value(_IDS) is not None else f"eagle_config.{_IDS}"
    found = config.value(name)
    numbers = [2, count // 2, count - 3] if found is None else found
    known = isinstance(numbers, list) and all(type(number) is int for number in numbers)
    if known and numbers[:1] == [1]:
        numbers = [number + 1 for number in numbers]
    ascending = known and len(numbers) == 3 and numbers == sorted(set(numbers))
    if not ascending or numbers[0] < 0 or numbers[-1] >= count:
        wanted = f"three of the model's {count} layers, in ascending order"
        raise config.error(name, found, wanted)
    return tuple(numbers)
