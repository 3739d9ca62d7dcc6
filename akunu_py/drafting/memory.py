"""The memory of `auto`: earlier replies and files that it drafts from besides the prompt.

The memory lives in RAM, and on disk only if a directory is given: one file for each vocabulary,
because token ids mean nothing to another one. A file that is damaged, or of another version or
vocabulary, is ignored with a warning.

Two chains link the positions of all text: each position points to the latest earlier one with the
same token, and to the latest earlier one with the same two tokens. Adding a token takes two
look-ups. Occurrences of the end of the text are found by following a chain from there.
"""

import hashlib
import json
import logging
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from akunu_py.system.errors import ConfigError
from akunu_py.system.files import open_to_read, replace_file

# No vocabulary has 2**24 tokens. If one had, a false match would be possible, and the target would
# reject its draft.
_PAIR_SHIFT = 24


_NEAR = 6  # tokens that are compared one by one before whole blocks
_BLOCK = 16


def _match_start(text: list[int], before: int, position: int, end: int, longest: int) -> int:
    """Return the place before the first token of a match that ends at `position` and at `end`.

    The tokens after `before` are known to match. A match is at most `longest` tokens long.
    """
    away = end - position
    last = max(0, position - longest)
    while before - _BLOCK >= last:
        start, other = before - _BLOCK + 1, before + away + 1
        if text[start : before + 1] != text[other - _BLOCK : other]:
            break
        before -= _BLOCK
    while before > last and text[before] == text[before + away]:
        before -= 1
    return before


class OccurrenceIndex:
    """The text and its chains.

    An index can begin where an older one ends. It then continues in the older one's lists instead
    of copies, and takes its tokens out again with `give_back`. If the older one grows in the
    meantime, or another index begins there, that costs one copy.

    Unrelated texts are separated by negative ids. Each separator is used once, so no match can
    contain one. Position 0 also holds a separator, and ends every chain.
    """

    __slots__ = (
        "_base", "_borrower", "_last_pair", "_last_token", "_lender", "_older_pair", "_older_token",
        "same_pair", "same_token", "tokens",
    )  # fmt: skip

    def __init__(self, older: "OccurrenceIndex | None" = None) -> None:
        """Start empty, or as an extension of an older index, which may grow independently."""
        # The text, including separators; behind the end, that of an index that began here.
        self.tokens: list[int] = [-1]
        # Position -> latest earlier position with the same token; 0 for none.
        self.same_token: list[int] = [0]
        # Position -> latest earlier position with the same token and predecessor.
        self.same_pair: list[int] = [0]
        self._last_token: dict[int, int] = {}
        self._last_pair: dict[int, int] = {}
        self._older_token: Mapping[int, int] = {}
        self._older_pair: Mapping[int, int] = {}
        self._borrower: OccurrenceIndex | None = None
        self._lender = older
        if older is not None:
            older._keep_apart()  # noqa: SLF001 - of the same class
            older._borrower = self  # noqa: SLF001
            self.tokens, self.same_token = older.tokens, older.same_token
            self.same_pair = older.same_pair
            self._older_token, self._older_pair = older._last_token, older._last_pair  # noqa: SLF001
        self._base = len(self.tokens)

    def __len__(self) -> int:
        borrower = self._borrower
        return len(self.tokens) if borrower is None else borrower._base  # noqa: SLF001

    def give_back(self) -> None:
        """Leave the older index's lists as they were, and become empty.

        An index that stands alone, or gave back already, stays as it is.
        """
        lender = self._lender
        if lender is None:
            return
        if lender._borrower is self:  # noqa: SLF001
            lender._borrower = None  # noqa: SLF001
            for part in (self.tokens, self.same_token, self.same_pair):
                del part[self._base :]
        OccurrenceIndex.__init__(self)

    def _keep_apart(self) -> None:
        """Go on in lists of its own; an index that began here keeps the shared ones."""
        if self._borrower is not None:
            end = len(self)
            self._borrower = None
            self.tokens = self.tokens[:end]
            self.same_token, self.same_pair = self.same_token[:end], self.same_pair[:end]

    def separate(self) -> None:
        """End a text: no match goes across this point."""
        self._keep_apart()
        # The number is unique, because the text never gets shorter.
        self.tokens.append(-1 - len(self.tokens))
        self.same_token.append(0)
        self.same_pair.append(0)

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens, none of them negative."""
        self._keep_apart()
        text, same_token, same_pair = self.tokens, self.same_token, self.same_pair
        last_token, last_pair = self._last_token, self._last_pair
        older_token, older_pair = self._older_token, self._older_pair
        base = self._base
        position = len(text)
        high = text[-1] << _PAIR_SHIFT
        text += tokens
        for token in tokens:
            pair = high ^ token
            found = last_token.get(token)
            if found is None:
                found = older_token.get(token, 0)
                if found >= base:  # a later part of the older index, not of this text
                    found = 0
            same_token.append(found)
            found = last_pair.get(pair)
            if found is None:
                found = older_pair.get(pair, 0)
                if found >= base:
                    found = 0
            same_pair.append(found)
            last_token[token] = last_pair[pair] = position
            high = token << _PAIR_SHIFT
            position += 1

    def occurrences(
        self, most: int, longest: int, *, enough: int, further: int
    ) -> list[tuple[int, int]]:
        """Find earlier occurrences of the text's end, most recent first.

        These are occurrences of the last two tokens, or of the last one if the pair is new. If the
        last token is new, too, they are occurrences of the two before it, with any one token after
        them. Each is (number of matching tokens, 0 to `longest`; position after it). The search
        ends after `most` occurrences of two tokens or half as many others, or `further` ones after
        the last that was the longest so far and had at least `enough` matching tokens.
        """
        text = self.tokens
        end = len(text) - 1
        found: list[tuple[int, int]] = []
        position = self.same_pair[end]
        if not position:
            # The pair is new, so that no match has more than one token.
            chain = self.same_token
            position = chain[end]
            fewer = (most + 1) // 2
            until = fewer if enough > 1 else min(fewer, 1 + further)
            while position and len(found) < until:
                found.append((1, position + 1))
                position = chain[position]
            if not found and text[end] >= 0:
                # The last token is new: skip it.
                chain = self.same_pair
                position = chain[end - 1]
                while position and len(found) < fewer:
                    found.append((0, position + 2))
                    position = chain[position]
            return found
        chain = self.same_pair
        # Backwards from the last token not compared yet, at most to a separator.
        nearest = min(longest, 2 + _NEAR)
        tail = text[max(0, end - nearest + 1) : end - 1]
        tail.reverse()
        best = enough - 1
        until = most
        while position and len(found) < until:
            before = position - 2
            for token in tail:
                if text[before] != token:
                    break
                before -= 1
            else:
                before = _match_start(text, before, position, end, longest)
            length = position - before
            found.append((length, position + 1))
            if length > best:
                best = length
                until = min(most, len(found) + further)
            position = chain[position]
        return found


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
        self.path: Path | None = None
        if directory is not None:
            if not vocabulary.isalnum():
                raise ConfigError(
                    "a memory on disk needs the fingerprint of its vocabulary, letters and digits"
                )
            self.path = Path(directory) / f"memory-{vocabulary}.bin"
            self._load(self.path)

    def __len__(self) -> int:
        """Return the number of tokens, including one separator for each text."""
        return len(self.index) - 1

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
        if self.path is None:
            return
        texts = self.texts()
        ids = np.array([token for text in texts for token in text], dtype=_ID_TYPE).tobytes()
        header = {
            "vocabulary": self.vocabulary,
            "lengths": [len(text) for text in texts],
            "sha256": hashlib.sha256(ids).hexdigest(),
        }
        content = _MAGIC + json.dumps(header).encode() + b"\n" + ids
        self.path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self.path, content, private=True)
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
