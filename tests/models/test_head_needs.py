"""What a prediction head needs, told before loading, against what MLX holds of it afterwards."""

import gc
import json
import re

import gguf
import mlx.core as mx
import pytest
from assistants import (
    KEYS,
    gguf_tensors,
    random_assistant,
    tiny_gemma,
    write_assistant,
    write_gemma_folder,
)
from assistants import write_gguf as write_assistant_gguf
from click.testing import CliRunner
from dflash_heads import (
    dflash2_config,
    dflash_config,
    dspark_config,
    random_dflash,
    random_dflash2,
    random_dspark,
    write_dflash,
)
from eagle_heads import eagle_config, eagle_tensors, random_eagle, write_eagle
from family_models import Variant, build_family
from gguf_drafters import gguf_of_blocks, gguf_of_eagle, write_drafter
from markov_heads import write_headed_folder
from mlx import nn
from model_folders import write_family_folder
from prediction_heads import MIMO, TARGETS, named, parameters_of, random_head, tiny_target, write
from tiny_architectures.builder import build

from akunu_py import ConfigError, Engine, UnsupportedArchitectureError
from akunu_py.cli.main import cli
from akunu_py.models import device
from akunu_py.models.heads import families, wanted_head
from akunu_py.models.load import LoadOptions, load_model
from akunu_py.models.memory_check import MemoryNeeds, PlannedModel, check_memory, memory_parts
from akunu_py.models.requirements import requirements

DENSE = LoadOptions(weights="dense")
QUANTIZED = LoadOptions(weights="quantized")
ROWS = 256


def write_gguf(folder, *, quantized=False):
    model = build("qwen35")
    if quantized:
        for name, array in model.tensors.items():
            if array.ndim > 1 and not array.shape[-1] % 32:
                model.types[name] = gguf.GGMLQuantizationType.Q8_0
    folder.mkdir(exist_ok=True)
    return model.write(folder / "model.gguf")


def write_quantized_folder(folder):
    """A folder of MiMo in 8 bits, with a head in 4 bits among the weights."""
    target = tiny_target("mimo")
    head = random_head(target)
    nn.quantize(target, group_size=32, bits=8)
    nn.quantize(head, group_size=32, bits=4)
    write_headed_folder(folder, with_head=False)
    arrays = parameters_of(target) | named(parameters_of(head), MIMO, "model.mtp_layers.0.")
    # Scales and biases in 16 bits, as they are published.
    arrays = {
        name: array if array.dtype == mx.uint32 else array.astype(mx.bfloat16)
        for name, array in arrays.items()
    }
    write(folder / "model.safetensors", arrays)
    sizes = {"group_size": 32, "bits": 8}
    config = {**TARGETS["mimo"][1], "model_type": "mimo", "quantization": sizes}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def write_other_place(folder):
    """A folder without a head, and the folder of one that has a head for it."""
    return write_headed_folder(folder / "alone", with_head=False), write_headed_folder(folder / "b")


def write_side_car(folder, *, own=None):
    """A file whose head guesses 32 tokens, with rows of its own in `own` bits or the target's.

    With such a size MLX takes no larger buffer that is free.
    """
    folder.mkdir(exist_ok=True)
    target = tiny_target("mimo")
    arrays = named(parameters_of(random_head(target)), MIMO, "model.mtp_layers.0.")
    arrays["model.mtp_layers.0.d2t"] = mx.arange(32, dtype=mx.int64)
    if own:
        rows = nn.QuantizedLinear(64, 32, bias=False, group_size=32, bits=own)
        arrays |= {
            f"model.mtp_layers.0.lm_head.{name}": array
            for name, array in parameters_of(rows).items()
        }
    return write(folder / "side-car.safetensors", arrays)


def write_beside_eagle(folder, bits=None):
    """A llama's folder, and that of an EAGLE-3 head for it, that guesses 128 tokens."""
    write_family_folder(folder, "llama", bits=bits)
    target = build_family(Variant("llama", changes=(("vocab_size", 257),)))
    head = random_eagle(target, vocabulary=128)
    (folder.parent / "eagle").mkdir()
    return folder, write_eagle(folder.parent / "eagle", eagle_tensors(head), eagle_config(head))


def write_beside_dflash(folder, make=random_dflash, config=dflash_config, **options):
    """A llama's folder, and that of a head for it that guesses blocks."""
    write_family_folder(folder, "llama")
    head = make(build_family(Variant("llama", changes=(("vocab_size", 257),))), **options)
    (folder.parent / "dflash").mkdir()
    return folder, write_dflash(folder.parent / "dflash", head, config, vocab_size=257)


def write_beside_gguf(folder, made, kind=gguf.GGMLQuantizationType.Q8_0, bits=None):
    """A llama's folder, and the file of a head for it."""
    write_family_folder(folder, "llama", bits=bits)
    target = build_family(Variant("llama", changes=(("vocab_size", 257),)))
    return folder, write_drafter(folder.parent / "head.gguf", *made(target), kind=kind)


CASES = {
    "DFlash": lambda folder: (*write_beside_dflash(folder), DENSE),
    "DFlash 2": lambda folder: (
        *write_beside_dflash(folder, random_dflash2, dflash2_config), DENSE,
    ),
    "DSpark": lambda folder: (
        *write_beside_dflash(folder, random_dspark, dspark_config, vocabulary=128), DENSE,
    ),
    "EAGLE-3 in GGUF": lambda folder: (
        *write_beside_gguf(folder, lambda target: gguf_of_eagle(random_eagle(target, vocabulary=128))),
        DENSE,
    ),
    "DSpark in Q8_0": lambda folder: (
        *write_beside_gguf(folder, lambda target: gguf_of_blocks(
            random_dspark(target, markov="vanilla", vocabulary=128, rank=32)
        )),
        QUANTIZED,
    ),
    "EAGLE-3 in GGUF, beside a quantized model": lambda folder: (
        *write_beside_gguf(folder, lambda target: gguf_of_eagle(random_eagle(target, vocabulary=128)),
            kind=None, bits=8),
        QUANTIZED,
    ),
    "EAGLE-3": lambda folder: (*write_beside_eagle(folder), DENSE),
    "EAGLE-3 beside a quantized model": lambda folder: (*write_beside_eagle(folder, 8), QUANTIZED),
    "EAGLE-3 beside an expanded model": lambda folder: (*write_beside_eagle(folder, 8), DENSE),
    "among the weights": lambda folder: (write_headed_folder(folder), "own", DENSE),
    "in another folder": lambda folder: (*write_other_place(folder), DENSE),
    "quantized weights": lambda folder: (write_quantized_folder(folder), "own", QUANTIZED),
    "quantized weights, expanded": lambda folder: (write_quantized_folder(folder), "own", DENSE),
    "of some tokens": lambda folder: (
        write_quantized_folder(folder),
        write_side_car(folder),
        QUANTIZED,
    ),
    "of some tokens, expanded": lambda folder: (
        write_quantized_folder(folder),
        write_side_car(folder),
        DENSE,
    ),
    "of some tokens, with rows for them": lambda folder: (
        write_quantized_folder(folder),
        write_side_car(folder, own=8),
        QUANTIZED,
    ),
    "GGUF": lambda folder: (write_gguf(folder), "own", DENSE),
    "GGUF in Q8_0": lambda folder: (write_gguf(folder, quantized=True), "own", QUANTIZED),
    "GGUF in Q8_0, expanded": lambda folder: (write_gguf(folder, quantized=True), "own", DENSE),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _exact():
    """No array takes a freed buffer, which may be larger than it needs."""
    limit = mx.set_cache_limit(0)
    yield
    mx.set_cache_limit(limit)


def active():
    gc.collect()
    mx.clear_cache()
    return mx.get_active_memory()


@pytest.mark.fast_every(2)
@pytest.mark.parametrize("case", CASES)
def test_weights_and_cache_of_a_head_are_told_before_it_is_read(tmp_path, case):
    path, heads, options = CASES[case](tmp_path / "model")
    plain = PlannedModel(path, options)
    headed = PlannedModel(path, options, heads=heads)
    # A head's cache is never quantized.
    added = {
        bits: requirements(path, heads=heads).cache_bytes(ROWS, kv_bits=bits)
        - requirements(path).cache_bytes(ROWS, kv_bits=bits)
        for bits in (None, 8)
    }
    assert added[None] == added[8]
    before = active()
    loaded = load_model(path, options)
    without = active()
    # Some of a GGUF model's matrices are expanded whatever their type.
    assert case == "GGUF in Q8_0" or without - before == plain.requirements().weights_bytes
    head = wanted_head(loaded, heads)
    with_head = active()
    assert with_head - without == headed.requirements().head.weights_bytes
    caches = head.make_cache()
    kind = loaded.model.layers[0].input_layernorm.weight.dtype
    head(mx.zeros((1, ROWS, head.width), kind), mx.zeros((1, ROWS), mx.int32), caches)
    mx.eval([cache.state for cache in caches])
    rows = active() - with_head
    needs, alone = (MemoryNeeds([model]) for model in (headed, plain))
    assert needs.rows(ROWS) - alone.rows(ROWS) == rows > 0
    assert needs.loading() - alone.loading() == with_head - without + needs.rows(
        needs.context
    ) - alone.rows(needs.context)


@pytest.mark.parametrize("case", ["a folder", "clusters of tokens", "a GGUF file"])
def test_an_assistant_adds_its_weights_alone(tmp_path, case):
    path = tmp_path / "model"
    target = write_gemma_folder(path)
    assistant = random_assistant(target, clusters=case == "clusters of tokens")
    if case == "a GGUF file":
        sizes = {"attention.key_length_swa": 32, "attention.value_length_swa": 32}
        place = write_assistant_gguf(tmp_path / "a.gguf", gguf_tensors(assistant), KEYS | sizes)
    else:
        place = write_assistant(tmp_path, assistant)
    del target, assistant
    needs = requirements(path, DENSE, heads=place)
    loaded = load_model(path, DENSE)
    without = active()
    head = wanted_head(loaded, place)
    assert needs.head.weights_bytes == sum(array.nbytes for array in parameters_of(head).values())
    assert 0 <= active() - without - needs.head.weights_bytes < 16_384
    assert needs.cache_bytes(ROWS) == requirements(path, DENSE).cache_bytes(ROWS)


def test_an_assistant_of_another_family_is_refused_before_weights_are_read(tmp_path):
    path = write_headed_folder(tmp_path / "model")
    place = write_assistant(tmp_path, random_assistant(tiny_gemma()))
    with pytest.raises(UnsupportedArchitectureError, match="is an assistant for Gemma 4, and the"):
        requirements(path, heads=place)


def test_the_check_names_the_head_and_counts_it(tmp_path, monkeypatch):
    # What earlier tests hold would be a part, in some orders of the tests.
    monkeypatch.setattr(mx, "get_active_memory", lambda: 0)
    path = write_headed_folder(tmp_path / "model")
    headed = [PlannedModel(path, LoadOptions(), heads="own")]
    parts = {part.what: part.num_bytes for part in memory_parts(headed, context=64)}
    assert parts["its prediction head"] == requirements(path, heads="own").head.weights_bytes
    plain = {
        part.what: part.num_bytes
        for part in memory_parts([PlannedModel(path, LoadOptions())], context=64)
    }
    assert "its prediction head" not in plain
    limit = sum(plain.values())
    monkeypatch.setattr(device, "memory_limit", lambda: limit)
    check_memory([PlannedModel(path, LoadOptions())], context=64)
    with pytest.raises(ConfigError, match=re.escape("MB for its prediction head")):
        check_memory(headed, context=64)
    # A command checks the models that `planned_models` returns.
    command = ["generate", "--raw", "-p", "a", "--context", "64", str(path)]
    assert CliRunner().invoke(cli, command).exit_code == 0
    found = CliRunner().invoke(cli, [*command, "--heads", "own"])
    assert "MB for its prediction head" in found.output


def test_a_model_is_shown_with_what_its_head_needs(tmp_path, monkeypatch):
    path = write_headed_folder(tmp_path / "model")
    found = CliRunner().invoke(cli, ["models", "show", "--json", "--context", "256", str(path)])
    head = requirements(path, heads="own").head
    assert json.loads(found.output)["heads"] == {
        "weights_bytes": head.weights_bytes,
        "kv_bytes": {"256": head.cache_bytes(256)},
    }
    show = ["models", "show", str(path)]
    assert "adds 157.4 kB of weights" in CliRunner().invoke(cli, show).output
    monkeypatch.setattr(families, "family_of", lambda _: None)
    assert "yes, but akunu cannot run the prediction head" in CliRunner().invoke(cli, show).output


def test_an_engine_with_a_head_is_loaded_where_none_is_found_yet(tmp_path):
    """What is wrong with the place of a head is said by loading, in the user's words."""
    alone, _ = write_other_place(tmp_path)
    assert requirements(alone, heads="own").head is None
    assert requirements(alone, heads=tmp_path / "nowhere").head is None
    with pytest.raises(ConfigError, match="comes without a prediction head"):
        Engine.load(alone, heads="own")


def test_a_head_of_another_family_is_refused_before_weights_are_read(tmp_path, tiny_gguf):
    path = write_gguf(tmp_path)
    with pytest.raises(UnsupportedArchitectureError, match="which this model does not take"):
        requirements(tiny_gguf, heads=path)
