"""The tokenizers of MLX folders from strangers: what is odd in them is refused, by file and place.

Mutants, made by hand, that these tests kill: an id of an added token not compared; words with one
id taken; the growth of a normalizer not bounded; the trial at the end left out; a panic let through
from `encode`, `decode` or the detokenizer; dropout left on.
"""

import contextlib
import copy
import json
import os
import random
import shutil
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_folders import change_json
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing

from akunu_py.models import folder_settings
from akunu_py.models.folder_tokenizer import FolderTokenizer
from akunu_py.models.sources.mlx_folder import read_whole_config
from akunu_py.models.tokenizer_files import check_tokenizer_files
from akunu_py.models.weight_files import check_weight_file
from akunu_py.system.errors import AkunuError, ConfigError, ModelFormatError

TEXTS = ["", "hello world", "h\u00e9llo \U0001f600 </s> <s>foo 12\n\n", "\0", "a" * 40 + "b"]
FILES = {
    "tokenizer_config.json": {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "add_bos_token": True,
        "additional_special_tokens": ["<|im_end|>"],
        "added_tokens_decoder": {"1": {"content": "</s>", "special": True, "lstrip": False}},
        "model_max_length": 512,
        "chat_template": "{% for m in messages %}{{ m['content'] }}\n{% endfor %}",
    },
    "special_tokens_map.json": {"eos_token": {"content": "</s>", "lstrip": False}},
    "generation_config.json": {"eos_token_id": [1], "temperature": 0.7},
    "config.json": {"model_type": "llama", "eos_token_id": 1, "vocab_size": 310},
}


def of_bytes():
    """Byte-level BPE, with all parts that such files have."""
    words = ["<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "he", "ll"]
    ids = {word: id_ for id_, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(ids, [("h", "e"), ("l", "l")]))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>", AddedToken("<|im_end|>")])
    tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return tokenizer


def of_pieces():
    """SentencePiece's BPE with byte fallback."""
    words = ["<s>", "</s>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁helowrd", "he"]
    ids = {word: id_ for id_, word in enumerate(words)}
    tokenizer = Tokenizer(
        models.BPE(ids, [("h", "e")], byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    spaced, strip = decoders.Replace("▁", " "), decoders.Strip(" ", 1, 0)
    parts = [spaced, decoders.ByteFallback(), decoders.Fuse(), strip]
    tokenizer.decoder = decoders.Sequence(parts)
    tokenizer.add_special_tokens(["<s>", "</s>", "<unk>"])
    return tokenizer


def of_words():
    """A word is a token."""
    ids = {"<s>": 0, "</s>": 1, "hello": 2, "<unk>": 3}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    return tokenizer


SOUND = {
    make.__name__: {**FILES, "tokenizer.json": json.loads(make().to_str())}
    for make in (of_bytes, of_pieces, of_words)
}


@pytest.fixture
def folder(tmp_path):
    return written(tmp_path / "model", copy.deepcopy(SOUND["of_bytes"]))


def written(folder, files):
    folder.mkdir()
    for name, content in files.items():
        text = json.dumps(content, ensure_ascii=True)
        (folder / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    return folder


def change(folder, *path, value):
    """Set a value of tokenizer.json, which is at a path of keys and indices."""
    file = folder / "tokenizer.json"
    content = place = json.loads(file.read_text())
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    file.write_text(json.dumps(content))


def use(folder):
    """Load a tokenizer and call everything it has."""
    check_tokenizer_files(folder)
    tokenizer = FolderTokenizer(folder, read_whole_config(folder))
    for text in TEXTS:
        for special in (False, True):
            ids = tokenizer.encode(text, parse_special=special)
            assert all(type(id_) is int and id_ >= 0 for id_ in ids)
            assert ids == tokenizer.encode(text, parse_special=special)
            tokenizer.decode(ids, with_control=special)
    if tokenizer.has_chat_template:
        tokenizer.encode_chat([{"role": "user", "content": "hello </s>"}])
    texts = tokenizer.token_texts()
    for text, id_ in tokenizer._wrapper.get_vocab().items():
        assert texts[id_] == text
    detokenizer = tokenizer.detokenizer()
    detokenizer.feed(range(min(len(texts), 300)))
    detokenizer.finish()
    with contextlib.suppress(ConfigError):  # the bytes of tokens are not always known
        tokenizer.token_bytes()
    return tokenizer


def opened(folder):
    folder_settings.read_folder_config(folder)
    return use(folder)


@pytest.mark.parametrize("kind", SOUND)
def test_sound_files_load(tmp_path, kind):
    tokenizer = use(written(tmp_path / "model", SOUND[kind]))
    assert tokenizer.decode(tokenizer.encode("hello")) == "hello"


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 3\n"


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "tokenizer.model"])
def test_pointers_of_git_lfs_say_what_to_do(folder, name):
    (folder / name).write_text(POINTER)
    with pytest.raises(ModelFormatError, match=rf"{name} is a Git LFS pointer.* `git lfs pull`"):
        opened(folder)
    (folder / "model.safetensors").write_text(POINTER)
    with pytest.raises(ModelFormatError, match=r"safetensors is a Git LFS pointer"):
        check_weight_file(folder / "model.safetensors")


def test_what_macos_writes_beside_files_is_not_read(folder):
    for name in [*FILES, "tokenizer.json", "chat_template.jinja", "tokenizer.model"]:
        (folder / f"._{name}").write_bytes(b"\0\5\x16\7\xff Mac OS X")
    assert opened(folder).encode("he") == FolderTokenizer(folder, {}).encode("he")


def added(id_, text):
    token = {"id": id_, "content": text, "special": True, "single_word": False}
    return [{**token, "lstrip": False, "rstrip": False, "normalized": False}]


def splitting_at(expression):
    return {
        "type": "Split", "behavior": "Isolated", "invert": False, "pattern": {"Regex": expression}
    }  # fmt: skip


GROWING = {"type": "Replace", "pattern": {"Regex": "."}, "content": "x" * 1000}


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (
            ["model"],
            {"type": "BPE", "vocab": {}, "merges": []},
            "the id 260, and would make it 2 beside",
        ),
        (["model", "vocab"], {}, "out of vocabulary"),
        (["model", "vocab", "a"], 2**31, r"Expected `int` <= 16777215 - at `\$.model.vocab"),
        (["model", "vocab", "a"], -1, "Expected `int` >= 0"),
        (["model", "vocab", "a"], 1.5, "Expected `int`, got `float`"),
        (["model", "vocab", "a"], True, "Expected `int`, got `bool`"),
        (["model", "vocab", "a"], None, "Expected `int`, got `null`"),
        (["model", "vocab", "he"], 99, "and .he. the id 99"),
        (["model", "merges"], [["q", "zz"]], "out of vocabulary"),
        (["model", "merges"], ["q"], "Merges text file invalid"),
        (["model", "continuing_subword_prefix"], "##", "out of vocabulary|PanicException"),
        (["model"], [], "Expected `object`, got `array`"),
        (["added_tokens"], added(999, "<x>"), "gives '<x>' the id 999, and would make it 260"),
        (["added_tokens"], added(7, "<s>"), "gives '<s>' the id 7, and would make it 0"),
        (["added_tokens"], added("7", "<s>"), r"Expected `int`, got `str` - at `\$.added_tokens"),
        (["added_tokens"], {"a": 1}, "Expected `array`, got `object`"),
        (["normalizer"], {"type": "Sequence", "normalizers": [GROWING] * 3}, "1000 times longer"),
        (["normalizer"], {"type": "none"}, "cannot be loaded"),
        (["pre_tokenizer"], {"type": "none"}, "cannot be loaded"),
        (["pre_tokenizer"], splitting_at("["), "premature end of char-class"),
        (["pre_tokenizer"], splitting_at("(a+)+$"), "retry-limit"),
        (["decoder"], {"type": "none"}, "cannot be loaded"),
        (
            ["decoder"],
            {"type": "Strip", "content": "\u0120", "start": 9, "stop": 9},
            "PanicException",
        ),
        (["post_processor", "special_tokens"], {}, "no entry found|cannot be loaded"),
        (["version"], "9.9", "Unknown tokenizer version"),
    ],
    ids=str,
)
def test_tokenizers_that_do_not_hold_together_are_refused(folder, path, value, words):
    change(folder, *path, value=value)
    with pytest.raises(ModelFormatError, match=words) as caught:
        use(folder)
    assert str(folder / "tokenizer.json") in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_an_unknown_token_that_is_none_is_refused(tmp_path):
    """It is only needed for letters without a token."""
    folder = written(tmp_path / "model", SOUND["of_words"])
    change(folder, "model", "unk_token", value="<none>")
    with pytest.raises(ModelFormatError, match=r"tokenizer.json cannot be loaded: .*UNK"):
        use(folder)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("tokenizer_config.json", {"unk_token": 5}, "unk_token"),
        ("tokenizer_config.json", {"add_bos_token": "yes"}, "add_bos_token"),
        ("tokenizer_config.json", {"added_tokens_decoder": {"x": {}}}, "added_tokens_decoder"),
        ("tokenizer_config.json", {"added_tokens_decoder": {"-1": {"content": "x"}}}, ">= 0"),
        ("tokenizer_config.json", {"tokenizer_class": []}, "tokenizer_class"),
        ("special_tokens_map.json", {"eos_token": {"content": 5}}, "eos_token.content"),
        ("added_tokens.json", {"<x>": "5"}, "Expected `int`, got `str`"),
        ("tokenizer_config.json", {"eos_token": 5}, "eos_token"),
        ("generation_config.json", {"eos_token_id": "5"}, "eos_token_id"),
        ("config.json", {"eos_token_id": [True]}, "eos_token_id"),
    ],
    ids=str,
)
def test_values_beside_it_are_named_with_their_file(folder, name, value, words):
    if name == "config.json":
        (folder / "generation_config.json").unlink()
    (folder / name).write_text(json.dumps({**FILES.get(name, {}), **value}))
    with pytest.raises(ModelFormatError, match=words) as caught:
        use(folder)
    assert str(folder / name) in str(caught.value)


def a_socket(path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


ODD = {
    "pipe": os.mkfifo,
    "folder": os.mkdir,
    "socket": a_socket,
    "dangling link": lambda path: path.symlink_to(path.parent / "nowhere"),
    "link to itself": lambda path: path.symlink_to(path),
    "empty": lambda path: path.write_bytes(b""),
    "bytes": lambda path: path.write_bytes(random.Random(1).randbytes(300)),
    "page": lambda path: path.write_text("<!DOCTYPE html>"),
    "mark": lambda path: path.write_bytes(b"\xef\xbb\xbf{}"),
    "nested": lambda path: path.write_text('{"a":' * 100_000),
    "list": lambda path: path.write_text("[1]"),
    "null": lambda path: path.write_text("null"),
}


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
             "added_tokens.json", "generation_config.json"],
)  # fmt: skip
def test_files_that_are_none_are_named(folder, name, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)  # a socket's path is short
    for make in ODD.values():
        path = folder / name
        path.unlink(missing_ok=True)
        make(path.relative_to(folder) if make is a_socket else path)
        with pytest.raises(ModelFormatError) as caught:
            opened(folder)
        assert str(path) in str(caught.value)
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def test_a_config_that_transformers_does_not_take_is_not_the_tokenizer_s(folder):
    config = {**FILES["config.json"], "hidden_size": "wide"}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelFormatError, match="hidden_size") as caught:
        use(folder)
    assert "tokenizer.json" not in str(caught.value)


def test_a_file_that_may_not_be_read_is_named(folder, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(folder_settings, "open_to_read", refuse)
    with pytest.raises(ModelFormatError, match=r"json cannot be read: Permission denied"):
        folder_settings.read_folder_config(folder)


def test_a_template_in_the_file_of_a_processor(folder):
    """Where models with pictures have it alone; the tokenizer's own comes first."""
    hello, processor = [{"role": "user", "content": "hello"}], folder / "chat_template.json"
    processor.write_text(json.dumps({"chat_template": "other"}))
    own = use(folder).encode_chat(hello)
    change_json(folder / "tokenizer_config.json", chat_template=None)
    assert use(folder).chat_text(hello) == "other"
    (folder / "chat_template.jinja").write_text("third")
    assert use(folder).chat_text(hello) == "third"
    (folder / "chat_template.jinja").unlink()
    processor.write_text(
        json.dumps({"chat_template": FILES["tokenizer_config.json"]["chat_template"]})
    )
    assert use(folder).encode_chat(hello) == own
    for content in ({}, {"chat_template": None}):
        processor.write_text(json.dumps(content))
        assert not use(folder).has_chat_template
    processor.write_text(json.dumps({"chat_template": 5}))
    with pytest.raises(ModelFormatError, match=r"chat_template.json is malformed"):
        use(folder)


@pytest.mark.parametrize(
    ("template", "ends"),
    [
        ("{{ '<|im_end|>' }}", {"</s>", "<|im_end|>"}), ("<|end|>", {"</s>", "<|end|>"}),
        # In gpt-oss it ends the thoughts alone.
        ("<|end|><|call|><|return|>", {"</s>", "<|call|>", "<|return|>"}),
        ("<|start|>", {"</s>"}), (None, {"</s>"}),
    ],
)  # fmt: skip
def test_what_the_template_writes_behind_a_reply_ends_one(folder, template, ends):
    """Whatever the configs say: some name the end of texts alone."""
    marks = ["<|end|>", "<|call|>", "<|return|>", "<|start|>"]
    content = json.loads((folder / "tokenizer.json").read_text())
    first = max(token["id"] for token in content["added_tokens"]) + 1
    like = content["added_tokens"][0]
    content["added_tokens"] += [
        {**like, "id": first + number, "content": text, "special": number > 0}
        for number, text in enumerate(marks)
    ]
    (folder / "tokenizer.json").write_text(json.dumps(content))
    change_json(folder / "tokenizer_config.json", chat_template=template)
    tokenizer = use(folder)
    texts = tokenizer.token_texts()
    assert {texts[id_] for id_ in tokenizer.end_ids} == ends


def test_a_template_that_is_no_text(folder):
    (folder / "chat_template.jinja").write_bytes(b"\xff\xfe\0")
    with pytest.raises(ModelFormatError, match=r"chat_template.jinja is malformed"):
        use(folder)


@pytest.mark.parametrize("content", [b"", b"\0" * 99, random.Random(2).randbytes(999)])
def test_models_of_sentencepiece_that_are_none(folder, content):
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelFormatError, match=r"has no tokenizer.json or other tokenizer"):
        use(folder)
    (folder / "tokenizer.model").write_bytes(content)
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "LlamaTokenizer"}')
    with pytest.raises(ModelFormatError, match=r"tokenizer.model"):
        use(folder)


def test_dropout_is_for_training(folder):
    change(folder, "model", "dropout", value=0.9)
    assert len({tuple(use(folder).encode("hello hello hello")) for _ in range(5)}) == 1


def test_a_library_that_panics_later_is_reported(folder):
    """The trial text does not have everything."""
    change(folder, "pre_tokenizer", value=splitting_at("(q+)+$"))
    tokenizer = use(folder)
    with pytest.raises(ModelFormatError, match=r"tokenizer.json fails: PanicException"):
        tokenizer.encode("q" * 40 + "b")


VALUES = st.sampled_from([
    None, True, 0, -1, 1, 7, 2**31, 2**64, 1.5, float("nan"), "", "x", "<s>", "BPE", "ByteLevel",
    "Sequence", "\ud800", "(a+)+$", "[", "a" * 5000, [], {}, [[]], [{}], ["a", "b"], [1], {"a": 1},
    {"type": "ByteLevel"}, {"type": "Sequence", "decoders": []}, [None], {"content": 5},
])  # fmt: skip


def places(value, path=()):
    """Yield the path of each value in a JSON value, of a long list or vocabulary only some."""
    if path:
        yield path
    items = list(value.items() if isinstance(value, dict) else enumerate(value))
    for key, part in items[:9] + items[9:][-3:]:
        if isinstance(part, dict | list):
            yield from places(part, (*path, key))
        else:
            yield (*path, key)


@given(data=st.data())
def test_mutants_load_or_are_refused(tmp_path_factory, data):
    files = copy.deepcopy(SOUND[data.draw(st.sampled_from(sorted(SOUND)), label="kind")])
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from(list(places(files))), label="place")
        at = files
        for key in path[:-1]:
            at = at[key]
        if data.draw(st.booleans(), label="left out"):
            del at[path[-1]]
        else:
            at[path[-1]] = data.draw(VALUES, label="value")
    folder = tmp_path_factory.mktemp("mutant") / "model"
    written(folder, files)
    try:
        opened(folder)
    except AkunuError as error:
        assert len(str(error)) < 1000  # noqa: PT017
    shutil.rmtree(folder)
