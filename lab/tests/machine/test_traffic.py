"""Bytes that a plain step reads: worked out by hand for small models; and a copy by a fake clock."""

import pytest
from family_models import build_family as build
from mlx.utils import tree_flatten
from tiny_families import FAMILIES

from akunu_lab.machine.traffic import (
    CacheBytes,
    cache_bytes,
    copy_bandwidth,
    step_bytes,
    weight_bytes,
)
from akunu_py.models.load import load_model


def test_a_cache_by_hand():
    # 50, and 20 for each of the last 5 tokens.
    assert CacheBytes(50, 20, 5).at(4) == 50 + 80
    assert CacheBytes(50, 20, 5).at(100) == 50 + 100
    assert CacheBytes(0, 10).at(100) == 1000


def test_the_median_copy_counts_what_is_read_and_written():
    copies = []
    # Durations 4, 1 and 2; the copy before them is not timed.
    clock = iter([0.0, 4.0, 4.0, 5.0, 10.0, 12.0])
    speed = copy_bandwidth(3, clock=lambda: next(clock), copy=lambda: copies.append(1))
    assert speed == 2 * (128 << 20) / 2.0
    assert len(copies) == 4


@pytest.mark.slow
def test_a_real_copy_is_slower_than_the_clock_and_faster_than_a_disk():
    assert 1e7 < copy_bandwidth(1) < 1e14


def size_of(model):
    return sum(array.nbytes for _, array in tree_flatten(model.parameters()))


def test_the_default_model(default_model):
    loaded = load_model(default_model)
    # Its embedding gives the logits too, so all weights are read.
    assert weight_bytes(loaded.model) == size_of(loaded.model)
    # 2 heads of 64 numbers, keys and values, float32.
    assert cache_bytes(loaded.model) == (CacheBytes(0.0, 2 * 2 * 64 * 4, None),) * 5
    assert step_bytes(loaded.model, 10) == size_of(loaded.model) + 10 * 5 * 2 * 2 * 64 * 4


def test_an_embedding_that_is_only_looked_up_in_is_not_read(tiny_gguf):
    model = load_model(tiny_gguf).model
    embedding = model.model.embed_tokens.weight.nbytes
    whole = size_of(model)
    assert "lm_head" in model
    assert weight_bytes(model) == whole - embedding


def test_experts_count_as_far_as_a_token_visits_them():
    model = build("qwen3_moe")
    whole = sum(array.nbytes for _, array in tree_flatten(model.parameters()))
    experts = sum(
        array.nbytes for path, array in tree_flatten(model.parameters()) if "switch_mlp" in path
    )
    assert experts > 0
    # 2 of 4 experts.
    assert weight_bytes(model) == whole - experts / 2 - model.model.embed_tokens.weight.nbytes


def test_windows_and_states_of_one_size():
    window = cache_bytes(build("llama, window of 300"))
    assert {part.most_tokens for part in window} == {None, 300}
    (state, *_) = cache_bytes(build("mamba2"))
    assert state.per_token == 0
    assert state.fixed > 0


@pytest.mark.fast_every(3)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_a_roofline(family):
    model = build(family)
    whole = sum(array.nbytes for _, array in tree_flatten(model.parameters()))
    parts = cache_bytes(model)
    assert 0 < weight_bytes(model) <= whole
    assert parts
    assert all(part.fixed + part.per_token > 0 for part in parts)
