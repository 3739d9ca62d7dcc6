"""Gemma 4's assistant in a folder: config.json beside safetensors files, as Google publishes it."""

from pathlib import Path

import mlx.core as mx
from mlx import nn
from mlx_lm.models.gemma4_text import ModelArgs

from akunu_py.models.folder_settings import ASSISTANTS, read_folder_config
from akunu_py.models.heads.assistant import Assistant, Clusters, check_gemma, make_assistant
from akunu_py.models.heads.families import decoder_of
from akunu_py.models.heads.head_config import HeadConfig
from akunu_py.models.heads.stored_weights import StoredHead
from akunu_py.models.number_limits import MAX_LAYERS
from akunu_py.system.errors import ModelFormatError

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
    args = _arguments(config, len(stored.tensors))
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


def _arguments(config: HeadConfig, num_tensors: int) -> ModelArgs:
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
