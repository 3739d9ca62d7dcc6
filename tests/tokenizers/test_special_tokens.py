"""Special tokens: begin and end, filling in code, what ends a reply, white space after a token."""

import numpy as np
import pytest
from test_gguf_tokenizer import tiny, tiny_metadata
from vocabularies import small

from akunu_py.system.errors import ConfigError
from akunu_py.tokenizers import from_gguf
from akunu_py.tokenizers.gguf_tokenizer import partition

CONTROL, USER_DEFINED, NORMAL = 3, 4, 1


def with_tokens(vocabulary, *tokens, **changes):
    """The tiny vocabulary with further tokens: pairs of text and type."""
    metadata = tiny_metadata(vocabulary, **changes)
    metadata["tokenizer.ggml.tokens"] += [text for text, _ in tokens]
    types = metadata["tokenizer.ggml.token_type"]
    metadata["tokenizer.ggml.token_type"] = np.append(types, [kind for _, kind in tokens])
    if vocabulary == "spm":
        scores = metadata["tokenizer.ggml.scores"]
        metadata["tokenizer.ggml.scores"] = np.append(scores, np.float32([0] * len(tokens)))
    return metadata, metadata["tokenizer.ggml.tokens"].index


def ends(metadata):
    return {metadata["tokenizer.ggml.tokens"][id_] for id_ in from_gguf(metadata).end_ids}


def test_user_defined_tokens_are_their_text_and_not_bytes():
    """DeepSeek's "ö" is the letter; in the alphabet of bytes it would be the byte 0xF6."""
    metadata, index = with_tokens("bpe", ("öö", USER_DEFINED))
    tokenizer = from_gguf(metadata)
    assert tokenizer.encode("aööb")[2] == index("öö")
    assert tokenizer.decode([index("öö")]) == "öö"


FILL = [("<fim_prefix>", CONTROL), ("<fim_suffix>", CONTROL), ("<fim_middle>", CONTROL)]


@pytest.mark.parametrize("vocabulary", ["bpe", "spm"])
class TestFill:
    def test_control_tokens_in_the_texts_are_text(self, vocabulary):
        metadata, index = with_tokens(vocabulary, *FILL)
        ids = from_gguf(metadata).encode_fill("a<fim_suffix>", "<s><fim_middle>")
        for text in ("<s>", "<fim_prefix>", "<fim_suffix>", "<fim_middle>"):
            assert ids.count(index(text)) == 1

    def test_without_tokens_for_it(self, vocabulary):
        with pytest.raises(ConfigError, match="no fim_pre, fim_suf, fim_mid token; use"):
            tiny(vocabulary).encode_fill("a", "b")
        metadata, _ = with_tokens(vocabulary, *FILL[:2])
        with pytest.raises(ConfigError, match="no fim_mid token"):
            from_gguf(metadata).encode_fill("a", "b")

    def test_ordinary_text_is_none(self, vocabulary):
        metadata, _ = with_tokens(vocabulary, ("<PRE>", NORMAL), ("[PAD]", NORMAL))
        assert from_gguf(metadata).fim_ids == {}


@pytest.mark.parametrize("vocabulary", ["bpe", "spm"])
class TestEnds:
    def test_html_in_gemma(self, vocabulary):
        metadata, index = with_tokens(
            vocabulary, ("<|tool_response>", USER_DEFINED), eos_token_id=3
        )
        assert "<|tool_response>" in ends(metadata)
        assert "</s>" not in ends(metadata)


@pytest.mark.parametrize("vocabulary", ["bpe", "spm"])
def test_a_prompt_never_gets_an_end_token(vocabulary):
    metadata = tiny_metadata(vocabulary, add_eos_token=True)
    eos = metadata["tokenizer.ggml.eos_token_id"]
    assert eos not in from_gguf(metadata).encode("hello")


class TestWhiteSpaceAfterATokenOfPhi3:
    def test_is_swallowed(self):
        tokenizer, metadata = small("phi-3")
        tokens = metadata["tokenizer.ggml.tokens"]
        ids = tokenizer.encode("<|user|> \n\t a<|end|>", parse_special=True)
        assert [tokens[id_] for id_ in ids] == ["<s>", "<|user|>", "▁a", "<|end|>"]
        assert tokenizer.encode("<|endoftext|> \na", parse_special=True) != tokenizer.encode(
            "<|endoftext|>a", parse_special=True
        )

    def test_by_the_name_of_the_model(self):
        named = tiny("bpe", general__name="My Phi-3 mini")
        text = "<|user|> \n a<|end|>\n"
        assert named.decode(named.encode(text, parse_special=True)) == "a"
        other = tiny("bpe", general__name="other")
        assert other.decode(other.encode(text, parse_special=True)) == " \n a\n"

    def test_only_after_it(self):
        assert partition(" <x> a <x> ", [("<x>", 7)], {7}) == [" ", 7, "a ", 7]
        assert partition(" <x> a", [("<x>", 7)], {8}) == [" ", 7, " a"]
        assert partition("<x>\u00a0a", [("<x>", 7)], {7}) == [7, "\u00a0a"]
