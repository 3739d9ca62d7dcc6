"""An engine whose replies are written down beforehand, for tests of what is measured."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np

from akunu_py.models.pass_times import PassTimes
from akunu_py.values.types import DecodeStats, GenerationResult, StepStats, StreamEvent


class FakeClock:
    """A clock that only fake replies move on."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def replace(self, monkeypatch):
        """Let it be the clock of akunu's own arms."""
        monkeypatch.setattr("akunu_py.bench.engine_arm.perf_counter", self)


CLOCK = FakeClock()


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
        num_cached_tokens=0, prefill_s=0.1, time_to_first_token_s=0.1, decode_s=decode_s, peak_memory_bytes=0,
        stats=DecodeStats(**counts),
    )  # fmt: skip


class FakeStream:
    """A reply in two events: its first token, and the rest with the result."""

    def __init__(self, result, steps=()):
        self._result = result
        self._steps = steps or (None, None)
        self.closed = False

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.closed = True

    def __iter__(self):
        result, steps = self._result, self._steps
        CLOCK.now += result.prefill_s
        yield StreamEvent("", result.token_ids[:1], steps[0])
        yield from (StreamEvent("", (), step) for step in steps[1:-1])
        CLOCK.now += result.decode_s
        yield StreamEvent("", result.token_ids[1:], steps[-1], result)


def steps_of(*passes):
    """Steps of (drafted, accepted, tokens), for `FakeEngine.steps`."""
    return [
        StepStats("x", drafted, accepted, accepted, tokens, "bonus", 0.0, 0.0, 0.0)
        for drafted, accepted, tokens in passes
    ]


class FakeEngine:
    """`script` maps a prompt's text to its replies (off, on); `calls` is what was asked for.

    `steps` are those of every reply with drafting, and `making_s` the seconds that making its drafter
    takes; `failing` maps a text to what it raises.
    """

    def __init__(self, script, *, context=10_000, has_chat_template=True, logits=()):
        self.script = script
        self.context = context
        self.tokenizer = FakeTokenizer(has_chat_template=has_chat_template)
        self.description = SimpleNamespace(
            path=Path("model.gguf"), name="fake [bold]", architecture="llama", parameters=7,
            weights="dense", context=context,
        )  # fmt: skip
        self.draft_model = None
        self.steps = ()
        self.making_s = 0.0
        self.failing = {}
        self.calls = []
        self.scored = []
        self.next_logits = logits

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
        if config.drafter != "none":
            self.drafting = config
        if text in self.failing:
            raise self.failing[text]
        off, on = self.script(text) if callable(self.script) else self.script[text]
        return off if config.drafter == "none" else on

    def stream(self, prompt, config=None):
        result = self.generate(prompt, config)
        if config.drafter == "none":
            return FakeStream(result)
        CLOCK.now += self.making_s
        return FakeStream(result, self.steps)

    def tune(self, prompt, *, repeats=7):
        self.calls.append(("tune", len(prompt)))
        return PassTimes(len(prompt), (0.5,), {1: (0.6,), 5: (1.0,)})

    def logits(self, token_ids):
        self.scored.append(list(token_ids))
        rows = np.zeros((len(token_ids), len(self.next_logits)), dtype=np.float32)
        rows[-1] = self.next_logits
        return rows
