"""Rank 0's connections to the other ranks, both ends in this process."""

import json
import os
import queue
import select
import socket
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akunu_py.models.ranks import comparison as agreement
from akunu_py.models.ranks import link
from akunu_py.models.ranks.comparison import RanksDifferError, agree, files_digest
from akunu_py.models.ranks.link import Link, MessageKind, RankMessage
from akunu_py.system.errors import ConfigError

# A thread that would end its process ends itself here.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


class Group:
    def __init__(self, rank, size):
        self._rank, self._size = rank, size

    def rank(self):
        return self._rank

    def size(self):
        return self._size


@pytest.fixture
def ends(monkeypatch):
    """What the processes wrote at their ends, by the thread."""
    said = queue.Queue()

    def leave(code):
        raise SystemExit(code)

    class System:
        write = staticmethod(lambda _file, text: said.put(text.decode()))
        _exit = staticmethod(leave)
        environ = os.environ

    monkeypatch.setattr(link, "os", System)
    return said


@pytest.fixture
def connect(monkeypatch, ends):
    """Make the links of all ranks but the absent ones; no process may end (`ends`)."""
    made = []

    class Known(Link):
        def __init__(self, group):
            made.append(self)
            super().__init__(group)

    monkeypatch.setattr(sys.modules[__name__], "Link", Known)

    def start(size, absent=()):
        place = queue.Queue()

        def from_rank_0(group, data):
            if group.rank() == 0:
                for _ in range(size):
                    place.put(data)
                return data
            return place.get()

        monkeypatch.setattr(link, "_from_rank_0", from_rank_0)
        monkeypatch.setattr(link, "_own_addresses", lambda: ["127.0.0.1"])
        found = {}

        def make(rank):
            found[rank] = Link(Group(rank, size))

        threads = [
            threading.Thread(target=make, args=(rank,), daemon=True)
            for rank in range(size)
            if rank not in absent
        ]
        for thread in threads:
            thread.start()
        if not absent:
            for thread in threads:
                thread.join()
        return found, place

    yield start
    # Nothing may watch when `ends` is undone: it would end the process of the tests.
    for one in made:
        one.stop()
    for one in made:
        watcher_of(one).join()


def watcher_of(link):
    """The thread that reads what a rank is sent."""
    return link._watching


def peers_of(link):
    return link._peers


def cut(link):
    """Break the first connection of a rank."""
    peers_of(link)[0]._connection.shutdown(socket.SHUT_RDWR)


def both(*calls):
    """Run calls at once; return what each returned or raised."""
    results = [None] * len(calls)

    def run(index, call):
        try:
            results[index] = call()
        except ConfigError as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_texts_are_exchanged_with_rank_0(connect):
    links, _ = connect(3)
    found = both(*[lambda rank=rank: links[rank].exchange(f"from {rank}") for rank in range(3)])
    assert found == [{1: "from 1", 2: "from 2"}, {0: "from 0"}, {0: "from 0"}]
    links[0].stop()


def test_commands_arrive_in_order(connect):
    links, _ = connect(2)
    given = [(MessageKind.NEW, 1), (MessageKind.FEED, 1, 5), (MessageKind.DROP, 1, 2)]
    sent = [RankMessage(*one) for one in given]
    links[0].send(sent[:2])
    links[0].send(sent[2:])
    links[0].stop()
    assert [links[1].next_command() for _ in range(4)] == [*sent, RankMessage(MessageKind.STOP)]
    assert (links[0].num_messages, links[0].num_bytes) == (3, 64)


def test_strangers_are_turned_away(connect):
    found, place = connect(2, absent=(1,))
    told = json.loads(place.get())
    with socket.create_connection(("127.0.0.1", told["port"])) as stranger:
        stranger.sendall(b"x" * 20)
        # The end of the connection.
        assert stranger.recv(1) == b""
    links = {}
    thread = threading.Thread(target=lambda: links.update({1: Link(Group(1, 2))}))
    thread.start()
    thread.join()
    while 0 not in found:
        time.sleep(0.01)
    found[0].stop()
    assert links[1].next_command() == RankMessage(MessageKind.STOP)


def test_a_rank_that_ends_ends_all_and_is_named(connect, ends):
    links, _ = connect(3)
    cut(links[2])
    said = {ends.get() for _ in range(3)}
    host = socket.gethostname()
    # Rank 0 tells rank 1; rank 2 itself sees the end of its connection to rank 0.
    assert f"Error: rank 2 ({host}) has ended, so all ranks end.\n" in said
    assert said <= {
        f"Error: rank {rank} ({host}) has ended, so all ranks end.\n" for rank in (0, 2)
    }
    for one in links.values():
        watcher_of(one).join()


def test_the_user_is_told_before_the_others(connect, ends):
    """MLX may crash in the main thread at any time once a connection has broken."""
    links, _ = connect(2)
    peers_of(links[0])[0].send = lambda _data: ends.put("the others are told")
    cut(links[1])
    for one in links.values():
        watcher_of(one).join()
    said = [ends.get() for _ in range(3)]
    host = socket.gethostname()
    lost = f"Error: rank 1 ({host}) has ended, so all ranks end.\n"
    assert said.index(lost) < said.index("the others are told")


def test_a_silent_rank_is_lost(connect, ends):
    """However often the others give signs of life."""
    links, _ = connect(3)
    # Its process stands still: its thread neither reads nor writes.
    silent, heard = peers_of(links[0])
    peers_of(links[silent.rank])[0].beat = lambda _available: None
    while ends.empty():
        silent.heard = heard.heard - 2 * link.SILENCE_S
        time.sleep(0.01)
    assert f"rank {silent.rank} " in ends.get()
    for one in links.values():
        watcher_of(one).join()


def test_a_rank_that_was_held_up_itself_loses_nobody(connect, ends, monkeypatch):
    """Its thread gets no processor for a minute after it looked in vain."""
    monkeypatch.setattr(link, "_BEAT_S", 0.02)
    links, _ = connect(2)
    held, looks = 0.0, 0

    def clock():
        return time.monotonic() + held * (threading.current_thread() is watcher_of(links[0]))

    def look(peers, *others):
        nonlocal held, looks
        if threading.current_thread() is not watcher_of(links[0]):
            return select.select(peers, *others)
        looks += 1
        if looks == 1:
            # Meanwhile signs of life arrive.
            select.select(peers, [], [])
            held = 60.0
            return [], [], []
        return select.select(peers, *others)

    monkeypatch.setattr(link, "time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr(link, "select", SimpleNamespace(select=look))
    while looks < 5 and ends.empty():
        time.sleep(0.01)
    assert ends.empty()
    links[0].stop()


def test_the_rank_with_the_least_memory_counts(connect, monkeypatch):
    """The others' memory is what they said with their last sign of life."""
    watching = "akunu-ranks"
    monkeypatch.setattr(
        link,
        "available_memory",
        lambda: 3 * 2**20 if threading.current_thread().name == watching else 10 * 2**20,
    )
    links, _ = connect(2)
    while links[0].available_memory() == 10 * 2**20:
        time.sleep(0.01)
    assert links[0].available_memory() == 3 * 2**20


def test_an_end_after_stop_is_none_to_report(connect, ends):
    links, _ = connect(2)
    links[0].stop()
    assert links[1].next_command() == RankMessage(MessageKind.STOP)
    peers_of(links[1])[0].close()
    watcher_of(links[0]).join()
    assert ends.empty()


def test_what_is_not_a_message_ends_the_rank(connect, ends):
    links, _ = connect(2)
    peers_of(links[0])[0].send(b"\xff" * 16)
    assert "not a message of akunu's" in ends.get()
    watcher_of(links[1]).join()


MESSAGES = st.lists(
    st.builds(
        RankMessage,
        st.sampled_from(
            [kind for kind in MessageKind if kind not in (MessageKind.TEXT, MessageKind.LOST)]
        ),
        st.integers(0, 2**31 - 1),
        st.integers(-(2**31), 2**31 - 1),
        st.integers(0, 9),
    ),
    max_size=3,
)


def read_pieces(pieces):
    """What another rank takes the pieces of a stream for."""
    left = list(pieces)
    peer = link._Peer(1, SimpleNamespace(recv=lambda _most: left.pop(0)))
    while left:
        assert peer.receive()
        yield from peer.messages()


@given(MESSAGES, st.text(max_size=20), st.integers(1, 40))
def test_messages_survive_any_pieces(messages, text, size):
    data = text.encode()
    stream = b"".join(message.bytes() for message in messages)
    stream += RankMessage(MessageKind.TEXT, 0, len(data)).bytes() + data
    pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
    assert list(read_pieces(pieces)) == [
        *((message, "") for message in messages),
        (RankMessage(MessageKind.TEXT, 0, len(data)), text),
    ]


@given(st.binary(min_size=16, max_size=64))
def test_any_bytes_are_messages_or_refused(data):
    try:
        found = list(read_pieces([data]))
    except ValueError:
        return
    assert all(isinstance(message.kind, MessageKind) for message, _ in found)


def test_ranks_that_agree_go_on(connect):
    links, _ = connect(2)
    facts = {"version of mlx": "1", "model": "abc"}
    assert both(*[lambda one=one: agree(one, facts) for one in links.values()]) == [None, None]
    links[0].stop()


def test_the_difference_is_named_on_every_rank(connect):
    links, _ = connect(2)
    errors = both(
        lambda: agree(links[0], {"version of mlx": "1", "option kv_bits": "None"}),
        lambda: agree(links[1], {"version of mlx": "1", "option kv_bits": "8"}),
    )
    host = socket.gethostname()
    for error in errors:
        assert isinstance(error, RanksDifferError)
        assert f"the option kv_bits is 8 on rank 1 ({host}) and None on rank 0" in str(error)


def test_a_digest_tells_files_apart(tmp_path):
    one, two = tmp_path / "one.bin", tmp_path / "two.bin"
    for path in (one, two):
        path.write_bytes(b"GGUF" + b"\0" * 100)
    assert files_digest(one) == files_digest(two)
    two.write_bytes(b"GGUF" + b"\0" * 101)
    assert files_digest(one) != files_digest(two)
    for name in ("a", "b"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text("{}")
    assert files_digest(tmp_path / "a") == files_digest(tmp_path / "b")
    (tmp_path / "b" / "config.json").write_text("[]")
    assert files_digest(tmp_path / "a") != files_digest(tmp_path / "b")


def test_only_the_beginning_of_a_file_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(agreement, "_BEGINNING", 10)
    one, two = tmp_path / "one.bin", tmp_path / "two.bin"
    one.write_bytes(b"a" * 20)
    two.write_bytes(b"a" * 10 + b"b" * 10)
    assert files_digest(one) == files_digest(two)
