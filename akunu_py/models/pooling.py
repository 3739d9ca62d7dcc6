"""How a model's files say that embeddings are made of its hidden states."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from akunu_py.models.folder_settings import read_json
from akunu_py.system.errors import ConfigError, ModelFormatError

Kind = Literal["last", "mean"]


class Pooling(NamedTuple):
    """Which states of a text become its embedding, and what is added to texts before."""

    kind: Kind
    end: int | None = None
    """Token that ends each text; None where the tokenizer adds it, or there is none."""
    prompts: Mapping[str, str] = {}
    """Texts to put in front of others, by name."""
    default_prompt: str = ""
    """Name of the one to use if nobody names one; "" for none."""


_OF_GGUF: Mapping[object, Kind] = {1: "mean", 3: "last"}
_RANKS = 4
_QWEN3_END = "<|endoftext|>"
_QWEN3_PROMPTS = {
    "query": "Instruct: Given a web search query, retrieve relevant passages that answer the query"
    "\nQuery:"
}
"""As in the repositories of Qwen3-Embedding; a GGUF file has no place for them."""


def pooling_of_gguf(metadata: Mapping[str, Any]) -> Pooling | None:
    """Return the pooling of a GGUF file's metadata, None for a model of replies.

    Raises ConfigError for a kind that akunu lacks.
    """
    architecture = metadata["general.architecture"]
    given = metadata.get(f"{architecture}.pooling_type", 0)
    if given == 0:
        return None
    if given == _RANKS:
        raise ConfigError("this model ranks texts, and akunu runs no rerankers; llama.cpp does")
    if given not in _OF_GGUF:
        raise ConfigError(_unknown(f"the file's pooling_type is {given!r}"))
    kind = _OF_GGUF[given]
    end = metadata.get("tokenizer.ggml.eos_token_id")
    tokens = metadata.get("tokenizer.ggml.tokens", [])
    if metadata.get("tokenizer.ggml.add_eos_token") is not True:
        end = None
        # The first files lack the flag, and the model's card asks for the token.
        if architecture == "qwen3" and kind == "last" and _QWEN3_END in tokens:
            end = tokens.index(_QWEN3_END)
    if end is not None and not (isinstance(end, int) and 0 <= end < len(tokens)):
        raise ModelFormatError(
            f"tokenizer.ggml.eos_token_id is {end!r}, which is not a token; convert the model again"
        )
    prompts = _QWEN3_PROMPTS if architecture == "qwen3" and kind == "last" else {}
    return Pooling(kind, end, prompts)


_PROMPTS = "config_sentence_transformers.json"
_FLAG = "pooling_mode_"
_OF_FOLDER: Mapping[str, Kind] = {"lasttoken": "last", "mean": "mean", "mean_tokens": "mean"}


def pooling_of_folder(folder: Path) -> Pooling | None:
    """Return the pooling in the files of sentence-transformers, None for a folder without them.

    Raises ConfigError for a kind that akunu lacks, ModelFormatError for malformed files.
    """
    path = folder / "1_Pooling" / "config.json"
    if not os.path.lexists(path):
        return None
    config = read_json(path)
    mode = config.get("pooling_mode")
    flags = [name for name in config if name.startswith(_FLAG) and config[name]]
    modes = [mode] if mode else [name.removeprefix(_FLAG) for name in flags]
    if len(modes) != 1 or modes[0] not in _OF_FOLDER:
        raise ConfigError(_unknown(f"{path} says {' and '.join(map(str, modes)) or 'nothing'}"))
    # Folders of the modules, numbered; all embeddings are normalised.
    for module in sorted(folder.glob("[0-9]_*")):
        if module.name[2:] not in {"Transformer", "Pooling", "Normalize"}:
            raise ConfigError(_unknown(f"{folder} has the module {module.name}"))
    given = read_json(folder / _PROMPTS) if os.path.lexists(folder / _PROMPTS) else {}
    prompts, default = given.get("prompts") or {}, given.get("default_prompt_name") or ""
    texts = isinstance(prompts, dict) and all(isinstance(text, str) for text in prompts.values())
    if not texts or (default and default not in prompts):
        raise ModelFormatError(
            f"{folder / _PROMPTS} has prompts that are not texts, or names none of them; download "
            "it again"
        )
    if any(prompts.values()) and config.get("include_prompt") is False:
        raise ConfigError(_unknown(f"{path} leaves prompts out of the pooling"))
    return Pooling(_OF_FOLDER[modes[0]], None, prompts, default)


def _unknown(what: str) -> str:
    return (
        f"{what}; akunu makes embeddings of the last state of a text, or of the mean of all: use "
        "another model, or another program"
    )
