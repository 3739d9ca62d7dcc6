"""The tokenizer.json of a converted model against akunu's own tokenizer."""

import json
import re

import numpy as np
import pytest
from fuzz_texts import gapped_vocabulary, make_texts, vocabulary_texts
from tokenizers import Tokenizer
from vocabularies import real, small

from akunu_py.tokenizers import from_gguf
from akunu_py.tokenizers.hugging_face import tokenizer_files

# Gemma 4's kind is not exported.
NAMES = (
    "llama-spm", "phi-3", "llama-bpe", "qwen2", "deepseek-coder", "gpt-2", "starcoder",
)  # fmt: skip
# White space after a control token of Phi-3's: llama.cpp, and so akunu, takes that of ASCII alone.
_WIDE_SPACE = re.compile(r"<\|\w+\|>[\t-\r ]*(?![\t-\r ])\s|</s>[\t-\r ]*(?![\t-\r ])\s")


def exported(metadata):
    return json.dumps(tokenizer_files(metadata)["tokenizer.json"], ensure_ascii=False)


def check(tokenizer, metadata, texts):
    """Compare both ways, with control tokens as tokens and as text."""
    content = exported(metadata)
    file, as_text = Tokenizer.from_str(content), Tokenizer.from_str(content)
    as_text.encode_special_tokens = True
    begin = tokenizer.encode("")
    written = metadata["tokenizer.ggml.tokens"][begin[0]] if begin else None
    for text in texts:
        plain = tokenizer.encode(text)
        assert as_text.encode(text).ids == plain, text
        assert file.decode(plain) == tokenizer.decode(plain), text
        ids = tokenizer.encode(text, parse_special=True)
        # Where a text has its begin token, mlx-lm asks for none besides, as for others' files.
        adds = written is None or not text.startswith(written)
        assert file.encode(text, add_special_tokens=adds).ids == ids, text
        assert file.decode(ids) == tokenizer.decode(ids), text


def fitting(name, texts):
    return [text for text in texts if name != "phi-3" or not _WIDE_SPACE.search(text)]


@pytest.mark.parametrize("name", NAMES)
def test_small_vocabularies(name):
    tokenizer, metadata = small(name)
    texts = ["schön Köln løb", *vocabulary_texts(metadata, 100)]
    check(tokenizer, metadata, fitting(name, texts))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_real_vocabularies_on_many_texts(name):
    tokenizer, metadata = real(name)
    texts = fitting(name, vocabulary_texts(metadata, 2000))
    assert len(texts) > 1900
    check(tokenizer, metadata, texts)


def odd_metadata():
    """A byte-level vocabulary whose user-defined tokens look like the byte alphabet, with gaps."""
    tokens, merges = gapped_vocabulary()
    unused = {"\u00f6", "\u00f8", "\u00c0"}  # as letters: bytes that UTF-8 does not have
    letters = [token for token in tokens if len(token) == 1 and token not in unused]
    merges = merges[:4000]
    normal = letters + [merge.replace(" ", "") for merge in merges]
    defined = [*sorted(unused), "öø"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [*normal, *defined, "<|é|>"],
        "tokenizer.ggml.token_type": np.array(
            [1] * len(normal) + [4] * len(defined) + [3], np.int32
        ),
        "tokenizer.ggml.merges": merges,
    }


def test_user_defined_tokens_that_look_like_bytes():
    metadata = odd_metadata()
    tokenizer = from_gguf(metadata)
    assert tokenizer.decode(tokenizer.encode("schön løb öø")) == "schön løb öø"
    texts = ["schön Köln løb", "øöø", "À<|é|>ö", "éö", *make_texts(3, 300, ("ö", "öø"), ("<|é|>",))]
    check(tokenizer, metadata, texts)
    file = Tokenizer.from_str(exported(metadata))
    control = tokenizer.encode("a<|é|>b", parse_special=True)
    assert file.decode(control, skip_special_tokens=False) == "a<|é|>b"
