"""Reasoning and its marks as models write them, also where they get their own format wrong.

The malformed headers are those of public reports about gpt-oss (llama.cpp 27720, harmony 38 and 114, vLLM
35906).
"""

import itertools
from dataclasses import replace

import gguf_files
import pytest
from gguf_files import CHAT_TEMPLATE, write_tiny_llama
from hypothesis import given
from hypothesis import strategies as st

from akunu_py import Engine
from akunu_py.engine.reasoning import ReasoningSplitter, answer_tags, reasoning_marks
from akunu_py.values.types import TextPiece

NEXT = "<|start|>assistant"
ANALYSIS = "<|channel|>analysis<|message|>"
FINAL = "<|channel|>final<|message|>"
CALL = '<|channel|>commentary to=functions.go <|constrain|>json<|message|>{"a": "<|"}'
LONG = "Well, " * 60


def split(pieces, tags=None):
    splitter = ReasoningSplitter(tags=tags)
    parts = [part for piece in pieces for part in splitter.feed([piece])] + splitter.finish()
    return [
        "".join(piece.text for thought, piece in parts if thought is kind) for kind in (True, False)
    ]


def check(text, thoughts, answer, data, tags=None):
    places = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=8)) | {0, len(text)})
    pieces = [TextPiece(text[a:b]) for a, b in itertools.pairwise(places)]
    assert split(pieces, tags) == [thoughts, answer]


@pytest.mark.parametrize(
    ("text", "thoughts", "answer"),
    [
        ("<thought>\na</thought>\nb", "a", "b"),
        ("\u25c1think\u25b7a\u25c1/think\u25b7b", "a", "b"),
        ("\u25c1thing\u25b7a", "", "\u25c1thing\u25b7a"),
        # Without a template that speaks of them they were asked for.
        ("<think>a</think><answer>b</answer>", "a", "<answer>b</answer>"),
        ("<answer>b</answer>", "", "<answer>b</answer>"),
    ],
)
@given(data=st.data())
def test_markers_of_any_model(text, thoughts, answer, data):
    check(text, thoughts, answer, data)


@pytest.mark.parametrize(
    ("text", "thoughts", "answer"),
    [
        ("<think>a</think><response>b</response>", "a", "b"),
        ("<think>\na\n</think>\n<answer>\nb\n</answer>\n", "a", "b"),
        ("<answer>\nb <answer>\n</answer>", "", "b <answer>"),
        ("<think>a</think>b <answer>c</answer>", "a", "b <answer>c</answer>"),
        ("<think>a</think><think>b</think>", "a", "<think>b</think>"),
        ("<think>a</think><ans", "a", ""),
        ("<think>a</think><answer>b</ans", "a", "b</ans"),
        ("b </answer>", "", "b </answer>"),
    ],
)
@given(data=st.data())
def test_tags_that_the_template_has(text, thoughts, answer, data):
    check(text, thoughts, answer, data, {"<response>": "</response>", "<answer>": "</answer>"})


@pytest.mark.parametrize(
    ("text", "thoughts", "answer"),
    [
        # More in the header than a channel.
        ("<|channel|>final <|constrain|>json<|message|>b", "", "b"),
        ("<|channel|>final<|constrain|>json<|message|>b", "", "b"),
        ("<|channel|>final json<|message|>b", "", "b"),
        (f"<|channel|>analysis code<|message|>a<|end|>{NEXT}{FINAL}b", "a", "b"),
        (f"<|channel|>analysis to=python code<|message|>a<|end|>{NEXT}{FINAL}b", "a", "b"),
        (f"{ANALYSIS}a<|end|>{NEXT}<|channel|>commentary?<|message|>b", "a", "b"),
        ("<|channel|>??<|message|>b", "", "b"),
        # A header without a message.
        (f"<|channel|>?? Well.<|end|>{NEXT}{ANALYSIS}a<|end|>{NEXT}{FINAL}b", "a", "b"),
        (f"<|channel|>commentary to=assistant{ANALYSIS}a<|end|>{NEXT}{FINAL}b", "a", "b"),
        (f"<|channel|>commentary 2?{NEXT}{FINAL}b", "", "b"),
        (f"{ANALYSIS}a<|end|>{NEXT}<|channel|>final__b", "a", "__b"),
        (f"{ANALYSIS}a<|end|>{NEXT}<|channel|>final", "a", ""),
        ("<|channel|>analysis", "", ""),
        (f"<|channel|>final {LONG}", "", LONG),
        # Missing and doubled parts.
        (f"{ANALYSIS}a<|end|>{FINAL}b", "a", "b"),
        (f"{ANALYSIS}a{FINAL}b", "a", "b"),
        (f"{ANALYSIS}a{NEXT}{FINAL}b", "a", "b"),
        (f"{NEXT}{NEXT}{ANALYSIS}a<|end|>{NEXT}{NEXT}{FINAL}b", "a", "b"),
        (f"{ANALYSIS}a<|end|>So.<|end|>{NEXT}{FINAL}b", "a", "So.\n\nb"),
        ("<|think|>a<|begin|>assistant<|content|>b", "a", "b"),
        # Calls are left to who reads them, and what answers say of markers to readers.
        (f"{ANALYSIS}a<|end|>{NEXT}{CALL}", "a", CALL),
        (CALL, "", CALL),
        (
            f"{ANALYSIS}a<|end|>{NEXT} to=functions.go{CALL[:20]}",
            "a",
            f"to=functions.go{CALL[:20]}",
        ),
        (f"{FINAL}Write <|channel|> and <|start|>.", "", "Write <|channel|> and <|start|>."),
    ],
)
@given(data=st.data())
def test_malformed_headers(text, thoughts, answer, data):
    check(text, thoughts, answer, data)


def test_a_model_whose_template_has_tags(tmp_path):
    template = CHAT_TEMPLATE + "{# <answer></answer> #}"
    assert answer_tags(template) == {"<answer>": "</answer>"}
    assert not answer_tags(CHAT_TEMPLATE + "<answer>")
    for source, text in ((template, "yes"), (CHAT_TEMPLATE, "<answer>yes</answer>")):
        path = write_tiny_llama(tmp_path / "model.gguf", chat_template=source)
        with Engine.load(path) as engine:
            reply = engine.chat(
                [{"role": "user", "content": "a"}], choices=["<answer>yes</answer>"], max_tokens=40
            )
            assert reply.message.text == text


class Words:
    """A tokenizer of words; `controls` are control tokens, `defined` user-defined ones; 0 begins."""

    def __init__(self, controls=(), defined=()):
        self._texts = ["<s>", *controls, *defined, "?"]
        self._controls = {0, *range(1, 1 + len(controls))}
        self.encoded = 0

    def encode(self, text, *, parse_special=False):
        self.encoded += 1
        if not text:
            return [0]
        assert parse_special
        return [0, self._texts.index(text)] if text in self._texts else [0, *[-1] * len(text)]

    def decode(self, ids, *, with_control=False):
        return "".join(self._texts[i] for i in ids if with_control or i not in self._controls)


HARMONY = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>")


@pytest.mark.parametrize(
    ("controls", "defined", "marks"),
    [
        ((), (), {}),
        (HARMONY, (), dict(enumerate(HARMONY, 1))),
        (("<|start|>", "<|message|>", "<|end|>"), (), {}),
        (("[THINK]", "[/THINK]"), (), {1: "[THINK]", 2: "[/THINK]"}),
        ((), ("<think>", "</think>"), {}),
        (("<think>",), (), {}),
        (("<|end|>", "<|im_end|>"), (), {}),
    ],
    ids=str,
)
def test_control_tokens_of_a_whole_family(controls, defined, marks):
    assert reasoning_marks(Words(controls, defined)) == marks


def test_a_tokenizer_is_asked_once():
    tokenizer = Words(HARMONY)
    reasoning_marks(tokenizer)
    asked = tokenizer.encoded
    assert reasoning_marks(tokenizer)
    assert tokenizer.encoded == asked


def test_the_shipped_models_vocabulary_has_none(engine):
    assert not reasoning_marks(engine.tokenizer)


@pytest.mark.parametrize("vocabulary", ["bpe", "spm"])
def test_replies_have_the_marks_and_no_other_control_token(tmp_path, monkeypatch, vocabulary):
    controls = ("<s>", "</s>", "[THINK]", "[/THINK]", "<|assistant|>", "<|end|>")
    monkeypatch.setattr(gguf_files, "CONTROL_TOKENS", controls)
    path = gguf_files.write_tiny_llama(
        tmp_path / "model.gguf", vocabulary=vocabulary, chat_template=None
    )
    with Engine.load(path) as engine:
        for text, shown in (("[THINK]", "[THINK]"), ("<|assistant|>", "")):
            *_, token = engine.tokenizer.encode(text, parse_special=True)
            reply = engine.generate("a", max_tokens=3, logit_bias={token: 1e6})
            assert reply.token_ids == (token,) * 3
            assert reply.text == 3 * shown
            assert engine.tokenizer.decode(reply.token_ids) == ""


def test_a_stop_text_in_thoughts_does_not_end_a_chat(tmp_path, monkeypatch):
    """It did, before there was an answer; a text that is continued is all answer."""
    controls = ("<s>", "</s>", "[THINK]", "[/THINK]", "<|assistant|>", "<|end|>")
    monkeypatch.setattr(gguf_files, "CONTROL_TOKENS", controls)
    with Engine.load(gguf_files.write_tiny_llama(tmp_path / "model.gguf")) as engine:
        text = "[THINK]one, two[/THINK]\n\nthree, four"
        ids = tuple(engine.tokenizer.encode(text, parse_special=True)[1:])
        call = engine.check_chat([{"role": "user", "content": "a"}], stop=(",",), max_tokens=99)
        reply = engine._start(replace(call, text=ids), None).read_to_end()
        assert (reply.message.reasoning, reply.message.text) == ("one, two", "three")
        assert (reply.finish_reason, reply.stop_text) == ("stop", ",")
        call = engine.check(engine.prompt_ids("a"), stop=(",",), max_tokens=99)
        reply = engine._start(replace(call, text=ids), None).read_to_end()
        assert reply.text == "[THINK]one"
