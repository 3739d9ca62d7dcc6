"""Gemma 4's assistant: a small model that drafts from the target's states, keys and values.

Google publishes one beside each model of the family (`google/gemma-4-*-it-assistant`). What it
computes was read in transformers' `gemma4_assistant`, its candidate generator for such models
(`SinglePositionMultiTokenCandidateGenerator`) and llama.cpp's `src/models/gemma4-assistant.cpp`:

- Its input is the target's embedding of the last token, scaled as the target scales it, and the
  target's state of the row before, after the last norm. For a further token the assistant's own
  state, projected to the target's width, takes the place of the target's.
- Its layers have queries only. They attend to the keys and values that the target's last layer of
  the same kind with keys of its own has computed, those of all rows before the last token's.
- Its queries are rotated to the place of the last token, whichever token of a draft is drawn. So do
  transformers, llama.cpp and OpenVINO; vLLM and mlx-vlm take the place before, that of the last row
  with keys.
"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

import mlx.core as mx
from mlx import nn
from mlx_lm.models.gemma4_text import DecoderLayer, Gemma4TextModel, ModelArgs

from akunu_py.models.heads.families import decoder_of
from akunu_py.protocols import Hidden
from akunu_py.system.errors import UnsupportedArchitectureError

Kept = Mapping[str, tuple[mx.array, mx.array]]
"""Kind of layer -> keys and values of the target's rows, each [1, heads, rows, width]."""


@dataclasses.dataclass(frozen=True, slots=True)
class AttendedCache:
    """The target's layer whose keys and values the assistant's layers of a kind attend to."""

    attention: nn.Module
    cache: int
    """Which of the target's caches has its rows."""

    most: int | None
    """How many rows before its own a query of that layer sees; None for all."""


class Clusters(nn.Module):  # type: ignore[misc]  # mlx.nn has no types
    """Logits of the tokens in the likeliest clusters; all others get one less than the least.

    The assistants of the two small models have it (`use_ordered_embeddings`), since most of their
    time would go into the logits of 262,144 tokens.
    """

    def __init__(self, hidden: int, count: int, vocabulary: int, num_active: int) -> None:
        super().__init__()
        # States [.., hidden] to scores of clusters [.., count].
        self.centroids = nn.Linear(hidden, count, bias=False)
        # The ids of the tokens, cluster by cluster, int32 [vocabulary].
        self.token_ordering = mx.zeros((vocabulary,), dtype=mx.int32)
        self.num_active = num_active

    def __call__(self, states: mx.array, embed: Callable[[mx.array], mx.array]) -> mx.array:
        """Return logits [1, 1, vocabulary] of a state [1, 1, hidden]."""
        scores = self.centroids(states)[0, 0]
        active = mx.argpartition(scores, kth=-self.num_active)[-self.num_active :]
        tokens = self.token_ordering.reshape(scores.size, -1)[active].reshape(-1)
        found = embed(tokens) @ states[0, 0]
        logits = mx.full((self.token_ordering.size,), found.min() - 1, dtype=found.dtype)
        logits[tokens] = found
        return logits[None, None]


class Assistant(nn.Module):  # type: ignore[misc]
    """Gemma 4's assistant, over one target."""

    takes: ClassVar[Hidden] = "normed"
    """The target's states are taken after the final norm."""

    def __init__(
        self, args: ModelArgs, target: nn.Module, sources: Mapping[str, AttendedCache]
    ) -> None:
        """Make an assistant without weights.

        `args` are those of the class of Gemma 4's layers, all of which share keys; `sources` has
        every kind of `args.layer_types`.
        """
        super().__init__()
        _, decoder = decoder_of(target)
        # The target's width.
        self.width = decoder.norm.weight.shape[0]
        # What its layers attend to, by kind. No dictionary: modules take those for parameters.
        self.sources = MappingProxyType({kind: sources[kind] for kind in args.layer_types})
        self.pre_projection = nn.Linear(2 * self.width, args.hidden_size, bias=False)
        self.layers = [DecoderLayer(args, index) for index in range(args.num_hidden_layers)]
        for layer in self.layers:
            layer.self_attn.rope = sources[layer.layer_type].attention.rope
        self.norm = nn.RMSNorm(args.hidden_size, eps=args.rms_norm_eps)
        self.post_projection = nn.Linear(args.hidden_size, self.width, bias=False)
        self.embed_tokens = nn.Embedding(args.vocab_size, args.hidden_size)
        # Bound: the module would count as the assistant's own.
        self._embed: Callable[[mx.array], mx.array] = decoder.embed_tokens.__call__
        self._embed_scale: float = decoder.embed_scale

    def __call__(self, hidden: mx.array, tokens: mx.array, kept: Kept, position: int) -> mx.array:
        """Return the assistant's state [1, 1, hidden].

        `hidden` is the target's state of the row before the token's, or what `state` returned,
        [1, 1, width]; `kept` has keys and values of the target's rows, for each kind in `sources`;
        `position` is the place of the text's last token.
        """
        embedded = self._embed(tokens) * self._embed_scale
        x = self.pre_projection(mx.concatenate([embedded, hidden], axis=-1))
        for layer in self.layers:
            x, _, _ = layer(x, shared_kv=kept[layer.layer_type], offset=position)
        normed: mx.array = self.norm(x)
        return normed

    def state(self, states: mx.array) -> mx.array:
        """Return what takes the place of the target's state, [1, 1, width]."""
        projected: mx.array = self.post_projection(states)
        return projected

    def logits(self, states: mx.array) -> mx.array:
        """Return the logits [1, 1, vocabulary] of a state that a call returned."""
        if "masked_embedding" in self:
            found: mx.array = self.masked_embedding(states, self.embed_tokens)
        else:
            found = self.embed_tokens.as_linear(states)
        return found


def make_assistant(args: ModelArgs, target: nn.Module) -> Assistant:
    """Return an assistant without weights for a target.

    Raises ValueError, naming the number, where the two do not fit together.
    """
    sources = sources_in(target)
    args = dataclasses.replace(
        args,
        # All layers use the target's keys, and none is twice as wide for that.
        num_kv_shared_layers=args.num_hidden_layers,
        use_double_wide_mlp=False,
        hidden_size_per_layer_input=0,
        enable_moe_block=False,
    )
    for kind, size in (
        ("sliding_attention", args.head_dim),
        ("full_attention", args.global_head_dim),
    ):
        if kind not in args.layer_types:
            continue
        if kind not in sources:
            raise ValueError(f"it has layers of {kind}, and the model has none")
        attention = sources[kind].attention
        if size != attention.head_dim:
            raise ValueError(
                f"its heads in layers of {kind} are {size} wide, and the model's are "
                f"{attention.head_dim}"
            )
        if args.num_attention_heads % attention.n_kv_heads:
            raise ValueError(
                f"it has {args.num_attention_heads} heads, and the model {attention.n_kv_heads} "
                f"with keys in layers of {kind}"
            )
    return Assistant(args, target, sources)


def check_gemma(model: nn.Module, architecture: str, place: Path) -> None:
    """Check that a model can have the assistant at a place; `architecture` names it in a message.

    Raises UnsupportedArchitectureError for other families than Gemma 4.
    """
    if not sources_in(model):
        raise UnsupportedArchitectureError(
            f"{place} is an assistant for Gemma 4, and the model is a {architecture} model; use a "
            "head of this model"
        )


def sources_in(target: nn.Module) -> dict[str, AttendedCache]:
    """Return what assistants can attend to in a target, by kind; nothing for another family."""
    decoder = target.get("language_model", target).get("model")
    if not isinstance(decoder, Gemma4TextModel):
        return {}
    found = {}
    # Layers that share the keys of others come last, and have no caches.
    for cache, layer in enumerate(layer for layer in decoder.layers if layer.self_attn.has_kv):
        sliding = layer.self_attn.is_sliding
        most = decoder.window_size - 1 if sliding else None
        found[layer.layer_type] = AttendedCache(layer.self_attn, cache, most)
    return found
