"""Counting a corpus, piece by piece: from a file of text, a file of ids, or any ids."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from io import TextIOWrapper
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from akunu_lab.counts.corpus_model import CorpusCounts
from akunu_lab.counts.interpolation import check_vocabulary_size
from akunu_py.api import ConfigError, Tokenizer

PIECE_CHARACTERS = 1 << 16
"""Approximate size of the pieces in which text is tokenized, cut at a line end if possible."""

Progress = Callable[[int, int], None]
"""Called with the number of bytes read and the size of the file."""

# Number of pending pairs before they are merged into the counts.
_PENDING_PAIRS = 1 << 20


class CorpusCounter:
    """Counts tokens and pairs of neighbours, one piece of text after another.

    It needs memory for the different tokens and pairs, and for a million pending pairs. No pair is
    counted across pieces. Raises ConfigError for a vocabulary or order out of range.
    """

    def __init__(self, vocabulary_size: int, *, order: int = 2) -> None:
        check_vocabulary_size(vocabulary_size)
        if order not in {1, 2}:
            raise ConfigError(f"the order is {order!r}; give 1 (unigrams) or 2 (bigrams)")
        self.vocabulary_size = vocabulary_size
        self.order = order
        self._counts = np.zeros(vocabulary_size, np.int64)
        self._pairs = np.empty(0, np.int64)
        self._pair_counts = np.empty(0, np.int64)
        self._pending: list[NDArray[np.int64]] = []
        self._num_pending = 0

    def add(self, tokens: Sequence[int] | NDArray[np.integer]) -> None:
        """Count one piece.

        Raises ConfigError for ids outside the vocabulary; nothing of the piece is counted then.
        """
        try:
            ids = np.asarray(tokens, dtype=np.int64)
        except OverflowError:
            raise ConfigError("the corpus has ids beyond 64 bits, and no vocabulary does") from None
        if not ids.size:
            return
        if ids.min() < 0 or ids.max() >= self.vocabulary_size:
            raise ConfigError(
                f"the corpus has ids from {ids.min()} to {ids.max()}; the vocabulary ends at "
                f"{self.vocabulary_size - 1}"
            )
        self._counts += np.bincount(ids, minlength=self.vocabulary_size)
        if self.order == 2:
            self._pending.append(ids[:-1] << 32 | ids[1:])
            self._num_pending += ids.size - 1
            if self._num_pending >= _PENDING_PAIRS:
                self._merge()

    def counts(self) -> CorpusCounts:
        """Return the counts so far."""
        self._merge()
        tokens = np.flatnonzero(self._counts)
        return CorpusCounts(
            self.vocabulary_size,
            self.order,
            tokens.astype(np.int64),
            self._counts[tokens],
            self._pairs,
            self._pair_counts,
        )

    def _merge(self) -> None:
        if not self._num_pending:
            return
        new, new_counts = np.unique(np.concatenate(self._pending), return_counts=True)
        self._pending, self._num_pending = [], 0
        pairs, inverse = np.unique(np.concatenate((self._pairs, new)), return_inverse=True)
        totals = np.zeros(pairs.size, np.int64)
        np.add.at(totals, inverse, np.concatenate((self._pair_counts, new_counts)))
        self._pairs, self._pair_counts = pairs, totals


def fit_counts(
    pieces: Iterable[Sequence[int]], vocabulary_size: int, *, order: int = 2
) -> CorpusCounts:
    """Return the counts of pieces of token ids. Raises ConfigError as `CorpusCounter` does."""
    counter = CorpusCounter(vocabulary_size, order=order)
    for piece in pieces:
        counter.add(piece)
    return counter.counts()


def text_pieces(
    path: str | Path, tokenizer: Tokenizer, progress: Progress | None = None
) -> Iterator[list[int]]:
    """Yield the token ids of a text file (UTF-8), piece by piece.

    Tokens that the tokenizer puts in front of every text are left out, because the corpus is one
    text. Each piece is tokenized separately, so a file without line ends may be cut within a word
    every 65,536 characters. `progress` is called after each piece. Raises ConfigError for a file
    that cannot be read or is not UTF-8.
    """
    begin = tokenizer.encode("")
    for piece in _pieces_of_text(Path(path), progress):
        ids = tokenizer.encode(piece)
        yield ids[len(begin) :] if ids[: len(begin)] == begin else ids


def id_pieces(path: str | Path, progress: Progress | None = None) -> Iterator[list[int]]:
    """Yield the ids of a file of decimal token ids, separated by white space, piece by piece.

    Line ends are plain white space; a piece has about 65,536 characters. `progress` is called after
    each piece. Raises ConfigError for a file that cannot be read, and for other content.
    """
    for piece in _pieces_of_text(Path(path), progress):
        words = piece.split()
        wrong = next((word for word in words if not (word.isascii() and word.isdigit())), None)
        if wrong is None:
            wrong = next((word for word in words if len(word) > 10), None)
        if wrong is not None:
            raise ConfigError(
                f"{path} is not a file of token ids: it contains {wrong[:20]!r}; give decimal ids, "
                "or fit it as text"
            )
        yield [int(word) for word in words]


def _pieces_of_text(path: Path, progress: Progress | None) -> Iterator[str]:
    """Yield a file's text in pieces that end with a line or at least with white space."""
    try:
        with path.open("rb") as raw, TextIOWrapper(raw, "utf-8", newline="") as stream:
            size = path.stat().st_size
            held = ""
            while block := stream.read(PIECE_CHARACTERS):
                held += block
                cut = held.rfind("\n") + 1
                if not cut:
                    cut = max(held.rfind(space) for space in " \t\r") + 1 or len(held)
                yield held[:cut]
                held = held[cut:]
                if progress:
                    progress(min(raw.tell(), size), size)
            if held:
                yield held
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8: {error.reason}; convert it") from None
    except OSError as error:
        raise ConfigError(f"the corpus {path} cannot be read: {error.strerror or error}") from None
