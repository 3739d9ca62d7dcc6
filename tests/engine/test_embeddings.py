"""Embeddings: those of other programs for the same model, and the same in any company."""

import json
from pathlib import Path

import numpy as np
import pytest
from embedding_folders import END, write_embedder
from hypothesis import given
from hypothesis import strategies as st
from tiny_architectures.builder import build
from tiny_architectures.embeddings import EMBEDDERS, TEXTS, build_embedder

from akunu_py import AkunuError, ConfigError, Engine
from akunu_py.engine.embedding import embedding_steps, normalised
from akunu_py.models import cached_rows
from akunu_py.models.embedding import batches
from akunu_py.models.load import LoadOptions, convert_model
from akunu_py.models.pooling import Pooling, pooling_of_gguf
from akunu_py.system.errors import ContextOverflowError, UnsupportedArchitectureError

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "embeddings"
FOLDERS = {
    "folder-last": ("lasttoken", None), "folder-mean": ("mean_tokens", None),
    "folder-query": ("lasttoken", "query"),
}  # fmt: skip


def embedder(folder, name="qwen3-last", **options):
    """The engine of a tiny model of embeddings."""
    path = build_embedder(name).write(folder / "embedder.gguf")
    return Engine.load(path, weights="dense", compute_type="float32", **options)


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    with embedder(tmp_path_factory.mktemp("embedder")) as loaded:
        yield loaded


@pytest.mark.parametrize("name", EMBEDDERS)
def test_vectors_are_llama_cpps(tmp_path, name):
    recorded = np.load(GOLDEN / f"{name}.npz")
    assert build_embedder(name).digest() == str(recorded["digest"]), "record the references again"
    with embedder(tmp_path, name) as engine:
        found = engine.embed(TEXTS)
        texts = engine.check_texts(TEXTS).texts
    assert [len(text) for text in texts] == recorded["tokens"].tolist()
    np.testing.assert_allclose(found, recorded["vectors"], atol=1e-5)


@pytest.mark.parametrize("name", FOLDERS)
def test_vectors_of_folders_are_those_of_sentence_transformers(tmp_path, name):
    mode, prompt = FOLDERS[name]
    with Engine.load(write_embedder(tmp_path / "model", mode), weights="dense") as engine:
        found = engine.embed(TEXTS, prompt_name=prompt)
    np.testing.assert_allclose(found, np.load(GOLDEN / f"{name}.npz")["vectors"], atol=1e-5)


def test_a_converted_folder_makes_the_same_embeddings(tmp_path, engine):
    path = build_embedder("qwen3-last").write(tmp_path / "model.gguf")
    convert_model(path, tmp_path / "folder", LoadOptions(compute_type="float32"))
    with Engine.load(tmp_path / "folder", weights="dense") as converted:
        np.testing.assert_allclose(converted.embed(TEXTS), engine.embed(TEXTS), atol=1e-5)


@pytest.mark.parametrize("name", ["qwen3next", "gemma3", "deepseek2", "olmo"])
@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_texts_have_the_same_embeddings_alone_and_in_company(tmp_path, monkeypatch, name, pooling):
    """Windows wrap and states run on, in passes of the texts of a batch and of parts of a text."""
    path = build(name).write(tmp_path / "model.gguf")
    random = np.random.default_rng(2)
    texts = [random.integers(0, 300, size).tolist() for size in (1, 40, 3, 41, 1, 39, 7)]
    with Engine.load(path, weights="dense", pooling=pooling) as engine:
        alone = np.concatenate([engine.embed([text]) for text in texts])
        monkeypatch.setattr("akunu_py.models.embedding.prompt_rows", lambda _: 16)
        np.testing.assert_allclose(engine.embed(texts), alone, atol=2e-5)
        logits = engine.logits(texts[1])  # and the model still makes replies
        assert np.isfinite(logits).all()


@given(st.lists(st.integers(1, 700), max_size=60))
def test_batches_hold_each_text_once_and_no_more_rows_than_a_pass(lengths):
    found = batches(lengths)
    assert sorted(place for batch in found for place in batch) == list(range(len(lengths)))
    for batch in found:
        sizes = [lengths[place] for place in batch]
        assert len(batch) == 1 or len(batch) * max(2, *sizes) <= 512
    for batch in found[:-1]:
        assert (len(batch) + 1) * max(2, lengths[batch[0]]) > 512


@given(st.integers(0, 5), st.integers(1, 9), st.integers(0, 99))
def test_vectors_have_the_length_one_and_begin_as_the_whole_ones(count, dimensions, seed):
    drawn = np.random.default_rng(seed).normal(0, 100, (count, 9)).astype(np.float32)
    cut = normalised(drawn, dimensions)
    assert cut.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(cut, axis=1), np.ones(count), atol=1e-5)
    lengths = np.linalg.norm(drawn[:, :dimensions], axis=1, keepdims=True)
    np.testing.assert_allclose(cut * lengths, drawn[:, :dimensions], rtol=1e-4)


def test_one_text_and_token_ids(engine):
    ids = list(engine.check_texts(["a cat"]).texts[0])
    assert engine.embed([]).shape == (0, 0)
    assert engine.embed(["a", "b"], dimensions=8).shape == (2, 8)
    for form in ("a cat", ["a cat"], ids, [ids], np.array(ids)):
        np.testing.assert_array_equal(engine.embed(form), engine.embed("a cat"))


def test_a_written_end_token_is_not_doubled(engine):
    (plain,), (written,) = (engine.check_texts([text]).texts for text in ("a", "a</s>"))
    assert plain == written


def test_long_texts_are_refused_or_cut_with_their_end_kept(tmp_path, engine):
    text = "word " * 300
    with pytest.raises(ContextOverflowError, match=r"text 1 has .* context holds 256; split"):
        engine.embed(["a", text])
    (cut,) = engine.check_texts([text], truncate=True).texts
    (whole,) = engine.check_texts(["word " * 20]).texts
    assert (len(cut), cut[:20], cut[-1]) == (256, whole[:20], whole[-1])
    with embedder(tmp_path, "llama-mean") as mean:
        assert mean.check_texts([text], truncate=True).texts[0][-1] != whole[-1]


@pytest.mark.parametrize(("options", "words"), [
    ({"dimensions": 65}, "dimensions is 65; this model's embeddings have 64"),
    ({"dimensions": 0}, "dimensions is 0"),
    ({"prompt_name": "passage"}, "prompt_name is 'passage', and the model's prompts are: query"),
])  # fmt: skip
def test_options_out_of_range(engine, options, words):
    with pytest.raises(ConfigError, match=words):
        engine.embed("a", **options)


def test_models_are_asked_for_what_they_were_made_for(tiny_gguf, tmp_path, engine):
    with pytest.raises(ConfigError, match=r"was made for embeddings, not for replies"):
        engine.generate("hello")
    with Engine.load(tiny_gguf) as chat, pytest.raises(ConfigError, match="--pooling"):
        chat.embed("hello")
    with Engine.load(tiny_gguf, pooling="last") as chat:
        last = chat.embed("hello there")
        assert chat.generate("hello", max_tokens=2).token_ids
    with Engine.load(tiny_gguf, pooling="mean") as chat:
        assert np.abs(chat.embed("hello there") - last).max() > 0.01
    # The kind that was chosen, with what else the files say.
    with embedder(tmp_path, pooling="mean") as chosen:
        assert chosen.pooling == engine.pooling._replace(kind="mean")


def test_a_long_text_pauses_and_ends_where_it_is_left(engine, monkeypatch):
    monkeypatch.setattr(cached_rows, "_TURN_S", 0.0)
    monkeypatch.setattr("akunu_py.models.embedding.PREFILL_CHUNK", 16)
    texts = ["one two three " * 5, "four"]
    steps = embedding_steps(engine.check_texts(texts), engine._session)
    assert [next(steps) for _ in range(3)] == [0, 0, 0]
    steps.close()
    seen = []
    engine.embed(texts, progress=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert {(0, 2), (1, 2), (2, 2)} == set(seen)
    assert len(seen) > 5


def test_the_end_of_qwen3s_first_files_is_the_one_of_the_models_card():
    metadata = {
        "general.architecture": "qwen3", "qwen3.pooling_type": 3,
        "tokenizer.ggml.tokens": ["a", "<|endoftext|>", "<|im_end|>"],
        "tokenizer.ggml.eos_token_id": 2,
    }  # fmt: skip
    assert pooling_of_gguf(metadata).end == 1
    assert pooling_of_gguf(metadata | {"tokenizer.ggml.add_eos_token": True}).end == 2
    llama = {**metadata, "general.architecture": "llama", "llama.pooling_type": 1}
    assert pooling_of_gguf(llama) == Pooling("mean")
    assert pooling_of_gguf(llama | {"llama.pooling_type": 0}) is None


@pytest.mark.parametrize(("kind", "words"), [(2, "pooling_type is 2"), (4, "no rerankers")])
def test_other_kinds_of_pooling_are_refused(tmp_path, kind, words):
    model = build_embedder("qwen3-last")
    model.key("pooling_type", kind)
    with pytest.raises(ConfigError, match=words):
        Engine.load(model.write(tmp_path / "model.gguf"))


@pytest.mark.parametrize(("name", "change", "words"), [
    ("1_Pooling/config.json", {"pooling_mode_lasttoken": False}, "says nothing"),
    ("1_Pooling/config.json", {"pooling_mode_cls_token": True}, "lasttoken and cls_token"),
    ("1_Pooling/config.json", {"pooling_mode": "cls"}, "says cls"),
    ("1_Pooling/config.json", {"include_prompt": False}, "leaves prompts out"),
    ("config_sentence_transformers.json", {"prompts": {"query": 3}}, "prompts that are not texts"),
    ("config_sentence_transformers.json", {"default_prompt_name": "x"}, "names none of them"),
    ("config.json", {"model_type": "bert"}, "bert is an encoder.*qwen3-embedding"),
    ("config.json", {"model_type": "nomic_bert"}, "nomic_bert is an encoder"),
])  # fmt: skip
def test_files_of_folders_that_say_something_else(tmp_path, name, change, words):
    folder = write_embedder(tmp_path / "model")
    (folder / name).write_text(json.dumps(json.loads((folder / name).read_text()) | change))
    with pytest.raises(AkunuError, match=words):
        Engine.load(folder)


def test_a_folder_with_a_further_layer_is_refused(tmp_path):
    folder = write_embedder(tmp_path / "model")
    (folder / "2_Dense").mkdir()
    with pytest.raises(ConfigError, match="has the module 2_Dense; akunu makes embeddings of the"):
        Engine.load(folder)


@pytest.mark.parametrize("name", ["bert", "nomic-bert-moe", "gemma-embedding", "t5encoder"])
def test_encoders_are_refused_by_name(tmp_path, name):
    model = build("llama")
    model.architecture = name
    with pytest.raises(UnsupportedArchitectureError, match=f"{name} is an encoder.*llama.cpp"):
        Engine.load(model.write(tmp_path / "model.gguf"))


def test_a_default_prompt_is_put_in_front(tmp_path):
    folder = write_embedder(tmp_path / "model")
    path = folder / "config_sentence_transformers.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"default_prompt_name": "query"}))
    with Engine.load(folder, weights="dense") as engine:
        expected = np.load(GOLDEN / "folder-query.npz")["vectors"]
        np.testing.assert_allclose(engine.embed(TEXTS), expected, atol=1e-5)
        assert engine.check_texts(["", END], prompt_name="document").texts == ((256,), (256, 256))
