"""LoRA adapters: the numbers of merged weights, of mlx-lm and of llama.cpp, and files that are none."""

import ctypes
import json
from pathlib import Path

import gguf
import mlx.core as mx
import numpy as np
import pytest
from engine_inside import session_of
from gguf_files import ALPHA, RANK, drawn, write_adapter, write_tiny_llama
from identity import assert_same_tokens
from mlx import nn
from mlx.utils import tree_flatten
from mlx_lm.tuner.utils import linear_to_lora_layers, load_adapters
from mlx_lm.utils import load_model as mlx_load_model
from model_folders import change_json, write_family_folder, write_folder
from tiny_architectures.builder import build
from whole_numbers import LEEWAY

from akunu_py import AkunuError, ConfigError, Engine, GenerationConfig, ModelFormatError
from akunu_py.models.load import LoadOptions, load_model
from akunu_py.models.load_steps import finish as finished
from akunu_py.models.rank_split import PlannedGroup
from akunu_py.models.requirements import requirements

IDS = list(range(20, 44))


def matrices(tiny):
    """The tensors of a model that an adapter changes here: all products, but not a tied embedding's."""
    tied = "output.weight" not in tiny.tensors
    left_out = ("conv", "norm", "ffn_gate_inp.", *(["token_embd"] if tied else []))
    return [
        name
        for name, values in tiny.tensors.items()
        if values.ndim > 1 and name.endswith(".weight") and not any(x in name for x in left_out)
    ]


def factors_of(tiny):
    return {
        name: drawn(values.shape[::-1] if "token_embd" in name else values.shape)
        for name, values in ((name, tiny.tensors[name]) for name in matrices(tiny))
    }


def logits(path, weights="dense", **options):
    with Engine.load(path, weights=weights, compute_type="float32", **options) as engine:
        return engine.logits(IDS)


def difference(found, expected):
    return np.abs(found - expected).max() / expected.std()


@pytest.mark.parametrize(
    "name",
    [
        "llama", "phi3", "phi3-split", "qwen3moe",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("falcon-h1", "gemma3", "gpt-oss", "lfm2", "llama-3", "nemotron_h", "qwen3next")
        ),
    ],
)  # fmt: skip
def test_a_gguf_adapter_computes_what_merged_weights_do(tmp_path, name):
    """Of every matrix: dense weights take it in, and it stands beside those in Q8_0."""
    for weights, way in (("dense", "merged into"), ("quantized", "beside")):
        tiny, merged = build(name), build(name)
        factors = factors_of(tiny)
        for tensor, values in tiny.tensors.items():
            if weights == "quantized" and tensor in factors and values.shape[-1] % 32 == 0:
                tiny.quantize(tensor, "Q8_0")
                kind = tiny.types[tensor]
                merged.tensors[tensor] = gguf.dequantize(gguf.quantize(values, kind), kind)
            if tensor in factors:
                added = np.matmul(*factors[tensor]) * (ALPHA / RANK)
                added = added.T if "token_embd" in tensor else added
                merged.tensors[tensor] = merged.tensors[tensor].reshape(values.shape) + added
        base = tiny.write(tmp_path / f"{weights}.gguf")
        adapter = write_adapter(tmp_path / "adapter.gguf", tiny.architecture, factors)
        expected = logits(merged.write(tmp_path / "merged.gguf"))
        assert difference(logits(base, weights, adapter=adapter), expected) < 1e-3 * LEEWAY
        assert difference(logits(base, weights), expected) > 0.5
        text = load_model(base, LoadOptions(weights=weights, adapter=adapter)).description.adapter
        assert f"(LoRA of rank {RANK}), {way} " in text


@pytest.mark.parametrize("name", ["llama", "qwen3moe"])
def test_a_gguf_adapter_computes_what_llama_cpp_does(tmp_path, monkeypatch, name):
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "scripts")
    from references import llama_cpp

    try:
        library = llama_cpp.library()
    except RuntimeError as error:
        pytest.skip(str(error))
    pointer, number = ctypes.c_void_p, ctypes.c_float
    library.llama_adapter_lora_init.restype = pointer
    library.llama_adapter_lora_init.argtypes = [pointer, ctypes.c_char_p]
    tiny = build(name)
    path = tiny.write(tmp_path / "model.gguf")
    adapter = write_adapter(tmp_path / "adapter.gguf", tiny.architecture, factors_of(tiny))
    model = llama_cpp.Model(path)
    loaded = library.llama_adapter_lora_init(model._model, str(adapter).encode())
    for scale in (1.0, 0.5):
        with model.context() as context:
            adapters = ((pointer * 1)(loaded), ctypes.c_size_t(1), (number * 1)(scale))
            library.llama_set_adapters_lora(pointer(context._context), *adapters)
            expected = context.feed(IDS)
        assert difference(logits(path, adapter=f"{adapter}:{scale}"), expected) < 5e-3
    model.close()


def test_a_tied_embedding_changes_what_is_looked_up_alone(tmp_path):
    tiny, merged = build("llama-3"), build("llama-3")
    name = "token_embd.weight"
    factors = {name: drawn(tiny.tensors[name].shape[::-1])}
    merged.tensor("output.weight", tiny.tensors[name])
    merged.tensors[name] = tiny.tensors[name] + (np.matmul(*factors[name]) * (ALPHA / RANK)).T
    path, adapter = tiny.write(tmp_path / "a.gguf"), tmp_path / "adapter.gguf"
    write_adapter(adapter, "llama", factors)
    expected = logits(merged.write(tmp_path / "b.gguf"))
    assert difference(logits(path, adapter=adapter), expected) < 1e-3 * LEEWAY


def write_mlx(folder, model, kind="lora", keys=None, scale=3.0):
    """An adapter as mlx-lm saves it, with random factors."""
    numbers = {"rank": RANK, "scale": scale, "dropout": 0.1}
    if keys:
        numbers["keys"] = keys
    linear_to_lora_layers(model, 2, numbers, use_dora=kind == "dora")
    rng = np.random.default_rng(3)
    stored = {
        path: mx.array(rng.normal(0.5 if path.endswith(".m") else 0, 0.2, array.shape).astype("f4"))
        for path, array in tree_flatten(model.parameters())
        if path.rpartition(".")[2] in ("lora_a", "lora_b", "m")
    }
    folder.mkdir()
    mx.save_safetensors(str(folder / "adapters.safetensors"), stored)
    config = {"fine_tune_type": kind, "num_layers": 2, "lora_parameters": numbers}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def quantize_folder(folder):
    model, _ = mlx_load_model(folder)
    nn.quantize(model, group_size=32, bits=8, class_predicate=lambda _, part: (
        hasattr(part, "to_quantized") and part.weight.shape[-1] % 32 == 0
    ))  # fmt: skip
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(model.parameters())))
    change_json(folder / "config.json", quantization={"group_size": 32, "bits": 8})


@pytest.mark.parametrize(
    ("family", "kind", "quantized", "keys"),
    [
        ("llama", "lora", False, None),
        ("llama", "lora", True, None),
        ("llama", "lora", True, ["model.embed_tokens", "self_attn.q_proj"]),
        ("llama", "dora", False, None),
        ("qwen2", "dora", True, None),
        ("mixtral", "lora", True, None),
        ("mixtral", "lora", False, None),
    ],
)
def test_an_mlx_adapter_computes_what_mlx_lm_does(tmp_path, family, kind, quantized, keys):
    folder = write_family_folder(tmp_path / "model", family)
    if quantized:
        quantize_folder(folder)
    adapter = write_mlx(tmp_path / "adapter", mlx_load_model(folder)[0], kind, keys)
    theirs = load_adapters(mlx_load_model(folder)[0], str(adapter))
    theirs.eval()
    theirs.set_dtype(mx.float32)
    expected = np.array(theirs(mx.array([IDS]))[0])
    weights = "quantized" if quantized else "dense"
    with Engine.load(folder, weights=weights, adapter=adapter) as engine:
        assert difference(engine.logits(IDS), expected) < 1e-3 * LEEWAY
    with Engine.load(folder, weights=weights) as engine:
        assert difference(engine.logits(IDS), expected) > 0.1


def write_peft(folder, tensors, **entries):
    folder.mkdir()
    mx.save_safetensors(
        str(folder / "adapter_model.safetensors"),
        {f"base_model.model.{name}": mx.array(values) for name, values in tensors.items()},
    )
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "bias": "none", **entries}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def peft_factors(shapes, magnitudes=()):
    """Tensors of an adapter of layers of these shapes, [out, in], with its names."""
    found = {}
    for path, shape in shapes.items():
        rank = 2 if path.endswith("down_proj") else RANK
        up, down = drawn(shape, rank)
        if path.endswith("embed_tokens"):
            # The matrix [tokens, width] is seen turned.
            up, down = drawn(shape[::-1], rank)
            names = "lora_embedding_B", "lora_embedding_A"
        else:
            names = "lora_B.weight", "lora_A.weight"
        found |= {f"{path}.{names[0]}": up, f"{path}.{names[1]}": down}
        if path in magnitudes:
            found[f"{path}.lora_magnitude_vector"] = np.linspace(0.5, 2, shape[0], dtype="f4")
    return found


def in_authors_order(folder):
    """Put the rows of q and k back from where llama.cpp's converter of llamas moves them."""
    path = folder / "model.safetensors"
    arrays = dict(mx.load(str(path)))
    for name, array in arrays.items():
        heads = {"q_proj": 4, "k_proj": 2}.get(name.split(".")[-2])
        if heads:
            pairs = array.reshape(heads, -1, 2, array.shape[-1])
            arrays[name] = mx.contiguous(pairs.swapaxes(1, 2).reshape(array.shape))
    mx.eval(arrays)
    mx.save_safetensors(str(path), arrays)
    change_json(folder / "config.json", rope_traditional=False)
    return folder


@pytest.mark.parametrize("place", ["folder", "gguf", "quantized gguf"])
@pytest.mark.parametrize("variant", ["plain", "rslora", "patterns", "dora"])
def test_a_peft_adapter_computes_what_merged_weights_do(tmp_path, tiny_gguf, place, variant):
    """On a folder, and on a GGUF file, whose rows of q and k have another order."""
    base, weights = tiny_gguf, "dense"
    if place == "quantized gguf":
        base, weights = tmp_path / "tiny.gguf", "quantized"
        write_tiny_llama(base, tied=False, seed=3, quantization="Q8_0")
    folder = in_authors_order(write_folder(tmp_path / "model", base))
    base = folder if place == "folder" else base
    model, _ = mlx_load_model(folder)
    plain = np.array(model(mx.array([IDS]))[0])
    modules = dict(model.named_modules())
    layers = ("0.self_attn.q_proj", "1.mlp.down_proj", "1.self_attn.k_proj")
    paths = [f"model.layers.{layer}" for layer in layers]
    paths += [] if variant == "dora" else ["model.embed_tokens"]
    shapes = {path: modules[path].weight.shape for path in paths}
    tensors = peft_factors(shapes, paths if variant == "dora" else ())
    # The rank of one layer is another.
    entries = {"rank_pattern": {"layers.1.mlp.down_proj": 2}} | {
        "plain": {},
        "rslora": {"use_rslora": True},
        # A whole name, an end at a dot, and neither.
        "patterns": {
            "alpha_pattern": {
                "^layers.1.self_attn.k_proj": 7.0,
                "proj": 9.0,
                "^model.layers.0.self_attn.q_proj": 5.0,
                "self_attn.k_proj": 6.0,
                "k_proj": 8.0,
            }
        },
        "dora": {"use_dora": True},
    }[variant]
    adapter = write_peft(tmp_path / "adapter", tensors, **entries)
    for path in paths:
        rank = 2 if path.endswith("down_proj") else RANK
        given = {"q_proj": 5.0, "k_proj": 6.0} if variant == "patterns" else {}
        alpha = given.get(path.rpartition(".")[2], ALPHA)
        scale = alpha / (rank**0.5 if variant == "rslora" else rank)
        kind = "embedding_" if path.endswith("embed_tokens") else ""
        up, down = (
            tensors[f"{path}.lora_{kind}{factor}" + ("" if kind else ".weight")].astype(np.float64)
            for factor in "BA"
        )
        weight = np.array(modules[path].weight, np.float64)
        weight += scale * ((up @ down).T if kind else up @ down)
        if variant == "dora":
            lengths = tensors[f"{path}.lora_magnitude_vector"] / np.linalg.norm(weight, axis=1)
            weight *= lengths[:, None]
        modules[path].weight = mx.array(weight.astype(np.float32))
    expected = np.array(model(mx.array([IDS]))[0])
    with Engine.load(base, weights=weights, adapter=adapter) as engine:
        assert difference(engine.logits(IDS), expected) < 1e-3 * LEEWAY
    with Engine.load(base, weights=weights) as engine:
        assert difference(engine.logits(IDS), plain) < 1e-3 * LEEWAY
        assert difference(engine.logits(IDS), expected) > 0.5


ONE = "model.layers.0.self_attn.q_proj"


@pytest.mark.parametrize(
    ("tensors", "entries", "message"),
    [
        ({}, {"peft_type": "IA3"}, "of the kind IA3"),
        ({}, {"modules_to_save": ["lm_head"]}, r"whole layers .*merge_and_unload"),
        ({}, {"bias": "all"}, "changes biases"),
        ({}, {"init_lora_weights": "pissa"}, "init_lora_weights='pissa'"),
        ({}, {"r": 4}, "have the rank 3, and adapter_config.json says otherwise"),
        ({}, {"r": None}, "'None' for r, not a usable number"),
        ({}, {"lora_alpha": "12"}, "'12' for lora_alpha"),
        ({}, {"lora_alpha": 1e300}, r"'1e\+300' for lora_alpha"),
        ({}, {"lora_alpha": float("nan")}, "'nan' for lora_alpha"),
        ({}, {"use_dora": True}, "says otherwise"),
        ({}, {"rank_pattern": {"(a+)+$": 3}}, "rank_pattern that is not one of names"),
        ({"lm_head.weight": np.ones((4, 4), "f4")}, {}, "is not a LoRA factor"),
        ({f"{ONE}.lora_A.weight": None}, {}, "has one of two factors"),
        ({f"{ONE}.lora_A.weight": np.ones((4, 64), "f4")}, {}, "do not belong together"),
        ({f"{ONE}.lora_A.weight": np.ones((3, 32), "f4")}, {}, r"the shape \(64, 64\), and in the adapter \(64, 32\)"),
        ({f"{ONE}.lora_A.weight": np.full((3, 64), np.nan, "f4")}, {}, "has NaN, or numbers beyond"),
        # Each is finite, their product is not.
        ({f"{ONE}.lora_A.weight": np.full((3, 64), 1e25, "f4")}, {}, "has NaN, or numbers beyond"),
        ({f"{ONE}.lora_magnitude_vector": np.full(64, 3e38, "f4")}, {"use_dora": True}, "has NaN, or"),
        ({f"{ONE}.lora_A.weight": np.ones((3, 64), "i4")}, {}, "is of the type I32"),
        ({"model.layers.9.mlp.up_proj.lora_A.weight": np.ones((3, 64), "f4"),
          "model.layers.9.mlp.up_proj.lora_B.weight": np.ones((96, 3), "f4")}, {}, "is not a layer of it"),
    ],
)  # fmt: skip
def test_a_peft_adapter_that_cannot_be_applied_is_refused(
    tmp_path, tiny_gguf, tensors, entries, message
):
    usual = peft_factors({ONE: (64, 64)})
    stored = {name: array for name, array in (usual | tensors).items() if array is not None}
    adapter = write_peft(tmp_path / "adapter", stored, **entries)
    with pytest.raises(AkunuError, match=message):
        load_model(tiny_gguf, LoadOptions(adapter=adapter))


@pytest.mark.parametrize(
    ("old", "new"),
    [('"format":"pt"', '"format":5'), ("q_proj", r"q\ud800")],
    ids=["number", "half"],
)
def test_a_header_at_which_mlx_fails_is_that_of_the_adapter(tmp_path, tiny_gguf, old, new):
    adapter = write_peft(tmp_path / "adapter", peft_factors({ONE: (64, 64)}))
    file = adapter / "adapter_model.safetensors"
    size = int.from_bytes(file.read_bytes()[:8], "little")
    header, data = file.read_bytes()[8 : 8 + size].decode(), file.read_bytes()[8 + size :]
    entries = {**json.loads(header), "__metadata__": {"format": "pt"}}
    text = json.dumps(entries, separators=(",", ":")).replace(old, new).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + data)
    with pytest.raises(ModelFormatError, match=r"adapter_model\.safetensors is truncated, damaged"):
        load_model(tiny_gguf, LoadOptions(adapter=adapter))


def test_a_place_that_has_no_adapter_is_refused(tmp_path, tiny_gguf):
    folder = tmp_path / "adapter"
    folder.mkdir()

    def refused(adapter, message, model=tiny_gguf):
        with pytest.raises(AkunuError, match=message):
            load_model(model, LoadOptions(adapter=adapter))

    refused(tmp_path / "none", "does not exist")
    # Not the model, whose path is short.
    refused("x" * 3000, "^x+...x+.* cannot be opened: File name too long")
    refused("~nobody-here/adapter", "^~nobody-here/adapter cannot be loaded")
    for given in (5, ["a", "b"], b"x"):
        refused(given, "adapter is .*; give a path")
    refused(folder, "has no adapter; give a folder with adapters.safetensors")
    (folder / "adapter_model.bin").write_bytes(b"cos\nsystem\n")
    refused(folder, r"is a pickle, .*convert .*weights_only=True")
    refused(tiny_gguf, "is a model, not an adapter")
    for name in ("adapters.safetensors", "adapter_model.safetensors"):
        (folder / name).write_bytes(b"\xff" * 40)
        (folder / "adapter_config.json").write_text(
            '{"lora_parameters": {"scale": 1}, "peft_type": "LORA"}'
        )
        refused(folder, "truncated, damaged or not a safetensors file")
        (folder / name).unlink()
    factors = {"blk.0.attn_q.weight": drawn((64, 64))}
    refused(write_adapter(tmp_path / "a.gguf", "qwen2", factors), "it is a llama, not a qwen2")
    other = {"adapter.type": "ia3"}
    refused(write_adapter(tmp_path / "b.gguf", "llama", factors, **other), "of the kind ia3")
    refused(
        write_adapter(tmp_path / "c.gguf", "llama", factors, alpha=float("inf")),
        "'inf' for adapter.lora.alpha",
    )
    refused(
        write_adapter(tmp_path / "d.gguf", "llama", factors), "changes tensors of a GGUF file",
        write_folder(tmp_path / "model", tiny_gguf),
    )  # fmt: skip
    whole = write_peft(tmp_path / "whole", {})
    (whole / "adapter_model.safetensors").rename(whole / "adapters.safetensors")
    change_json(whole / "adapter_config.json", fine_tune_type="full")
    refused(whole, "mlx_lm.fuse --model MODEL --adapter-path")


@pytest.mark.parametrize("name", ["llama", "qwen3moe"])
def test_drafts_change_no_token_and_other_factors_have_other_rows(tmp_path, name):
    tiny = build(name)
    factors = factors_of(tiny)
    for tensor in factors:
        tiny.quantize(tensor, "Q8_0")
    path = tiny.write(tmp_path / "model.gguf")
    first, second = (
        write_adapter(tmp_path / f"{alpha}.gguf", tiny.architecture, factors, alpha=alpha)
        for alpha in (2.0, 4.0)
    )
    digests, prompt = set(), [5, 9, 80, 81, 82] * 6
    for adapter in (None, first, second, f"{first}:0.25"):
        with Engine.load(path, weights="quantized", adapter=adapter) as engine:
            digests.add(finished(session_of(engine).digest()))
            never = dict.fromkeys(engine.tokenizer.end_ids, -1e6)
            options = {"max_tokens": 48, "logit_bias": never}
            plain = engine.generate(prompt, drafter="none", **options)
            drafted = engine.generate(prompt, drafter="ngram", draft_budget="always", **options)
            assert drafted.stats.drafted > 0
            together = dict(engine.generate_many([prompt, prompt[1:]], **options))
            for found in (drafted, together[0]):
                assert_same_tokens(
                    found.token_ids, plain.token_ids, logits=engine.logits, prompt=prompt,
                    config=GenerationConfig(**options), seed=0,
                )  # fmt: skip
            shown = "" if adapter is None else f" with {Path(adapter).name.replace('.gguf', '')}"
            assert engine.description.name == f"model{shown}"
    assert len(digests) == 4


def test_memory_counts_an_adapter_beside_quantized_weights(tmp_path):
    path = tmp_path / "model.gguf"
    write_tiny_llama(path, tied=False, seed=3, quantization="Q8_0")
    adapter = write_adapter(tmp_path / "a.gguf", "llama", {"blk.0.attn_q.weight": drawn((64, 64))})
    for weights, more in (("quantized", 4 * 2 * 64 * RANK), ("dense", 0)):
        plain, changed = (
            requirements(path, LoadOptions(weights=weights, adapter=one)) for one in (None, adapter)
        )
        assert changed.weights_bytes - plain.weights_bytes == more
    with pytest.raises(ConfigError, match="does not go with a model on several machines"):
        requirements(path, LoadOptions(adapter=adapter), PlannedGroup(0, 2))
