"""KV entries of earlier prompts and replies, kept for prompts that begin like them.

KV entries have one owner: this cache, or the lane that uses them. A prompt that continues a
conversation takes its KV entries out and, when its reply ends, puts them back with the new ones. A
prompt that only shares a beginning with another conversation, or with a reply under way, gets a
copy of that beginning. Kept conversations hold once what they share: KV entries by length are kept
in pieces.

Where caches cannot drop KV entries (recurrent states, sliding windows), KV entries go back to
checkpoints: places that a prompt names, such as the end of its system message and of its last
message.
"""

import logging
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from akunu_py.models.cached_rows import CachedRows
from akunu_py.models.row_pieces import Piece, put_together, take_apart, together
from akunu_py.models.session import Session
from akunu_py.server.disk_tier import DiskTier
from akunu_py.server.token_trie import TokenTrie, common_length

_log = logging.getLogger(__name__)

_MOST_S = 30.0
"""Seconds until KV entries are written that have no such rest."""

_LOOK_S = 0.1
"""Seconds between two checks whether KV entries were written."""

_LEAST_SHARED = 256
"""Shortest beginning that conversations share in memory, in tokens."""

_LEAST_COPIED = 16
"""Shortest beginning worth a copy, in tokens: a pass over so few takes no longer than over one."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The KV entries that a prompt got."""

    num_rows: int
    reason: str
    missed: int = 0
    """Where the prompt differs from cached text, if the caches could not go back to there: the next
    prompt may differ there, too."""


@dataclass(eq=False, slots=True)
class _Entry:
    """KV entries that nobody uses now."""

    rows: CachedRows
    """The KV entries; those of caches by length are in `pieces`."""
    key: tuple[int, ...]
    text: Sequence[int]
    """The tokens of prompt and reply, of which the last may have no row."""
    last_message: int
    """Number of tokens up to the end of the last message before the reply; a prompt that shares
    them continues the conversation."""
    pieces: list[Piece]
    """The KV entries of caches by length, of which other entries may hold some, too."""
    used: int = 0
    """The number of uses of the cache up to its own last one."""


@dataclass(frozen=True, slots=True)
class _Found:
    """KV entries that share a beginning; `entry` is None for those of a reply under way."""

    rows: CachedRows
    common: int
    reach: int
    entry: _Entry | None

    @property
    def continues(self) -> bool:
        """Whether a prompt continues the kept conversation, so that its entries are handed over."""
        return self.entry is not None and self.reach >= self.entry.last_message


class PrefixCache:
    """Rows by their tokens, up to `limit` bytes; those go first that are old and soon read again.

    KV entries in use do not count. With a disk tier, `store` writes KV entries to disk, and KV
    entries that are found only there are read back. KV entries rest for `rest_s` before they are
    written: an agent's next request often comes sooner. One thread uses the cache.
    """

    def __init__(
        self,
        limit: int,
        disk: DiskTier | None = None,
        *,
        rest_s: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit = limit
        self._disk = disk
        self._rest_s = rest_s
        self._clock = clock
        self._trie: TokenTrie[_Entry] = TokenTrie()
        self._entries: dict[_Entry, None] = {}
        self._uses = 0
        # When entries are to be written to disk.
        self._unstored: dict[_Entry, float] = {}
        # Since when KV entries differ from those on disk, also while a reply uses them.
        self._since: weakref.WeakKeyDictionary[CachedRows, float] = weakref.WeakKeyDictionary()
        self._holders: Counter[Piece] = Counter()
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def nearest(self, prompt: Sequence[int], others: Sequence[Session]) -> Iterator[Sequence[int]]:
        """Yield the texts of kept KV entries and of replies under way, the most similar first.

        KV entries on disk count: after a restart they are the only ones.
        """
        found: list[tuple[int, Sequence[int]]] = [
            (common_length(one.rows.tokens, prompt), one.rows.tokens) for one in others
        ]
        found += ((common, entry.text) for common, entry in self._trie.nearest(prompt))
        if self._disk is not None:
            found += (
                (common, stored.text)
                for common, stored in self._disk.nearest(prompt)
                if self._trie.get(stored.tokens) is None
            )
        for _, text in sorted(found, key=lambda one: -one[0]):
            yield text

    def reach(self, prompt: Sequence[int], others: Sequence[Session]) -> int:
        """Return how many KV entries in memory a prompt could use now."""
        found = self._find(prompt, others)
        return 0 if found is None else found.reach

    def touch(self, prompt: Sequence[int], others: Sequence[Session]) -> int:
        """Return how many KV entries `take` would hand over; what it copies takes memory once more.

        The KV entries found become those that are dropped last.
        """
        found = self._find(prompt, others)
        if found is None or found.entry is None:
            return 0
        self._use(found.entry)
        shared = any(self._holders[piece] > 1 for piece in found.entry.pieces)
        copied = shared or len(found.entry.pieces) > 1
        return found.reach if found.continues and not copied else 0

    def take(self, prompt: Sequence[int], session: Session, others: Sequence[Session]) -> Taken:
        """Give a session the KV entries that serve a prompt best, and take those that it had.

        `others` are the sessions of replies under way. The last token of a prompt is fed in any
        case.
        """
        self._read_back(prompt, session, others)
        found = self._find(prompt, others)
        if found is None:
            session.exchange(None)
            return Taken(0, "nothing that begins like it is cached")
        entry = found.entry
        if entry is not None and found.continues:
            self._remove(entry)
            put_together(entry.rows, entry.pieces)
            session.exchange(entry.rows)
        elif entry is not None and found.reach >= _LEAST_COPIED:
            self._use(entry)
            with together(entry.rows, entry.pieces, found.reach):
                copied = session.copy(entry.rows, found.reach)
            session.exchange(copied)
        elif found.reach >= _LEAST_COPIED:
            session.exchange(session.copy(found.rows, found.reach))
        else:
            session.exchange(None)
            return Taken(0, "nothing that begins like it is cached", found.common)
        missed = found.common if found.reach < found.common else 0
        return Taken(found.reach, _reason(found, prompt), missed)

    def put(
        self, rows: CachedRows, last_message: int | None = None, text: Sequence[int] = ()
    ) -> None:
        """Keep the KV entries of a reply that ended.

        `text` has the tokens of prompt and reply, and `last_message` the number of those up to the
        end of the last message before the reply; without it, all belong to the prompt. KV entries
        of which nobody knows what they hold, after an error within a pass, are dropped.
        """
        key = tuple(rows.tokens)
        if not rows.settled or not rows.rollback.supported or len(key) < _LEAST_COPIED:
            return
        for common, entry in list(self._trie.nearest(key)):
            if common == len(entry.key) and rows.reach(common) == common:
                self._remove(entry)
            elif common == len(key) and entry.rows.reach(common) == common:
                # KV entries that are kept already serve whatever these would.
                self._use(entry)
                return
        known = text if tuple(text[: len(key)]) == key else key
        most = len(key) if last_message is None else min(last_message, len(key))
        entry = _Entry(rows, key, known, most, take_apart(rows))
        self._share(entry)
        self._trie.put(key, entry)
        self._entries[entry] = None
        self._use(entry)
        if self._disk is not None:
            now = self._clock()
            since = self._since.setdefault(rows, now)
            self._unstored[entry] = min(now + self._rest_s, since + _MOST_S)
        self.nbytes += rows.nbytes
        for piece in entry.pieces:
            self._hold(piece)
        while self.nbytes > self._limit:
            self.drop_one()

    def _use(self, entry: _Entry) -> None:
        self._uses += 1
        entry.used = self._uses

    def _share(self, entry: _Entry) -> None:
        """Let new entries have the pieces of others with an equal beginning, number by number."""
        common, other = next(iter(self._trie.nearest(entry.key)), (0, None))
        if other is None or not entry.pieces or common < _LEAST_SHARED:
            return
        if not entry.pieces[0].begins_with(other.pieces, common):
            return
        self._cut(other, common)
        place, shared = 0, []
        for piece in other.pieces:
            if place == common:
                break
            shared.append(piece)
            place += piece.count
        (mine,) = entry.pieces
        entry.pieces[:] = shared if mine.count == common else [*shared, mine.cut(common)[1]]

    def _cut(self, entry: _Entry, place: int) -> None:
        """Divide the piece of an entry that has a place within it, wherever it is held."""
        for piece in entry.pieces:
            if 0 < place < piece.count:
                parts = piece.cut(place)
                for one in [one for one in self._entries if piece in one.pieces]:
                    index = one.pieces.index(piece)
                    one.pieces[index : index + 1] = parts
                    for part in parts:
                        self._hold(part)
                    self._let_go(piece)
                return
            place -= piece.count

    def _hold(self, piece: Piece) -> None:
        self._holders[piece] += 1
        if self._holders[piece] == 1:
            self.nbytes += piece.nbytes

    def _let_go(self, piece: Piece) -> None:
        self._holders[piece] -= 1
        if not self._holders[piece]:
            del self._holders[piece]
            self.nbytes -= piece.nbytes

    def store_in(self) -> float | None:
        """Return in how many seconds `store` has something to do; None for never."""
        if self._disk is None:
            return None
        if self._disk.writing:
            return _LOOK_S
        due = min(self._unstored.values(), default=None)
        return None if due is None else max(0.0, due - self._clock())

    def store(self, session: Session, *, wait: bool = True) -> bool:
        """Write the oldest KV entries that are not on disk yet; return False if there are none.

        `session` is any one of the model. Without `wait` they are written beside the replies, one
        conversation at a time.
        """
        if self._disk is None or (self._disk.writing and not wait):
            return False
        self._disk.finish()
        if not self._unstored:
            return False
        entry = min(self._unstored, key=self._unstored.__getitem__)
        del self._unstored[entry], self._since[entry.rows]
        with together(entry.rows, entry.pieces, len(entry.key)):
            self._disk.write(entry.rows, entry.text, entry.last_message, session)
        if wait:
            self._disk.finish()
        return True

    def drop_one(self) -> bool:
        """Drop the entries with the most uses of others since their own, per token; False for none.

        Only tokens that no other KV entries have count: they would be read again.
        """
        if not self._entries:
            return False
        self._remove(max(self._entries, key=self._age))
        return True

    def _age(self, entry: _Entry) -> float:
        shared = sum(piece.count for piece in entry.pieces if self._holders[piece] > 1)
        return (self._uses - entry.used) / max(1, len(entry.key) - shared)

    def close(self) -> None:
        """Drop all KV entries."""
        while self.drop_one():
            pass

    def _remove(self, entry: _Entry) -> None:
        self._trie.pop(entry.key)
        del self._entries[entry]
        self._unstored.pop(entry, None)
        self.nbytes -= entry.rows.nbytes
        for piece in entry.pieces:
            self._let_go(piece)

    def _read_back(
        self, prompt: Sequence[int], session: Session, others: Sequence[Session]
    ) -> None:
        """Read entries from disk, if clearly more of them can be used than of those in memory."""
        if self._disk is None:
            return
        most, by_length = len(prompt) - 1, session.rows.rollback.by_length
        found = self._find(prompt, others)
        best, reach = None, (0 if found is None else found.reach) + _LEAST_COPIED - 1
        for shared, stored in self._disk.nearest(prompt):
            common = min(shared, most)
            if common <= reach:
                break
            if (reached := stored.reach(common, by_length=by_length)) > reach:
                best, reach = stored, reached
        rows = None if best is None else self._disk.load(best, session)
        if best is not None and rows is not None:
            self.put(rows, best.last_message, best.text)
            # The file stays until longer KV entries replace it.
            for entry in [one for one in self._unstored if one.rows is rows]:
                del self._unstored[entry], self._since[rows]

    def _find(self, prompt: Sequence[int], others: Sequence[Session]) -> _Found | None:
        """Return the KV entries of which most can be used."""
        best: _Found | None = None
        most = len(prompt) - 1
        for shared, entry in self._trie.nearest(prompt):
            common = min(shared, most)
            if best is not None and best.reach >= common:
                break
            best = _better(best, _Found(entry.rows, common, entry.rows.reach(common), entry))
        for session in others:
            common = min(common_length(session.rows.tokens, prompt), most)
            reach = min(common, session.rows.reach(common))
            best = _better(best, _Found(session.rows, common, reach, None))
        return best


def _better(best: _Found | None, found: _Found) -> _Found | None:
    return found if found.reach > (0 if best is None else best.reach) else best


def _reason(found: _Found, prompt: Sequence[int]) -> str:
    if found.entry is None:
        reason = f"a reply under way begins with the same {found.common} tokens"
    elif found.common in (len(found.entry.key), len(prompt) - 1):
        reason = "it continues cached text"
    else:
        reason = f"cached text differs after {found.common} tokens"
    if found.reach < found.common:
        reason += f"; this model's caches go back to {found.reach}"
    return reason
