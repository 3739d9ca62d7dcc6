"""A vocabulary as llguidance has it: every token's bytes, ends, and control tokens."""

import json

import pytest
from model_folders import write_folder
from vocabularies_of import NAMES, shared_tokenizer

from akunu_py.constraint import Constraint
from akunu_py.constraints import MatcherVocabulary, make_matcher
from akunu_py.models.folder_tokenizer import FolderTokenizer


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
