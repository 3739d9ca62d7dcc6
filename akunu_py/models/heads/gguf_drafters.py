"""EAGLE-3, DFlash, DFlash 2 and DSpark heads in GGUF files, as llama.cpp's converters write them.

The metadata are read by the names of the config.json that they were made from, so a head is made
as from a folder. What differs was read in llama.cpp's `conversion/` and `src/models`:

- EAGLE-3 (`eagle3`): rows of q and k are in the order in which neighbours rotate. The numbers of
  layers are those of the config.
- DFlash and its successors (`dflash`): the kind follows from the tensors. The numbers of layers are
  those of inputs, one more than the config's.
- `d2t` has the ids of tokens, not their offsets.

Where a file has an embedding and no output head, llama.cpp makes logits with that embedding. That
is right for tied models alone: what converters leave out is a copy of the target's output head.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from mlx import nn

from akunu_py.gguf.architectures import DFLASH, EAGLE
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import Rule, halves_from_neighbours, module, modules, parameter, place
from akunu_py.gguf.parts import layers, rope, windows
from akunu_py.gguf.parts.decoder import (
    FREQUENCY_FACTORS,
    MAX_CONTEXT,
    MAX_HEADS,
    read_head_dim,
)
from akunu_py.gguf.plan import ModelPlan, Placement, RotaryFactors
from akunu_py.gguf.reader import GGUFFile
from akunu_py.models.heads.dflash import DFlashHead
from akunu_py.models.heads.eagle import EagleHead, make_eagle
from akunu_py.models.heads.head import CachedHead
from akunu_py.models.heads.head_config import HeadConfig
from akunu_py.models.heads.stored_dflash import FIRST, SECOND, SPARK, make_dflash
from akunu_py.models.heads.stored_weights import OFFSETS, StoredHead, TensorPlace
from akunu_py.system.errors import ModelFormatError

_Head = TypeVar("_Head", bound=CachedHead)
_Make = Callable[[StoredHead, nn.Module, str], _Head]

_KEYS = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "max_position_embeddings": "context_length",
    "rope_theta": "rope.freq_base",
    "layer_types": windows.PATTERN,
    "sliding_window": windows.WINDOW,
    "is_causal": "attention.causal",
    "attention_value_scale": "attention.value_scale",
    "eagle_aux_hidden_state_layer_ids": "target_layers",
    "aux_hidden_state_layer_ids": "target_layers",
    "target_layer_ids": "target_layers",
    "output_multiplier": "logit_scale",
    "input_embedding_scale": "embedding_scale",
    "enable_confidence_head": "has_confidence_head",
} | {
    name: name
    for name in (
        "hidden_act", "target_hidden_size", "norm_before_residual", "norm_before_fc", "block_size",
        "sample_from_anchor", "conv_kernel_size", "conv_group_size", "selector_rank",
        "selector_top_k", "final_logit_softcapping",
    )
}  # fmt: skip
"""Entry of a config.json -> key of the architecture."""

_MASK = "tokenizer.ggml.mask_token_id"

_SHARED = [
    module("fc", "fc"),
    module("output_norm", "norm"),
    module("token_embd", "embed_tokens", required=False),
    module("output", "lm_head", required=False),
]
_BLOCK = [
    *_SHARED,
    module("enc.output_norm", "hidden_norm"),
    *modules("layers.{}", layers.NORMS),
    *modules(
        "layers.{}.self_attn",
        {"attn_q": "q_proj", "attn_k": "k_proj", "attn_v": "v_proj", "attn_output": "o_proj",
         **layers.HEAD_NORMS},
    ),
    *modules("layers.{}.mlp", layers.GATED),
]  # fmt: skip
_SECOND = [
    *(
        rule
        for part, name in (("attn", "attention"), ("ffn", "mlp"))
        for rule in (
            parameter(f"blk.{{}}.{part}_conv_base", f"layers.{{}}.{name}_conv.base_kernel"),
            module(f"blk.{{}}.{part}_conv_proj", f"layers.{{}}.{name}_conv.kernel_projection"),
        )
    ),
    module("selector_hidden", "candidate_selector.hidden_projection"),
    module("selector_predecessor", "candidate_selector.predecessor_codebook"),
    module("selector_successor", "candidate_selector.successor_codebook"),
]
_SPARK = [
    *(module(name, f"markov_head.{name}", required=False) for name in ("markov_w1", "markov_w2")),
    # llama-quantize writes the matrix of one row as a vector.
    parameter(
        "conf_proj.weight", "confidence_head.proj.weight", required=False,
        convert=lambda weight: weight.reshape(1, -1),
    ),
    parameter("conf_proj.bias", "confidence_head.proj.bias", required=False),
]  # fmt: skip

_KINDS: Sequence[tuple[str, tuple[str, ...], Sequence[Rule]]] = (
    (SPARK, ("markov_", "conf_proj"), _SPARK),
    (SECOND, ("selector_", "blk.0.attn_conv", "blk.0.ffn_conv"), _SECOND),
    (FIRST, ("",), ()),
)
"""Kind in words, beginnings of tensors that only it has, and the rules for these."""


def plan_eagle(
    file: GGUFFile, target: nn.Module, architecture: str
) -> tuple[EagleHead, ModelPlan] | None:
    """Return the EAGLE-3 head in an open file, without its weights, and where these come from.

    None where the file has none. `architecture` names the target in messages. Raises
    UnsupportedArchitectureError for a target or a head that akunu cannot run, ModelFormatError,
    naming key or tensor, for a head that is incomplete, damaged or of another model.
    """
    if not _is_of(file, EAGLE):
        return None
    config = _Metadata(file, "an EAGLE-3")
    heads = config.integer("num_attention_heads", high=MAX_HEADS)
    groups = config.integer("num_key_value_heads", heads, high=heads)
    head_dim = read_head_dim(config.keys, config.integer("hidden_size"), heads)
    attention = "midlayer.self_attn"
    rules = [
        *_SHARED,
        module("blk.0.attn_norm", "midlayer.input_layernorm"),
        module("blk.0.attn_norm_2", "midlayer.hidden_norm"),
        module("blk.0.ffn_norm", "midlayer.post_attention_layernorm"),
        module("blk.0.attn_q", f"{attention}.q_proj", rows=halves_from_neighbours(heads, head_dim)),
        module(
            "blk.0.attn_k", f"{attention}.k_proj", rows=halves_from_neighbours(groups, head_dim)
        ),
        module("blk.0.attn_v", f"{attention}.v_proj"),
        module("blk.0.attn_output", f"{attention}.o_proj"),
        *(module(f"blk.0.{name}", f"midlayer.mlp.{own}") for name, own in layers.GATED.items()),
    ]
    head, plan = _planned(config, target, architecture, make_eagle, rules)
    if "output.weight" not in file.tensors:
        del head.lm_head
    return head, plan


def plan_dflash(
    file: GGUFFile, target: nn.Module, architecture: str
) -> tuple[DFlashHead, ModelPlan] | None:
    """Return the head that guesses blocks in an open file; else as `plan_eagle`."""
    if not _is_of(file, DFLASH):
        return None
    kind, _, rules = next(
        row for row in _KINDS if any(name.startswith(row[1]) for name in file.tensors)
    )
    config = _Metadata(file, kind)
    return _planned(config, target, architecture, make_dflash, [*_BLOCK, *rules])


def _is_of(file: GGUFFile, architecture: str) -> bool:
    return bool(file.tensors) and file.metadata.get("general.architecture") == architecture


def _planned(
    config: "_Metadata",
    target: nn.Module,
    architecture: str,
    make: _Make[_Head],
    rules: Sequence[Rule],
) -> tuple[_Head, ModelPlan]:
    """Return the head that `make` makes of a file's config, and its plan by `rules`."""
    file, keys = config.file, config.keys
    count = config.integer("num_hidden_layers", high=256)
    placements = place(rules, file.tensors, count, ignored=".*")
    _check_forms(config, placements)
    head = make(_FileHead(config, placements), target, architecture)
    rotary = None
    if FREQUENCY_FACTORS in file.tensors:
        rotary = RotaryFactors(
            dims=config.integer("head_dim", config.integer("hidden_size") // config.heads),
            base=config.rotation()[0],
            tensor=FREQUENCY_FACTORS,
        )
    keys.check_unused()
    return head, ModelPlan(
        architecture=keys.architecture,
        model="",
        arguments={},
        placements=placements,
        num_layers=count,
        context_length=config.integer("max_position_embeddings", high=MAX_CONTEXT),
        vocabulary_size=1,
        rotary=rotary,
    )


def _check_forms(config: "_Metadata", placements: Iterable[Placement]) -> None:
    """Raise UnsupportedArchitectureError for a head with tensors or keys of another kind."""
    used = {name for item in placements for name in (*item.tensors, *item.scales)}
    unknown = config.file.tensors.keys() - used - {OFFSETS, FREQUENCY_FACTORS}
    asked = [f"a tensor {name}" for name in sorted(unknown)[:4]]
    head_dim = config.integer("head_dim", config.integer("hidden_size") // config.heads)
    asked += [
        f"{config.keys.architecture}.{key}"
        for key in ("attention.value_length", "rope.dimension_count")
        if config.keys.integer(key, head_dim) != head_dim
    ]
    if FREQUENCY_FACTORS in config.file.tensors and config.value("rope_scaling") is not None:
        asked.append(f"both {FREQUENCY_FACTORS} and scaled positions")
    config.refuse(config.path, config.kind, asked)


class _Metadata(HeadConfig):
    """The metadata of a file, by the names of a config.json; `kind` as in "an EAGLE-3"."""

    def __init__(self, file: GGUFFile, kind: str) -> None:
        super().__init__(file.path, {})
        self.file = file
        self.kind = kind
        self.keys = Keys(file.metadata, str(file.metadata["general.architecture"]))

    @property
    def heads(self) -> int:
        return self.integer("num_attention_heads", high=MAX_HEADS)

    def error(self, name: str, value: object, wanted: str) -> ModelFormatError:
        entry = name.removeprefix("dflash_config.")
        shown = f"{self.keys.architecture}.{_KEYS.get(entry, entry)}"
        if entry == "mask_token_id":
            shown = _MASK
        return ModelFormatError(
            f"{shown} is {str(value)[:80]!r}, not {wanted}; use a head of this model, or download "
            "or convert it again"
        )

    def has_beside(self, name: str) -> bool:  # noqa: ARG002 - what lies there is another head's
        return False

    def value(self, name: str) -> Any:
        if name == "rope_scaling":
            return rope.scaling_of(
                self.keys, self.integer("max_position_embeddings", high=MAX_CONTEXT)
            )
        if name == "attention_bias":
            return any(part.endswith(".bias") and ".attn_" in part for part in self.file.tensors)
        if name == "mask_token_id":
            return self.file.metadata.get(_MASK)
        # The numbers of a file are those of inputs, not of outputs.
        if name not in _KEYS or name == "target_layer_ids":
            return None
        if name == "layer_types":
            return self._layer_types()
        value = self.keys.value(_KEYS[name])
        return value.tolist() if isinstance(value, np.ndarray) else value

    def _layer_types(self) -> list[str] | None:
        if not self.value("sliding_window"):
            return None
        flags = self.keys.value(windows.PATTERN)
        if not isinstance(flags, np.ndarray) or flags.dtype != bool:
            raise self.error("layer_types", flags, "a boolean for each layer")
        return windows.layer_types(flags.tolist())


class _FileHead(StoredHead):
    """A head in a GGUF file, before it is made."""

    def __init__(self, config: _Metadata, placements: Iterable[Placement]) -> None:
        path = config.path
        tensors = {item.path: TensorPlace(path, item.tensors[0]) for item in placements}
        if OFFSETS in config.file.tensors:
            tensors[OFFSETS] = TensorPlace(path, OFFSETS)
        super().__init__(path, tensors)
        self._config = config

    def shape(self, name: str) -> tuple[int, ...]:
        return self._config.file.tensors[self.tensors[name].name].shape

    def config(self, path: Path, kind: str) -> HeadConfig:  # noqa: ARG002 - it has one file
        return self._config
