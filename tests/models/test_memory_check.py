"""The check before loading: what it counts, and how near it comes to what is used."""

import pickle
import re

import mlx.core as mx
import pytest
from gguf_files import write_tiny_llama
from random_block_models import write_model
from tiny_architectures.builder import BUILDERS, build

from akunu_py import ConfigError, Engine, MemoryLimitError
from akunu_py.models import device
from akunu_py.models import memory_check as module
from akunu_py.models.load import LoadOptions, convert_model
from akunu_py.models.memory_check import (
    PROGRAM_BYTES,
    MemoryPart,
    PlannedModel,
    check_memory,
    memory_parts,
)
from akunu_py.models.passes.plan import PassRows
from akunu_py.models.requirements import requirements

OPTIONS = LoadOptions()


def limit(monkeypatch, num_bytes, held=0):
    monkeypatch.setattr(device, "memory_limit", lambda: num_bytes)
    monkeypatch.setattr(mx, "get_active_memory", lambda: held)


def test_the_boundary(tiny_gguf, monkeypatch):
    models = [PlannedModel(tiny_gguf, OPTIONS)]
    needed = requirements(tiny_gguf).total_bytes(256) + PROGRAM_BYTES
    limit(monkeypatch, needed)
    check_memory(models)
    check_memory(models, context=256)
    check_memory(models, context=1_000_000)
    limit(monkeypatch, needed - 1)
    for context in (None, 256, 1_000_000):
        with pytest.raises(ConfigError, match="--force"):
            check_memory(models, context=context)
    limit(monkeypatch, needed, held=11_000_000)
    with pytest.raises(ConfigError, match=r"11\.0 MB for what is loaded already"):
        check_memory(models)
    limit(monkeypatch, needed)
    with pytest.raises(ConfigError, match=r"2\.0 MB for a guest"):
        check_memory(models, others=[MemoryPart("a guest", 2_000_000)])


def test_every_part_is_stated_and_they_are_the_sum(tiny_gguf, tmp_path, monkeypatch):
    draft = write_tiny_llama(tmp_path / "draft.gguf", context=64)
    limit(monkeypatch, 1)
    models = [PlannedModel(tiny_gguf, OPTIONS), PlannedModel(draft, OPTIONS)]
    with pytest.raises(ConfigError) as caught:
        check_memory(models, context=128)
    parts = memory_parts(models, context=128)
    listed = re.search(r"\((.*)\) and this machine", str(caught.value))[1].split(", ")
    assert [text.split(" for ")[1] for text in listed] == [
        "the weights of tiny.gguf", "its cache of 128 tokens", "the weights of draft.gguf",
        "its cache of 64 tokens", "the largest pass", "the program",
    ]  # fmt: skip
    assert [part.what for part in parts] == [text.split(" for ")[1] for text in listed]
    assert parts[0].num_bytes == requirements(tiny_gguf).weights_bytes
    assert parts[3].num_bytes == requirements(draft).cache_bytes(64)


@pytest.mark.parametrize("held", [0, 50_000_000])
def test_the_error_says_whether_it_is_for_what_is_loaded_also_in_another_process(
    tiny_gguf, monkeypatch, held
):
    limit(monkeypatch, requirements(tiny_gguf).total_bytes(256) + PROGRAM_BYTES - (not held), held)
    with pytest.raises(MemoryLimitError) as caught:
        check_memory([PlannedModel(tiny_gguf, OPTIONS)])
    assert caught.value.fits_alone == bool(held)
    sent = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own
    assert (str(sent), sent.fits_alone) == (str(caught.value), bool(held))


def test_small_models_are_not_looked_into(tiny_gguf, monkeypatch):
    monkeypatch.setattr(module, "memory_parts", None)
    check_memory([PlannedModel(tiny_gguf, OPTIONS)])


@pytest.mark.parametrize("name", sorted(BUILDERS))
@pytest.mark.slow
def test_sizes_of_a_pass_are_found_in_every_family(tmp_path, name):
    shape = requirements(build(name).write(tmp_path / "m.gguf")).shape
    assert shape.vocabulary > 256
    assert shape.width > 0
    assert shape.hidden > 0
    # The plain Mamba has none; all others have four or more, or two with a window.
    assert shape.heads >= (1 if name.startswith("mamba-") or name == "mamba" else 2)


def test_more_of_anything_needs_more(tmp_path):
    def working(tokens=1024, **sizes):
        path = write_tiny_llama(tmp_path / "m.gguf", context=4096, **sizes)
        return requirements(path).working_bytes(tokens)

    base = working()
    assert working(tokens=2048) > base
    assert working(heads=8, kv_heads=2) > base
    assert working(feed_forward=960) > base
    assert working(width=128) > base
    assert working(layers=4) == base


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"kv_bits": 8}])
def test_the_estimate_holds_and_is_not_far_off(tmp_path, options):
    """On the CPU backend: the peak of a prompt of 2,048 tokens against what was foreseen."""
    sizes = {"width": 256, "heads": 4, "kv_heads": 2, "feed_forward": 768, "layers": 3}
    path = write_tiny_llama(tmp_path / "m.gguf", context=2048, **sizes)
    needs = requirements(path)
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    with Engine.load(path, **options) as engine:
        engine.generate([5] * 2040, max_tokens=4)
        peak = mx.get_peak_memory() - before
    foreseen = needs.total_bytes(2048, kv_bits=options.get("kv_bits"))
    assert 0.6 * foreseen < peak < 1.05 * foreseen


def test_the_estimate_holds_for_passes_that_replies_share(tmp_path):
    """Within two fifths; that of one reply is less than a third of what such a pass takes."""
    path = write_tiny_llama(
        tmp_path / "m.gguf", width=256, heads=4, kv_heads=2, feed_forward=768, layers=3, context=256
    )
    needs = requirements(path)
    with Engine.load(path) as engine:
        forward = engine.joined_passes()
        caches = [engine.lane().session.rows.caches for _ in range(8)]
        parts = [PassRows(mx.full(65, 5), own) for own in caches]
        # The caches then have room for further rows.
        mx.eval(forward(parts))
        mx.clear_cache()
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        parts = [PassRows(mx.full(65, 5), own) for own in caches]
        mx.eval([mx.softmax(one.astype(mx.float32), axis=-1) for one in forward(parts)])
        peak = mx.get_peak_memory() - before
    foreseen = needs.working_bytes(130, replies=8)
    assert 0.6 * foreseen < peak < 1.4 * foreseen
    assert foreseen > 3 * needs.working_bytes(130)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Q4_K", "Q6_K", "IQ2_XXS"])
def test_the_estimate_holds_for_widened_inputs(tmp_path, kind):
    """Planes of weights are multiplied with as many multiples of a layer's input."""
    path = write_model(tmp_path / "m.gguf", kind)
    options = LoadOptions(weights="quantized")
    convert_model(path, tmp_path / "folder", LoadOptions(compute_type="float32"))
    foreseen = requirements(path, options).working_bytes(128)
    assert requirements(tmp_path / "folder", options).working_bytes(128) == foreseen
    with Engine.load(path, weights="quantized") as engine:
        mx.clear_cache()
        mx.reset_peak_memory()
        before = mx.get_active_memory()
        # Arrays live longer where Python lays a pass out faster than it is computed.
        for token in range(4):
            engine.generate([5 + token] * 120, max_tokens=2)
        peak = mx.get_peak_memory() - before
    cache = requirements(path, options).cache_bytes(128)
    # Fewer live where it is computed as fast: 0.42 of what is foreseen was seen.
    assert 0.35 * (foreseen + cache) < peak < 1.05 * (foreseen + cache)
