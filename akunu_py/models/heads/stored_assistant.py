"""Gemma 4's assistant in a folder: config.json beside safetensors files, as Google publishes it."""

from collections.abc import Mapping
from pathlib import Path

import mlx.core as mx
from mlx import nn
from mlx_lm.models.gemma4_text import ModelArgs

from akunu_py.models.folder_settings import ASSISTANTS, read_folder_config
from akunu_py.models.heads.assistant import Assistant, Clusters, make_assistant
from akunu_py.models.heads.families import decoder_of
from akunu_py.models.heads.head_config import HeadConfig
from akunu_py.models.heads.stored_weights import StoredTensor, fill_head, read_tensors
from akunu_py.models.number_limits import MAX_LAYERS
from akunu_py.models.weight_files import check_weight_file
from akunu_py.system.errors import ModelFormatError

_KINDS = ("sliding_attention", "full_attention")
_ORDERING = "masked_embedding.token_ordering"


def is_assistant_folder(folder: Path) -> bool:
    """Return whether a folder has an assistant.

    Raises ModelFormatError for a config.json that cannot be read.
    """
    if not (folder / "config.json").is_file():
        return False
    return read_folder_config(folder)["model_type"] in ASSISTANTS


def find_assistant(folder: Path) -> dict[str, StoredTensor]:
    """Return where the tensors in a folder are, by their paths in an `Assistant`.

    Raises ModelFormatError for a damaged file.
    """
    stored = {
        name.removeprefix("model."): StoredTensor(path, name)
        for path in sorted(folder.glob("model*.safetensors"))
        for name in check_weight_file(path)
    }
    # A copy of the embedding, in the files of some converters.
    if "embed_tokens.weight" in stored:
        stored = {name: t for name, t in stored.items() if not name.startswith("lm_head.")}
    return stored


def open_assistant(folder: Path, target: nn.Module, num_tensors: int) -> Assistant:
    """Return the assistant in a folder without its weights, of which there are `num_tensors`.

    Raises ModelFormatError, naming file and number, for one that is damaged or of another model.
    """
    config = HeadConfig(folder / "config.json", read_folder_config(folder))
    args = _arguments(config, num_tensors)
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


def load_stored_assistant(
    folder: Path, target: nn.Module, kind: mx.Dtype, *, dense: bool
) -> Assistant:
    """Return the assistant in a folder with its weights.

    Quantized weights keep their form, unless they are to be `dense`, in float32; all others, and
    scales, become `kind`, the type of the target's activations.

    Raises ModelFormatError, naming file and number or tensor, for an assistant that is incomplete,
    damaged or of another model, ConfigError for numbers that `kind` cannot hold.
    """
    stored = find_assistant(folder)
    assistant = open_assistant(folder, target, len(stored))
    arrays = read_tensors(stored)
    if "masked_embedding" in assistant:
        arrays = _with_checked_ordering(folder, arrays, assistant.embed_tokens.weight.shape[0])
    fill_head(assistant, arrays, folder, kind, dense=dense)
    return assistant


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


def _with_checked_ordering(
    folder: Path, arrays: Mapping[str, mx.array], vocabulary: int
) -> dict[str, mx.array]:
    """Return arrays whose ordering of tokens is int32, and names every token once."""
    ordering = arrays.get(_ORDERING)
    if ordering is None:
        # What is missing is named with all other missing tensors.
        return dict(arrays)
    whole = mx.issubdtype(ordering.dtype, mx.integer) and ordering.shape == (vocabulary,)
    if not whole or not mx.array_equal(mx.sort(ordering), mx.arange(vocabulary)).item():
        raise ModelFormatError(
            f"tensor {_ORDERING!r} in {folder} does not name each of {vocabulary} tokens once; the "
            "file is damaged, or made for another model: download it again"
        )
    return {**arrays, _ORDERING: ordering.astype(mx.int32)}
