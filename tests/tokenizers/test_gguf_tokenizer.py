"""Tokenizers against llama.cpp's vectors, special tokens, and damaged vocabularies."""

import gguf
import numpy as np
import pytest
from fuzz_texts import raw_vocabulary
from gguf_files import bpe_vocabulary, spm_vocabulary
from vocabularies import VOCABS, real

from akunu_py.system.errors import ConfigError, ModelFormatError
from akunu_py.tokenizers import from_gguf
from akunu_py.tokenizers.bpe import split_rule

VECTORS = {
    "llama-spm": (True, {"</s>"}),
    "gemma-4": (True, {"<eos>", "<turn|>", "<|tool_response>"}),
    "phi-3": (True, {"</s>", "<|endoftext|>", "<|end|>"}),
    "llama-bpe": (True, {"<|end_of_text|>", "<|eot_id|>"}),
    "qwen2": (False, {"<|endoftext|>", "<|im_end|>"}),
    "deepseek-coder": (True, {"<｜end▁of▁sentence｜>"}),
    "gpt-2": (False, {"<|endoftext|>"}),
    "starcoder": (False, {"<|endoftext|>", "<fim_pad>"}),
}


def tiny_metadata(vocabulary, **changes):
    """Metadata of the tiny test model, without a file; None takes a key out."""
    tokens, types, rest = bpe_vocabulary() if vocabulary == "bpe" else spm_vocabulary()
    metadata = {
        "tokenizer.ggml.model": "gpt2" if vocabulary == "bpe" else "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array(types, np.int32),
        "tokenizer.ggml.bos_token_id": tokens.index("<s>"),
        "tokenizer.ggml.eos_token_id": tokens.index("</s>"),
        "tokenizer.ggml.add_bos_token": True,
    }
    if vocabulary == "bpe":
        metadata |= {"tokenizer.ggml.pre": "llama-bpe", "tokenizer.ggml.merges": rest}
    else:
        metadata |= {
            "tokenizer.ggml.scores": np.array(rest, np.float32),
            "tokenizer.ggml.unknown_token_id": 0,
        }
    for key, value in changes.items():
        name = key.replace("__", ".") if "__" in key else f"tokenizer.ggml.{key}"
        if value is None:
            del metadata[name]
        else:
            metadata[name] = value
    return metadata


def tiny(vocabulary, **changes):
    return from_gguf(tiny_metadata(vocabulary, **changes))


def raw_tokenizer(pre=None):
    """A vocabulary of characters, as Gemma 4's, or of another kind by `pre`."""
    tokens, types, merges = raw_vocabulary()
    metadata = {
        "tokenizer.ggml.model": "gpt2" if pre else "gemma4",
        "tokenizer.ggml.tokens": [*tokens, "<bos>", "<turn|>"],
        "tokenizer.ggml.token_type": np.array([*types, 3, 3], np.int32),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": len(tokens),
    }
    return from_gguf(metadata | ({"tokenizer.ggml.pre": pre} if pre else {}))


BPE, SPM, RAW = tiny("bpe"), tiny("spm"), raw_tokenizer()


@pytest.mark.parametrize(
    "name",
    [
        # Their vocabularies take a second or more to read.
        pytest.param(name, marks=pytest.mark.slow if name in ("gemma-4", "llama-bpe") else ())
        for name in VECTORS
    ],
)
def test_llama_cpp_s_vectors(name):
    tokenizer, metadata = real(name)
    base = VOCABS / f"ggml-vocab-{name}.gguf"
    texts = base.with_suffix(".gguf.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    lines = base.with_suffix(".gguf.out").read_text().removesuffix("\n").split("\n")
    assert len(texts) == (46 if name == "gemma-4" else 47)
    lines += [""] * (len(texts) - len(lines))  # the last text of most is empty
    adds_bos, ends = VECTORS[name]
    for text, line in zip(texts, lines, strict=True):
        ids = tokenizer.encode(text)
        expected = [int(number) for number in line.split()]
        if adds_bos:
            expected.insert(0, metadata["tokenizer.ggml.bos_token_id"])
        assert ids == expected, text
        # A space is written as ▁ in Gemma's, so the two are one there.
        assert tokenizer.decode(ids) == (text.replace("▁", " ") if name == "gemma-4" else text)
    tokens = metadata["tokenizer.ggml.tokens"]
    assert tokenizer.vocabulary_size == len(tokens)
    assert {tokens[id_] for id_ in tokenizer.end_ids} == ends


@pytest.mark.parametrize("vocabulary", ["bpe", "spm"])
class TestSpecialTokens:
    def test_text_of_control_tokens_is_text(self, vocabulary):
        metadata = tiny_metadata(vocabulary)
        tokenizer = from_gguf(metadata)
        types = metadata["tokenizer.ggml.token_type"]
        for text in ("<s>", "</s><|end|>", "a<|user|>b", "<s><s>"):
            ids = tokenizer.encode(text)
            assert tokenizer.decode(ids) == text
            assert [id_ for id_ in ids[1:] if types[id_] == gguf.TokenType.CONTROL] == []

    def test_parse_special(self, vocabulary):
        tokenizer = tiny(vocabulary)
        tokens = tiny_metadata(vocabulary)["tokenizer.ggml.tokens"]
        ids = tokenizer.encode("<|user|>hello<|end|><|assistant|>", parse_special=True)
        words = [tokens[id_] for id_ in ids]
        assert words[:2] == ["<s>", "<|user|>"]
        assert words[-2:] == ["<|end|>", "<|assistant|>"]
        assert tokenizer.decode(ids).strip() == "hello"

    def test_text_that_looks_like_an_end_is_none(self, vocabulary):
        metadata = tiny_metadata(vocabulary)
        ids = [metadata["tokenizer.ggml.tokens"].index("<|end|>")]
        metadata["tokenizer.ggml.token_type"][ids] = gguf.TokenType.NORMAL
        assert not from_gguf(metadata).end_ids & set(ids)
        metadata["tokenizer.ggml.token_type"][ids] = gguf.TokenType.USER_DEFINED
        tokenizer = from_gguf(metadata)
        assert tokenizer.end_ids >= set(ids)
        assert tokenizer.decode(ids) == ""

    def test_half_a_surrogate_pair(self, vocabulary):
        with pytest.raises(ConfigError, match="surrogate"):
            tiny(vocabulary).encode("a\ud800b")

    def test_ids_outside_the_vocabulary(self, vocabulary):
        tokenizer = tiny(vocabulary)
        for id_ in (-1, tokenizer.vocabulary_size):
            with pytest.raises(ConfigError, match="vocabulary"):
                tokenizer.decode([0, id_])


def test_the_longest_special_token_goes_first():
    """As llama.cpp looks for them: "bcd" is found before the "ab" further left."""
    metadata = tiny_metadata("bpe")
    metadata["tokenizer.ggml.tokens"] += ["ab", "bcd"]
    types = metadata["tokenizer.ggml.token_type"]
    metadata["tokenizer.ggml.token_type"] = np.append(types, [4, 4])
    size = len(metadata["tokenizer.ggml.tokens"])
    ids = from_gguf(metadata).encode("abcd")
    assert ids[-1] == size - 1
    assert size - 2 not in ids


def test_merges_never_make_a_control_token():
    metadata = tiny_metadata("bpe")
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    hello = tokens.index("hello")
    assert hello in from_gguf(metadata).encode("hello")
    types[hello] = gguf.TokenType.CONTROL
    tokenizer = from_gguf(metadata)
    ids = tokenizer.encode("hello")
    assert hello not in ids
    assert tokenizer.decode(ids) == "hello"


def test_spm_with_doubled_and_empty_tokens():
    """Real files pad their vocabulary; the last of equal tokens counts."""
    metadata = tiny_metadata("spm")
    metadata["tokenizer.ggml.tokens"] += ["▁hello", "", "", "[PAD]", "[PAD]"]
    types = metadata["tokenizer.ggml.token_type"]
    metadata["tokenizer.ggml.token_type"] = np.append(types, [1, 1, 1, 2, 5])
    scores = metadata["tokenizer.ggml.scores"]
    metadata["tokenizer.ggml.scores"] = np.append(scores, np.float32([-1, 0, 0, 0, 0]))
    tokenizer = from_gguf(metadata)
    assert tokenizer.decode(tokenizer.encode("hello world")) == "hello world"
    assert tokenizer.encode("hello")[1:] == [len(types)]


DAMAGED = [
    ("bpe", {"model": None}, "None"),
    ("bpe", {"model": 5}, "not a text"),
    ("bpe", {"model": "bert"}, "'bert'"),
    ("bpe", {"pre": "klingon"}, "'klingon'"),
    ("bpe", {"pre": "klingon"}, "pre-tokenizer"),
    ("bpe", {"model": "no_vocab"}, "no vocabulary"),
    ("bpe", {"model": "none"}, "no vocabulary"),
    ("bpe", {"model": "rwkv"}, "RWKV.*'gpt2'"),
    ("bpe", {"model": "plamo2"}, "PLaMo 2.*'gpt2'"),
    ("bpe", {"model": "whitespace"}, "embed text"),
    ("bpe", {"tokens": None}, "tokens"),
    ("bpe", {"tokens": []}, "tokens"),
    ("bpe", {"tokens": np.arange(5)}, "tokens"),
    ("bpe", {"token_type": np.ones(5, np.int32)}, "token_type"),
    ("bpe", {"token_type": "x"}, "token_type"),
    ("bpe", {"merges": None}, "merges"),
    ("bpe", {"merges": ["hello"]}, "merges.0."),
    ("bpe", {"merges": ["h e", " e"]}, "merges.1."),
    ("bpe", {"merges": ["h e", "h "]}, "merges.1."),
    ("bpe", {"merges": ["h e l"]}, "merges.0."),
    ("bpe", {"merges": ["z qqq"]}, "is not a token"),
    ("bpe", {"merges": ["z z"]}, "is not a token"),
    ("bpe", {"bos_token_id": 10**6}, "bos_token_id"),
    ("bpe", {"bos_token_id": True}, "bos_token_id"),
    ("bpe", {"eos_token_id": "2"}, "eos_token_id"),
    ("bpe", {"add_bos_token": 1}, "add_bos_token"),
    ("bpe", {"bos_token_id": None}, "bos_token_id is missing"),
    ("spm", {"scores": None}, "scores"),
    ("spm", {"scores": np.zeros(5, np.float32)}, "scores"),
    ("spm", {"scores": np.zeros(432, np.uint8)}, "scores"),
    ("spm", {"token_type": None}, "token_type"),
    ("spm", {"tokenizer__chat_template": 5}, "chat_template"),
]  # fmt: skip


@pytest.mark.parametrize("source", ["{% if", " " * 2**19])
def test_a_damaged_template_is_an_error_of_conversations_alone(source):
    tokenizer = tiny("spm", tokenizer__chat_template=source)
    assert tokenizer.encode("hello")
    with pytest.raises(ModelFormatError, match="chat template"):
        tokenizer.encode_chat([{"role": "user", "content": "hello"}])


def test_an_optional_special_id_out_of_range_is_left_out(caplog):
    assert "padding" not in tiny("bpe", padding_token_id=2**32 - 1).special_ids
    assert "padding_token_id" in caplog.text


@pytest.mark.parametrize(("vocabulary", "changes", "words"), DAMAGED)
def test_damaged_vocabularies(vocabulary, changes, words):
    with pytest.raises(ModelFormatError, match=words):
        tiny(vocabulary, **changes)


def test_damaged_entries():
    for text in ("<0x-1>", "<0xGG>", "<0x0>", "byte"):
        metadata = tiny_metadata("spm")
        metadata["tokenizer.ggml.tokens"][metadata["tokenizer.ggml.tokens"].index("<0x00>")] = text
        with pytest.raises(ModelFormatError, match="byte token"):
            from_gguf(metadata)
    metadata = tiny_metadata("spm")
    metadata["tokenizer.ggml.tokens"][metadata["tokenizer.ggml.tokens"].index("<0x00>")] = "<0x01>"
    with pytest.raises(ModelFormatError, match="255 of 256"):
        from_gguf(metadata)
    metadata = tiny_metadata("spm")
    metadata["tokenizer.ggml.scores"][7] = np.nan
    with pytest.raises(ModelFormatError, match="finite"):
        from_gguf(metadata)
    metadata = tiny_metadata("bpe")
    metadata["tokenizer.ggml.token_type"][3] = 9
    with pytest.raises(ModelFormatError, match="type 9"):
        from_gguf(metadata)


def test_a_missing_begin_token_matters_only_where_it_is_asked_for():
    assert tiny("bpe", bos_token_id=None, add_bos_token=None).encode("") == []


def test_without_a_name_the_default_rule_and_a_warning(caplog):
    assert split_rule(None) == split_rule("default")
    assert "pre-tokenizer" in caplog.text


def test_a_pre_tokenizer_of_ones_own():
    metadata = tiny_metadata("bpe", pre="klingon")
    chosen = from_gguf(metadata, pre_tokenizer="qwen2")
    assert chosen.encode("12345 hello") == tiny("bpe", pre="qwen2").encode("12345 hello")
    with pytest.raises(ConfigError, match=r"no pre-tokenizer named 'x'.*qwen2"):
        from_gguf(metadata, pre_tokenizer="x")
    with pytest.raises(ConfigError, match="leave pre_tokenizer out"):
        from_gguf(tiny_metadata("spm"), pre_tokenizer="qwen2")
