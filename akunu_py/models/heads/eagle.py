"""An EAGLE-3 head: one layer that guesses from the states of three of the target's layers.

Li et al. 2025, EAGLE-3 (arXiv:2503.01840). What it computes was read in the authors' `cnets.py` and
in the `llama_eagle3.py` of vLLM and SGLang:

- The three states are joined and projected to the target's width: the feature. For a token further
  ahead the head's own state, from before its last norm, takes the place of the feature.
- Attention takes the normed embedding and the normed feature side by side. What it adds is added to
  the feature, or, with `norm_before_residual`, to the normed feature.
- The output head may be for some tokens alone (`head`).

SpecForge and Model Optimizer write the authors' layout: safetensors files with a config.json. The
config of vLLM's speculators has the layer in `transformer_layer_config`. Configs may name the base
model's architecture, so heads are known by their tensors.
"""

import re
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx_lm.models.base import create_attention_mask
from mlx_lm.models.cache import KVCache
from mlx_lm.models.llama import ModelArgs, TransformerBlock

from akunu_py.models.heads.families import check_between_layers, decoder_of, is_of, shared_layers
from akunu_py.models.heads.head import CachedHead, SharedLayers
from akunu_py.models.heads.head_config import HeadConfig
from akunu_py.models.heads.stored_weights import StoredHead
from akunu_py.models.library_errors import from_library


class EagleHead(CachedHead):
    """An EAGLE-3 head: from the states between layers at row i and token i+1, token i+2."""

    def __init__(
        self,
        args: ModelArgs,
        shared: SharedLayers,
        layers: tuple[int, ...],
        *,
        norm_before_residual: bool = False,
        window: int | None = None,
    ) -> None:
        """Make a head without weights, which takes the inputs of the target's `layers`.

        `args` are those of the class of its layer; `vocab_size` counts the tokens it guesses.
        `norm_before_residual` says whether the residual is the normed feature, `window` how many
        rows a row sees, its own among them.
        """
        width = args.hidden_size
        super().__init__(shared, layers, width)
        self.fc = nn.Linear(len(layers) * width, width, bias=False)
        self.midlayer = TransformerBlock(args)
        self.midlayer.hidden_norm = nn.RMSNorm(width, eps=args.rms_norm_eps)
        attention = self.midlayer.self_attn
        for name in ("q_proj", "k_proj", "v_proj"):
            rows = attention[name].weight.shape[0]
            attention[name] = nn.Linear(2 * width, rows, bias=args.attention_bias)
        self.norm = nn.RMSNorm(width, eps=args.rms_norm_eps)
        self.lm_head = nn.Linear(width, args.vocab_size, bias=False)
        self._norm_before_residual = norm_before_residual
        self._window = window

    def __call__(
        self, hidden: mx.array, tokens: mx.array, cache: list[Any] | None = None
    ) -> mx.array:
        """Return states [1, n, H] for the target's, [1, n, layers * H], or the head's own."""
        feature = hidden if hidden.shape[-1] == self.width else self.fc(hidden)
        layer, rows = self.midlayer, None if cache is None else cache[0]
        normed = layer.hidden_norm(feature)
        joined = mx.concatenate([layer.input_layernorm(self.embed(tokens)), normed], axis=-1)
        mask = create_attention_mask(joined, rows, window_size=self._window)
        attended = layer.self_attn(joined, mask, rows)
        states = (normed if self._norm_before_residual else feature) + attended
        output: mx.array = states + layer.mlp(layer.post_attention_layernorm(states))
        return output

    def logits(self, hidden: mx.array) -> mx.array:
        return super().logits(self.norm(hidden))

    def make_cache(self) -> list[Any]:
        return [KVCache()]


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
    at = f"{_NESTED}." if nested else ""
    args = _arguments(config, at, width, stored.num_guessed or vocabulary)
    layers = _layers(config, target)
    (window,) = config.windows(1, at)
    # vLLM takes it for true in the nested layout, where it is left out.
    normed = config.flag("norm_before_residual", default=nested)
    with from_library(path, "prediction head"):
        shared = shared_layers(target, decoder)
        head = EagleHead(args, shared, layers, norm_before_residual=normed, window=window)
    head.add_own(stored.tensors, vocabulary, width, stored.num_guessed)
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
