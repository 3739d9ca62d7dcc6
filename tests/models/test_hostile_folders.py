"""MLX folders from strangers: refused in words, soon, and without running anything of theirs.

Mutants, made by hand, that these tests kill: a template rendered by transformers; a module imported
by a name out of a folder; a number of config.json not looked at; a config made into a model that no
row was passed through; a header believed; sizes of files not looked at; ids beyond the embedding
fed; gaps of a vocabulary given to mlx-lm's detokenizer.
"""

import contextlib
import json
import logging
import os
import shutil
import struct
import time

import pytest
from hostile_templates import HOSTILE
from hypothesis import given, settings
from hypothesis import strategies as st
from model_folders import change_id, change_json, write_folder

from akunu_py import (
    AkunuError,
    Engine,
    Message,
    ModelFormatError,
    Tool,
    ToolCall,
    UnsupportedArchitectureError,
)
from akunu_py.models import folder_settings
from akunu_py.models.folder_tokenizer import FolderTokenizer
from akunu_py.models.load import load_model
from akunu_py.models.requirements import requirements
from akunu_py.models.weight_files import check_weight_file
from akunu_py.tokenizers import sandbox

HI = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def sound(tiny_gguf, tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("folder") / "model", tiny_gguf)


@pytest.fixture
def folder(sound, tmp_path):
    return shutil.copytree(sound, tmp_path / "model")


def use(folder):
    with Engine.load(folder) as engine:
        engine.generate("hello", max_tokens=2)
        engine.chat(HI, max_tokens=2)


def refused(folder, words, kind=ModelFormatError):
    """Whoever opens the folder gets a message, within a few seconds of processor time."""
    started = time.process_time()
    for call in (use, requirements):
        with pytest.raises(kind, match=words) as caught:
            call(folder)
        assert len(str(caught.value)) < 1000
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_hidden_layers", 10**9), ("num_hidden_layers", 5000), ("num_hidden_layers", -1),
        ("num_hidden_layers", 2.5), ("num_hidden_layers", "many"), ("num_hidden_layers", None),
        ("num_hidden_layers", []), ("num_hidden_layers", 10**400), ("hidden_size", 10**9),
        ("hidden_size", 2**63), ("hidden_size", 0), ("hidden_size", 65), ("vocab_size", 10**12),
        ("vocab_size", 7), ("num_attention_heads", 0), ("num_attention_heads", 10**9),
        ("num_attention_heads", 7), ("num_key_value_heads", 0), ("head_dim", 10**9),
        ("rms_norm_eps", float("nan")), ("rms_norm_eps", "small"), ("rms_norm_eps", 2.0),
        ("rope_theta", "x"), ("rope_theta", float("nan")), ("rope_theta", float("inf")),
        ("rope_theta", None), ("rope_theta", {"__float__": "NaN"}), ("rope_theta", -1.0), ("rope_scaling", 5),
        ("rope_scaling", {"type": "linear", "factor": 0.0}), ("rope_scaling", {"type": "no"}),
        ("rope_scaling", {"type": "linear", "factor": float("inf")}),
        ("max_position_embeddings", "x"), ("max_position_embeddings", 2**50),
        ("quantization", []), ("quantization", {"bits": 4}),
        ("quantization_config", 5), ("quantization_config", {"quant_method": "awq"}),
        ("eos_token_id", "x"), ("eos_token_id", [1, -2]), ("eos_token_id", [[1]]),
        ("eos_token_id", 2.0), ("eos_token_id", 2**40),
    ],
    ids=lambda value: str(value)[:30],
)  # fmt: skip
def test_entries_of_a_config_are_checked(folder, name, value):
    text = json.dumps({**json.loads((folder / "config.json").read_text()), name: None})
    shown = "1" + "0" * 400 if value == 10**400 else json.dumps(value)
    (folder / "config.json").write_text(text.replace(f'"{name}": null', f'"{name}": {shown}'))
    if name == "eos_token_id":
        with pytest.raises(ModelFormatError, match="eos_token_id"):
            use(folder)
    else:
        refused(folder, "cannot be loaded|not JSON|does not apply")


def test_more_layers_than_tensors_are_named(folder):
    change_json(folder / "config.json", num_hidden_layers=9000)
    refused(folder, "num_hidden_layers is 9000, and the weights have 21 tensors")
    change_json(folder / "config.json", num_hidden_layers=10**9)
    refused(folder, "num_hidden_layers is 1000000000, not a number from -10000 to 10000")


@pytest.mark.parametrize(
    "kind", ["base", "cache", "switch_layers", "olmo", "..utils", "llama.ModelArgs", "", "../x", "x" * 9999]
)  # fmt: skip
def test_types_without_a_model_are_named(folder, kind, capfd):
    """One of mlx-lm's modules ends the program where a package of it is not there."""
    change_json(folder / "config.json", model_type=kind)
    refused(folder, "is of the type", UnsupportedArchitectureError)
    assert capfd.readouterr() == ("", "")


def test_types_that_are_no_text(folder):
    change_json(folder / "config.json", model_type=["llama"])
    refused(folder, "no model_type")


@pytest.mark.parametrize("entry", ["chat_template_type", "tool_parser_type"])
@pytest.mark.parametrize("kind", ["nothing", "..utils", "__init__", 7, {"a": 1}, ["x"]])
def test_names_of_modules_are_not_imported(folder, entry, kind):
    change_json(folder / "tokenizer_config.json", **{entry: kind})
    if entry == "tool_parser_type":
        use(folder)  # nothing here calls tools
    else:
        with pytest.raises(ModelFormatError, match="chat_template_type"):
            use(folder)


def test_a_template_of_mlx_lm_is_used(folder):
    change_json(folder / "tokenizer_config.json", chat_template_type="deepseek_v32")
    tokenizer = load_model(folder).tokenizer
    assert tokenizer.has_chat_template
    assert "hello" in tokenizer.decode(tokenizer.encode_chat(HI))
    call = Message("assistant", tool_calls=(ToolCall("look_up"),))
    assert "of no call" in text_of(tokenizer, [{"role": "tool", "content": "of no call"}], [])
    with pytest.raises(ModelFormatError, match="mlx-lm cannot lay the conversation out"):
        tokenizer.encode_chat(
            [*HI, call, {"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}]
        )


def test_tools_reach_the_templates_of_folders(folder):
    messages = [
        {"role": "system", "content": "be brief"},
        *HI,
        Message("assistant", tool_calls=(ToolCall("look_up", {"word": "owl"}, "call00001"),)),
        Message("tool", "a bird", tool_call_id="call00001"),
    ]
    tools = [Tool("look_up", "what </s> means")]
    change_json(folder / "tokenizer_config.json", chat_template_type="deepseek_v32")
    text = text_of(load_model(folder).tokenizer, messages, tools)
    assert '<｜DSML｜parameter name="word" string="true">owl</｜DSML｜parameter>' in text
    source = "{{ tools | tojson }}{% for m in messages %}{{ m | tojson }}{% endfor %}"
    change_json(folder / "tokenizer_config.json", chat_template_type=None, chat_template=source)
    text += text_of(load_model(folder).tokenizer, messages, tools)
    assert text.count("what </s> means") == 2
    assert text.count("a bird") == 2


def text_of(tokenizer, messages, tools):
    ids = tokenizer.encode_chat(messages, tools=tools)
    assert not tokenizer.end_ids & set(ids)  # what a description says is text
    return tokenizer.decode(ids)


@pytest.mark.parametrize(
    "name",
    ["loops", "macros that call twice", "times", "classes", "globals", "read a file", "include",
     "raises", "syntax", pytest.param("doubling a list", marks=pytest.mark.slow)],
)  # fmt: skip
def test_templates_have_the_limits_of_gguf_files(folder, name, monkeypatch):
    monkeypatch.setattr(sandbox, "TIME_LIMIT_S", 0.3)
    change_json(folder / "tokenizer_config.json", chat_template=HOSTILE[name])
    tokenizer = FolderTokenizer(folder, {})
    started = time.thread_time()
    with pytest.raises(ModelFormatError, match=r"chat template (?s:.*)--raw"):
        tokenizer.encode_chat(HI)
    assert time.thread_time() - started < 5
    assert tokenizer.encode("hello")


def test_what_templates_are_told_is_what_mlx_lm_tells_them(folder):
    source = (
        "{{ bos_token is defined }}|{{ eos_token }}|{{ enable_thinking }}|{{ tools is none }}|"
        "{{ messages | length }}|{{ add_generation_prompt }}|{{ messages[0] | tojson }}"
    )
    change_json(folder / "tokenizer_config.json", chat_template=source)
    tokenizer = FolderTokenizer(folder, {})
    text = tokenizer.decode(tokenizer.encode_chat(HI), with_control=True)
    expected = tokenizer._wrapper.apply_chat_template(
        HI, tokenize=False, add_generation_prompt=True
    )
    assert text == expected
    assert text.startswith("False|</s>|False|True|1|True|{")


def test_one_of_several_templates_is_used(folder):
    named = [{"name": name, "template": name} for name in ("rag", "default")]
    change_json(folder / "tokenizer_config.json", chat_template=named)
    tokenizer = FolderTokenizer(folder, {})
    assert tokenizer.decode(tokenizer.encode_chat(HI)) == "default"
    change_json(folder / "tokenizer_config.json", chat_template=named[:1])
    tokenizer = FolderTokenizer(folder, {})
    assert not tokenizer.has_chat_template
    with pytest.raises(AkunuError, match="no chat template"):
        tokenizer.encode_chat(HI)


@pytest.mark.parametrize("template", [5, {"default": 5}, [{"name": "default", "template": 5}], [5]])
def test_templates_that_are_no_text(folder, template):
    change_json(folder / "tokenizer_config.json", chat_template=template)
    with pytest.raises(ModelFormatError, match="chat_template"):
        FolderTokenizer(folder, {})


def test_the_config_of_another_quantizer_is_checked(folder):
    (folder / "hf_quant_config.json").write_text("5")
    with pytest.raises(ModelFormatError, match="download"):
        use(folder)


def test_texts_of_any_length_are_tokenized(folder):
    """transformers compares their length with what the folder says."""
    for length in ([], "x", 3):
        change_json(folder / "tokenizer_config.json", model_max_length=length)
        assert len(FolderTokenizer(folder, {}).encode("hello")) == 5


def test_notices_of_libraries_do_not_reach_the_terminal(folder, monkeypatch):
    """They quote what stands in the files."""
    library, told = logging.getLogger("transformers"), []
    level = library.level
    handler = logging.Handler()
    handler.emit = told.append
    monkeypatch.setattr(library, "handlers", [handler])
    change_json(folder / "config.json", rope_scaling={"rope_type": "default", "odd key": 1})
    use(folder)
    assert told == []
    assert library.level == level


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
def test_files_that_are_too_large_are_not_read(folder, name, monkeypatch):
    for limit in ("_MAX_SETTINGS_BYTES", "_MAX_VOCABULARY_BYTES"):
        monkeypatch.setattr(folder_settings, limit, 2**16)
    with (folder / name).open("ab") as file:
        file.truncate(2**17)
    refused(folder, "far too large")


def rewritten(path, change):
    """Change the header of a safetensors file; the data stay where they are."""
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + length])
    name = "model.norm.weight"
    header[name] = change(header[name])
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + length :])


@pytest.mark.parametrize(
    "change",
    [
        lambda tensor: {**tensor, "shape": [-4, -16]}, lambda tensor: {**tensor, "shape": [2**31, 2]},
        lambda tensor: {**tensor, "shape": [2**40], "data_offsets": [0, 0]},
        lambda tensor: {**tensor, "shape": "x"}, lambda tensor: {**tensor, "shape": [64.0]},
        lambda tensor: {**tensor, "shape": [True, 64]}, lambda tensor: {**tensor, "shape": [65]},
        lambda tensor: {**tensor, "data_offsets": [-256, 0]},
        lambda tensor: {**tensor, "data_offsets": [256, 0]},
        lambda tensor: {**tensor, "data_offsets": [0]}, lambda tensor: {**tensor, "dtype": []},
        lambda tensor: {}, lambda tensor: 5,
    ],
)  # fmt: skip
def test_headers_of_weights_are_checked(folder, change):
    rewritten(folder / "model.safetensors", change)
    refused(folder, "truncated, damaged or not a safetensors file")


def test_a_type_that_mlx_does_not_have(folder):
    rewritten(folder / "model.safetensors", lambda tensor: {**tensor, "dtype": "F3"})
    refused(folder, "cannot be loaded")


def test_ids_that_the_model_does_not_have_are_not_fed(folder):
    change_id(folder, "z", 5000)
    with Engine.load(folder) as engine:
        assert engine.generate("hello", max_tokens=2)
        for call in (
            lambda: engine.generate("lazy"),
            lambda: engine.chat([{"role": "user", "content": "lazy"}]),
            lambda: engine.remember("lazy"),
        ):
            with pytest.raises(ModelFormatError, match="makes the id 5000, and the model has 336"):
                call()


def test_ids_without_a_text_are_silent(folder):
    letter = next(iter(json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]))
    gap = FolderTokenizer(folder, {}).encode(letter)[0]
    change_id(folder, letter, 300)
    tokenizer = FolderTokenizer(folder, {})
    detokenizer = tokenizer.detokenizer()
    ids = tokenizer.encode("ab")
    assert detokenizer.feed([ids[0], gap, 299, ids[1]]) + detokenizer.finish() == "ab"
    with Engine.load(folder) as engine:
        reply = engine.generate("hello", max_tokens=3, logit_bias={gap: 1e6})
        assert reply.token_ids == (gap,) * 3
        assert reply.text == ""


def test_a_context_is_read_by_the_names_that_models_give_it():
    assert folder_settings.folder_context({"n_positions": 1024}) == 1024
    assert folder_settings.folder_context({"n_ctx": 2048, "max_position_embeddings": None}) == 2048
    assert folder_settings.folder_context({"text_config": {"max_position_embeddings": 99}}) == 99
    assert folder_settings.folder_context({}) == folder_settings.DEFAULT_CONTEXT


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 300), st.integers(), st.floats(), st.text(max_size=5),
    st.just([]), st.just({}), st.lists(st.integers(-3, 99), max_size=3),
    st.dictionaries(st.sampled_from(["type", "factor", "bits", "group_size", "rope_type"]),
                    st.one_of(st.integers(-1, 64), st.sampled_from(["linear", "yarn", "llama3"])),
                    max_size=3),
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=settings.default.max_examples * 7)
@given(data=st.data())
def test_any_config_gives_replies_or_a_message(sound, tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("any") / "model"
    shutil.copytree(sound, folder)
    for name in ("config.json", "tokenizer_config.json"):
        entries = json.loads((folder / name).read_text())
        extra = ["rope_scaling", "quantization", "text_config", "head_dim", "sliding_window",
                 "layer_types", "bos_token", "add_bos_token", "model_max_length", "tokenizer_class",
                 "added_tokens_decoder", "architectures"]  # fmt: skip
        changes = data.draw(
            st.dictionaries(st.sampled_from([*entries, *extra]), VALUES, max_size=2), label=name
        )
        (folder / name).write_text(json.dumps({**entries, **changes}))
    started = time.process_time()
    with contextlib.suppress(AkunuError):
        use(folder)
    assert time.process_time() - started < 10
    shutil.rmtree(folder)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_weights_that_are_no_regular_file_are_refused_at_once(tmp_path, make):
    """A pipe would wait for its other end; heads are read by the same function."""
    path = tmp_path / "model.safetensors"
    make(path)
    with pytest.raises(ModelFormatError, match="cannot be read: it is"):
        check_weight_file(path)
