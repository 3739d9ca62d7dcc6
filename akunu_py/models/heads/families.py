"""The families with prediction heads, and heads without weights for their models.

A head's layer is a layer of the target's own class in mlx-lm: the class is made once more, with a
single layer. What the heads of the families have in common:

- They take the target's states after its final norm, and their own states after their own norm are
  fed back. vLLM's `qwen3_next_mtp`, `deepseek_mtp`, `glm4_moe_mtp` and `mimo_mtp` are given such
  states. Measured acceptance agrees: llama.cpp #24025, Rapid-MLX #3371 (Qwen 3.5 and 3.6), ATOM
  #1764 (DeepSeek R1: 64.6 % against 61.4 % for states from before the head's norm), vLLM #45895.
  vllm-mlx #660 alone gives Qwen's head the states from before the final norm.
- Only the first head of a model is used, for every depth, as vLLM and llama.cpp do where a
  checkpoint has one. The published checkpoints of these families have one.

DeepSeek's and MiMo's heads in vLLM set the embedding at position 0 to zero. The checkpoints' own
code does not, and neither does akunu.
"""

import copy
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx import nn

from akunu_py.models.heads.head import DraftOutput, PredictionHead, SharedLayers, some_rows
from akunu_py.system.errors import UnsupportedArchitectureError


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The heads of a family."""

    architectures: tuple[str, ...] = ()
    """The GGUF architectures whose heads it takes."""

    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Arguments of the class that make its layer 0 a layer like the head's."""

    embedding_first: bool = True
    """Whether the projection takes the embedding before the state."""

    minus_one: bool = False
    """Whether checkpoints of the family store the weights of norms less 1."""


_ATTENTION = {"full_attention_interval": 1}
_EXPERTS = {"first_k_dense_replace": 0}

FAMILIES: Mapping[str, Family] = {
    "qwen3_next": Family(
        architectures=("qwen3next",),
        changes={**_ATTENTION, "decoder_sparse_step": 1, "mlp_only_layers": []},
        minus_one=True,
    ),
    "qwen3_5": Family(architectures=("qwen35",), changes=_ATTENTION, minus_one=True),
    "qwen3_5_moe": Family(architectures=("qwen35moe",), changes=_ATTENTION, minus_one=True),
    "deepseek_v3": Family(architectures=("deepseek2",), changes=_EXPERTS),
    "glm4_moe": Family(architectures=("glm4moe",), changes=_EXPERTS),
    "glm4_moe_lite": Family(architectures=("deepseek2",), changes=_EXPERTS),
    # vLLM's mimo_mtp joins the state and the embedding in this order.
    "mimo": Family(embedding_first=False),
    # No checkpoint has one: lab/scripts/train_heads.py trains it.
    "llama": Family(changes={"layer_types": None}),
}
"""Module of `mlx_lm.models` -> its heads."""


BETWEEN_LAYERS = (
    "llama", "qwen2", "qwen3", "qwen3_moe", "gpt_oss", "qwen3_next", "qwen3_5", "qwen3_5_moe",
)  # fmt: skip
"""Modules of `mlx_lm.models` whose states are read between layers, for heads of any family."""


def family_of(model: nn.Module) -> Family | None:
    """Return the family of a model of mlx-lm's, or of akunu's variants of it; None for others."""
    return next((FAMILIES[name] for name in _modules_of(model) if name in FAMILIES), None)


def required_family(model: nn.Module, architecture: str) -> Family:
    """Return the family of a model; raise UnsupportedArchitectureError if akunu runs no head of it.

    `architecture` names it in the message.
    """
    family = family_of(model)
    if family is None:
        raise UnsupportedArchitectureError(
            f"akunu cannot run the prediction head of a {architecture} model; "
            f"it runs those of {', '.join(FAMILIES)}: leave the head out"
        )
    return family


def check_between_layers(model: nn.Module, architecture: str, path: Path, kind: str) -> None:
    """Raise UnsupportedArchitectureError where states between a model's layers are not read.

    `architecture` names the model in the message, `path` and `kind` the head, as in "an EAGLE-3".
    """
    if not any(name in BETWEEN_LAYERS for name in _modules_of(model)):
        raise UnsupportedArchitectureError(
            f"{path} is {kind} head, and the model is a {architecture} model; akunu runs such "
            f"heads of {', '.join(BETWEEN_LAYERS)}: leave the head out"
        )


def is_of(model: nn.Module, module: str) -> bool:
    """Return whether a model's class, or one that it is derived from, is of a module."""
    return module in _modules_of(model)


def _modules_of(model: nn.Module) -> list[str]:
    """Return the modules of a model's class and of those it is derived from."""
    return [kind.__module__.rpartition(".")[2] for kind in type(model).__mro__]


def decoder_of(model: nn.Module) -> tuple[str, nn.Module]:
    """Return the decoder of a family's model, with embedding, layers and norm, and its path."""
    if "language_model" in model:
        return "language_model.model", model.language_model.model
    return "model", model.model


def single_layer(model: nn.Module, family: Family) -> nn.Module:
    """Return the class of a target once more, with one layer like the head's and no weights."""
    changes = {"num_hidden_layers": 1, **family.changes}
    args = model.args
    if hasattr(args, "text_config"):
        changes = {"text_config": {**copy.deepcopy(args.text_config), **changes}}
    return type(model)(dataclasses.replace(args, **changes))


def make_head(target: nn.Module, single: nn.Module, family: Family) -> PredictionHead:
    """Return a head without weights for a target.

    `single` is a model of the target's family with one layer, which the head takes over. It rotates
    positions as the target does, whatever its arguments say.
    """
    _, decoder = decoder_of(target)
    _, body = decoder_of(single)
    attention = next(layer.self_attn for layer in reversed(decoder.layers) if "self_attn" in layer)
    body.layers[0].self_attn.rope = attention.rope
    body.embed_tokens = nn.Identity()
    if "ssm_idx" in vars(body):
        # It names the layer for whose recurrent state a mask is made.
        body.ssm_idx = None
    return PredictionHead(
        body,
        shared_layers(target, decoder),
        decoder.norm.weight.shape[0],
        embedding_first=family.embedding_first,
    )


def drop_copies(head: nn.Module, target: nn.Module) -> None:
    """Let a head use the target's embedding and output head where its own are equal to them.

    Checkpoints of DeepSeek and GLM store them a second time.
    """
    _, decoder = decoder_of(target)
    for part, layer in (
        ("embed_tokens", decoder.embed_tokens),
        ("lm_head", _output_of(target) or decoder.embed_tokens),
    ):
        if part in head and _equal(head[part].parameters(), layer.parameters()):
            del head[part]


def set_draft_vocabulary(head: nn.Module, target: nn.Module, ids: mx.array) -> None:
    """Let a head guess only the tokens of `ids`, int32 [n], ascending.

    Its own output head has n rows; without one, it gets these rows of the target's.
    """
    embedding = decoder_of(target)[1].embed_tokens
    rows = head.get("lm_head") or some_rows(_output_of(target) or embedding, ids)
    head.lm_head = DraftOutput(rows, ids, embedding.weight.shape[0])


def _equal(arrays: Mapping[str, mx.array], others: Mapping[str, mx.array]) -> bool:
    return arrays.keys() == others.keys() and all(
        array.dtype == others[name].dtype and mx.array_equal(array, others[name]).item()
        for name, array in arrays.items()
    )


def _output_of(target: nn.Module) -> nn.Module | None:
    """Return the target's output head, None where its embedding makes the logits."""
    owner = target.language_model if "language_model" in target else target
    return owner.get("lm_head")


def shared_layers(target: nn.Module, decoder: nn.Module) -> SharedLayers:
    """Return the embedding and the output head of a target, for its heads."""
    embedding, output = decoder.embed_tokens, _output_of(target)
    return SharedLayers(
        # Bound methods: modules would count as the head's own.
        embed=embedding.__call__,
        logits=embedding.as_linear if output is None else output.__call__,
    )
