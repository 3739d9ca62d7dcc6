"""Reasoning and answers as models write them, also where they get their own format wrong.

The malformed headers are those of public reports about gpt-oss (llama.cpp 27720, harmony 38 and 114, vLLM
35906).
"""

import itertools

import pytest
from gguf_files import CHAT_TEMPLATE, write_tiny_llama
from hypothesis import given
from hypothesis import strategies as st

from akunu_py import Engine
from akunu_py.engine.reasoning import ReasoningSplitter, answer_tags
from akunu_py.values.types import TextPiece

TAGS = {"<response>": "</response>", "<answer>": "</answer>"}
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
    check(text, thoughts, answer, data, TAGS)


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
