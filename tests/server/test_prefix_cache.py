"""Which rows a prompt gets, which are copied, and which are dropped when there are too many."""

import gc
from unittest import mock

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inside import entries
from mlx.utils import tree_flatten
from tiny_families import VOCABULARY
from toy_engine import family

from akunu_py.models.rollback.caches import by_length, leaves
from akunu_py.models.row_pieces import together
from akunu_py.models.session import Session
from akunu_py.sampling.sampler import Sampler
from akunu_py.sampling.transforms import TransformChain
from akunu_py.server import prefix_cache
from akunu_py.server.disk_tier import DiskTier
from akunu_py.server.prefix_cache import PrefixCache
from akunu_py.values.types import GenerationConfig

LEAD = list(range(10, 40))


@pytest.fixture(scope="module")
def lane():
    return Session(family("llama"), context=600)


@pytest.fixture(scope="module")
def sliding():
    return Session(family("llama, sliding"), context=600)


@pytest.fixture(autouse=True)
def fresh(lane, sliding):
    lane.exchange(None)
    sliding.exchange(None)


def read(session, prompt, **checkpoints):
    """Prefill a prompt; its last token has no row."""
    chain = TransformChain.from_config(GenerationConfig(), VOCABULARY)
    for _ in session.beginning(prompt, Sampler(chain, 1, VOCABULARY), 1, checkpoints):
        pass


def keep(cache, session, tokens, last_message=None, **checkpoints):
    read(session, [*tokens, 0], **checkpoints)
    cache.put(session.exchange(None), last_message)


@pytest.mark.parametrize(
    ("prompt", "rows", "reason", "held", "stays"),
    [
        ([*LEAD, 1, 2], 30, "it continues cached text", LEAD, 0),
        # An edited reply.
        ([*LEAD[:26], 1, 2], 26, "cached text differs after 26 tokens", LEAD, 0),
        # The beginning of a long conversation does not cut it.
        (LEAD[:20], 19, "it continues cached text", LEAD[:19], 1),
        ([*LEAD[:9], 1, 2], 0, "nothing that begins like it is cached", [], 1),
    ],
)
def test_which_rows_a_prompt_takes_out(lane, prompt, rows, reason, held, stays):
    cache = PrefixCache(1 << 26)
    keep(cache, lane, LEAD, 25)
    taken = cache.take(prompt, lane, ())
    assert (taken.num_rows, taken.reason, lane.rows.tokens) == (rows, reason, held)
    assert (len(cache), cache.nbytes > 0) == (stays, stays)


def test_a_reply_under_way_lends_a_copy(lane):
    other = Session(family("llama"), context=600)
    read(other, [*LEAD, 0])
    taken = PrefixCache(0).take([*LEAD[:20], 1, 2], lane, [other])
    assert taken.num_rows == 20
    assert taken.reason == "a reply under way begins with the same 20 tokens"
    assert other.rows.tokens == LEAD


def test_a_reproducible_reply_lends_the_blocks_of_its_prompt_when_it_is_over():
    running, other = (Session(family("llama"), context=600, reproducible=True) for _ in range(2))
    cache = PrefixCache(1 << 26)
    read(running, [*LEAD, 0])
    assert cache.take([*LEAD, 1], other, [running]).num_rows == 0
    cache.put(running.exchange(None))
    assert cache.take([*LEAD, 1], other, ()).num_rows == 24


def test_windows_go_back_to_checkpoints(sliding):
    cache = PrefixCache(1 << 26)
    keep(cache, sliding, LEAD, 28, system=18, message=28)
    taken = cache.take([*LEAD[:22], 1, 2], sliding, ())
    assert taken.num_rows == 18
    assert taken.reason.endswith("; this model's caches go back to 18")
    assert cache.take([*LEAD[:28], 1, 2], sliding, ()).num_rows == 28
    assert len(cache) == 0


def test_longer_rows_replace_shorter_ones(lane, sliding):
    cache = PrefixCache(1 << 26)
    keep(cache, lane, LEAD[:20])
    keep(cache, lane, LEAD)
    assert len(cache) == 1
    keep(cache, lane, LEAD[:25])
    assert len(cache) == 1
    # Windows that cannot go back there do not.
    cache = PrefixCache(1 << 26)
    keep(cache, sliding, LEAD[:17])
    keep(cache, sliding, [*LEAD, *LEAD], message=50)
    assert len(cache) == 2


def test_the_least_recently_used_go_first(lane):
    keep(cache := PrefixCache(1 << 26), lane, [0, *LEAD])
    size = cache.nbytes
    assert size > 0
    cache = PrefixCache(2 * size)
    for first in (1, 2):
        keep(cache, lane, [first, *LEAD])
    assert (len(cache), cache.nbytes) == (2, 2 * size)
    cache.take([1, *LEAD[:20], 5], lane, ())  # a copy: used, and still there
    keep(cache, lane, [3, *LEAD])
    found = [cache.take([first, *LEAD, 0], lane, ()).num_rows for first in (1, 2, 3)]
    assert found == [31, 0, 31]


def numbered(number, count):
    return [number, *(token % 50 for token in range(count - 1))]


def test_short_helpers_drive_out_each_other_before_a_long_conversation(lane):
    """Of 120 tokens and 30 the long one is older only after four times as many uses."""
    keep(cache := PrefixCache(1 << 26), lane, numbered(51, 120))
    long = cache.nbytes
    keep(cache, lane, numbered(52, 30))
    cache = PrefixCache(long + 2 * (cache.nbytes - long))
    keep(cache, lane, numbered(51, 120))
    there = []
    for helper in range(52, 62):
        keep(cache, lane, numbered(helper, 30))
        found = [cache.reach([*numbered(number, 30), 0], ()) for number in range(51, helper + 1)]
        there.append(found[0] == 30)
        assert found[-1] == 30
    # With the 8th one 8 / 120 is no less than 2 / 30.
    assert there == [True] * 7 + [False] * 3


def test_what_others_share_costs_nothing_to_drop(monkeypatch, lane):
    """It is not read again."""
    monkeypatch.setattr(prefix_cache, "_LEAST_SHARED", 16)
    cache, alone = PrefixCache(1 << 26), numbered(51, 40)
    keep(cache, lane, alone)
    keep(cache, lane, [*LEAD, *LEAD, 1])
    keep(cache, lane, [*LEAD, *LEAD, 2])
    assert cache.drop_one()
    # The second one, of which a single token is its own.
    assert cache.reach([*alone, 0], ()) == 40
    assert cache.reach([*LEAD, *LEAD, 2, 0], ()) == 61
    assert cache.reach([*LEAD, *LEAD, 1, 0], ()) == 60


def test_rows_that_a_prompt_will_use_are_dropped_last(lane):
    cache = PrefixCache(1 << 26)
    keep(cache, lane, LEAD)
    keep(cache, lane, LEAD[::-1])
    assert cache.touch([*LEAD, 1, 2], ()) == len(LEAD)
    assert cache.touch([1, 2, 3], ()) == 0
    assert cache.drop_one()
    assert cache.reach([*LEAD, 1, 2], ()) == len(LEAD)
    assert cache.reach([*LEAD[::-1], 1, 2], ()) == 0


@pytest.mark.parametrize(
    "name", ["llama", "llama, sliding", "qwen3_next", "llama4_text", "deepseek_v3"]
)
@pytest.mark.parametrize("count", [16, 54, 256, 300])
def test_no_memory_is_kept_beyond_the_rows(name, count):
    """mlx-lm allocates room for 256 rows at a time; replies go on all the same."""
    session, other = (Session(family(name), context=600) for _ in range(2))
    prompt = [4 + place % 90 for place in range(count)]
    cache = PrefixCache(1 << 28)
    keep(cache, session, prompt)
    (entry,) = entries(cache)
    for leaf in leaves(entry.rows.caches):
        keys = getattr(leaf, "keys", None)
        assert keys is None or keys.shape[-2] <= count
    longer = [*prompt, *range(5, 45), 7]
    assert cache.take(longer, session, ()).num_rows == count
    read(session, longer)
    read(other, longer)
    for mine, whole in zip(leaves(session.rows.caches), leaves(other.rows.caches), strict=True):
        if getattr(whole, "keys", None) is not None:
            assert mine.offset == whole.offset == len(longer) - 1
    session.close()
    other.close()


@pytest.mark.parametrize("name", ["llama, sliding", "qwen3_next"])
def test_marks_behind_a_place_are_not_gone_back_to(name):
    """Neither in rows that go back, nor in a copy of the first of them."""
    session = Session(family(name), context=600)
    read(session, [*LEAD, *LEAD, *LEAD, 0], early=20, late=50)
    rows = session.rows
    copied = rows.copy(49)
    assert len(copied.tokens) == 20
    assert max(copied.marks.values()) == 20
    rows.go_back(49)
    assert len(rows.tokens) == 20
    assert max(rows.marks.values()) == 20
    session.close()


def arrays_of(rows):
    """Keys and values that are in use, of caches by length, in NumPy."""
    held = [leaf for leaf in leaves(rows.caches) if by_length(leaf) and leaf.offset]
    return [
        np.array(array[..., : leaf.offset, :].astype(mx.float32))
        for leaf in held
        for _, array in tree_flatten((leaf.keys, leaf.values))
    ]


def bytes_held(cache):
    found = {}
    for entry in entries(cache):
        for piece in entry.pieces:
            found |= {id(array): array.nbytes for _, array in tree_flatten(piece.arrays)}
    return sum(found.values()) + sum(entry.rows.nbytes for entry in entries(cache))


@pytest.mark.parametrize(
    ("name", "kv_bits"),
    [
        ("llama", None),
        ("llama, 8-bit caches", 8),
        ("qwen3_next", None),
        ("llama, sliding", None),
        ("gemma3n", None),
    ],
)
def test_conversations_hold_their_common_beginning_once(name, kv_bits):
    """Five of them, as several agents with one system message; each goes on with its own rows."""
    session = Session(family(name), context=900, kv_bits=kv_bits)
    lead = [4 + place % 90 for place in range(700)]
    tails = [[5 + number, *range(10, 30)] for number in range(5)]
    cache, seen, sizes = PrefixCache(1 << 30), [], []
    for tail in tails:
        prompt = [*lead, *tail, 0]
        cache.take(prompt, session, ())
        read(session, prompt, lead=len(lead), message=len(lead) + 2)
        rows = session.exchange(None)
        seen.append(arrays_of(rows))
        cache.put(rows, len(lead) + 2)
        sizes.append(cache.nbytes)
        assert cache.nbytes == bytes_held(cache)
    rest = sum(entry.rows.nbytes for entry in entries(cache))
    rows_once = sizes[0] - rest // 5
    assert sizes[-1] - rest <= rows_once * (len(lead) + 5 * 21) / (len(lead) + 21) * 1.001
    if any(entry.pieces for entry in entries(cache)):
        # Rows that others hold, too, are copied, and take memory once more.
        assert cache.touch([*lead, *tails[0], 1, 2], ()) == 0
    for tail, expected in zip(tails, seen, strict=True):
        taken = cache.take([*lead, *tail, 1, 2], session, ())
        assert taken.num_rows == len(lead) + len(tail)
        for mine, before in zip(arrays_of(session.rows), expected, strict=True):
            assert np.array_equal(mine, before)
        read(session, [*lead, *tail, 1, 2])  # writes into its own rows alone
        assert cache.nbytes == bytes_held(cache)
    assert cache.nbytes == 0
    session.close()


class Disk:
    """A disk tier that only says what it was given."""

    writing = False

    def __init__(self):
        self.written = []

    def nearest(self, _prompt):
        return iter(())

    def finish(self, *, wait=True):
        return True

    def write(self, rows, _text, _last_message, _session):
        self.written.append(rows.tokens)


def test_rows_that_left_the_cache_are_not_written(lane):
    """Whoever took them writes into them meanwhile."""
    disk = Disk()
    cache = PrefixCache(1 << 26, disk)
    keep(cache, lane, LEAD)
    keep(cache, lane, [*LEAD[:20], 1, 2, 3])
    assert cache.take([*LEAD, 5, 6], lane, ()).num_rows == len(LEAD)
    keep(cache, Session(family("llama"), context=600), [9] * 20)
    assert cache.store(lane)
    cache.drop_one()
    cache.drop_one()
    assert not cache.store(lane)
    assert disk.written == [[*LEAD[:20], 1, 2, 3]]


def test_rows_that_share_less_serve_where_more_of_them_can_be_used():
    session, cache = Session(family("qwen3_next"), context=600), PrefixCache(1 << 26)
    keep(cache, session, [*LEAD, 1, 2, 3], system=20)
    keep(cache, session, [*LEAD[:28], 4, 5, 6], system=28)
    read(session, [*LEAD[:18], 9, 9], early=18)
    assert cache.reach([*LEAD, 7, 8], [session]) == 28
    session.close()


def test_a_text_is_kept_with_rows_of_its_beginning_alone(lane):
    """A reply that failed before it read its prompt leaves the rows of another text."""
    cache = PrefixCache(1 << 26)
    for number, text in enumerate(([*LEAD[:9], 7], [*LEAD, 5, 6])):
        read(lane, [*LEAD, 0])
        cache.put(lane.exchange(None), 9, text)
        (entry,) = entries(cache)
        assert list(entry.text) == (text if number else LEAD)
        cache.close()


def test_short_beginnings_are_not_worth_pieces(lane):
    cache = PrefixCache(1 << 26)
    for token in (5, 6):
        keep(cache, lane, [*LEAD, token, token])
    assert [len(entry.pieces) for entry in entries(cache)] == [1, 1]


def test_a_beginning_that_longer_rows_cannot_go_back_to_is_kept_and_copied():
    """It is one piece, which both hold."""
    session, cache = Session(family("qwen3_next"), context=600), PrefixCache(1 << 30)
    lead = [4 + place % 90 for place in range(300)]
    keep(cache, session, [*lead, 5, 6, 7])
    keep(cache, session, lead)
    assert [len(entry.pieces) for entry in entries(cache)] == [2, 1]
    assert cache.touch([*lead, 8, 9], ()) == 0
    assert cache.take([*lead, 8, 9], session, ()).num_rows == len(lead)
    session.close()


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), max_size=8))
@settings(max_examples=15)
def test_pieces_add_up_to_what_was_read(steps):
    """Conversations that branch anywhere, go on, and are dropped."""
    session = Session(family("llama"), context=900)
    cache, first = PrefixCache(1 << 30), {}
    for branch, length, drops in steps:
        prompt = [7] * 260 + [8 + branch] * 20 * (branch + 1) + [20 + length] * (150 * length + 1)
        cache.take([*prompt, 0], session, ())
        read(session, [*prompt, 0])
        rows = session.exchange(None)
        expected = first.setdefault(tuple(prompt), arrays_of(rows))
        assert all(map(np.allclose, arrays_of(rows), expected))
        cache.put(rows)
        if drops:
            cache.drop_one()
        assert cache.nbytes == bytes_held(cache)
    for entry in entries(cache):
        with together(entry.rows, entry.pieces, len(entry.key)):
            assert all(map(np.allclose, arrays_of(entry.rows), first[entry.key]))
    session.close()


def test_what_a_copy_takes_is_not_there_yet(lane):
    """Only rows that a prompt is handed over need no memory; `_has_room` relies on it."""
    cache = PrefixCache(1 << 26)
    keep(cache, lane, [*LEAD, 1, 2, 3], last_message=32)
    assert cache.touch([*LEAD, 1, 2, 3, 4], ()) == 33
    assert cache.touch([*LEAD, 1, 2, 9], ()) == 32
    assert cache.touch([*LEAD, 8, 9], ()) == 0
    read(lane, [*LEAD, 5])
    assert PrefixCache(0).touch([*LEAD, 5, 6], [lane]) == 0


@pytest.mark.parametrize("name", ["llama", "qwen3_next"])
def test_a_copy_of_rows_in_pieces_takes_no_more_than_their_bytes(name):
    """Not those of the pieces, joined, and of the copy."""
    session = Session(family(name), context=2100)
    lead = [4 + place % 90 for place in range(1000)]
    cache = PrefixCache(1 << 28)
    for tail in (5, 6):
        prompt = [*lead, *[tail] * 1000, 0]
        cache.take(prompt, session, ())
        read(session, prompt, lead=1000, message=1900)
        cache.put(session.exchange(None), 1950)
    assert [len(entry.pieces) for entry in entries(cache)] == [2, 2]
    prompt = [*lead, *[6] * 900, 7]
    gc.collect()
    mx.clear_cache()
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    assert cache.take(prompt, session, ()).num_rows == 1900
    assert len(cache) == 2
    assert mx.get_peak_memory() - before <= session.rows.nbytes * 1.05
    session.close()


@pytest.mark.parametrize(
    "name", ["llama, sliding", "llama, windows with sinks", "mamba2", "gemma3n"]
)
def test_states_and_windows_take_what_they_need_however_long_the_text_is(name):
    """Also those at places to go back to: not the rows of the passes before them."""
    session, taken = Session(family(name), context=600), []
    for count in (60, 560):
        gc.collect()
        mx.clear_cache()
        before = mx.get_active_memory()
        cache = PrefixCache(1 << 28)
        prompt = [4 + place % 90 for place in range(count)]
        keep(cache, session, prompt, count - 5, system=count - 20, message=count - 5)
        (entry,) = entries(cache)
        taken.append(entry.rows.nbytes)
        # MLX takes freed buffers again that are some kB larger.
        assert mx.get_active_memory() - before <= cache.nbytes + 100_000
    assert taken[0] == taken[1]
    session.close()


def test_rows_larger_than_the_cache_are_dropped(lane):
    cache = PrefixCache(100)
    keep(cache, lane, LEAD)
    assert len(cache) == cache.nbytes == 0


def test_rows_of_an_interrupted_pass_are_dropped(lane):
    cache = PrefixCache(1 << 26)
    read(lane, [*LEAD, 0])
    lane.rows.settled = False
    cache.put(lane.exchange(None))
    assert len(cache) == 0


def test_dropped_rows_give_their_memory_back(lane):
    cache = PrefixCache(1 << 26)
    gc.collect()
    before = mx.get_active_memory()
    keep(cache, lane, LEAD * 10)
    assert mx.get_active_memory() - before >= cache.nbytes > 0
    cache.close()
    gc.collect()
    assert mx.get_active_memory() - before < 1000


@pytest.fixture(scope="module")
def short_beginnings():
    """Conversations share short ones, too."""
    with mock.patch.object(prefix_cache, "_LEAST_SHARED", 16):
        yield


OTHER_FAMILIES = ("llama, sliding", "qwen3_next")
CALLS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(1, 60),
        st.integers(0, 60),
        st.booleans(),
        st.sampled_from(["", "", "drop", "store", "restart"]),
    ),
    min_size=2,
    max_size=8,
)


@given(calls=CALLS)
@settings(max_examples=max(5, settings.default.max_examples // 6))
@pytest.mark.parametrize(
    "name", ["llama", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHER_FAMILIES)]
)
@pytest.mark.usefixtures("short_beginnings")
def test_rows_are_what_a_fresh_session_has(name, calls, tmp_path_factory):
    """Whatever was handed over, copied, shared, dropped and read back from disk before.

    The next logits are those of a cold start.
    """
    model, folder = family(name), tmp_path_factory.mktemp("rows")
    sessions = [Session(model, context=600) for _ in range(2)]
    cache = PrefixCache(1 << 26, DiskTier(folder, 1 << 26, "toy"))
    for number, (kind, shared, own, returned, then) in enumerate(calls):
        session, other = sessions[number % 2], sessions[1 - number % 2]
        prompt = [*(LEAD * 2)[:shared], *([40 + kind, 50 + number, 60] * 20)[:own], 0]
        cache.take(prompt, session, [other])
        read(session, prompt, system=min(20, shared), message=len(prompt) - 2)
        assert session.rows.tokens == prompt[:-1]
        expected = Session(model, context=600).logits([*prompt, 7], 0)[-1]
        found = session.copy(session.rows, len(prompt) - 1)
        with mx.stream(session.stream):
            logits = found.feed(mx.array([0, 7]))[0, -1]
            assert mx.allclose(logits, mx.array(expected), atol=1e-4)
        if returned:
            cache.put(session.exchange(None), len(prompt) - 1)
        if then == "drop":
            cache.drop_one()
        while then in {"store", "restart"} and cache.store(session):
            pass
        if then == "restart":
            cache = PrefixCache(1 << 26, DiskTier(folder, 1 << 26, "toy"))
