"""Token ids against llama.cpp's, recorded by scripts/record_references.py."""

import functools
import json
import re
from pathlib import Path

import numpy as np
import pytest
from fuzz_texts import (
    digest,
    gapped_vocabulary,
    make_texts,
    pair_vocabulary,
    raw_vocabulary,
    vocabulary_texts,
    white_space_texts,
)
from vocabularies import EACH, VOCABS, real, small

from akunu_py.tokenizers import bpe, from_gguf
from akunu_py.tokenizers.bpe import split_rule, split_rule_names

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "tokenizers"


def rows(ids, sizes):
    ends = np.cumsum(sizes)
    return [part.tolist() for part in np.split(ids, ends[:-1])] if len(ends) else []


@functools.cache
def recorded(name):
    with np.load(GOLDEN / f"{name}.npz") as file:
        return {key: file[key] for key in file.files}


def recorded_of(make, name):
    return recorded(f"small/{name}" if make is small else name)


@pytest.mark.parametrize(("make", "name"), EACH)
class TestVocabularies:
    @pytest.mark.fast_every(3)
    def test_fuzz(self, make, name):
        tokenizer, metadata = make(name)
        golden = recorded_of(make, name)
        texts = vocabulary_texts(metadata, len(golden["plain_sizes"]))
        assert len(texts) >= 300
        assert digest(texts) == str(golden["texts"]), "the texts are not those that were recorded"
        adds = bool(golden["adds_bos"][0])
        for special in (False, True):
            kind = "special" if special else "plain"
            expected = rows(golden[kind], golden[f"{kind}_sizes"])
            assert len(expected) >= 150
            for text, ids in zip(texts, expected, strict=False):
                made = tokenizer.encode(text, parse_special=special)
                bos = tokenizer.special_ids.get("bos")
                begin = [bos] if adds and ids[:1] != [bos] else []
                assert made == begin + ids, (special, text)

    def test_end_and_fill_tokens(self, make, name):
        tokenizer, metadata = make(name)
        golden = recorded_of(make, name)
        tokens = metadata["tokenizer.ggml.tokens"]
        theirs = {tokens[id_] for id_ in golden["end_ids"].tolist()}
        # Ordinary text in these vocabularies; llama.cpp goes by the text alone.
        text = {"qwen2": {"</s>"}, "gemma-4": {"<|end|>"}}.get(name, set())
        assert {tokens[id_] for id_ in tokenizer.end_ids} == theirs - text
        names = ("pre", "suf", "mid", "pad", "rep", "sep")
        fill = dict(zip(names, golden["fim_ids"].tolist(), strict=True))
        assert dict(tokenizer.fim_ids) == {key: id_ for key, id_ in fill.items() if id_ >= 0}
        begins = tokenizer.encode("a")[0] == tokenizer.special_ids.get("bos")
        assert begins == bool(golden["adds_bos"][0])


# Names whose rule is the model's own rather than llama.cpp's; of how many of the recorded texts the
# cuts differ, and what each of these texts has:
_FOREIGN = r"[^\x00-\x7f]"  # llama.cpp knows cases in ASCII alone, and leaves marks out
_LETTERS = r"[^\W\d_]{2}"  # it takes letters of both cases for one another
_GLUED = r"\d"  # it glues what stands before a run of digits to its first group
_DIGITS = r"(?![0-9])\d"  # its \d is of ASCII
DIFFERENT = {
    "tekken": (20, _FOREIGN), "gpt-4o": (20, _FOREIGN), "llama4": (20, _FOREIGN),
    "kanana2": (20, _FOREIGN), "talkie": (20, _FOREIGN), "minimax-m2": (20, _FOREIGN),
    "granite-embed-multi-97m": (8, _FOREIGN), "kimi-k2": (26, f"{_LETTERS}|{_FOREIGN}"), "youtu": (12, _LETTERS),
    "tiny_aya": (19, f"{_LETTERS}|{_GLUED}"), "cohere2moe": (19, f"{_LETTERS}|{_GLUED}"),
    "afmoe": (6, _GLUED), "superbpe": (1, _DIGITS),
}  # fmt: skip
# llama.cpp itself aborts on it in a vocabulary of the kind "gpt2".
WITHOUT_RULE = {"whitespace"}
# Written in another way there; of the last two, as its engine reads it.
OTHER_EXPRESSIONS = (DIFFERENT.keys() - {"youtu", "tiny_aya", "cohere2moe", "superbpe"}) | {
    "deepseek-llm", "deepseek-coder",
}  # fmt: skip


@functools.cache
def split_texts():
    texts = make_texts(7, len(recorded("splits")["sizes0"]))
    assert digest(texts) == str(recorded("splits")["texts"])
    return texts


@pytest.fixture
def one_model_of_merges(monkeypatch):
    """Rules share the model of a vocabulary, which takes longer to make than all the texts to cut."""
    make = bpe._model

    def shared(ids, controls, lines, rule, *, bytes_known):
        key = (len(ids), len(lines), rule.ignore_merges, bytes_known)
        if key not in MODELS:
            MODELS[key] = make(ids, controls, lines, rule, bytes_known=bytes_known)
        return MODELS[key]

    monkeypatch.setattr(bpe, "_model", shared)


MODELS = {}


@functools.cache
def split_ids(rule, name):
    if rule.raw:
        tokenizer = made_up(name, *raw_vocabulary())
    else:
        tokenizer = made_up_of_normal_tokens(name, *pair_vocabulary())
    return [tokenizer.encode(text) for text in split_texts()]


def made_up_of_normal_tokens(name, tokens, merges):
    return made_up(name, tokens, [1] * len(tokens), merges)


def made_up(name, tokens, types, merges):
    return from_gguf(
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": name,
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": np.array(types, np.int32),
            "tokenizer.ggml.merges": merges,
        }
    )


def kin(name):
    """The first name with the same rule: names share their ids, and a vocabulary takes a while."""
    return next(other for other in split_rule_names() if split_rule(other) == split_rule(name))


@pytest.mark.fast_every(2)
@pytest.mark.usefixtures("one_model_of_merges")
@pytest.mark.parametrize("name", recorded("splits")["names"].tolist())
def test_every_pre_tokenizer_cuts_as_llama_cpp_does(name):
    golden = recorded("splits")
    index = golden["index"][golden["names"].tolist().index(name)]
    expected = rows(golden[f"ids{index}"], golden[f"sizes{index}"])
    made = split_ids(split_rule(name), kin(name))
    different = [
        text for text, ours, theirs in zip(split_texts(), made, expected, strict=True)
        if ours != theirs
    ]  # fmt: skip
    count, reason = DIFFERENT.get(name, (0, ""))
    assert len(different) == count, different[:3]
    assert all(re.search(reason, text) for text in different)


def test_nothing_merges_across_a_byte_without_a_token():
    golden = recorded("gaps")
    texts = make_texts(13, len(golden["sizes"]))
    assert digest(texts) == str(golden["texts"])
    tokenizer = made_up_of_normal_tokens("gpt-2", *gapped_vocabulary())
    for text, ids in zip(texts, rows(golden["ids"], golden["sizes"]), strict=True):
        assert tokenizer.encode(text) == ids, text


def test_nothing_merges_across_a_gap_of_a_real_vocabulary():
    """StarCoder has no token for the first byte of most of these characters."""
    text = "\U000e03da\U0004ca96\U0005dbd6\U0005eddd\U000d3ef7"
    ids = [210, 278, 261, 272, 258, 141, 268, 275, 145, 268, 276, 153, 275, 210, 265, 157, 153]
    assert real("starcoder")[0].encode(text) == ids


@pytest.mark.usefixtures("one_model_of_merges")
@pytest.mark.parametrize("name", ["deepseek-llm", "deepseek-coder"])
def test_ranges_of_characters_do_not_hold_white_space(name):
    golden = recorded("spaces")
    texts = white_space_texts()
    assert digest(texts) == str(golden["texts"])
    tokenizer = made_up_of_normal_tokens(name, *pair_vocabulary())
    for text, ids in zip(texts, rows(golden[name], golden[f"{name}_sizes"]), strict=True):
        assert tokenizer.encode(text) == ids, ascii(text)


def test_the_texts_tell_the_rules_apart():
    """A text set on which two rules agree would not notice one taken for the other."""
    assert len(set(recorded("splits")["index"].tolist())) >= 29


def test_beginnings_and_whole_tokens_are_llama_cpp_s():
    golden = recorded("rules")
    assert set(split_rule_names()) == set(golden["names"].tolist())
    for name, adds, whole in zip(
        *(golden[key].tolist() for key in ("names", "adds_bos", "whole")), strict=True
    ):
        rule = split_rule(name)
        assert (rule.add_bos or rule.always_bos) == adds, name
        assert rule.ignore_merges == whole, name


def test_split_rules_are_llama_cpp_s():
    path = VOCABS / "pre_tokenizers.json"
    if not path.exists():
        pytest.skip(f"{path} is absent: llama.cpp's split rules are not shipped")
    theirs = json.loads(path.read_text())
    assert set(split_rule_names()) == theirs.keys() - WITHOUT_RULE
    for name in split_rule_names():
        rule, expected = split_rule(name), theirs[name]
        assert rule.ignore_merges == expected.get("ignore_merges", False), name
        assert rule.add_bos == expected.get("add_bos", False), name
        assert rule.raw == (not expected["byte_encode"]), name
        if name not in OTHER_EXPRESSIONS:
            assert list(rule.patterns) == expected["regex"], name


def unigram(*, clean):
    golden = recorded("unigram")
    tokens = golden["tokens"].tolist()
    return from_gguf(
        {
            "tokenizer.ggml.model": "t5",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": golden["types"],
            "tokenizer.ggml.scores": golden["scores"],
            "tokenizer.ggml.precompiled_charsmap": golden["charsmap"],
            "tokenizer.ggml.add_space_prefix": True,
            "tokenizer.ggml.remove_extra_whitespaces": clean,
            "tokenizer.ggml.unknown_token_id": golden["types"].tolist().index(2),
            "tokenizer.ggml.eos_token_id": tokens.index("</s>"),
        }
    )


@pytest.mark.parametrize("clean", [False, True], ids=["plain", "clean"])
def test_unigram(clean):
    golden = recorded("unigram")
    kind = "clean" if clean else "plain"
    texts = make_texts(11, len(golden[f"{kind}_sizes"]), golden["tokens"].tolist())
    assert digest(texts) == str(golden["texts"])
    tokenizer = unigram(clean=clean)
    different = [
        text
        for text, ids in zip(texts, rows(golden[kind], golden[f"{kind}_sizes"]), strict=True)
        if tokenizer.encode(text) != ids
    ]
    # SentencePiece puts its space in front of a text of nothing but spaces too, llama.cpp does not.
    assert len(different) == (0 if clean else 26)
    assert [text for text in different if text.strip()] == []


def test_a_unigram_text_comes_back():
    tokenizer = unigram(clean=True)
    assert tokenizer.decode(tokenizer.encode("  The  token<sep>ﬁt ")) == "The token<sep> fit"
