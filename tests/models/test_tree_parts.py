"""Masks, positions and compaction of trees, each on its own.

Mutants that these tests kill, by hand: ancestors without the row itself; depth as the row's number;
a window that counts rows instead of positions; `<=` for `<` in a window; sinks left out of a mask;
the mask left on the cache after an exception; rope not put back; rows gathered without `before`;
`_idx` or `offset` of a compacted window left as it was; quantized values gathered without scales.
"""

import mlx.core as mx
import numpy as np
import pytest
from family_models import build_family, variant_of
from mlx.utils import tree_flatten
from mlx_lm.models.cache import ArraysCache, KVCache, QuantizedKVCache, RotatingKVCache
from mlx_lm.models.rope_utils import initialize_rope
from pairwise import each_value
from tiny_models import tiny

from akunu_py.models.cache import make_caches
from akunu_py.models.passes.tree_trials import Trees
from akunu_py.models.passes.trees import DraftRows, TreeMasks, TreeRows, tree_mask
from akunu_py.models.rollback.caches import RollbackCaches
from akunu_py.models.rollback.parts import SinkCache
from akunu_py.system.errors import ContractError, RollbackError
from akunu_py.values.types import Draft

TREE = TreeRows((-1, 0, 0, 1, 1, 2, 3))
CHAIN = TreeRows((-1, 0, 1, 2, 3))
CACHES = [
    (KVCache, None), (KVCache, 4), (lambda: QuantizedKVCache(32, 8), None),
    (lambda: RotatingKVCache(8), None), (lambda: RotatingKVCache(8), 8),
    (lambda: RotatingKVCache(8), 5), (lambda: SinkCache(8, keep=3), None),
]  # fmt: skip


def fed(make, count, width=32):
    """A cache that was fed `count` rows, whose first key number is the row's number."""
    cache = make()
    for start in range(0, count, 3):
        numbers = mx.arange(start, min(start + 3, count), dtype=mx.float32)
        rows = mx.broadcast_to(numbers[None, None, :, None], (1, 2, len(numbers), width))
        cache.update_and_fetch(rows, -rows)
    return cache


def test_rows_know_their_depths_and_ancestors():
    assert TREE.depths.tolist() == [0, 1, 1, 2, 2, 2, 3]
    assert [TREE.path(row) for row in TREE.leaves()] == [(0, 1, 4), (0, 2, 5), (0, 1, 3, 6)]
    assert TreeRows((-1, -1)).depths.tolist() == [0, 0]
    for parents in ((), (0,), (-1, 1), (-2,)):
        with pytest.raises(ContractError):
            TreeRows(parents)


def test_nodes_become_rows_and_choices_come_back_to_nodes():
    whole = DraftRows(Draft((9, 5, 5, 6, 7), (-1, 0, -1, 2, 2)), range(5), last=3)
    assert whole.tokens == (3, 9, 5, 5, 6, 7)
    assert whole.tree.parents == (-1, 0, 1, 0, 3, 3)
    assert whole.by_node((30, 31, 32, 33, 34, 35), -1) == [31, 32, 33, 34, 35]
    assert whole.rows_of(()) == [0]
    assert whole.rows_of((2, 4)) == [0, 3, 5]
    assert whole.paths() == [(3,), (3, 9), (3, 9, 5), (3, 5), (3, 5, 6), (3, 5, 7)]
    assert DraftRows(Draft.chain((5, 6)), range(2), last=3).tree is None


def test_the_first_token_leaves_one_branch():
    # The token stands below another one, too.
    draft = Draft((9, 5, 5, 6, 7), (-1, 0, -1, 2, 2))
    left = DraftRows.below(draft, 5)
    assert left.tokens == (5, 6, 7)
    assert left.tree.parents == (-1, 0, 0)
    assert left.by_node((40, 41, 42), -1) == [-1, -1, 40, 41, 42]
    assert left.rows_of((2, 4)) == [0, 2]
    assert DraftRows.below(draft, 6) is None


@pytest.mark.parametrize("before", [0, 2, 7, 8, 30])
@pytest.mark.parametrize(("make", "window"), CACHES)
def test_the_mask_of_a_chain_is_mlx_lms(make, window, before):
    cache = fed(make, before)
    expected = cache.make_mask(len(CHAIN), window_size=window, return_array=True)
    assert TreeMasks(CHAIN).of(cache, len(CHAIN), window).tolist() == expected.tolist()


@pytest.mark.parametrize("before", [0, 2, 7, 8, 30])
@pytest.mark.parametrize(("make", "window"), CACHES)
def test_a_row_sees_what_it_sees_at_the_end_of_its_path(make, window, before):
    cache = fed(make, before)
    mask = np.array(TreeMasks(TREE).of(cache, len(TREE), window))
    held = mask.shape[1] - len(TREE)
    for row in range(len(TREE)):
        path = TREE.path(row)
        # With one row more than the path, since a single row gets no mask.
        chain = np.array(cache.make_mask(len(path) + 1, window_size=window, return_array=True))
        expected = np.zeros(mask.shape[1], bool)
        expected[[*range(held), *(held + index for index in path)]] = chain[-2, :-1]
        assert mask[row].tolist() == expected.tolist(), row


def test_layers_share_a_mask():
    masks = TreeMasks(TREE)
    first, second = fed(KVCache, 5), fed(KVCache, 5)
    assert masks.of(first, 7) is masks.of(second, 7)
    assert masks.of(first, 7, 3) is not masks.of(second, 7)
    assert masks.windows == {3}


def test_masks_refuse_what_they_do_not_know():
    with pytest.raises(ContractError, match="ArraysCache"):
        TreeMasks(TREE).of(ArraysCache(2), 7)
    with pytest.raises(ContractError, match="a pass has 3 rows, its tree 7"):
        TreeMasks(TREE).of(KVCache(), 3)
    assert tree_mask(TREE, 3).shape == (7, 10)


@pytest.mark.parametrize(
    "scaling",
    [
        None,
        {"rope_type": "linear", "factor": 2.0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
        {
            "rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": 32,
            "short_factor": [1.0] * 8, "long_factor": [2.0] * 8,
        },
    ],
)  # fmt: skip
def test_each_row_is_turned_by_its_own_position(scaling):
    rope = initialize_rope(16, 10000.0, False, scaling, 128)
    x = mx.random.normal((1, 3, len(TREE), 16), key=mx.random.key(1))
    places = 11 + mx.array(TREE.depths)
    # As a batch of texts of one row each.
    found = rope(x.swapaxes(0, 2), offset=places).swapaxes(0, 2)
    for row, place in enumerate(places.tolist()):
        alone = rope(x[:, :, row : row + 1], offset=place)
        assert mx.array_equal(found[:, :, row : row + 1], alone)


class Same:
    """Equal for the same object alone, which is held: its id goes to no other meanwhile."""

    __hash__ = None

    def __init__(self, held):
        self.held = held

    def __eq__(self, other):
        return self.held is other.held


def state_of(model, caches):
    """Modules, in order, with the objects in them; and the caches' own attributes."""
    modules = [
        (path, key, Same(value))
        for path, module in model.named_modules()
        for key, value in module.items()
        if not isinstance(value, dict | list)
    ]
    parameters = [path for path, _ in tree_flatten(model.parameters())]
    return modules, parameters, [sorted(vars(cache)) for cache in caches]


def test_model_and_caches_are_as_before_a_pass_also_after_an_error():
    model = tiny()
    caches = make_caches(model)
    before = state_of(model, caches)
    forward = Trees(model, 600).forward
    forward(range(7), TREE, caches)
    assert state_of(model, caches) == before

    def failing(*_, **__):
        raise ValueError("inside")

    model.model.layers[1]["mlp"] = failing
    before = state_of(model, caches)
    with pytest.raises(ValueError, match="inside"):
        forward(range(7), TREE, caches)
    assert state_of(model, caches) == before


def test_a_rope_within_a_rope_turns_once():
    model = tiny()
    inner = model.model.layers[0].self_attn.rope

    class OuterRope(type(inner)):
        def __call__(self, x, offset=0):
            return self.inner(x, offset=offset)

    outer = OuterRope(16)
    outer["inner"] = inner
    expected = Trees(model, 600).forward(range(7), TREE, make_caches(model))
    model.model.layers[0].self_attn["rope"] = outer
    found = Trees(model, 600).forward(range(7), TREE, make_caches(model))
    assert mx.array_equal(found, expected)


KINDS = ["llama", "qwen3, 4-bit caches", "deepseek_v32", "llama, sliding", "mistral3",
         "llama, windows with sinks", "gemma4"]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("name", "before"), each_value(KINDS, [1, 40, 12], most=4))
def test_compacted_caches_go_on_as_those_of_a_chain(name, before):
    """Rows after compaction are those after a fresh chain: fed alone, as a chain, and as a tree."""
    model = build_family(name)
    forward = Trees(model, 600).forward
    tokens = [3, 14, 15, 92, 65, 35, 89]
    lead = [(7 * number) % 97 for number in range(before)]
    for path in ((0,), (0, 1, 3), (0, 2, 5), (0, 1, 3, 6)):
        compacted, fresh = (make_caches(model, variant_of(name).kv_bits) for _ in range(2))
        for caches in (compacted, fresh):
            model(mx.array(lead)[None], cache=caches)
        forward(tokens, TREE, compacted)
        RollbackCaches(compacted).keep(len(TREE), path)
        model(mx.array([tokens[row] for row in path])[None], cache=fresh)
        for following in ([5], [6, 7, 8], [9], [10], [11]):
            found = model(mx.array(following)[None], cache=compacted)
            expected = model(mx.array(following)[None], cache=fresh)
            assert mx.abs(found - expected).max() < 1e-4, (path, following)
        found = forward(tokens, TREE, compacted)
        assert mx.abs(found - forward(tokens, TREE, fresh)).max() < 1e-4
        assert [cache.offset for cache in leaves_of(compacted)] == [
            cache.offset for cache in leaves_of(fresh)
        ]


def leaves_of(caches):
    return [leaf for cache in caches for leaf in getattr(cache, "caches", [cache])]


@pytest.mark.parametrize("make", [make for make, _ in CACHES])
def test_only_rows_of_the_last_pass_can_be_kept(make):
    cache = fed(make, 12)  # the last pass had three rows
    for fed_rows, kept in ((3, ()), (3, (1, 0)), (3, (0, 0)), (3, (3,)), (3, (-1,)), (13, (0,))):
        before = cache.offset
        with pytest.raises(RollbackError):
            RollbackCaches([cache]).keep(fed_rows, kept)
        assert cache.offset == before
    RollbackCaches([cache]).keep(3, (0, 2))
    keys, values = cache.keys_and_values()
    if isinstance(cache, QuantizedKVCache):
        keys = mx.dequantize(*keys, group_size=32, bits=8)
        values = mx.dequantize(*values, group_size=32, bits=8)
    assert keys[0, 1, -2:, 5].tolist() == [9.0, 11.0]
    assert values[0, 1, -2:, 5].tolist() == [-9.0, -11.0]


def test_caches_that_cannot_be_compacted_leave_all_as_they_are():
    kept, ring = fed(KVCache, 12), fed(lambda: RotatingKVCache(8), 12)
    row = mx.zeros((1, 2, 1, 32))
    for cache in (kept, ring):
        cache.update_and_fetch(row, row)
    for other in (ring, ArraysCache(2)):
        with pytest.raises(RollbackError, match=type(other).__name__):
            RollbackCaches([kept, other]).keep(3, (0, 2))
        assert kept.offset == 13
