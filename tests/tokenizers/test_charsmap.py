"""The charsmap of a unigram vocabulary: real ones pass, damaged ones are refused, none crashes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_llama_cpp import recorded

from akunu_py.system.errors import ModelFormatError
from akunu_py.tokenizers import from_gguf
from akunu_py.tokenizers.spm import read_charsmap

KEY = "tokenizer.ggml.precompiled_charsmap"


def real_charsmap():
    return recorded("unigram")["charsmap"]


def test_real_ones_pass():
    data = real_charsmap()
    assert read_charsmap({KEY: data}) == data.tobytes()
    assert read_charsmap({KEY: data.view(np.int8)}) == data.tobytes()
    assert read_charsmap({}) == b""
    assert read_charsmap({KEY: np.zeros(0, np.uint8)}) == b""


def unit(label=0, offset=0, leaf=False, far=False):
    return label | leaf << 8 | far << 9 | offset << 10


def charsmap(units, texts=b"x\0"):
    words = np.array(units, "<u4").tobytes()
    return np.frombuffer(len(words).to_bytes(4, "little") + words + texts, np.uint8)


def with_child(**child):
    return [*GOOD[:97], unit(label=97, **child), *GOOD[98:]]


GOOD = [unit()] * 256
DAMAGED = {
    "not bytes": np.zeros(9, np.int32),
    "a list": [1, 2],
    "short": np.zeros(3, np.uint8),
    "no texts": charsmap(GOOD, b""),
    "an open text": charsmap(GOOD, b"x"),
    "an odd size": np.frombuffer((5).to_bytes(4, "little") + b"\0" * 9, np.uint8),
    "a size beyond the end": np.frombuffer((1 << 31).to_bytes(4, "little") + b"\0" * 9, np.uint8),
    "no trie": charsmap([], b"x\0"),
    "a trie that is too small": charsmap(GOOD[:255]),
    "a root that leads out": charsmap([unit(offset=300), *GOOD]),
    "a child that leads out": charsmap(with_child(offset=1 << 20)),
    "a far child": charsmap(with_child(offset=5, far=True)),
    "a value beyond the texts": charsmap([unit(leaf=True), *GOOD]),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_ones_are_refused(name):
    with pytest.raises(ModelFormatError, match="precompiled_charsmap"):
        read_charsmap({KEY: DAMAGED[name]})


def test_small_ones_pass():
    read_charsmap({KEY: charsmap(GOOD)})
    read_charsmap({KEY: charsmap([unit(leaf=True), *GOOD], b"x\0" * 200)})


def test_without_the_key_no_space_goes_in_front():
    tokenizer = unigram(np.zeros(0, np.uint8))
    tokens = recorded("unigram")["tokens"].tolist()
    assert not tokens[tokenizer.encode("a")[0]].startswith("▁")
    assert tokenizer.decode(tokenizer.encode(" a")) == " a"


def unigram(charsmap):
    golden = recorded("unigram")
    return from_gguf(
        {
            "tokenizer.ggml.model": "t5",
            "tokenizer.ggml.tokens": golden["tokens"].tolist(),
            "tokenizer.ggml.token_type": golden["types"],
            "tokenizer.ggml.scores": golden["scores"],
            "tokenizer.ggml.unknown_token_id": golden["types"].tolist().index(2),
            KEY: charsmap,
        }
    )


@settings(max_examples=settings.default.max_examples * 2 // 3)
@given(
    changes=st.lists(
        st.tuples(st.integers(0, len(real_charsmap()) - 1), st.integers(0, 255)), max_size=60
    ),
    text=st.text(max_size=40),
)
def test_a_changed_one_never_reads_outside(changes, text):
    data = real_charsmap().copy()
    for place, value in changes:
        data[place] = value
    try:
        tokenizer = unigram(data)
    except ModelFormatError:
        return
    tokenizer.encode(text)
