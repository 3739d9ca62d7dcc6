"""Sound GGUF files that are no sound models: refused quickly, with little memory, and explained."""

import contextlib
import time
import tracemalloc

import pytest
from gguf_bytes import STRING, items, text, u32
from malformed_models import BPE_TOKENS, MALFORMED_MODELS, TENSORS, T, model, spm, with_item

from akunu_py.gguf.reader import GGUFFile
from akunu_py.models.load import LoadOptions, load_model
from akunu_py.system.errors import AkunuError
from akunu_py.tokenizers import sandbox

DENSE, QUANTIZED = LoadOptions(weights="dense"), LoadOptions(weights="quantized")
MESSAGES = [{"role": "user", "content": "hello"}]


def load_and_chat(path, *, chat=True):
    loaded = load_model(path, QUANTIZED)
    if chat:
        loaded.tokenizer.encode_chat(MESSAGES)


@pytest.mark.parametrize("options", [DENSE, QUANTIZED], ids=["dense", "quantized"])
@pytest.mark.parametrize("make", [model, spm])
def test_the_model_is_sound_without_changes(tmp_path, make, options):
    path = tmp_path / "m.gguf"
    path.write_bytes(make())
    load_model(path, options).tokenizer.encode_chat(MESSAGES)


@pytest.mark.parametrize("name", MALFORMED_MODELS)
def test_malformed_models_are_refused(tmp_path, name, monkeypatch):
    monkeypatch.setattr(sandbox, "TIME_LIMIT_S", 0.2)
    case = MALFORMED_MODELS[name]
    path = tmp_path / "m.gguf"
    path.write_bytes(case.raw)
    GGUFFile.open(path).close()  # what is wrong is not the format
    started = time.thread_time()
    tracemalloc.start()
    try:
        with pytest.raises(AkunuError, match=case.words) as info:
            load_and_chat(path, chat=case.chat)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert time.thread_time() - started < 5
    assert peak < 20_000_000
    message = str(info.value)
    assert ";" in message or ":" in message  # what to do
    assert len(message) < 2000


def test_a_merge_longer_than_every_token(tmp_path):
    path = tmp_path / "m.gguf"
    longest = max(BPE_TOKENS[:-6], key=lambda token: len(token.encode()))
    path.write_bytes(model({T + "merges": items(STRING, [f"{longest} {longest}"])}))
    with pytest.raises(AkunuError, match="merges"):
        load_and_chat(path)


def test_a_long_control_token_takes_memory_of_its_size(tmp_path):
    """A table of all its beginnings takes the square of it."""
    size = 20_000
    tokens = with_item(BPE_TOKENS, len(BPE_TOKENS) - 3, "<" + "x" * size + ">")
    path = tmp_path / "m.gguf"
    path.write_bytes(model({T + "tokens": items(STRING, tokens)}))
    tracemalloc.start()
    try:
        with contextlib.suppress(AkunuError):
            load_and_chat(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20_000_000 + 30 * size


@pytest.mark.slow
def test_truncation_of_a_whole_model(tmp_path):
    """Every byte of the metadata's beginning and of the table; elsewhere one in 101."""
    raw = model({"general.name": text("cut")})
    path = tmp_path / "m.gguf"
    table = raw.index(next(iter(TENSORS)).encode())
    sizes = {*range(400), *range(table, table + 800), *range(0, len(raw), 101)}
    for size in sorted(sizes):
        path.write_bytes(raw[:size])
        with pytest.raises(AkunuError, match="at byte"):
            load_model(path, QUANTIZED)


def test_an_optional_special_id_beyond_the_vocabulary_is_left_out(tmp_path, caplog):
    """Released files have 2**32 - 1 for tokens that are not there (ggml-org/llama.cpp#10613)."""
    path = tmp_path / "m.gguf"
    path.write_bytes(spm({T + "seperator_token_id": u32(2**32 - 1)}))
    load_and_chat(path)
    assert "seperator_token_id" in caplog.text


def test_a_broken_template_leaves_raw_prompts_alone(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(model({"tokenizer.chat_template": text("{% do %}")}))
    loaded = load_model(path, QUANTIZED)
    assert loaded.tokenizer.encode("hello")
    with pytest.raises(AkunuError, match="--raw"):
        loaded.tokenizer.encode_chat(MESSAGES)
