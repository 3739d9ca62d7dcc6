"""Passes over the rows of several sessions: each session gets what a pass of its own gives."""

import mlx.core as mx
import pytest
from family_models import NAMES, build_family, variant_of
from mlx.utils import tree_flatten

from akunu_py.cpu.blas import load_blas
from akunu_py.models.cached_rows import CachedRows
from akunu_py.models.joined import JoinedForward
from akunu_py.models.rollback import leaves
from akunu_py.models.session import Session
from akunu_py.models.tree.trees import TOLERANCE, distance

REFUSED = {
    # They compute with the position of the first row, or select rows by it, in the model itself.
    "mistral3", "ministral3", "iquestloopcoder", "llama4", "deepseek_v41",
}  # fmt: skip

ROUNDS = ((5, 1, 9), (1, 1, 1), (3, 1, 2), (1, 4, 1), (6, 2, 3), (1, 1, 1))
"""Rows of three sessions, pass by pass; the windows of the families end in between."""


def rows_of(model, name):
    return CachedRows(model, variant_of(name).kv_bits)


def session_of(model, name):
    return Session(model, context=64, kv_bits=variant_of(name).kv_bits)


def paths_of(model):
    return [path for path, _ in tree_flatten(model.parameters())]


def size_of(model, name):
    return int(rows_of(model, name).feed(mx.array([1])).shape[-1])


def tokens(count, place, number, size):
    return mx.array([(1 + 31 * number + 7 * place + 3 * row) % size for row in range(count)])


def same(found, expected):
    if load_blas().name == "MLX's own":
        return bool(mx.array_equal(found, expected))
    return distance(found, expected) < TOLERANCE


@pytest.mark.fast_every(4)
@pytest.mark.parametrize("name", NAMES)
def test_each_session_gets_what_it_gets_alone(name):
    model = build_family(name)
    size = size_of(model, name)
    joined = JoinedForward(model)
    refusal = joined.refusal(session_of(model, name))
    assert bool(refusal) == (name in REFUSED), refusal
    parameters = paths_of(model)
    if refusal:
        # The model is as it was.
        alone = rows_of(model, name).feed(tokens(3, 0, 0, size))
        assert bool(mx.all(mx.isfinite(alone)))
        return
    together, alone = ([rows_of(model, name) for _ in range(3)] for _ in range(2))
    for number, counts in enumerate(ROUNDS):
        fed = [tokens(count, place, number, size) for place, count in enumerate(counts)]
        # The second session joins late, and the first leaves for a pass.
        here = [0, 2] if number == 0 else [1, 2] if number == 3 else [0, 1, 2]
        found = joined([fed[place] for place in here], [together[place].caches for place in here])
        for place, logits in zip(here, found, strict=True):
            expected = alone[place].feed(fed[place])
            assert same(logits, expected), (number, place)
            if number in {2, 4} and counts[place] > 1 and together[place].rollback.can_drop(1):
                together[place].undo(1)
                alone[place].undo(1)
    assert paths_of(model) == parameters


@pytest.mark.parametrize("name", ["qwen3", "gemma3", "qwen3_next", "deepseek_v3"])
def test_one_sessions_cache_is_its_own_affair(name):
    """Not-a-numbers in one session's cache reach no other session; tokens may be not known yet."""
    model = build_family(name)
    size = size_of(model, name)
    joined = JoinedForward(model)
    assert not joined.refusal(session_of(model, name))
    broken, sound, alone = (rows_of(model, name) for _ in range(3))
    joined([tokens(4, 0, 0, size), tokens(6, 1, 0, size)], [broken.caches, sound.caches])
    alone.feed(tokens(6, 1, 0, size))
    for leaf in leaves(broken.caches):
        for key, value in vars(leaf).items():
            if isinstance(value, mx.array) and mx.issubdtype(value.dtype, mx.floating):
                setattr(leaf, key, value * mx.nan)
            elif isinstance(value, list):
                value[:] = [None if one is None else one * mx.nan for one in value]
    # A token as a pass before makes it, which the host has not read.
    later = tokens(1, 1, 1, size) + mx.array(0)
    lost, found = joined([tokens(2, 0, 1, size), later], [broken.caches, sound.caches])
    assert bool(mx.all(mx.isnan(lost)))
    assert same(found, alone.feed(tokens(1, 1, 1, size)))


def test_logits_that_differ_are_refused(monkeypatch):
    model = build_family("llama")
    monkeypatch.setattr("akunu_py.models.joined.distance", lambda *_: float("nan"))
    said = JoinedForward(model).refusal(session_of(model, "llama"))
    assert said == "logits of joined passes differ by nan of the largest"
