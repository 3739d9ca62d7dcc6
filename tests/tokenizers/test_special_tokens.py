"""Special tokens: begin and end, filling in code, what ends a reply, white space after a token."""

import numpy as np
import pytest
from test_gguf_tokenizers import raw_tokenizer, tiny, tiny_metadata
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
    def test_prefix_suffix_middle(self, vocabulary):
        metadata, index = with_tokens(vocabulary, *FILL)
        tokenizer = from_gguf(metadata)
        pre, suf, mid = (index(text) for text, _ in FILL)
        assert tokenizer.fim_ids == {"pre": pre, "suf": suf, "mid": mid}
        ids = tokenizer.encode_fill("def hello", "return the")
        assert ids == [
            index("<s>"), pre, *tokenizer.encode("def hello")[1:],
            suf, *tokenizer.encode("return the")[1:], mid,
        ]  # fmt: skip
        empty = tokenizer.encode_fill("", "")
        assert empty == [index("<s>"), pre, suf, mid]

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

    def test_named_by_the_file_old_and_new(self, vocabulary):
        metadata = tiny_metadata(vocabulary)
        metadata["tokenizer.ggml.prefix_token_id"] = 5
        metadata["tokenizer.ggml.suffix_token_id"] = 6
        metadata["tokenizer.ggml.middle_token_id"] = 7
        metadata["tokenizer.ggml.fim_mid_token_id"] = 4
        assert from_gguf(metadata).fim_ids == {"pre": 5, "suf": 6, "mid": 4}

    def test_user_defined_ones_are_no_text(self, vocabulary):
        """As converters mark them; otherwise a user's text would hold the token."""
        metadata, index = with_tokens(vocabulary, ("<|fim_middle|>", USER_DEFINED))
        tokenizer = from_gguf(metadata)
        assert tokenizer.fim_ids == {"mid": index("<|fim_middle|>")}
        assert index("<|fim_middle|>") not in tokenizer.encode("a<|fim_middle|>b")
        assert tokenizer.decode([index("<|fim_middle|>")]) == ""

    def test_ordinary_text_is_none(self, vocabulary):
        metadata, _ = with_tokens(vocabulary, ("<PRE>", NORMAL), ("[PAD]", NORMAL))
        assert from_gguf(metadata).fim_ids == {}


@pytest.mark.parametrize("vocabulary", ["bpe", "spm"])
class TestEnds:
    @pytest.mark.parametrize(
        "text", ["<｜end▁of▁sentence｜>", "<|return|>", "[e~[", "<|fim_pad|>", "[PAD]", "<|file_sep|>", "<reponame>", "<eos>", "<turn|>"]
    )  # fmt: skip
    def test_by_text(self, vocabulary, text):
        metadata, _ = with_tokens(vocabulary, (text, CONTROL))
        assert text in ends(metadata)
        metadata, _ = with_tokens(vocabulary, (text, NORMAL))
        assert text not in ends(metadata)

    def test_named_by_the_file(self, vocabulary):
        for name in ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep"):
            metadata = tiny_metadata(vocabulary, **{f"{name}_token_id": 3})
            assert 3 in from_gguf(metadata).end_ids
        for name in ("bos", "padding", "fim_pre"):
            metadata = tiny_metadata(vocabulary, **{f"{name}_token_id": 3})
            assert 3 not in from_gguf(metadata).end_ids

    @pytest.mark.parametrize(
        ("others", "ends_by_end"),
        [
            (("<|return|>", "<|call|>"), False), (("<|flush|>", "<|calls|>"), False),
            (("<|return|>", "<|calls|>"), False), (("<|return|>",), True), (("<|call|>",), True),
            (("<|flush|>", "<|return|>"), True),
        ],
    )  # fmt: skip
    def test_an_analysis_ends_by_end(self, vocabulary, others, ends_by_end):
        metadata, _ = with_tokens(vocabulary, *((text, CONTROL) for text in others))
        assert ("<|end|>" in ends(metadata)) == ends_by_end

    def test_html_in_gemma(self, vocabulary):
        metadata, index = with_tokens(
            vocabulary, ("<|tool_response>", USER_DEFINED), eos_token_id=3
        )
        assert "<|tool_response>" in ends(metadata)
        assert "</s>" not in ends(metadata)

    def test_special_ids(self, vocabulary):
        metadata, index = with_tokens(vocabulary, ("<|im_end|>", CONTROL), ("<|eom_id|>", CONTROL))
        ids = from_gguf(metadata).special_ids
        assert ids["eot"] == index("<|im_end|>")  # before <|end|>, in the order of the list
        assert ids["eom"] == index("<|eom_id|>")
        assert ids["bos"] == index("<s>")


@pytest.mark.parametrize("vocabulary", ["bpe", "spm"])
def test_an_end_token_only_where_asked_for_and_once(vocabulary):
    metadata = tiny_metadata(vocabulary, add_eos_token=True)
    eos = metadata["tokenizer.ggml.eos_token_id"]
    tokenizer = from_gguf(metadata)
    assert eos not in tokenizer.encode("hello")
    assert tokenizer.encode("hello", with_end=True) == [*tokenizer.encode("hello"), eos]
    once = tokenizer.encode("hello</s>", parse_special=True, with_end=True)
    assert once.count(eos) == 1
    assert eos not in tiny(vocabulary).encode("hello", with_end=True)


def test_ids_that_llama_cpp_takes_where_none_is_named():
    tokenizer = tiny("spm", bos_token_id=None, eos_token_id=None, unknown_token_id=None)
    ids = tokenizer.special_ids
    assert (ids["bos"], ids["eos"], ids["unknown"]) == (1, 2, 0)
    assert tokenizer.encode("hello")[0] == 1
    # Only where the token there is what it should be.
    metadata = tiny_metadata("spm", bos_token_id=None, add_bos_token=False)
    metadata["tokenizer.ggml.token_type"][1] = NORMAL
    assert "bos" not in from_gguf(metadata).special_ids


def test_gemma_begins_whatever_the_file_says():
    tokenizer = raw_tokenizer()
    bos = tokenizer.special_ids["bos"]
    assert tokenizer.encode("a")[0] == bos
    assert tokenizer.encode("<bos>a", parse_special=True).count(bos) == 1


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
