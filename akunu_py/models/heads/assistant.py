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

A folder is as Google publishes it, config.json beside safetensors files. A GGUF file is as
llama.cpp's converter writes it: it has no keys or values, nor the numbers of the clusters of
tokens. llama.cpp computes the logits of all tokens, and so does akunu with such a file.
"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

import mlx.core as mx
from mlx import nn
from mlx_lm.models.gemma4_text import DecoderLayer, Gemma4TextModel, ModelArgs

from akunu_py.gguf.architectures import ASSISTANT
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import module, modules, parameter
from akunu_py.gguf.parts import layers, windows
from akunu_py.gguf.parts.decoder import MAX_HEAD_DIM, MAX_HEADS, Decoder
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import GGUFFile
from akunu_py.models.folder_settings import ASSISTANTS, MAX_LAYERS, read_folder_config
from akunu_py.models.heads.families import decoder_of
from akunu_py.models.heads.head_config import HeadConfig
from akunu_py.models.heads.stored_weights import StoredHead
from akunu_py.protocols import Hidden
from akunu_py.system.errors import ModelFormatError, UnsupportedArchitectureError

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
        """Return the state that stands for the target's, [1, 1, width]."""
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
    """Return the layers of a target that assistants can attend to, by kind; none for others."""
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


_KINDS = ("sliding_attention", "full_attention")
_ORDERING = "masked_embedding.token_ordering"


def find_assistant(source: Path, _: nn.Module) -> StoredHead | None:
    """Return the assistant in a folder, or in that of a file; None where there is none.

    Raises ModelFormatError for a config.json or a file that cannot be read.
    """
    folder = source if source.is_dir() else source.parent
    if not (folder / "config.json").is_file():
        return None
    if read_folder_config(folder)["model_type"] not in ASSISTANTS:
        return None
    stored = StoredHead.of(folder, lambda name: name.removeprefix("model."))
    # A copy of the embedding, in the files of some converters.
    if "embed_tokens.weight" in stored.tensors:
        for name in [name for name in stored.tensors if name.startswith("lm_head.")]:
            del stored.tensors[name]
    return stored


def make_stored_assistant(stored: StoredHead, target: nn.Module, architecture: str) -> Assistant:
    """Return an assistant without weights; `architecture` names the target in messages.

    Raises UnsupportedArchitectureError for another target than Gemma 4, ModelFormatError, naming
    file and number, for an assistant that is damaged or of another model.
    """
    folder = stored.source
    check_gemma(target, architecture, folder)
    config = HeadConfig(folder / "config.json", read_folder_config(folder))
    args = _folder_arguments(config, len(stored.tensors))
    _, decoder = decoder_of(target)
    vocabulary = decoder.embed_tokens.weight.shape[0]
    if args.vocab_size != vocabulary:
        raise config.error(
            "text_config.vocab_size", args.vocab_size, f"{vocabulary}, as the model has"
        )
    try:
        assistant = make_assistant(args, target)
    except ValueError as error:
        raise ModelFormatError(
            f"the prediction head in {folder} is of another model: {error}; use the assistant of "
            "this model"
        ) from None
    if config.flag("use_ordered_embeddings"):
        count = config.integer("num_centroids", high=vocabulary)
        active = config.integer("centroid_intermediate_top_k", high=count)
        if vocabulary % count:
            raise config.error("num_centroids", count, f"a divisor of {vocabulary}")
        assistant.masked_embedding = Clusters(args.hidden_size, count, vocabulary, active)
    return assistant


def check_ordering(
    stored: StoredHead, arrays: dict[str, mx.array], target: nn.Module
) -> dict[str, mx.array]:
    """Return arrays whose ordering of tokens, if any, is int32, and names every token once."""
    ordering = arrays.get(_ORDERING)
    if ordering is None:
        # What is missing is named with all other missing tensors.
        return arrays
    vocabulary = decoder_of(target)[1].embed_tokens.weight.shape[0]
    whole = mx.issubdtype(ordering.dtype, mx.integer) and ordering.shape == (vocabulary,)
    if not whole or not mx.array_equal(mx.sort(ordering), mx.arange(vocabulary)).item():
        raise ModelFormatError(
            f"tensor {_ORDERING!r} in {stored.source} does not name each of {vocabulary} tokens "
            "once; the file is damaged, or made for another model: download it again"
        )
    return {**arrays, _ORDERING: ordering.astype(mx.int32)}


def _folder_arguments(config: HeadConfig, num_tensors: int) -> ModelArgs:
    """Return the arguments of its layers' class; there are at most as many as tensors."""
    size = {
        name: config.integer(f"text_config.{name}", default)
        for name, default in (
            ("hidden_size", None), ("intermediate_size", None), ("num_attention_heads", None),
            ("vocab_size", None), ("head_dim", 256), ("global_head_dim", 512),
        )
    }  # fmt: skip
    layers = config.integer("text_config.num_hidden_layers", high=min(num_tensors, MAX_LAYERS) or 1)
    kinds = config.value("text_config.layer_types")
    known = isinstance(kinds, list) and all(kind in _KINDS for kind in kinds)
    if not known or len(kinds) != layers:
        wanted = f"one of {' and '.join(_KINDS)} for each of {layers} layers"
        raise config.error("text_config.layer_types", kinds, wanted)
    eps = config.number("text_config.rms_norm_eps", 1e-6, high=1)
    return ModelArgs(**size, num_hidden_layers=layers, layer_types=kinds, rms_norm_eps=eps)


_FURTHER = f"{ASSISTANT}.nextn_predict_layers"
"""As many as there are layers, which no plan would allow."""

_OF_TARGET = (
    "attention.sliding_window", "rope.freq_base_swa", "final_logit_softcapping",
)  # fmt: skip
"""Keys of which the assistant needs nothing: positions and windows are those of the target's keys,
and its logits have no cap."""

_IGNORED = r"rope_freqs\.weight|masked_embd_centroids\.weight|masked_embd_ordering(\.weight)?"


def plan_assistant(
    file: GGUFFile, target: nn.Module, architecture: str
) -> tuple[Assistant, ModelPlan] | None:
    """Return the assistant in an open file without its weights, and where they come from.

    None where the file has none. Raises UnsupportedArchitectureError for another target than
    Gemma 4, which `architecture` names, ModelFormatError for an assistant that is incomplete,
    damaged or of another model.
    """
    if file.metadata.get("general.architecture") != ASSISTANT:
        return None
    check_gemma(target, architecture, file.path)
    metadata = {name: value for name, value in file.metadata.items() if name != _FURTHER}
    model = Decoder(Keys(metadata, ASSISTANT), file.tensors)
    try:
        return make_assistant(_gguf_arguments(model, target), target), _plan(model)
    except ValueError as error:
        raise ModelFormatError(f"{error}; use the assistant of this model") from None


def _gguf_arguments(model: Decoder, target: nn.Module) -> ModelArgs:
    """Return the arguments of the layers' class.

    Raises ValueError where the file was made for another target.
    """
    keys = model.keys
    _, decoder = decoder_of(target)
    width = keys.integer("embedding_length_out")
    for found, own, what in (
        (width, decoder.norm.weight.shape[0], "wide"),
        (model.vocabulary_size, decoder.embed_tokens.weight.shape[0], "tokens"),
    ):
        if found != own:
            raise ValueError(f"it is made for a model of {found} {what}, and this one has {own}")
    head_dim = keys.integer("attention.key_length", high=MAX_HEAD_DIM)
    return ModelArgs(
        hidden_size=model.hidden_size,
        num_hidden_layers=model.num_layers,
        intermediate_size=model.feed_forward_size,
        num_attention_heads=keys.integer("attention.head_count", high=MAX_HEADS),
        head_dim=keys.integer("attention.key_length_swa", head_dim, high=MAX_HEAD_DIM),
        global_head_dim=head_dim,
        rms_norm_eps=model.rms_eps,
        vocab_size=model.vocabulary_size,
        layer_types=windows.layer_types(windows.windowed_layers(model, 0)),
    )


def _plan(model: Decoder) -> ModelPlan:
    """Return the plan of an assistant, for the paths of `Assistant`."""
    model.keys.ignore(*_OF_TARGET)
    plan = model.plan(
        "gemma4_text",
        [
            *layers.frame(model, "embed_tokens", "norm", tied=True),
            *(module(f"nextn.{name}", name) for name in ("pre_projection", "post_projection")),
            *modules("layers.{}", layers.FOUR_NORMS),
            *modules(
                "layers.{}.self_attn",
                {"attn_q": "q_proj", "attn_q_norm": "q_norm", "attn_output": "o_proj"},
            ),
            *modules("layers.{}.mlp", layers.GATED),
            parameter("blk.{}.layer_output_scale.weight", "layers.{}.layer_scalar"),
        ],
        {},
        shared_arguments=False,
        ignored=_IGNORED,
    )
    model.keys.check_unused()
    return plan
