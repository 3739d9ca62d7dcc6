"""Bytes that a plain step reads: worked out by hand for small models; and a copy by a fake clock."""

import pytest
from family_models import build_family as build
from mlx.utils import tree_flatten
from tiny_families import FAMILIES

from akunu_py.models.load import load_model
from akunu_py.models.traffic import (
    CacheBytes,
    MemoryTraffic,
    cache_bytes,
    copy_bandwidth,
    memory_traffic,
    weight_bytes,
)


def test_the_roofline_by_hand():
    traffic = MemoryTraffic(1000.0, (CacheBytes(0, 10, None), CacheBytes(50, 20, 5)), 1e6)
    # 1000 weights, 10 a token, and 50 with 20 for each of the last 5 tokens.
    assert traffic.step_bytes(4) == 1000 + 40 + 50 + 80
    assert traffic.step_bytes(100) == 1000 + 1000 + 50 + 100
    assert traffic.tokens_per_s(100) == 1e6 / 2150


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
    halved = sum(part.per_token for part in cache_bytes(loaded.model, kv_bits=8))
    # 8 bits a number and two float32 for each 64.
    assert halved == 5 * 2 * 2 * (64 + 8)


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


def test_both_together(default_model):
    model = load_model(default_model).model
    traffic = memory_traffic(model, repeats=1)
    assert traffic.to_dict()["weight_bytes"] == traffic.weight_bytes == size_of(model)
    assert traffic.tokens_per_s(100) < traffic.tokens_per_s(10)
