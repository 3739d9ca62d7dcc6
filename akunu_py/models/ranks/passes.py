"""Passes on all ranks: rank 0 announces each, and each rollback; the others do the same.

A command is about one set of caches, by its number: `NEW` makes it and `FREE` drops it. `FEED`
feeds a number of rows and makes logits, and says whether it is recorded, to be undone; `FEED_APART`
makes none. `DROP`, `UNDO`, `SAVE`, `RESTORE` and `COPY` are
those of `RollbackCaches`; a saved state has a number as well, and `FORGET` drops it. They are sent
together with the next pass.

The ids of a pass come by MLX, as a sum to which only rank 0 adds something. So a pass over a token
that rank 0's device is still choosing can be queued on all ranks.

All ranks must queue the same collectives in the same order. On rank 0 one thread runs the passes of
all conversations, in the stream of all sessions: in streams of their own they would overtake each
other.
"""

import contextlib
import itertools
import signal
import threading
import weakref
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from typing import Any, cast

import mlx.core as mx
from mlx import nn

from akunu_py.models.cached_rows import Passes, ReadLogits
from akunu_py.models.device import replies_stream
from akunu_py.models.passes.plan import PassRows
from akunu_py.models.ranks.link import Link, MessageKind, RankMessage
from akunu_py.models.rollback.caches import RollbackCaches, Saved, leaves
from akunu_py.models.rollback.recurrence import Record
from akunu_py.system.errors import ContractError, RollbackError
from akunu_py.values.load_options import KVBits

_NOW = -1
"""The length with which a state is saved as it is."""

_CLEAR_EVERY = 256
"""Passes after which MLX's pool of freed buffers is emptied, as in a `Session`."""


class CacheKinds:
    """How the caches of all ranks roll back together; in a pipeline they may be of other kinds.

    The fields are those of `RollbackCaches` and `Passes`, and hold if they do on every rank.
    """

    def __init__(
        self, link: Link, model: nn.Module, kv_bits: KVBits | None, *, pipeline: bool
    ) -> None:
        passes = Passes(model, kv_bits)
        own = passes.rollback
        self.supported, drops, self.by_length = _on_all_ranks(
            link, own.supported, own.drops_rows, own.by_length
        )
        # What one rank's window can drop at any time, another's may not.
        self.drops_rows = drops and (self.by_length or not pipeline)
        self.replays = not self.drops_rows and _on_all_ranks(link, passes.replays) == [True]


def _on_all_ranks(link: Link, *flags: bool) -> list[bool]:
    """Return which flags are set on every rank."""
    found = mx.distributed.all_sum(mx.array(flags, dtype=mx.int32), group=link.group)
    counts: list[int] = found.tolist()  # type: ignore[assignment]
    return [count == link.size for count in counts]


class _Announced(RollbackCaches):
    """Caches of rank 0 whose rollbacks the other ranks repeat."""

    def __init__(self, caches: Sequence[Any], leader: "Leader", number: int) -> None:
        super().__init__(caches)
        self._leader = leader
        self._number = number
        kinds = leader.kinds
        self.supported = kinds.supported
        self.drops_rows = kinds.drops_rows
        self.by_length = kinds.by_length

    def can_drop(self, count: int) -> bool:
        return count == 0 or (self.drops_rows and super().can_drop(count))

    def drop(self, count: int) -> None:
        super().drop(count)
        if count:
            self._leader.add(RankMessage(MessageKind.DROP, self._number, count))

    def undo(self, count: int) -> bool:
        undone = super().undo(count)
        if undone and count and not self.drops_rows:
            self._leader.add(RankMessage(MessageKind.UNDO, self._number, count))
        return undone

    def save(self, length: int | None = None) -> Saved:
        saved = _SavedState(super().save(length))
        saved.number = self._leader.new_number()
        place = _NOW if length is None else length
        self._leader.add(RankMessage(MessageKind.SAVE, self._number, saved.number, place))
        weakref.finalize(
            saved,
            self._leader.add_later,
            RankMessage(MessageKind.FORGET, self._number, saved.number),
        )
        return saved

    def restore(self, saved: Saved) -> None:
        super().restore(saved)
        self._leader.add(RankMessage(MessageKind.RESTORE, self._number, _number_of(saved)))

    def copy(self, source: RollbackCaches, saved: Saved) -> None:
        super().copy(source, saved)
        if not isinstance(source, _Announced):
            raise ContractError("caches of rank 0 alone cannot be copied on all ranks")
        self._leader.add(
            RankMessage(MessageKind.COPY, self._number, source._number, _number_of(saved))  # noqa: SLF001
        )


class _SavedState(list[Any]):
    """A saved state of rank 0, and the number by which the other ranks know theirs."""

    number = 0


def _number_of(saved: Saved) -> int:
    if not isinstance(saved, _SavedState):
        raise ContractError("a state that was saved elsewhere cannot be restored on all ranks")
    return saved.number


class Leader:
    """Announces what rank 0 does to its caches."""

    def __init__(self, link: Link, kinds: CacheKinds) -> None:
        self.kinds = kinds
        self._link = link
        self._numbers = itertools.count(1)
        self._waiting: list[RankMessage] = []
        # Filled by finalizers, in whatever thread they run.
        self._later: deque[RankMessage] = deque()

    def new_number(self) -> int:
        """Return a number for caches or a saved state."""
        return next(self._numbers) % (1 << 31)

    def passes(self, model: nn.Module, kv_bits: KVBits | None) -> Passes:
        """Return passes over fresh caches, on all ranks."""
        return _LeaderPasses(self, model, kv_bits)

    def add(self, message: RankMessage) -> None:
        """Announce something together with the next pass."""
        self._waiting.append(message)

    def add_later(self, message: RankMessage) -> None:
        """Announce that something is no longer needed, at some time."""
        self._later.append(message)

    @contextlib.contextmanager
    def whole_pass(self) -> Iterator[None]:
        """Frame a pass, which is queued on all ranks.

        If it fails on rank 0, all ranks end: the others wait for it, inside MLX.
        """
        with _without_interrupts(), mx.stream(replies_stream()):
            try:
                yield
            except Exception as error:  # noqa: BLE001 - of whatever kind, the others wait
                self._link.fail_by(error)

    def announce(self, message: RankMessage, tokens: mx.array) -> mx.array:
        """Announce a pass now; return the ids that all ranks feed."""
        later = [self._later.popleft() for _ in range(len(self._later))]
        waiting, self._waiting = self._waiting, []
        self._link.send([*waiting, message, *later])
        return _shared_ids(self._link, tokens.astype(mx.int32))


class _LeaderPasses(Passes):
    """Passes of rank 0, which all ranks run."""

    takes_trees = False
    joins = False

    def __init__(self, leader: Leader, model: nn.Module, kv_bits: KVBits | None) -> None:
        super().__init__(model, kv_bits)
        self._leader = leader
        self._number = leader.new_number()
        leader.add(RankMessage(MessageKind.NEW, self._number, kv_bits or 0))
        self.rollback = _Announced(self.caches, leader, self._number)
        weakref.finalize(self, leader.add_later, RankMessage(MessageKind.FREE, self._number))

    @property
    def replays(self) -> bool:
        """Whether recorded passes over the model can be undone on all ranks."""
        return self._leader.kinds.replays

    def run(self, rows: PassRows) -> mx.array:
        """Run a pass on all ranks; return the wanted logits, queued."""
        recorded = isinstance(rows.record, Record)
        message = RankMessage(MessageKind.FEED, self._number, rows.tokens.size, recorded)
        with self._leader.whole_pass():
            rows.tokens = self._leader.announce(message, rows.tokens)
            logits = super().run(rows)
            mx.async_eval(logits)  # type: ignore[no-untyped-call]
        return logits

    def feeding(
        self, tokens: mx.array, read: ReadLogits | None = None
    ) -> Generator[int, None, None]:
        """Run a pass over tokens [n] on all ranks, and without a pause."""
        yield from ()
        if read is not None:
            read(self.run(PassRows(tokens, self.caches)))
            return
        with self._leader.whole_pass():
            message = RankMessage(MessageKind.FEED_APART, self._number, tokens.size)
            for _ in super().feeding(self._leader.announce(message, tokens)):
                pass


def _shared_ids(link: Link, ids: mx.array) -> mx.array:
    """Return the sum of what all ranks give, queued."""
    shared = mx.distributed.all_sum(ids, group=link.group)
    # Some ranks of a pipeline do not use the ids, and all must take part.
    mx.async_eval(shared)  # type: ignore[no-untyped-call]
    return shared


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Put off Ctrl-C until a pass that was announced is queued."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: caught.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if caught:
            signal.raise_signal(signal.SIGINT)


class Follower:
    """Does on another rank what rank 0 announces, with this rank's part of the model."""

    def __init__(self, link: Link, model: nn.Module) -> None:
        self._link = link
        self._model = model
        self._held: dict[int, Passes] = {}
        self._saved: dict[int, Saved] = {}
        self._num_passes = 0

    def run(self) -> None:
        """Follow rank 0 until it stops."""
        while True:
            message = self._link.next_command()
            if message.kind is MessageKind.STOP:
                mx.synchronize()
                return
            self._do(message)

    def _do(self, message: RankMessage) -> None:
        target = message.target
        match message.kind:
            case MessageKind.NEW:
                kv_bits = cast("KVBits | None", message.first or None)
                self._held[target] = Passes(self._model, kv_bits)
            case MessageKind.FREE:
                del self._held[target]
            case MessageKind.FEED:
                held = self._held[target]
                rows = PassRows(self._ids(message.first), held.caches)
                if message.second:
                    rows.record = held.rollback.record(message.first)
                mx.async_eval(held.run(rows))  # type: ignore[no-untyped-call]
                self._count_pass()
            case MessageKind.FEED_APART:
                for _ in self._held[target].feeding(self._ids(message.first)):
                    pass
                mx.clear_cache()
            case MessageKind.DROP:
                self._held[target].rollback.drop(message.first)
            case MessageKind.UNDO:
                if not self._held[target].rollback.undo(message.first):
                    raise RollbackError("this rank cannot undo a pass that the others undo")
            case MessageKind.SAVE:
                length = None if message.second == _NOW else message.second
                self._saved[message.first] = self._held[target].rollback.save(length)
            case MessageKind.RESTORE:
                self._held[target].rollback.restore(self._saved[message.first])
            case MessageKind.FORGET:
                del self._saved[message.first]
            case MessageKind.COPY:
                source = self._held[message.first].rollback
                copied = self._held[target]
                copied.rollback.copy(source, self._saved[message.second])
                # As in `CachedRows.copy`: views would keep the memory that they look at.
                mx.eval([vars(leaf) for leaf in leaves(copied.caches)])
            case _:
                raise ContractError(f"rank 0 sent {message.kind.name}, which is not a command")

    def _ids(self, count: int) -> mx.array:
        """Return the token ids of a pass, which rank 0 sends."""
        return _shared_ids(self._link, mx.zeros(count, dtype=mx.int32))

    def _count_pass(self) -> None:
        self._num_passes += 1
        if self._num_passes % _CLEAR_EVERY == 0:
            mx.clear_cache()
