"""Rank 0's connection to every other rank, apart from MLX's own.

MLX moves tensors, and waits for ever for a rank that does not answer. Here go the commands, so that
the others can queue a pass before its tokens are known, and keep-alive messages, by which every
rank finds out within `SILENCE_S` that another has gone.

A message is four int32, little-endian: kind, target and two numbers. TEXT is followed by as many
bytes as its first number says. The first number of BEAT, a keep-alive, is the memory that the rank
has left, in MiB. Nothing else is ever read from a connection.
"""

import contextlib
import enum
import hmac
import json
import os
import queue
import secrets
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import mlx.core as mx

from akunu_py.models.memory_check import available_memory
from akunu_py.system.errors import AkunuError, ConfigError
from akunu_py.system.shown_text import one_line

SILENCE_S = 8.0
"""A rank that sends nothing for so long is lost. A busy machine delays a keep-alive by less: the
thread that sends it waits for Python's lock only."""
_BEAT_S = 1.0
_CONNECT_S = 30.0
_MESSAGE = struct.Struct("<4i")
_MOST_TEXT = 1 << 20
_PLACE_BYTES = 2048
_MIB = 1 << 20


class MessageKind(enum.IntEnum):
    """What a message says; see `passes` for the commands."""

    BEAT = 0
    TEXT = 1
    STOP = 2
    LOST = 3
    NEW = 4
    FREE = 5
    FEED = 6
    FEED_APART = 7
    DROP = 8
    SAVE = 9
    RESTORE = 10
    FORGET = 11
    COPY = 12
    UNDO = 13


class RankMessage(NamedTuple):
    """A message: its kind, the caches it is about, and two numbers."""

    kind: MessageKind
    target: int = 0
    first: int = 0
    second: int = 0

    def bytes(self) -> bytes:
        """Return the message as it is sent."""
        return _MESSAGE.pack(*self)


class _Peer:
    """The other end of a connection, read by the watching thread alone."""

    def __init__(self, rank: int, connection: socket.socket) -> None:
        self.rank = rank
        self.host = "?"
        self.heard = time.monotonic()
        self.available = sys.maxsize
        self.done = False
        self.texts: queue.Queue[str] = queue.Queue()
        self._connection = connection
        self._sending = threading.Lock()
        self._received = bytearray()

    @property
    def name(self) -> str:
        return f"rank {self.rank} ({self.host})"

    def fileno(self) -> int:
        return self._connection.fileno()

    def send(self, data: bytes) -> None:
        # An end that has gone is noticed, and told, by the thread that reads.
        with self._sending, contextlib.suppress(OSError):
            self._connection.sendall(data)

    def beat(self, available: int) -> None:
        """Send a keep-alive with the bytes available, unless something is being sent anyway."""
        if self._sending.acquire(blocking=False):
            try:
                with contextlib.suppress(OSError):
                    self._connection.sendall(
                        RankMessage(MessageKind.BEAT, 0, available // _MIB).bytes()
                    )
            finally:
                self._sending.release()

    def close(self) -> None:
        self._connection.close()

    def receive(self) -> bool:
        """Read what has arrived; return False at the end of the connection."""
        try:
            data = self._connection.recv(1 << 16)
        except OSError:
            return False
        self.heard = time.monotonic()
        self._received += data
        return bool(data)

    def messages(self) -> Iterator[tuple[RankMessage, str]]:
        """Yield the complete messages that have arrived, with their texts.

        Raises ValueError for something else.
        """
        while len(self._received) >= _MESSAGE.size:
            kind, target, first, second = _MESSAGE.unpack_from(self._received)
            message = RankMessage(MessageKind(kind), target, first, second)
            size = (
                message.first
                if message.kind is MessageKind.TEXT or message.kind is MessageKind.LOST
                else 0
            )
            if not 0 <= size <= _MOST_TEXT:
                raise ValueError("a text is too long")
            if len(self._received) < _MESSAGE.size + size:
                return
            text = bytes(self._received[_MESSAGE.size : _MESSAGE.size + size])
            del self._received[: _MESSAGE.size + size]
            yield message, text.decode(errors="replace")


class Link:
    """The connections of one rank: rank 0 has one to each of the others, they have one to rank 0.

    A rank that is lost ends this process with a message and the exit code 1, whatever the main
    thread is doing: it may be waiting inside MLX.
    """

    def __init__(self, group: Any) -> None:
        self.group = group
        self.rank: int = group.rank()
        self.size: int = group.size()
        self.num_messages = self.num_bytes = 0
        self._commands: queue.Queue[RankMessage] = queue.Queue()
        self._ended = False
        connect = _accept if self.rank == 0 else _connect
        self._peers = [_Peer(rank, connection) for rank, connection in connect(group)]
        self._watching = threading.Thread(target=self._watch, name="akunu-ranks", daemon=True)
        self._watching.start()
        hosts = self.exchange(one_line(socket.gethostname())[:64])
        for peer in self._peers:
            peer.host = hosts[peer.rank]

    def exchange(self, text: str) -> dict[int, str]:
        """Give every other end a text, and return theirs by rank; all ranks must call it."""
        data = text.encode()
        for peer in self._peers:
            peer.send(RankMessage(MessageKind.TEXT, 0, len(data)).bytes() + data)
        return {peer.rank: peer.texts.get() for peer in self._peers}

    def name(self, rank: int) -> str:
        """Return a connected rank and its host, for messages."""
        return next(peer.name for peer in self._peers if peer.rank == rank)

    def send(self, messages: Sequence[RankMessage]) -> None:
        """Send commands to all other ranks, in one piece."""
        data = b"".join(message.bytes() for message in messages)
        self.num_messages += len(self._peers)
        self.num_bytes += len(data) * len(self._peers)
        for peer in self._peers:
            peer.send(data)

    def next_command(self) -> RankMessage:
        """Wait for a command of rank 0."""
        return self._commands.get()

    def stop(self) -> None:
        """Have the other ranks end; a second call does nothing."""
        if not self._ended:
            self._ended = True
            self.send([RankMessage(MessageKind.STOP)])

    def available_memory(self) -> int:
        """Return the bytes that every rank can take, by what the others said last."""
        return min([available_memory(), *(peer.available for peer in self._peers)])

    def fail_by(self, error: Exception) -> NoReturn:
        """End this process and all others, because of an error in this one."""
        if not isinstance(error, AkunuError):
            # MLX's error for a rank that has gone says less than the verdict of the watching
            # thread, which ends the process.
            time.sleep(SILENCE_S + 2 * _BEAT_S)
        self._end(f"rank {self.rank} ({socket.gethostname()}) failed: {error}")

    def _watch(self) -> None:
        """Read what arrives, and send keep-alives, until every other end is done."""
        try:
            self._read_until_done()
        finally:
            for peer in self._peers:
                peer.close()

    def _read_until_done(self) -> None:
        beaten = 0.0
        while True:
            now = time.monotonic()
            if now - beaten >= _BEAT_S:
                beaten = now
                available = available_memory()
                for peer in self._peers:
                    peer.beat(available)
            open_peers = [peer for peer in self._peers if not peer.done]
            if not open_peers:
                return
            looked = time.monotonic()
            ready, _, _ = select.select(open_peers, [], [], _BEAT_S / 2)
            for peer in ready:
                self._read(peer)
            # Since this look: what arrives while this thread itself is held up is read at the next.
            for peer in open_peers:
                if not peer.done and looked - peer.heard > SILENCE_S:
                    self._lost(peer, f"has not answered for {SILENCE_S:.0f} seconds")

    def _read(self, peer: _Peer) -> None:
        goes_on = peer.receive()
        try:
            for message, text in peer.messages():
                if message.kind is MessageKind.TEXT:
                    peer.texts.put(text)
                elif message.kind is MessageKind.LOST:
                    self._end(text)
                elif message.kind is MessageKind.STOP and self.rank == 0:
                    peer.done = True
                elif message.kind is MessageKind.BEAT:
                    peer.available = message.first * _MIB
                else:
                    self._commands.put(message)
                    peer.done = message.kind is MessageKind.STOP
        except ValueError:
            self._lost(peer, "sent something that is not a message of akunu's")
        if not goes_on and not peer.done:
            if self._ended:
                peer.done = True
            else:
                self._lost(peer, "has ended")

    def _lost(self, peer: _Peer, what: str) -> NoReturn:
        self._end(f"{peer.name} {what}")

    def _end(self, reason: str) -> NoReturn:
        """Tell the user and all other ranks, and end the process."""
        # First of all: a pass whose connection broke may crash inside MLX at any time.
        text = f"Error: {one_line(reason)}, so all ranks end.\n"
        with contextlib.suppress(OSError):
            os.write(2, text.encode(errors="replace"))
        data = reason.encode()[:_MOST_TEXT]
        lost = RankMessage(MessageKind.LOST, 0, len(data))
        # In threads: an end that does not read must not hold up the others, nor this process.
        tellers = [
            threading.Thread(target=peer.send, args=(lost.bytes() + data,), daemon=True)
            for peer in self._peers
        ]
        for teller in tellers:
            teller.start()
        for teller in tellers:
            teller.join(0.2)
        # Nothing else ends a main thread that waits inside MLX.
        os._exit(1)


def _accept(group: Any) -> Iterator[tuple[int, socket.socket]]:
    """Connect rank 0 with all others: tell them where it listens, by MLX."""
    hosts = _own_addresses()
    local = all(host.startswith("127.") for host in hosts)
    token = secrets.token_bytes(16)
    with socket.create_server(("127.0.0.1" if local else "", 0)) as server:
        place = {"port": server.getsockname()[1], "token": token.hex(), "hosts": hosts}
        _from_rank_0(group, json.dumps(place).encode())
        expected = set(range(1, group.size()))
        end = time.monotonic() + _CONNECT_S
        while expected:
            server.settimeout(max(0.1, end - time.monotonic()))
            try:
                connection, _ = server.accept()
            except TimeoutError:
                ranks = ", ".join(map(str, sorted(expected)))
                raise ConfigError(
                    f"rank {ranks} did not connect to rank 0 on port {place['port']}; check the "
                    "firewall of rank 0's machine"
                ) from None
            connection.settimeout(5.0)
            said = _read_exactly(connection, len(token) + 4)
            rank = int.from_bytes(said[len(token) :], "little")
            # Others on the network may connect as well.
            if not hmac.compare_digest(said[: len(token)], token) or rank not in expected:
                connection.close()
                continue
            expected.remove(rank)
            yield rank, _ready(connection)


def _connect(group: Any) -> Iterator[tuple[int, socket.socket]]:
    """Connect another rank with rank 0."""
    place = json.loads(_from_rank_0(group, b""))
    said = bytes.fromhex(place["token"]) + group.rank().to_bytes(4, "little")
    for host in place["hosts"]:
        with contextlib.suppress(OSError):
            connection = socket.create_connection((host, place["port"]), timeout=5.0)
            connection.sendall(said)
            yield 0, _ready(connection)
            return
    raise ConfigError(
        f"rank {group.rank()} cannot reach rank 0 at {', '.join(place['hosts'])}, port "
        f"{place['port']}; check the network and the firewall of rank 0's machine"
    )


def _ready(connection: socket.socket) -> socket.socket:
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    """Return `size` bytes, or fewer if the other end does not send them."""
    data = b""
    with contextlib.suppress(OSError):
        while len(data) < size and (piece := connection.recv(size - len(data))):
            data += piece
    return data


def _from_rank_0(group: Any, data: bytes) -> bytes:
    """Give bytes of rank 0 to all ranks, by a sum to which the others add zeros."""
    if len(data) > _PLACE_BYTES:
        raise ConfigError("this machine has too many network addresses; name rank 0's by its IP")
    numbers = list(data.ljust(_PLACE_BYTES, b"\0"))
    found = mx.distributed.all_sum(mx.array(numbers, dtype=mx.int32), group=group)
    return bytes(found.tolist()).rstrip(b"\0")  # type: ignore[arg-type]


def _own_addresses() -> list[str]:
    """Return the addresses at which the other ranks may reach rank 0, the likeliest first."""
    found: list[str] = []
    with contextlib.suppress(OSError, ValueError, TypeError, LookupError):
        ring = json.loads(Path(os.environ["MLX_HOSTFILE"]).read_text(encoding="utf-8"))
        found += [str(place).rpartition(":")[0] for place in ring[0]]
    for name in ("MLX_JACCL_COORDINATOR", "MLX_IBV_COORDINATOR"):
        if name in os.environ:
            found.append(os.environ[name].rpartition(":")[0])
    if not all(host.startswith("127.") for host in found) or not found:
        with contextlib.suppress(OSError):
            infos = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
            found += [str(info[4][0]) for info in infos]
    return list(dict.fromkeys(found))[:16]
