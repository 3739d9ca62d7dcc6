"""Which tokens the shown text is made of, whatever steps they came in and whatever is left out of it.

A reply is scripted from tokens of a small vocabulary; texts are read as the engine reads them.
"""

import asyncio
import itertools
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akunu_py.decoding.loop import Step
from akunu_py.engine.reply_text import MessageReader, ReplyText
from akunu_py.server.engine_backend import EngineReply
from akunu_py.server.events import Decoded, Finished, Logprobs
from akunu_py.server.token_texts import TokenTexts
from akunu_py.tokenizers.vocabulary import ByteDetokenizer
from akunu_py.tool_calls.known import HERMES
from akunu_py.tool_calls.parser import CallParser
from akunu_py.values.messages import Tool
from akunu_py.values.reply_deltas import CallEnd, ContentDelta
from akunu_py.values.types import (
    Draft,
    GenerationResult,
    StepStats,
    StreamEvent,
    TokenLogprob,
    Verification,
)

CALL = '<tool_call>\n{"name": "go", "arguments": {}}\n</tool_call>'
WHOLE = {
    "<think>": b"", "</think>": b"", "<silent>": b"", "<end>": b"end",
    "a": b"a", " b": b" b", "\n\n": b"\n\n", "x<": b"x<", "</": b"</", "ST": b"ST", "OP!": b"OP!",
    "\u00e91": b"\xc3", "\u00e92": b"\xa9c", "\u20ac1": b" \xe2\x82", "\u20ac2": b"\xac",
    "message": b"<|channel|>commentary<|message|>", "next": b"<|end|><|start|>assistant",
    "bad": b"\xff", "<tool": b"<tool", "tool": b"tool", "call": CALL[5:].encode(), ">d<": b">d<",
}  # fmt: skip
NAMES, BYTES = list(WHOLE), list(WHOLE.values())
MARKS = {0: "<think>", 1: "</think>"}
END = NAMES.index("<end>")


class Vocabulary:
    end_ids = frozenset({END})

    def encode(self, text, *, parse_special=False):
        return [NAMES.index(text)] if text in NAMES else [0] * len(text)

    def decode(self, tokens, *, with_control=False):
        return "".join(NAMES[token] for token in tokens if with_control)

    def token_bytes(self):
        return BYTES

    def control_tokens(self):
        return dict(enumerate(NAMES[:4]))


def events(tokens, sizes, stops, *, chat):
    """The events of a reply that came in steps of these sizes, and its text."""
    text = ReplyText(
        ByteDetokenizer(BYTES, strip_space=True), stops, Vocabulary.end_ids, MARKS
    )  # fmt: skip
    reader = MessageReader("", CallParser(HERMES, [Tool("go")]) if chat else None)
    made, rest, sizes = [], list(tokens), iter(sizes)
    while rest:
        size = min(next(sizes), len(rest))
        ids, rest = tuple(rest[:size]), rest[size:]
        stats = StepStats("x", size - 1, size - 1, size - 1, size, "bonus", 0.0, 0.0, 0.0)
        verification = Verification(tuple(range(size - 1)), ids[-1], "bonus")
        step, pieces = text.take(Step(ids, stats, None, Draft.chain(ids[:-1], "x"), verification))
        logprobs = tuple(TokenLogprob(token, -1.0) for token in step.token_ids)
        made.append((step.token_ids, pieces, reader.feed(pieces), logprobs))
        if step.finish_reason:
            break
    late = text.finish()
    result = GenerationResult(text.shown, tuple(tokens), "stop", 0, 0, 0, 0.0, 0.0, 0, None)
    made.append(((), late, (*reader.feed(late), *reader.finish(cut=False)), ()))
    return text.shown, [
        StreamEvent(
            "".join(piece.text for piece in pieces), ids, None, result if at == len(made) else None,
            pieces=pieces, deltas=deltas, logprobs=logprobs,
        )
        for at, (ids, pieces, deltas, logprobs) in enumerate(made, 1)
    ]  # fmt: skip


def served(tokens, sizes, stops=(), *, chat=True, echo=None, one_call=False):
    """Text and additions of a reply as a client gets them."""
    text, steps = events(tokens, sizes, stops, chat=chat)

    async def told():
        for one in steps:
            yield one

    call = SimpleNamespace(plan=SimpleNamespace(marks=MARKS) if chat else None)
    job = SimpleNamespace(
        prepared=SimpleNamespace(call=call, prediction=()), tokenizer=Vocabulary(),
        events=aiter(told()), prompt=(4,), cancel=lambda: None,
    )  # fmt: skip
    vocabulary = TokenTexts(Vocabulary())

    async def read():
        reply = EngineReply(lambda: job, lambda _: vocabulary, echo=echo, one_call=one_call)
        found = []
        while not found or not isinstance(found[-1], Finished):
            found.append(await anext(reply))
        return found[:-1]

    return text, asyncio.run(read())


def content(found):
    return "".join(one.text for one in found if isinstance(one, ContentDelta))


def shown(found):
    return [one for event in found if isinstance(event, Logprobs) for one in event.tokens]


def joined(tokens):
    return b"".join(one.data for one in tokens).decode(errors="replace")


SCRIPTS = st.lists(st.integers(0, len(NAMES) - 1), max_size=14).map(
    lambda tokens: tokens[: tokens.index(END) + 1] if END in tokens else tokens
)
SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(itertools.cycle)
STOPS = st.sampled_from([(), ("STOP",), ("b", "!"), ("c",), ("\n",), ("<",), ("<a",)])


@given(tokens=SCRIPTS, sizes=SIZES, stops=STOPS, chat=st.booleans(), one_call=st.booleans())
def test_tokens_joined_are_the_text_in_any_steps(tokens, sizes, stops, chat, one_call):
    options = {"chat": chat, "one_call": chat and one_call}
    _, plain = served(tokens, itertools.repeat(1), stops, **options)
    text, drafted = served(tokens, sizes, stops, **options)
    assert joined(shown(drafted)) == content(drafted) == content(plain)
    assert shown(drafted) == shown(plain)
    assert all(one.data for one in shown(plain))
    if not chat:
        assert content(plain) == text


@given(tokens=SCRIPTS, sizes=SIZES, stops=STOPS)
def test_with_the_prompt_all_tokens_are_listed(tokens, sizes, stops):
    text, found = served(tokens, sizes, stops, chat=False, echo="a")
    assert content(found) == "a" + text
    _, steps = events(tokens, itertools.repeat(1), stops, chat=False)
    assert len(shown(found)) == sum(len(one.logprobs) for one in steps)
    assert joined(shown(found)) == text


THOUGHT = ["<think>", "a", " b", "</think>", "\n\n"]


@pytest.mark.parametrize("size", [1, 3, 20])
@pytest.mark.parametrize(
    ("names", "stops", "data"),
    [
        ([*THOUGHT, "a", " b", "<end>"], (), [b"a", b" b"]),
        (["a", "<silent>", " b"], (), [b"a", b" b"]),
        (["a", "\u20ac1", "\u20ac2", "bad"], (), [b"a", b" \xe2\x82", b"\xac", b"\xff"]),
        (["a", "\u00e91", "\u00e92"], ("c",), [b"a", "\u00e9".encode()]),
        (["a", "\u00e91"], (), [b"a", b"\xc3"]),
        (["a", "x<", "a"], ("<a",), [b"a", b"x"]),
        (["a", "x<", "</"], (), [b"a", b"x<", b"</"]),
        (["a", "x<", "</"], ("<a",), [b"a", b"x<", b"</"]),
        ([" b", "a", " b"], (), [b"b", b"a", b" b"]),
        (["a", "\u00e91", "<end>"], (), [b"a", b"\xc3"]),
        (["a", "<tool", "call", "a"], (), [b"a", b"a"]),
        (["\n\n", "a"], (), [b"\n\n", b"a"]),
        (["message", "a", "next", "message", " b"], (), [b"a", b"\n\nb"]),
    ],
)  # fmt: skip
def test_tokens_of_a_text(names, stops, data, size):
    _, found = served([NAMES.index(name) for name in names], itertools.repeat(size), stops)
    assert [one.data for one in shown(found)] == data
    # Each list of tokens comes before a text.
    kinds = [type(one) for one in found if isinstance(one, Logprobs | ContentDelta | CallEnd)]
    assert all(
        after is ContentDelta for one, after in itertools.pairwise(kinds) if one is Logprobs
    )  # fmt: skip


def test_a_token_with_the_beginning_of_a_call_comes_before_the_call():
    tokens = [NAMES.index(name) for name in ("a", "x<", "tool", "call", "a")]
    _, found = served(tokens, itertools.repeat(1))
    kinds = [type(one).__name__ for one in found if not isinstance(one, Decoded)]
    assert kinds == [
        "Logprobs", "ContentDelta", "ContentDelta", "Logprobs", "ContentDelta",
        "CallStart", "ArgumentsDelta", "CallEnd", "Logprobs", "ContentDelta",
    ]  # fmt: skip
    assert [one.data for one in shown(found)] == [b"a", b"x", b"a"]
