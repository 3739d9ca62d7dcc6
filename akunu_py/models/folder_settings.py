"""The settings of MLX folders: config.json, checked before mlx-lm or transformers read it.

A class makes layers, lists and loops from these numbers before it sees a weight, so they are
checked before. Widths need no narrow bound: arrays are allocated when they are computed, and before
that their shapes are compared with the shapes of the weights.
"""

import contextlib
import errno
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from akunu_py.gguf.header import LFS_POINTER
from akunu_py.system.errors import ConfigError, ModelFormatError
from akunu_py.system.files import open_to_read

DEFAULT_CONTEXT = 4096
"""Assumed for a config that does not state the context."""

_CONTEXTS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length")

ASSISTANTS = ("gemma4_assistant", "gemma4_unified_assistant")
"""Types of small models that only draft for another, whose caches they read."""

_MAX_SETTINGS_BYTES = 16 * 2**20
_MAX_VOCABULARY_BYTES = 512 * 2**20
_VOCABULARIES = re.compile(r"(tokenizer\.json|vocab.*|merges.*|.*\.(model|tiktoken))")


def read_folder_config(folder: Path) -> dict[str, Any]:
    """Return a folder's config.json.

    Raises ModelFormatError for a missing or malformed config, or a file beside it that is far too
    large; ConfigError for a config that asks to run code.
    """
    path = folder / "config.json"
    if not os.path.lexists(path):
        raise ModelFormatError(
            f"{folder} has no config.json, so it is not an MLX model folder; give a GGUF file or a "
            "folder with config.json, *.safetensors and tokenizer files"
        )
    config = read_settings(folder)
    if not isinstance(config.get("model_type"), str):
        raise ModelFormatError(f"{path} has no model_type; download the model again")
    return config


def read_settings(folder: Path) -> dict[str, Any]:
    """Return a folder's config.json, which need not be that of a model.

    Raises ModelFormatError for a malformed config, or a file beside it that is far too large;
    ConfigError for a config that asks to run code.
    """
    _check_files(folder)
    path = folder / "config.json"
    config = read_json(path)
    if not isinstance(config.get("text_config") or {}, dict):
        raise ModelFormatError(f"{path} has a text_config that is not an object; download it again")
    if "model_file" in config:
        raise ConfigError(
            f"{path} asks to run the Python file {config['model_file']!r}; akunu runs no code from "
            "model folders: use a model of a known architecture"
        )
    return config


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; raise ModelFormatError for another content."""
    try:
        content = json.loads(read_file(path).decode())
    except (ValueError, RecursionError) as error:
        raise ModelFormatError(f"{path} is not JSON ({error}); download it again") from None
    if not isinstance(content, dict):
        raise ModelFormatError(f"{path} does not hold a JSON object; download it again")
    return content


def read_file(path: Path) -> bytes:
    """Return the content of a model's file; raise ModelFormatError where `_open_regular` does."""
    with _open_regular(path) as stream:
        return stream.read()


@contextlib.contextmanager
def _open_regular(path: Path) -> Iterator[BinaryIO]:
    """Open a file that is read whole.

    Raises ModelFormatError for one that cannot be read, is not a file, or is far too large.
    """
    try:
        stream = open_to_read(path)
    except OSError as error:
        raise unreadable(path, error) from None
    with stream:
        most = _MAX_VOCABULARY_BYTES if is_vocabulary(path) else _MAX_SETTINGS_BYTES
        if os.fstat(stream.fileno()).st_size > most:
            raise ModelFormatError(f"{path} is far too large for its kind; download it again")
        refuse_pointer(path, stream)
        yield stream


def refuse_pointer(path: Path, stream: BinaryIO) -> None:
    """Raise ModelFormatError for a file that only says where Git LFS has the real one."""
    beginning = stream.read(len(LFS_POINTER))
    stream.seek(0)
    if beginning == LFS_POINTER:
        raise ModelFormatError(
            f"{path} is a Git LFS pointer, not the file itself; run `git lfs pull` in its folder"
        )


def is_vocabulary(path: Path) -> bool:
    """Return whether a file has the name of one with a tokenizer's vocabulary."""
    return _VOCABULARIES.fullmatch(path.name) is not None


def unreadable(path: Path, error: OSError) -> ModelFormatError:
    """Return the error for a model's file that cannot be opened."""
    lost = error.errno == errno.ENOENT and path.is_symlink()
    reason = "it is a link to a missing file" if lost else error.strerror
    barred = isinstance(error, PermissionError)
    advice = "check its permissions" if barred else "download it again"
    return ModelFormatError(f"{path} cannot be read: {reason}; {advice}")


def _check_files(folder: Path) -> None:
    """Refuse files that transformers and mlx-lm would read whole, wait for, or fail at."""
    for pattern in ("*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken", "*/*.jinja"):
        for path in folder.glob(pattern):
            with _open_regular(path):
                pass


def folder_context(config: Mapping[str, Any]) -> int:
    """Return the context the model was trained for, DEFAULT_CONTEXT where it is not stated."""
    for place in (config, config.get("text_config") or {}):
        for name in _CONTEXTS:
            value = place.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and 2 <= value < 2**40:
                return value
    return DEFAULT_CONTEXT


def end_ids(config: Mapping[str, Any], path: Path) -> list[int] | None:
    """Return the ids that end replies by the config in a file, None where it has none.

    Raises ModelFormatError for values that are not token ids.
    """
    value = config.get("eos_token_id")
    if value is None:
        return None
    ids = value if isinstance(value, list) else [value]
    if not all(type(token) is int and 0 <= token < 2**31 for token in ids):
        raise ModelFormatError(
            f"{path} has {str(value)[:80]!r} for eos_token_id, not a token id or a list of them; "
            "download it again"
        )
    return ids


MAX_LAYERS = 10_000
_MAX_CONTEXT = 2.0**40

# The first matching pattern decides; numbers in a list are checked under the list's name.
_LIMITS = tuple(
    (re.compile(pattern), low, high)
    for pattern, low, high in (
        # Ids of tokens and layers: nothing is allocated by them.
        (r"(_id|_ids|_idx|_idxs|_index)$", -(2.0**63), 2.0**63),
        (r"eps(ilon)?$", 0.0, 1.0),
        (r"theta$|base(_freq)?$", 0.0, 1e15),
        (r"^factor$|^(short|long)_factor$", 1e-9, 1e9),
        (r"position|context|ctx|length|seq|window|chunk", -1.0, _MAX_CONTEXT),
        (r"layers?$|blocks?$|loops?$|loop_num$|iters$|inputs$|groups?$", -MAX_LAYERS, MAX_LAYERS),
        (r"experts?$|experts_per_tok(en)?$|expert_num$", 0.0, 2.0**14),
        (r"heads?$", 0.0, 2.0**16),
        (r"", -_MAX_CONTEXT, _MAX_CONTEXT),
    )
)
_ENDLESS = re.compile(r"^time_step")
"""Limits of a time step, which may be infinite."""


def check_numbers(arguments: Mapping[str, Any]) -> None:
    """Check every number in the arguments, also in lists and groups.

    Raises ValueError, naming the entry, for a number that is out of range or NaN.
    """
    for name, number in _numbers("", arguments):
        low, high = next((low, high) for kind, low, high in _LIMITS if kind.search(name))
        endless = number in (math.inf, -math.inf) and _ENDLESS.search(name)
        # Written so that NaN is refused.
        if not low <= number <= high and not endless:
            raise ValueError(f"{name} is {str(number)[:40]}, not a number from {low:g} to {high:g}")


def _numbers(name: str, value: Any) -> Iterator[tuple[str, float]]:
    """Yield the numbers in a value, each with the name of its entry."""
    if isinstance(value, Mapping) and value.keys() == {"__float__"}:
        # How transformers writes values that JSON has no number for.
        yield name, float(value["__float__"])
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _numbers(str(key), part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _numbers(name, part)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield name, value
