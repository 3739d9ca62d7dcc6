"""MLX folders: the same model as a GGUF file, and files that are no model."""

import contextlib
import json
import struct

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lm.generate import generate_step
from mlx_lm.utils import load_model as mlx_load_model
from model_folders import write_folder

from akunu_py import ConfigError, Engine, ModelFormatError, UnsupportedArchitectureError
from akunu_py.models.load import LoadOptions, load_model


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
    tokenizer = load_model(write_folder(tmp_path / "model", tiny_gguf)).tokenizer
    (end,) = tokenizer.end_ids
    ids = tokenizer.encode_chat([{"role": "user", "content": "a</s>b"}])
    assert end not in ids
    assert tokenizer.decode(ids) == "a</s>b\n"
    with pytest.raises(ConfigError, match="messages is a str; give a list"):
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
    refused(ModelFormatError, "JSON object")
    config.write_text("{}")
    refused(ModelFormatError, "no model_type")
    config.write_text(good)
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    for broken in (b"", whole[:100], whole[:-4], struct.pack("<Q", 2**63) + whole[8:], b"\0" * 64):
        weights.write_bytes(broken)
        refused(ModelFormatError, "download it again")
    weights.unlink()
    refused(ModelFormatError, "no model*.safetensors")
