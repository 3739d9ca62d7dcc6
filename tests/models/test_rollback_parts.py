"""Each way to roll back, on its own: what the rows that come next can see.

Mutants, made by hand, that these tests kill (each was tried):

- of a window: dropped where a row of it is missing; rows cut off in the order of the ring; the number
  of rows fed, or the place of the next one, left as it was; arrays shared with what was saved;
  mlx-lm's own trim; sinks hidden; a window that begins at the sinks; one cut short when packed;
- of rows by length and chunks: more dropped than there are; the length, or the front, not put back;
  a chunk whose front is gone; a copy or an alias that writes into its source;
- of states: a list or dict shared with what was saved; rows said to be dropped;
- of a model's caches: subclasses taken for their base; an unknown kind ignored; lists not opened; some
  parts dropped before another refuses; states not fed again where only some caches need it.
"""

import ast
from importlib import import_module
from pathlib import Path

import mlx.core as mx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mlx_lm.models import cache as mlx_cache
from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    ChunkedKVCache,
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
)
from mlx_lm.models.deepseek_v41 import LayerCache

from akunu_py.models.rollback.caches import RollbackCaches, alias, with_exact_sinks
from akunu_py.models.rollback.parts import SinkCache, sink_mask
from akunu_py.system.errors import RollbackError


class Text:
    """Rows fed to a cache: each is a number of its own, so that a stale one is seen."""

    def __init__(self, cache):
        self.cache = cache = with_exact_sinks(cache)
        self.rollback = RollbackCaches([cache])
        self.rows = []
        self.count = 0

    def feed(self, size):
        """Feed rows; return for each what it sees."""
        new = [self.count + index for index in range(size)]
        self.count += size
        values = mx.array(new, dtype=mx.float32).reshape(1, 1, size, 1)
        mask = self.cache.make_mask(size) if isinstance(self.cache, RotatingKVCache) else None
        keys, same = self.cache.update_and_fetch(values, values)
        assert mx.array_equal(keys, same)
        self.rows += new
        columns = [int(value) for value in keys.flatten().tolist()]
        if isinstance(mask, mx.array):
            seen = mask.tolist()
        else:
            before = len(columns) - size
            seen = [
                [column <= before + row for column in range(len(columns))] for row in range(size)
            ]
        return [
            sorted(c for c, visible in zip(columns, line, strict=True) if visible) for line in seen
        ]

    def drop(self, count):
        self.rollback.drop(count)
        del self.rows[len(self.rows) - count :]


def in_window(rows, position, window, sinks):
    """What the row at a position sees when each row is fed alone."""
    first = max(0, position + 1 - (window - sinks))
    return sorted({*rows[: min(sinks, position + 1)], *rows[first : position + 1]})


passes = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 8)), min_size=1, max_size=25)


@given(window=st.integers(2, 9), sinks=st.integers(0, 3), passes=passes)
def test_each_row_sees_its_window(window, sinks, passes):
    """Whatever was fed and dropped before it, in passes of any size."""
    sinks = min(sinks, window - 2)
    text = Text(RotatingKVCache(window, keep=sinks))
    for size, dropped in passes:
        seen = text.feed(size)
        start = len(text.rows) - size
        for row, found in enumerate(seen):
            assert found == in_window(text.rows, start + row, window, sinks)
        text.drop(min(dropped, size - 1))


@example(window=4, sinks=0, before=[(1, 0)] * 6, later=[(1, 0)] * 3)
@example(window=6, sinks=2, before=[(1, 0)] * 9, later=[(1, 0)] * 3)
@given(window=st.integers(2, 9), sinks=st.integers(0, 3), before=passes, later=passes)
def test_a_window_comes_back_as_it_was(window, sinks, before, later):
    """Also after single rows, which are written into the arrays that were saved."""
    sinks = min(sinks, window - 2)
    text = Text(RotatingKVCache(window, keep=sinks))
    for size, dropped in before:
        text.feed(size)
        text.drop(min(dropped, size - 1))
    saved, rows = text.rollback.save(), list(text.rows)
    for _ in range(2):
        for size, dropped in later:
            text.feed(size)
            text.drop(min(dropped, size - 1))
        text.rollback.restore(saved)
        text.rows = list(rows)
    (found,) = text.feed(1)
    assert found == in_window(text.rows, len(rows), window, sinks)


@example(window=5, size=1, singles=2)
@example(window=5, size=2, singles=1)
@given(window=st.integers(3, 9), size=st.integers(1, 20), singles=st.integers(0, 12))
def test_a_window_knows_what_it_has_lost(window, size, singles):
    """It drops as many rows as it can and says so before; the next row then sees all it should."""
    for count in range(size + singles + 2):
        text = Text(RotatingKVCache(window))
        text.feed(size)
        for _ in range(singles):
            text.feed(1)
        if not text.rollback.can_drop(count):
            with pytest.raises(RollbackError, match=f"cannot drop {count} rows"):
                text.drop(count)
            # Nothing is lost as long as all rows are there; one is never left without.
            assert len(text.rows) > window or count >= len(text.rows)
            continue
        text.drop(count)
        (found,) = text.feed(1)
        assert found == in_window(text.rows, len(text.rows) - 1, window, 0)


def test_mlx_lms_own_trim_leaves_rows_in_place():
    """Why rows are cut off: the next single row sees one that was dropped."""
    text = Text(RotatingKVCache(4))
    text.feed(3)
    text.feed(4)
    text.cache.trim(3)
    del text.rows[-3:]
    (found,) = text.feed(1)
    assert found != in_window(text.rows, len(text.rows) - 1, 4, 0)


def test_the_mask_of_sinks():
    # Two sinks, two rows after them, then three of the pass; the window holds five.
    assert sink_mask(3, 4, 5, 2).astype(mx.int32).tolist() == [
        [1, 1, 1, 1, 1, 0, 0],
        [1, 1, 0, 1, 1, 1, 0],
        [1, 1, 0, 0, 1, 1, 1],
    ]


@given(chunk=st.integers(1, 6), passes=passes)
def test_each_row_finds_its_chunk(chunk, passes):
    text = Text(ChunkedKVCache(chunk))
    saved = None
    for index, (size, dropped) in enumerate(passes):
        text.cache.maybe_trim_front()
        text.feed(size)
        start = text.cache.start_position
        assert text.cache.keys_and_values()[0].flatten().tolist() == text.rows[start:]
        for position in range(len(text.rows) - size, len(text.rows)):
            assert position // chunk * chunk >= start
        count = dropped % size
        assert text.rollback.can_drop(count)
        text.drop(count)
        if index == len(passes) // 2:
            saved = text.rollback.save(), list(text.rows)
    text.rollback.restore(saved[0])
    text.rows = saved[1]
    text.cache.maybe_trim_front()
    text.feed(1)
    start = text.cache.start_position
    assert text.cache.keys_and_values()[0].flatten().tolist() == text.rows[start:]
    assert (len(text.rows) - 1) // chunk * chunk >= start


def test_a_chunk_that_has_lost_its_front_says_so():
    text = Text(ChunkedKVCache(4))
    text.feed(6)
    text.cache.maybe_trim_front()
    text.feed(1)
    assert text.cache.start_position == 2
    # Down to length 5 the chunk of rows 4 to 7 goes on; below that row 0 would be needed.
    assert [text.rollback.can_drop(count) for count in range(8)] == [True] * 4 + [False] * 4
    with pytest.raises(RollbackError):
        text.drop(4)


@pytest.mark.parametrize("kind", [KVCache, lambda: QuantizedKVCache(group_size=32)])
def test_rows_in_order_go_back_by_length(kind):
    cache = kind()
    rollback = RollbackCaches([cache])
    rows = mx.random.normal((1, 1, 5, 32))
    cache.update_and_fetch(rows, rows)
    saved = rollback.save()
    cache.update_and_fetch(rows, rows)
    rollback.drop(3)
    assert cache.offset == 7
    rollback.restore(saved)
    assert cache.offset == 5
    assert rollback.by_length
    assert rollback.can_drop(5)
    assert not rollback.can_drop(6)


def test_a_state_comes_back_and_can_come_back_again():
    cache = ArraysCache(2)
    rollback = RollbackCaches([cache])
    cache[0], cache[1] = mx.array([1.0]), mx.array([2.0])
    saved = rollback.save()
    for _ in range(2):
        cache[0] = mx.array([3.0])
        rollback.restore(saved)
        assert cache[0].item() == 1.0
    assert not rollback.drops_rows
    assert rollback.can_drop(0)
    assert not rollback.can_drop(1)


OF_ROWS = (KVCache, lambda: ChunkedKVCache(8), lambda: RotatingKVCache(8))


@pytest.mark.parametrize("kind", OF_ROWS)
@pytest.mark.parametrize("copied", [True, False], ids=["copy", "alias"])
@pytest.mark.parametrize("size", [1, 3])
def test_a_copy_and_its_source_write_apart(kind, copied, size):
    source = Text(kind())
    for _ in range(3):
        source.feed(size)
    if copied:
        other = Text(kind())
        other.rollback.copy(source.rollback, source.rollback.save())
    else:
        other = Text(alias(source.cache))
    other.rows, other.count = list(source.rows), 100
    for text in (source, other, source, other):
        (found,) = text.feed(1)
        assert found == text.rows[-len(found) :]
        assert len(found) >= min(len(text.rows), 8)


@pytest.mark.parametrize("singles", range(9))
def test_a_window_is_whole_after_it_was_packed(singles):
    text = Text(RotatingKVCache(4))
    text.feed(2)
    for _ in range(singles):
        text.feed(1)
    text.rollback.pack()
    for _ in range(3):
        (found,) = text.feed(1)
        assert found == in_window(text.rows, len(text.rows) - 1, 4, 0)


def test_parts_of_lists_are_found():
    caches = [CacheList(ArraysCache(1), CacheList(KVCache(), RotatingKVCache(8))), KVCache()]
    rollback = RollbackCaches(caches)
    assert rollback.supported
    assert not rollback.drops_rows
    assert not rollback.by_length
    assert rollback.methods == ["by length", "cut off", "replayed"]


def test_sinks_are_found_in_lists():
    found = with_exact_sinks(CacheList(KVCache(), RotatingKVCache(8, keep=2), RotatingKVCache(8)))
    assert [type(part) for part in found.caches] == [KVCache, SinkCache, RotatingKVCache]
    assert (found.caches[1].max_size, found.caches[1].keep) == (8, 2)
    assert RollbackCaches([found]).supported


class Compressed(KVCache):
    """A cache that keeps its rows in a way of its own, under the name of a known one."""


@pytest.mark.parametrize("unknown", [Compressed(), CacheList(KVCache(), Compressed()), object()])
def test_unknown_kinds_cannot_roll_back(unknown):
    rollback = RollbackCaches([KVCache(), unknown])
    assert not rollback.supported
    assert rollback.methods == []
    rollback.drop(0)
    with pytest.raises(RollbackError, match="report this model"):
        rollback.drop(1)
    with pytest.raises(RollbackError):
        rollback.save()


def test_caches_drop_together_or_not_at_all():
    whole, wrapped = KVCache(), RotatingKVCache(4)
    rollback = RollbackCaches([whole, wrapped])
    row = mx.zeros((1, 1, 1, 8))
    for _ in range(9):
        whole.update_and_fetch(row, row)
        wrapped.update_and_fetch(row, row)
    with pytest.raises(RollbackError):
        rollback.drop(2)
    assert whole.offset == wrapped.offset == 9


def test_every_kind_that_mlx_lms_models_make_is_known():
    """Read from their `make_cache`; a kind that a later mlx-lm adds is named here."""
    made = set()
    for path in Path(mlx_cache.__file__).parent.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        functions = ast.walk(ast.parse(text)) if "make_cache" in text else ()
        for function in functions:
            if getattr(function, "name", "") == "make_cache":
                called = [part for part in ast.walk(function) if isinstance(part, ast.Call)]
                names = {getattr(call.func, "id", "") for call in called}
                made |= {(path.stem, name) for name in names if "Cache" in name}
    kinds = {
        getattr(mlx_cache, name, None) or getattr(import_module(f"mlx_lm.models.{module}"), name)
        for module, name in made
    }
    assert {kind.__name__ for kind in kinds} >= {
        "KVCache", "RotatingKVCache", "ChunkedKVCache", "ArraysCache", "CacheList", "LayerCache",
    }  # fmt: skip
    made_empty = [kind.__new__(kind) for kind in kinds - {CacheList}]
    unknown = [
        type(cache).__name__ for cache in made_empty if not RollbackCaches([cache]).supported
    ]
    assert unknown == []


def test_a_cache_of_a_model_comes_back_with_all_it_holds():
    cache = LayerCache(4)
    rollback = RollbackCaches([cache])
    cache.update_window(mx.arange(3).reshape(1, 3, 1))
    cache.compress_kv = mx.array([1.0])
    saved = rollback.save()
    for _ in range(2):
        cache.update_window(mx.zeros((1, 3, 1), dtype=mx.int32))
        cache.compress_kv, cache.pending_kv = mx.array([2.0]), mx.array([3.0])
        rollback.restore(saved)
        assert cache.offset == 3
        assert cache.window.flatten().tolist() == [0, 1, 2]
        assert (cache.compress_kv.item(), cache.pending_kv) == (1.0, None)
    assert not rollback.drops_rows
    assert not rollback.can_drop(1)
