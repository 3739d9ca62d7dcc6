"""Which control tokens are part of a reply's text."""

from dataclasses import replace

import gguf_files
import pytest

from akunu_py import Engine
from akunu_py.engine.reasoning import reasoning_marks


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
    path = gguf_files.write_tiny_llama(tmp_path / "model.gguf")
    with Engine.load(path) as engine:
        text = "[THINK]one, two[/THINK]\n\nthree, four"
        ids = tuple(engine.tokenizer.encode(text, parse_special=True)[1:])
        call = engine.check_chat([{"role": "user", "content": "a"}], stop=(",",), max_tokens=99)
        reply = engine._start(replace(call, text=ids), None).read_to_end()
        assert (reply.message.reasoning, reply.message.text) == ("one, two", "three")
        assert (reply.finish_reason, reply.stop_text) == ("stop", ",")
        call = engine.check(engine.prompt_ids("a"), stop=(",",), max_tokens=99)
        reply = engine._start(replace(call, text=ids), None).read_to_end()
        assert reply.text == "[THINK]one"
