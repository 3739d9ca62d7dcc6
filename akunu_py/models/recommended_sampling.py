"""The sampling that the makers of a model recommend in its files."""

import os
from collections.abc import Mapping
from pathlib import Path

from akunu_py.models.folder_settings import read_json
from akunu_py.values.recommended import Recommended, recommended

_FILE = "generation_config.json"
_SAMPLING = "general.sampling."

_OF_TRANSFORMERS = {
    name: name for name in ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
}
_WINDOW, _PENALTY = f"{_SAMPLING}penalty_last_n", f"{_SAMPLING}penalty_repeat"
_OF_GGUF = {
    f"{_SAMPLING}temp": "temperature",
    f"{_SAMPLING}top_k": "top_k",
    f"{_SAMPLING}top_p": "top_p",
    f"{_SAMPLING}min_p": "min_p",
    _WINDOW: "penalty_window",
    _PENALTY: "repetition_penalty",
}


def recommended_in_folder(folder: Path) -> Recommended:
    """Return what generation_config.json recommends; raises ModelFormatError if it is not JSON."""
    path = folder / _FILE
    entries = read_json(path) if os.path.lexists(path) else {}
    return recommended(entries, _OF_TRANSFORMERS, _FILE)


def recommended_in_gguf(metadata: Mapping[str, object]) -> Recommended:
    """Return what a GGUF file's metadata recommend."""
    if metadata.get(_WINDOW) == 0:  # as llama.cpp turns the penalty off
        metadata = {name: metadata[name] for name in metadata.keys() - {_WINDOW, _PENALTY}}
    return recommended(metadata, _OF_GGUF, f"{_SAMPLING}* in the GGUF file")
