"""The memory of `auto`: earlier replies and files that it drafts from besides the prompt.

The memory lives in RAM, and on disk only if a directory is given: one file for each vocabulary,
because token ids mean nothing to another one. A file that is damaged, or of another version or
vocabulary, is ignored with a warning.
"""

import hashlib
import json
import logging
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from akunu_py.drafting.occurrences import OccurrenceIndex
from akunu_py.system.errors import ConfigError
from akunu_py.system.files import open_to_read, replace_file

logger = logging.getLogger(__name__)

MAX_TOKENS = 200_000
_MAGIC = b"akunu memory 1\n"
_MAX_HEADER_BYTES = 4 << 20
_ID_TYPE = np.dtype("<u4")


class Memory:
    """Texts as token ids, with an index of their occurrences.

    Beyond `max_tokens` the oldest texts are dropped until half of that is left. Of a text longer
    than this half only the end is kept.

    Raises ConfigError for a bound below 2, or a directory without a vocabulary's fingerprint.
    """

    def __init__(
        self,
        *,
        max_tokens: int = MAX_TOKENS,
        directory: str | Path | None = None,
        vocabulary: str = "",
        vocabulary_size: int | None = None,
    ) -> None:
        """Start with the texts saved in `directory`, or empty without one.

        `vocabulary` is the tokenizer's `vocabulary_fingerprint`. A file with ids from
        `vocabulary_size` on is refused.
        """
        if max_tokens < 2:
            raise ConfigError(f"max_tokens of a memory is {max_tokens}; give 2 or more")
        self.max_tokens = max_tokens
        self.vocabulary = vocabulary
        self.vocabulary_size = vocabulary_size
        # Index over all texts, with a separator before each.
        self.index = OccurrenceIndex()
        # Whether texts changed since the memory was loaded or saved.
        self.unsaved = False
        self._path: Path | None = None
        if directory is not None:
            if not vocabulary.isalnum():
                raise ConfigError(
                    "a memory on disk needs the fingerprint of its vocabulary, letters and digits"
                )
            self._path = Path(directory) / f"memory-{vocabulary}.bin"
            self._load(self._path)

    def __len__(self) -> int:
        """Return the number of tokens, including one separator for each text."""
        return len(self.index) - 1

    @property
    def path(self) -> Path | None:
        return self._path

    def add(self, tokens: Sequence[int]) -> None:
        """Add a text: a reply, or a file that replies may repeat."""
        kept = tokens[-(self.max_tokens // 2) + 1 :] if self.max_tokens > 3 else tokens[-1:]
        if not kept:
            return
        if len(self) + 1 + len(kept) > self.max_tokens:
            self._drop_oldest(self.max_tokens // 2 - len(kept) - 1)
        self.index.separate()
        self.index.extend(kept)
        self.unsaved = True

    def texts(self) -> list[list[int]]:
        """Return the texts, oldest first."""
        found: list[list[int]] = []
        for token in self.index.tokens[1 : len(self.index)]:
            if token < 0:
                found.append([])
            else:
                found[-1].append(token)
        return found

    def clear(self) -> None:
        """Forget everything; a file stays as it is until the next `save`."""
        self.index = OccurrenceIndex()
        self.unsaved = True

    def save(self) -> None:
        """Write the texts to the directory, if one was given.

        The file is replaced atomically, and only its owner can read it. Raises OSError if it cannot
        be written.
        """
        if self._path is None:
            return
        texts = self.texts()
        ids = np.array([token for text in texts for token in text], dtype=_ID_TYPE).tobytes()
        header = {
            "vocabulary": self.vocabulary,
            "lengths": [len(text) for text in texts],
            "sha256": hashlib.sha256(ids).hexdigest(),
        }
        content = _MAGIC + json.dumps(header).encode() + b"\n" + ids
        self._path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self._path, content, private=True)
        self.unsaved = False

    def _drop_oldest(self, room: int) -> None:
        """Keep the newest texts that fit into `room` tokens, separators included."""
        kept: list[list[int]] = []
        for text in reversed(self.texts()):
            room -= len(text) + 1
            if room < 0:
                break
            kept.append(text)
        self._refill(reversed(kept))

    def _refill(self, texts: Iterable[Sequence[int]]) -> None:
        # A new index: drafters of current replies may still use the old one.
        self.index = OccurrenceIndex()
        for text in texts:
            self.index.separate()
            self.index.extend(text)

    def _load(self, path: Path) -> None:
        try:
            with open_to_read(path) as stream:
                content = stream.read(_MAX_HEADER_BYTES + _ID_TYPE.itemsize * self.max_tokens + 1)
            texts = list(self._parse(content))
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            logger.warning("the memory %s is ignored: %s", path, reason or error)
            return
        self._refill(texts)

    def _parse(self, content: bytes) -> Iterator[list[int]]:
        """Yield the texts of a file; raises ValueError for anything that `save` does not write."""
        if not content.startswith(_MAGIC):
            raise ValueError("it is not a memory of this version")
        end = content.find(b"\n", len(_MAGIC), _MAX_HEADER_BYTES)
        header = json.loads(content[len(_MAGIC) : end] if end > 0 else b"")
        ids = content[end + 1 :]
        if header["vocabulary"] != self.vocabulary:
            raise ValueError("it belongs to another vocabulary")
        lengths = header["lengths"]
        if not all(type(length) is int and length > 0 for length in lengths):
            raise ValueError("the lengths of its texts are damaged")
        if len(ids) != _ID_TYPE.itemsize * sum(lengths):
            raise ValueError("its size does not match its header")
        if sum(lengths) + len(lengths) > self.max_tokens:
            raise ValueError(f"it holds more than {self.max_tokens} tokens")
        if hashlib.sha256(ids).hexdigest() != header["sha256"]:
            raise ValueError("its checksum is wrong")
        tokens = np.frombuffer(ids, dtype=_ID_TYPE).tolist()
        if self.vocabulary_size is not None and max(tokens, default=0) >= self.vocabulary_size:
            raise ValueError("it holds ids outside the vocabulary")
        start = 0
        for length in lengths:
            yield tokens[start : start + length]
            start += length


def open_memory(
    folder: str | Path | None, texts: Callable[[], Iterable[str]], vocabulary_size: int
) -> Memory:
    """Return the memory of a vocabulary in a folder, or one in RAM alone without a folder.

    Raises ConfigError for an empty path, a file, or a path that no folder can have.
    """
    if folder is None:
        return Memory()
    if not str(folder):
        # Path("") would be the current folder.
        raise ConfigError("the path of the memory is empty; name a folder, or give None for none")
    try:
        is_folder = stat.S_ISDIR(Path(folder).stat().st_mode)
    except FileNotFoundError:
        is_folder = True  # created when it is first written to
    except (OSError, ValueError) as error:
        # ValueError: a null character, which no path can hold.
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"a memory cannot be kept in {str(folder)!r:.80}: {reason}") from None
    if not is_folder:
        raise ConfigError(f"{folder} is a file; a memory is kept in a folder")
    return Memory(
        directory=folder,
        vocabulary=vocabulary_fingerprint(texts()),
        vocabulary_size=vocabulary_size,
    )


def vocabulary_fingerprint(tokens: Iterable[str | bytes]) -> str:
    """Return a fingerprint of a vocabulary, given its token texts in the order of their ids."""
    digest = hashlib.sha256()
    for token in tokens:
        data = token.encode("utf-8", "surrogatepass") if isinstance(token, str) else token
        digest.update(len(data).to_bytes(4, "little"))
        digest.update(data)
    return digest.hexdigest()[:32]
