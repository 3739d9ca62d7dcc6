"""Earlier replies and files of a session: text that `auto` drafts from besides the prompt's.

Within one engine it lives in memory. Only where a directory is given is it kept on disk, one file
for each vocabulary: token ids mean nothing to another one. What is on disk is a convenience, so a
file that is damaged, of another version or of another vocabulary is passed over with a warning.
"""

import hashlib
import json
import logging
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from akunu_py.atomic_file import replace_file
from akunu_py.drafting.occurrences import OccurrenceIndex
from akunu_py.errors import ConfigError
from akunu_py.regular_file import open_to_read

logger = logging.getLogger(__name__)

MAX_TOKENS = 200_000
_MAGIC = b"akunu memory 1\n"
_MAX_HEADER_BYTES = 4 << 20
_ID_TYPE = np.dtype("<u4")


class Memory:
    """Texts as token ids, with the index that finds occurrences in them.

    Bounded: beyond `max_tokens` the oldest texts go, until half of that is left. A text longer than
    that half keeps its end.

    Attributes:
        index: over all texts, a separator before each.
        unsaved: whether texts came or went since it was loaded or saved.

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
        """Start with what was saved in `directory`, if that is given, or empty.

        `vocabulary` is `vocabulary_fingerprint` of the tokenizer; ids from `vocabulary_size` on are
        never taken from a file.
        """
        if max_tokens < 2:
            raise ConfigError(f"max_tokens of a memory is {max_tokens}; give 2 or more")
        self.max_tokens = max_tokens
        self.vocabulary = vocabulary
        self.vocabulary_size = vocabulary_size
        self.index = OccurrenceIndex()
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
        """Return the number of tokens, one separator for each text included."""
        return len(self.index) - 1

    @property
    def path(self) -> Path | None:
        """Return the file it is kept in, None for a memory that is not kept."""
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
        for token in self.index.tokens[1:]:
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

        The file is replaced at once or not at all, and only its owner can read it. Raises OSError
        where it cannot be written.
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
        # A new index: drafters of replies under way may hold the old one.
        self.index = OccurrenceIndex()
        for text in texts:
            self.index.separate()
            self.index.extend(text)

    def _load(self, path: Path) -> None:
        try:
            with open_to_read(path) as stream:
                content = stream.read(_MAX_HEADER_BYTES + _ID_TYPE.itemsize * self.max_tokens + 1)
            texts = list(self._parsed(content))
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            logger.warning("the memory %s is passed over: %s", path, reason or error)
            return
        self._refill(texts)

    def _parsed(self, content: bytes) -> Iterator[list[int]]:
        """Yield the texts of a file, or raise for one that is not what `save` wrote."""
        if not content.startswith(_MAGIC):
            raise ValueError("it is no memory of this version")
        end = content.find(b"\n", len(_MAGIC), _MAX_HEADER_BYTES)
        header = json.loads(content[len(_MAGIC) : end] if end > 0 else b"")
        ids = content[end + 1 :]
        if header["vocabulary"] != self.vocabulary:
            raise ValueError("it is of another vocabulary")
        lengths = header["lengths"]
        if not all(type(length) is int and length > 0 for length in lengths):
            raise ValueError("its texts have lengths that are none")
        if len(ids) != _ID_TYPE.itemsize * sum(lengths):
            raise ValueError("it is not as long as it says")
        if sum(lengths) + len(lengths) > self.max_tokens:
            raise ValueError(f"it holds more than {self.max_tokens} tokens")
        if hashlib.sha256(ids).hexdigest() != header["sha256"]:
            raise ValueError("its checksum is wrong")
        tokens = np.frombuffer(ids, dtype=_ID_TYPE).tolist()
        if self.vocabulary_size is not None and max(tokens, default=0) >= self.vocabulary_size:
            raise ValueError("it holds ids that the vocabulary has not")
        start = 0
        for length in lengths:
            yield tokens[start : start + length]
            start += length


def open_memory(
    folder: str | Path | None, texts: Callable[[], Iterable[str]], vocabulary_size: int
) -> Memory:
    """Return the memory kept in a folder for a vocabulary, or one that is not kept.

    Raises ConfigError for a path that is empty or a file, or that no folder can have.
    """
    if folder is None:
        return Memory()
    if not str(folder):
        # As a path it would be the current folder.
        raise ConfigError("the path of the memory is empty; name a folder, or give None for none")
    try:
        is_folder = stat.S_ISDIR(Path(folder).stat().st_mode)
    except FileNotFoundError:
        is_folder = True  # made when it is written to
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
    """Return a fingerprint of a vocabulary: the texts of its tokens, in the order of their ids."""
    digest = hashlib.sha256()
    for token in tokens:
        data = token.encode("utf-8", "surrogatepass") if isinstance(token, str) else token
        digest.update(len(data).to_bytes(4, "little"))
        digest.update(data)
    return digest.hexdigest()[:32]
