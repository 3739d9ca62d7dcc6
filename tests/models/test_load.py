"""Loading: GGUF against the gguf package's numbers, MLX folders, bad paths."""

import contextlib
import json
import os
import struct

import gguf
import mlx.core as mx
import numpy as np
import pytest
from gguf_files import write_tiny_llama
from mlx.utils import tree_flatten
from mlx_lm.generate import generate_step
from mlx_lm.utils import load_model as mlx_load_model

from akunu_py import ConfigError, Engine, ModelFormatError, UnsupportedArchitectureError
from akunu_py.gguf.config import read_plan
from akunu_py.gguf.reader import GGUFFile
from akunu_py.model_store.default_model import default_model_path
from akunu_py.models.gguf_model import overflows
from akunu_py.models.load import LoadOptions, load_model

TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1")


@pytest.mark.parametrize("vocabulary", ["bpe", "spm"])
@pytest.mark.parametrize("kind", TYPES)
def test_dense_and_quantized_weights_are_the_files(tmp_path, kind, vocabulary):
    """Both forms hold gguf's own dequantized numbers."""
    path = write_tiny_llama(
        tmp_path / "model.gguf", quantization=kind, vocabulary=vocabulary, tied=False
    )
    reader = gguf.GGUFReader(path)
    expected = {
        tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        for tensor in reader.tensors
    }
    dense = load_model(path, LoadOptions(weights="dense")).model
    quantized = load_model(path, LoadOptions(weights="quantized")).model
    places = {"token_embd": "model.embed_tokens", "blk.1.ffn_down": "model.layers.1.mlp.down_proj"}
    for name, place in places.items():
        parameters = dict(tree_flatten(dense.parameters()))
        np.testing.assert_array_equal(
            np.array(parameters[f"{place}.weight"]), expected[f"{name}.weight"]
        )
        parameters = dict(tree_flatten(quantized.parameters()))
        weight = parameters[f"{place}.weight"]
        if kind.startswith("Q"):
            assert weight.dtype == mx.uint32
            weight = mx.dequantize(
                weight, parameters[f"{place}.scales"], parameters[f"{place}.biases"],
                group_size=32, bits=8 if kind == "Q8_0" else 4,
            )  # fmt: skip
        np.testing.assert_allclose(np.array(weight), expected[f"{name}.weight"], atol=1e-7)


@pytest.mark.parametrize("kind", TYPES)
def test_quantized_models_decode_alike_with_and_without_drafts(tmp_path, kind):
    path = write_tiny_llama(tmp_path / "model.gguf", quantization=kind, tied=False, seed=4)
    with Engine.load(path, weights="quantized") as engine:
        options = {"max_tokens": 30, "temperature": 0.7, "seed": 3}
        plain = engine.generate("hello world the model", drafter="none", **options)
        drafted = engine.generate("hello world the model", drafter="ngram", **options)
        assert drafted.token_ids == plain.token_ids


def test_auto_weights_are_dense_where_they_fit_and_say_so(tmp_path, caplog, monkeypatch):
    path = write_tiny_llama(tmp_path / "model.gguf", quantization="Q8_0")
    monkeypatch.setattr("akunu_py.models.load.mx.default_device", lambda: mx.Device(mx.cpu))
    with caplog.at_level("INFO", logger="akunu_py"):
        assert load_model(path).description.weights == "dense"
    assert "float32 dense weights need" in caplog.text
    monkeypatch.setattr("akunu_py.models.load._memory_bytes", lambda: 1000)
    assert load_model(path).description.weights == "quantized"


def test_llama_3_frequencies_reach_the_rotary_layers(tmp_path):
    """The same as mlx-lm's own Llama 3 scaling with the parameters the factors were made from."""
    from mlx_lm.models.rope_utils import Llama3RoPE

    from akunu_py.models.layers import FrequencyRope

    scaling = {
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64, "rope_type": "llama3",
    }  # fmt: skip
    theirs = Llama3RoPE(16, 256, traditional=True, base=10000.0, scaling_config=scaling)
    ours = FrequencyRope(16, theirs._freqs, traditional=True)
    x = mx.random.normal((1, 2, 9, 16))
    np.testing.assert_allclose(np.array(ours(x, 5)), np.array(theirs(x, 5)), atol=1e-6)


def test_the_default_model_is_found():
    assert default_model_path().name == "akunu-tiny.gguf"


def test_paths_that_are_no_model(tmp_path):
    cases = {
        tmp_path / "missing.gguf": (ConfigError, "there is no"),
        tmp_path: (ModelFormatError, "no config.json"),
    }
    text = tmp_path / "text.gguf"
    text.write_text("This is not a model.\n" * 50)
    cases[text] = (ModelFormatError, "GGUF")
    empty = tmp_path / "empty.gguf"
    empty.touch()
    cases[empty] = (ModelFormatError, "")
    fifo = tmp_path / "fifo.gguf"
    os.mkfifo(fifo)
    cases[fifo] = (ConfigError, "neither a file nor a folder")
    loop = tmp_path / "loop.gguf"
    loop.symlink_to(loop)
    cases[loop] = (ConfigError, "")
    for path, (kind, words) in cases.items():
        with pytest.raises(kind) as caught:
            Engine.load(path)
        assert words in str(caught.value)


def test_a_truncated_file_is_refused_before_anything_is_loaded(tiny_gguf, tmp_path):
    whole = tiny_gguf.read_bytes()
    for share in (0.2, 0.5, 0.9, 0.999):
        path = tmp_path / "cut.gguf"
        path.write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(ModelFormatError, match="trunc"):
            Engine.load(path)


def write_folder(folder, tiny_gguf, **config):
    """An MLX model folder with the weights of the tiny GGUF file."""
    folder.mkdir()
    loaded = load_model(tiny_gguf, LoadOptions(weights="dense"))
    mx.save_safetensors(
        str(folder / "model.safetensors"), dict(tree_flatten(loaded.model.parameters()))
    )
    with GGUFFile.open(tiny_gguf) as file:
        arguments = read_plan(file.metadata, file.tensors).arguments
    (folder / "config.json").write_text(json.dumps({**arguments, **config}))
    tokenizer = loaded.tokenizer._tokenizer if hasattr(loaded.tokenizer, "_tokenizer") else None
    if tokenizer is None:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers

        alphabet = pre_tokenizers.ByteLevel.alphabet()
        tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(sorted(alphabet))}, []))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "eos_token": "</s>",
                "chat_template": "{% for m in messages %}{{ m['content'] }}\n{% endfor %}",
            }
        )
    )
    return folder


def test_an_mlx_folder_is_the_same_model(tiny_gguf, tmp_path):
    folder = write_folder(tmp_path / "model", tiny_gguf)
    ids = [5, 9, 80, 81, 82, 5, 9, 80]
    with Engine.load(tiny_gguf) as from_gguf, Engine.load(folder) as engine:
        np.testing.assert_array_equal(engine.logits(ids), from_gguf.logits(ids))
        assert engine.description.weights == "dense"
        assert engine.context == 256
        never = dict.fromkeys(engine.tokenizer.end_ids, -1e6)
        found = engine.generate(ids, max_tokens=40, logit_bias=never)
        model, _ = mlx_load_model(folder)
        expected = [token for token, _ in generate_step(mx.array(ids), model, max_tokens=200)]
        plain = engine.generate(ids, max_tokens=40, drafter="none", logit_bias=never)
        assert found.token_ids == plain.token_ids
        if not engine.tokenizer.end_ids & set(expected[:40]):
            assert list(found.token_ids) == expected[:40]
        reply = engine.chat([{"role": "user", "content": "hello"}], max_tokens=5)
        assert reply.num_prompt_tokens > 1
        text = "hello wörld → \N{SNOWMAN}"
        assert engine.tokenizer.decode(engine.tokenizer.encode(text)) == text
        pieces = engine.tokenizer.detokenizer()
        shown = "".join(pieces.feed([token]) for token in engine.tokenizer.encode(text))
        assert shown + pieces.finish() == text


def test_end_ids_come_from_the_models_configs_too(tiny_gguf, tmp_path):
    folder = write_folder(tmp_path / "model", tiny_gguf, eos_token_id=[7])
    assert 7 in load_model(folder).tokenizer.end_ids
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [8, 9]}))
    assert load_model(folder).tokenizer.end_ids >= {8, 9}


def test_a_folders_tokenizer_code_is_never_run(tiny_gguf, tmp_path, monkeypatch):
    folder = write_folder(tmp_path / "model", tiny_gguf)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings["tokenizer_class"] = "Evil"
    settings["auto_map"] = {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    witness = tmp_path / "ran"
    (folder / "evil.py").write_text(f"open({str(witness)!r}, 'w')\nclass Evil: pass\n")
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with contextlib.suppress(ModelFormatError):
        load_model(folder)
    assert not witness.exists()


def test_control_tokens_in_a_message_of_a_folder_model_stay_text(tiny_gguf, tmp_path):
    folder = write_folder(tmp_path / "model", tiny_gguf)
    tokenizer = load_model(folder).tokenizer
    (end,) = tokenizer.end_ids
    ids = tokenizer.encode_chat([{"role": "user", "content": "a</s>b"}])
    assert end not in ids
    assert tokenizer.decode(ids) == "a</s>b\n"
    with pytest.raises(ConfigError, match="messages must be a list"):
        tokenizer.encode_chat("x")


def test_the_whole_text_of_ids_and_the_tokens_of_a_vocabulary(tiny_gguf, tmp_path):
    """What a trace and a memory need: control tokens written out, and a text for each id."""
    gguf = load_model(tiny_gguf).tokenizer
    assert len(gguf.token_texts()) == gguf.vocabulary_size
    ids = gguf.encode_chat([{"role": "user", "content": "hello <|end|> wörld"}])
    assert gguf.decode(ids) == "hello <|end|> wörld"
    assert gguf.decode(ids, with_control=True) == "<|user|>hello <|end|> wörld<|end|><|assistant|>"
    ids = gguf.encode("one world")
    assert gguf.encode(gguf.decode(ids, with_control=True)) == ids
    folder = load_model(write_folder(tmp_path / "model", tiny_gguf)).tokenizer
    texts = folder.token_texts()
    assert len(texts) == len(set(texts)) == folder.vocabulary_size
    (end,) = folder.end_ids
    assert texts[end] == "</s>"
    ids = [*folder.encode("hello"), end]
    assert folder.decode(ids) == "hello"
    assert folder.decode(ids, with_control=True) == "hello</s>"


def test_the_begin_token_is_left_to_the_tokenizer(tmp_path):
    """Written out in a prompt it would be put there twice when the text is read again."""
    path = write_tiny_llama(tmp_path / "spm.gguf", vocabulary="spm", tied=False, seed=1)
    tokenizer = load_model(path).tokenizer
    ids = tokenizer.encode("hello the world")
    (begin,) = set(ids) - set(tokenizer.encode("hello the world")[1:])
    assert tokenizer.decode(ids, with_control=True) == "hello the world"
    assert "<s>" in tokenizer.decode([*ids, begin], with_control=True)


def test_an_unknown_home_folder_is_explained():
    with pytest.raises(ConfigError, match="~nosuchuser"):
        Engine.load("~nosuchuser/model.gguf")


def test_a_quantized_folder_loads_in_both_forms(tiny_gguf, tmp_path):
    from mlx import nn

    folder = write_folder(tmp_path / "model", tiny_gguf, quantization={"group_size": 32, "bits": 4})
    model = load_model(tiny_gguf, LoadOptions(weights="dense")).model
    nn.quantize(model, group_size=32, bits=4)
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(model.parameters())))
    ids = [5, 9, 80, 81]
    with Engine.load(folder, weights="quantized") as q, Engine.load(folder, weights="dense") as d:
        assert q.description.weights == "quantized"
        assert d.description.weights == "dense"
        np.testing.assert_allclose(q.logits(ids), d.logits(ids), atol=1e-3)


def test_folders_that_are_no_model(tiny_gguf, tmp_path):
    folder = write_folder(tmp_path / "model", tiny_gguf)
    config = folder / "config.json"
    good = config.read_text()

    def refused(kind, words):
        with pytest.raises(kind) as caught:
            Engine.load(folder)
        assert words in str(caught.value)

    config.write_text(json.dumps({**json.loads(good), "model_type": "no_such_model"}))
    refused(UnsupportedArchitectureError, "no_such_model")
    config.write_text(json.dumps({**json.loads(good), "model_file": "evil.py"}))
    refused(ConfigError, "runs no code")
    config.write_text("{")
    refused(ModelFormatError, "not JSON")
    config.write_text("[]")
    refused(ModelFormatError, "no model_type")
    config.write_text(good)
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    for broken in (b"", whole[:100], whole[:-4], struct.pack("<Q", 2**63) + whole[8:], b"\0" * 64):
        weights.write_bytes(broken)
        refused(ModelFormatError, "download it again")
    weights.unlink()
    refused(ModelFormatError, "no model*.safetensors")


def test_experts_in_16_bits_on_the_cpu_are_refused_before_the_first_token(tmp_path):
    from tiny_architectures.builder import build

    path = build("qwen3moe").write(tmp_path / "m.gguf")
    with pytest.raises(ConfigError, match="float32 alone"):
        load_model(path, LoadOptions(compute_type="float16"))


def test_rotary_factors_that_are_none(tmp_path):
    from tiny_architectures.builder import build

    for value in (np.inf, 0.0, -1.0, np.nan, 1e35):
        model = build("llama-3")
        model.tensors["rope_freqs.weight"][3] = value
        path = model.write(tmp_path / "m.gguf")
        with pytest.raises(ModelFormatError, match="rope_freqs"):
            load_model(path)


def test_the_text_that_shows_overflow_fits_into_the_context():
    """A table of learned positions is read beyond its end otherwise."""
    seen = []

    def model(ids):
        seen.append(ids.shape)
        return mx.zeros((*ids.shape, 97))

    assert not overflows(model, 97, 32)
    assert not overflows(model, 97, 2048)
    assert seen == [(1, 32), (1, 64)]
