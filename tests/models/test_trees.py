"""Which models trees are refused for, by trying them.

Mutants that these tests kill, by hand: only the first leaf compared; no row fed after compaction;
caches not restored after a try; a try remembered by model and not by window; a try again at every
tree; NaN passing the comparison; a lead too short to outgrow the window.
"""

from unittest.mock import Mock

import mlx.core as mx
import pytest
from family_models import build_family, variant_of
from mlx import nn
from mlx_lm.models import gpt2
from mlx_lm.models.cache import ChunkedKVCache
from tiny_models import tiny
from tree_matrix import largest_differences

from akunu_py.models.cache import make_caches
from akunu_py.models.passes import plan, tree_trials, trials
from akunu_py.models.passes import trees as forward
from akunu_py.models.passes.tree_trials import Trees
from akunu_py.models.rollback.caches import RollbackCaches

SIZE = 97


class Tried:
    """A model, caches of some rows, and how often it was called."""

    def __init__(self, model, rows, kv_bits=None, context=600):
        self.model = model
        self.caches = make_caches(model, kv_bits)
        self.rollback = RollbackCaches(self.caches)
        self.feed(rows)
        self.trees = Trees(model, context)

    def feed(self, rows):
        if rows:
            self.model(mx.array([(7 * row) % SIZE for row in range(rows)])[None], cache=self.caches)

    def usable(self, depth=3):
        return self.trees.usable(self.caches, self.rollback, SIZE, depth)


@pytest.mark.parametrize("rows", [0, 1, 40])
@pytest.mark.parametrize(
    "name", ["llama", "deepseek_v3", "ministral3", "gemma3", "qwen3, 4-bit caches"]
)
def test_a_model_that_takes_trees_is_found_to(name, rows):
    tried = Tried(build_family(name), rows, variant_of(name).kv_bits)
    assert tried.usable()
    assert not tried.trees.refusal


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
@pytest.mark.parametrize(
    "broken", ["positions", "mask", "window", "mask of sinks", "mask of codes", "compaction"]
)
def test_whatever_is_broken_is_found(monkeypatch, broken, dtype):
    """The control: each part of the way is needed, and the try sees that it is missing."""
    name = {
        "mask of sinks": "llama, windows with sinks",
        "mask of codes": "llama, 8-bit caches",
    }.get(broken, "gemma3")
    tried = Tried(build_family(name, dtype), 40, variant_of(name).kv_bits)
    whole = forward.tree_mask
    if broken == "positions":
        monkeypatch.setattr(plan.PassRows, "places", range(40, 47))
    elif broken in {"mask", "mask of codes"}:
        monkeypatch.setattr(forward, "tree_mask", lambda rows, before, *_: mx.tri(
            len(rows), before + len(rows), before) > 0)  # fmt: skip
    elif broken == "window":
        monkeypatch.setattr(forward, "tree_mask", lambda rows, before, *_: whole(rows, before))
    elif broken == "mask of sinks":
        monkeypatch.setattr(forward, "tree_mask", lambda rows, before, window, _: whole(
            rows, before, window))  # fmt: skip
    else:

        def drop(rollback, fed, kept):
            rollback.drop(fed - len(kept))

        monkeypatch.setattr(RollbackCaches, "keep", drop)
    assert not tried.usable()
    assert "differ" in tried.trees.refusal


def test_logits_that_are_no_numbers_are_refused(monkeypatch):
    monkeypatch.setattr(trials, "distance", lambda *_: float("nan"))
    assert not Tried(tiny(), 5).usable()


@pytest.mark.parametrize("name", ["llama4", "mamba2", "qwen3_next", "falcon_h1", "minimax_m3"])
def test_models_known_not_to_take_trees_are_not_tried(name, monkeypatch):
    monkeypatch.setattr(Trees, "forward", Mock(side_effect=AssertionError("tried")))
    tried = Tried(build_family(name), 5)
    assert not tried.usable()
    assert tried.trees.refusal


def test_a_model_that_makes_its_mask_itself_is_found(monkeypatch):
    """Llama 4 does: were its caches taken for ones that a mask can be put on, the try would tell."""
    for module in (forward, tree_trials):
        monkeypatch.setattr(module, "MASKED", (*forward.MASKED, ChunkedKVCache))
    tried = Tried(build_family("llama4"), 5)
    assert not tried.usable()
    assert "maybe_trim_front" in tried.trees.refusal


def learned_positions(count):
    return gpt2.Model(
        gpt2.ModelArgs(
            model_type="gpt2", n_ctx=count, n_embd=64, n_head=4, n_layer=2, n_positions=count,
            layer_norm_epsilon=1e-5, vocab_size=SIZE,
        )
    )  # fmt: skip


def test_learned_positions_are_looked_up_for_each_row():
    mx.random.seed(3)
    model = learned_positions(64)
    assert Tried(model, 5).usable()
    from_chains, from_rows, _ = largest_differences(model)
    assert max(from_chains, from_rows) <= trials.TOLERANCE


@pytest.mark.parametrize("rows", range(20, 33))
def test_a_try_looks_up_no_position_that_is_not_there(rows):
    """MLX would read beyond the table."""
    model = learned_positions(32)
    positions = []
    table = model.model.wpe
    model.model["wpe"] = lambda ids: (positions.append(int(ids.max())), table(ids))[1]
    tried = Tried(model, rows, context=32)
    assert tried.usable() == (rows <= 22)
    assert max(positions) < 32
    assert ("no room" in tried.trees.refusal) == (rows > 22)


def test_trees_refused_for_want_of_room_are_tried_with_a_shorter_text():
    tried = Tried(tiny(), 31, context=40)
    assert not tried.usable()
    tried.rollback.drop(1)
    assert tried.usable()
    # A try is for the model, so that its result holds where there is no room for another.
    tried.feed(6)
    assert tried.usable()


def test_a_model_that_fails_on_a_tree_is_refused():
    model = build_family("llama")
    model.model.layers[0].self_attn["rope"] = _Rows(model.model.layers[0].self_attn.rope)
    tried = Tried(model, 5)
    assert not tried.usable()
    assert "ValueError: rows in order alone" in tried.trees.refusal


class _Rows(nn.RoPE):
    def __init__(self, rope):
        super().__init__(rope.dims)

    def __call__(self, x, offset=0):
        if isinstance(offset, mx.array) and offset.ndim:
            raise ValueError("rows in order alone")
        return super().__call__(x, offset)


class Counted:
    """Counts the passes of a model."""

    def __init__(self, monkeypatch):
        self.passes = 0
        whole = Trees.forward

        def counting(trees, *arguments):
            self.passes += 1
            return whole(trees, *arguments)

        monkeypatch.setattr(Trees, "forward", counting)


def test_a_model_is_tried_once_and_once_more_beyond_each_window(monkeypatch):
    counted = Counted(monkeypatch)
    tried = Tried(build_family("llama, sliding"), 5)
    for _ in range(3):
        assert tried.usable()
    assert counted.passes == 1
    # The window is of 16 tokens; a leaf at position 5 + 11 does not see the first.
    assert tried.usable(depth=10)
    assert counted.passes == 1
    assert tried.usable(depth=11)
    assert counted.passes == 2
    tried.feed(30)
    assert tried.usable()
    assert counted.passes == 2


def test_a_window_that_fails_is_found_before_a_row_reaches_it(monkeypatch):
    """The tree of the second try lies beyond the window, however near the text is to it."""
    whole = forward.tree_mask
    monkeypatch.setattr(forward, "tree_mask", lambda rows, before, *_: whole(rows, before))
    for rows in (1, 4, 5, 6):
        tried = Tried(build_family("llama, sliding"), rows)
        assert tried.usable(depth=3)
        assert not tried.usable(depth=16 - rows)
        assert tried.usable(depth=15 - rows)


@pytest.mark.fast_every(3)
@pytest.mark.parametrize("rows", [0, 5, 12, 40])
@pytest.mark.parametrize("name", ["llama", "llama, sliding", "llama, 8-bit caches"])
def test_a_try_leaves_the_caches_as_they_were(name, rows):
    tried, other = (Tried(build_family(name), rows, variant_of(name).kv_bits) for _ in range(2))
    # One row more: a window is a ring then, which is written into in place.
    for one in (tried, other):
        one.model(mx.array([[3]]), cache=one.caches)
    assert tried.usable()
    for token in (5, 6):
        found = tried.model(mx.array([[token]]), cache=tried.caches)
        assert mx.array_equal(found, other.model(mx.array([[token]]), cache=other.caches))


def test_an_interrupted_try_leaves_the_caches_as_they_were(monkeypatch):
    tried = Tried(tiny(), 5)
    with monkeypatch.context() as patch:
        patch.setattr(Trees, "forward", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            tried.usable()
    assert [cache.offset for cache in tried.caches] == [5, 5]
    assert tried.usable()
