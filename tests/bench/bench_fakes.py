"""An engine whose replies are written down beforehand, for tests of what is measured."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np

from akunu_py.types import DecodeStats, GenerationResult


class FakeTokenizer:
    """A character is a token; a conversation is its contents between bars."""

    def __init__(self, *, has_chat_template=True):
        self.has_chat_template = has_chat_template

    def encode(self, text, *, parse_special=False):
        return [ord(character) for character in text]

    def encode_chat(self, messages):
        assert self.has_chat_template
        return self.encode("|" + "|".join(message["content"] for message in messages) + "|")


def reply(token_ids, decode_s, **counts):
    return GenerationResult(
        text="", token_ids=tuple(token_ids), finish_reason="length", seed=0, num_prompt_tokens=5,
        num_cached_tokens=0, prefill_s=0.1, decode_s=decode_s, peak_memory_bytes=0,
        stats=DecodeStats(**counts),
    )  # fmt: skip


class FakeEngine:
    """`script` maps a prompt's text to its replies (off, on); `calls` is what was asked for."""

    def __init__(self, script, *, context=10_000, has_chat_template=True, logits=()):
        self.script = script
        self.context = context
        self.tokenizer = FakeTokenizer(has_chat_template=has_chat_template)
        self.description = SimpleNamespace(
            path=Path("model.gguf"), name="fake [bold]", architecture="llama", parameters=7,
            weights="dense",
        )  # fmt: skip
        self.calls = []
        self.scored = []
        self._logits = logits

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.calls.append("close")

    def reset(self):
        self.calls.append("reset")

    def forget(self):
        self.calls.append("forget")

    def generate(self, prompt, config=None):
        text = "".join(map(chr, prompt))
        self.calls.append((text, config.drafter))
        self.config = config
        off, on = self.script(text) if callable(self.script) else self.script[text]
        return off if config.drafter == "none" else on

    def logits(self, token_ids):
        self.scored.append(list(token_ids))
        rows = np.zeros((len(token_ids), len(self._logits)), dtype=np.float32)
        rows[-1] = self._logits
        return rows
