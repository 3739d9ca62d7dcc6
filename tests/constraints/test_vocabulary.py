"""A vocabulary as llguidance has it: every token's bytes, ends, and control tokens."""

import json
from types import SimpleNamespace

import pytest
from matched import allowed
from model_folders import write_folder
from shared_files import SHARED

from akunu_py.constraints import MatcherVocabulary, make_matcher
from akunu_py.gguf import GGUFFile
from akunu_py.models.folder_tokenizer import FolderTokenizer
from akunu_py.system.errors import ConfigError
from akunu_py.tokenizers import from_gguf
from akunu_py.values.constraint import Constraint

NAMES = (
    "deepseek-coder", "gemma-4", "gpt-2", "llama-bpe", "llama-spm", "phi-3", "qwen2", "starcoder",
)  # fmt: skip


def shared_tokenizer(name):
    """The tokenizer; skips the test where the vocabulary is absent."""
    path = SHARED / "vocabs" / f"ggml-vocab-{name}.gguf"
    if not path.exists():
        pytest.skip(f"{path.name} is absent: real vocabularies are not shipped")
    with GGUFFile.open(path) as file:
        return from_gguf(file.metadata)


def continued(tokenizer, text):
    before = tokenizer.encode("\x02")
    return tokenizer.encode("\x02" + text)[len(before) :]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_trie_has_our_bytes(name):
    tokenizer = shared_tokenizer(name)
    vocabulary = MatcherVocabulary(tokenizer, tokenizer.vocabulary_size + 5)
    library = vocabulary.library
    controls = tokenizer.control_tokens()
    detokenizer_bytes = tokenizer.token_bytes()
    assert library.vocab_size == tokenizer.vocabulary_size + 5
    assert set(library.eos_tokens) == set(tokenizer.end_ids)
    for id_ in range(tokenizer.vocabulary_size):
        assert library.is_special_token(id_) == (id_ in controls or id_ in tokenizer.end_ids), id_
        if id_ in controls:
            assert detokenizer_bytes[id_] == b""
        else:
            # No text has the byte 0xFF, by which llguidance knows what is not text. It names
            # tokens without bytes.
            ours = detokenizer_bytes[id_].replace(b"\xff", b"") or f"<[{id_}]>".encode()
            assert library.decode_bytes([id_]) == ours, id_
    matcher = make_matcher(Constraint.json_schema({"type": "object"}), vocabulary)
    text = '{"größe": ["日本", 12.5, {"a b": null}]}'
    tokens = continued(tokenizer, text)
    assert b"".join(detokenizer_bytes[token] for token in tokens).decode() == text
    assert matcher.validate(tokens) == len(tokens)


def test_a_folder_of_the_same_vocabulary_has_the_same_bytes(tmp_path, tiny_gguf):
    folder = write_folder(tmp_path / "model", tiny_gguf)
    tokenizer = FolderTokenizer(folder, json.loads((folder / "config.json").read_text()))
    found = tokenizer.token_bytes()
    assert sorted(found[:256]) == [bytes((byte,)) for byte in range(256)]
    for id_, text in tokenizer.control_tokens().items():
        assert found[id_] == b"", text


class Bytes:
    """A tokenizer of bytes, with `<end>` behind them, and what a test asks for.

    Args:
        pair: two characters that are one token.
        ends: ids of ends.
        drops_space: whether decoding drops a space at the beginning.

    """

    def __init__(self, pair="", ends=(256,), *, drops_space=False):
        self.pair, self.end_ids, self.drops_space = pair.encode(), frozenset(ends), drops_space

    def token_bytes(self):
        return [*(bytes((byte,)) for byte in range(256)), b"", self.pair]

    def control_tokens(self):
        return {256: "<end>"}

    def encode(self, text):
        left, ids = text.encode(), []
        while left:
            joined = self.pair and left.startswith(self.pair)
            ids.append(257 if joined else left[0])
            left = left[2 if joined else 1 :]
        return ids

    def decode(self, ids):
        return b"".join(self.token_bytes()[id_] for id_ in ids).decode()

    def detokenizer(self):
        read = self.decode
        text = (lambda ids: read(ids).removeprefix(" ")) if self.drops_space else read
        return SimpleNamespace(feed=text, finish=lambda: "")


def test_a_byte_without_text_is_not_a_control_token():
    library = MatcherVocabulary(Bytes(), 258).library
    assert library.is_special_token(256)
    assert not library.is_special_token(255)


def test_ends_beyond_the_logits_do_not_count():
    assert MatcherVocabulary(Bytes(ends=(256, 300)), 258).end_ids == {256}
    with pytest.raises(ConfigError, match="no token that ends a reply"):
        MatcherVocabulary(Bytes(ends=(300,)), 258)


def test_ids_without_a_token_are_never_allowed():
    vocabulary = MatcherVocabulary(Bytes(), 300)
    mask = make_matcher(Constraint.regex("(?s:.)+"), vocabulary).mask(())
    assert allowed(mask) <= set(range(255))


@pytest.mark.parametrize("pair", ["", "\x02y", "\ny", ".y"])
def test_what_must_come_is_spelled_whatever_tokens_join_before_it(pair):
    matcher = make_matcher(Constraint.choices(["yes"]), MatcherVocabulary(Bytes(pair), 258))
    assert matcher.forced_tokens() == tuple(b"yes")


@pytest.mark.parametrize("drops_space", [True, False])
def test_a_decoder_that_drops_a_space_is_known(drops_space):
    assert MatcherVocabulary(Bytes(drops_space=drops_space), 258).drops_space == drops_space
