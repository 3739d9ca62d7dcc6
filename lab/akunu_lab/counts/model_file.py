"""Counts of a corpus as a file. `lab/docs/methods.md` has the format; nothing in it is executed."""

import errno
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from akunu_lab.counts.corpus_model import CorpusCounts
from akunu_lab.counts.interpolation import MAX_VOCABULARY
from akunu_py.api import ConfigError

MAGIC = b"akunu counts 1\n"
_MAX_HEADER_BYTES = 4096
_MAX_PAIRS = 2**32
_ARRAYS: dict[str, tuple[str, np.dtype[np.unsignedinteger]]] = {
    "tokens": ("num_tokens", np.dtype("<u4")),
    "counts": ("num_tokens", np.dtype("<u8")),
    "pairs": ("num_pairs", np.dtype("<u8")),
    "pair_counts": ("num_pairs", np.dtype("<u8")),
}
"""Arrays of `CorpusCounts`, in the order of the file: the length's name in the header, and type."""


def save_counts(counts: CorpusCounts, path: str | Path, vocabulary: str) -> None:
    """Write counts to a file, which is replaced atomically.

    `vocabulary` is the `vocabulary_fingerprint` of their tokenizer. Raises ConfigError for a
    malformed fingerprint, OSError if the file cannot be written.
    """
    if not vocabulary.isalnum():
        raise ConfigError("counts need the fingerprint of their vocabulary, letters and digits")
    body = b"".join(
        getattr(counts, name).astype(dtype).tobytes() for name, (_, dtype) in _ARRAYS.items()
    )
    header = {
        "vocabulary": vocabulary,
        "vocabulary_size": counts.vocabulary_size,
        "order": counts.order,
        "num_tokens": counts.tokens.size,
        "num_pairs": counts.pairs.size,
        "sha256": hashlib.sha256(body).hexdigest(),
    }
    content = MAGIC + json.dumps(header).encode() + b"\n" + body
    path = Path(path)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def load_counts(
    path: str | Path, vocabulary: str, vocabulary_size: int | None = None
) -> CorpusCounts:
    """Read a file of `save_counts`; every number is checked before it is used.

    `vocabulary_size` is the size of the target's distributions, which models may pad beyond the
    tokens that have a text; by default it is the size in the file.

    Raises ConfigError for a file that cannot be read, is damaged or no file of counts, or is for
    another vocabulary.
    """
    counts, _ = _read(Path(path), vocabulary)
    if vocabulary_size is None:
        return counts
    try:
        return replace(counts, vocabulary_size=vocabulary_size)
    except ValueError as error:
        raise ConfigError(f"{path} holds no counts for this model: {error}") from None


def read_counts(path: str | Path) -> tuple[CorpusCounts, str]:
    """Read a file of `save_counts`, and the fingerprint of its vocabulary.

    Raises as `load_counts` does.
    """
    return _read(Path(path), None)


def _read(path: Path, expected: str | None) -> tuple[CorpusCounts, str]:
    try:
        with _open(path) as stream:
            size = path.stat().st_size
            header = _header(stream)
            if expected is not None:
                _check_vocabulary(path, header["vocabulary"], expected)
            return _counts(stream, header, size), header["vocabulary"]
    except OSError as error:
        raise ConfigError(f"the counts {path} cannot be read: {error.strerror or error}") from None
    except ConfigError:
        raise
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} holds no counts of a corpus: {error}") from None


def _open(path: Path) -> BinaryIO:
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file")
    return path.open("rb")


def _check_vocabulary(path: Path, found: str, expected: str) -> None:
    if found != expected:
        raise ConfigError(
            f"{path} was fitted with another vocabulary ({found[:40]}, the model's is {expected}); "
            "fit it anew with this model's tokenizer"
        )


def _header(stream: BinaryIO) -> Mapping[str, Any]:
    """Return the header, with all fields checked for type and range."""
    if stream.read(len(MAGIC)) != MAGIC:
        raise ValueError("it does not begin like such a file of this version")
    line = stream.readline(_MAX_HEADER_BYTES)
    if not line.endswith(b"\n"):
        raise ValueError("its header has no end")
    header = json.loads(line)
    if not isinstance(header, dict):
        raise ValueError("its header is not a JSON object")  # noqa: TRY004 - the file is wrong
    for name in ("vocabulary", "sha256"):
        if not isinstance(header.get(name), str):
            raise ValueError(f"its header has no text {name!r}")  # noqa: TRY004
    bounds = {
        "vocabulary_size": (1, MAX_VOCABULARY),
        "order": (1, 2),
        "num_tokens": (0, MAX_VOCABULARY),
        "num_pairs": (0, _MAX_PAIRS),
    }
    for name, (low, high) in bounds.items():
        value = header.get(name)
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"{name!r} in its header is {value!r}, not {low} to {high}")
    return header


def _counts(stream: BinaryIO, header: Mapping[str, Any], size: int) -> CorpusCounts:
    # The length is checked before any of the data is held in memory.
    expected = sum(header[length] * dtype.itemsize for length, dtype in _ARRAYS.values())
    if size - stream.tell() != expected:
        raise ValueError(f"{size - stream.tell()} bytes follow its header, not {expected}")
    body = stream.read(expected)
    if hashlib.sha256(body).hexdigest() != header["sha256"]:
        raise ValueError("its checksum is wrong")
    arrays: dict[str, NDArray[np.int64]] = {}
    start = 0
    for name, (length, dtype) in _ARRAYS.items():
        array = np.frombuffer(body, dtype, header[length], start)
        if array.size and array.max() > np.iinfo(np.int64).max:
            raise ValueError("it has numbers beyond 63 bits")
        arrays[name] = array.astype(np.int64)
        start += array.nbytes
    return CorpusCounts(header["vocabulary_size"], header["order"], **arrays)
