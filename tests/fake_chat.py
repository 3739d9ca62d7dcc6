"""An engine for chats that counts words, and what tests do with a chat."""

from dataclasses import replace
from types import SimpleNamespace

from akunu_py.cli.chat.commands import parse
from akunu_py.drafting.registry import default_num_draft_tokens, drafter_name
from akunu_py.engine.conversation import Question
from akunu_py.values.recommended import NO_RECOMMENDATION
from akunu_py.values.types import DecodeStats, GenerationResult, StreamEvent


class FakeStream:
    """Says `words`, one an event; cancelled, it ends with the next."""

    def __init__(self, prompt, words, reason, changes):
        self._words, self._reason, self._prompt = words, reason, prompt
        self._changes = changes
        self._cancelled = False
        self.prompt = ()
        self.result = None
        self.closed = False

    def __iter__(self):
        said = []
        for number, word in enumerate(self._words, 1):
            said.append(word)
            reason = "cancelled" if self._cancelled else self._reason
            if self._cancelled or number == len(self._words):
                result = GenerationResult(
                    text="".join(said), token_ids=tuple(range(number)), finish_reason=reason,
                    seed=0, num_prompt_tokens=self._prompt, num_cached_tokens=0, prefill_s=0.1,
                    decode_s=0.1, peak_memory_bytes=0, stats=DecodeStats(),
                )  # fmt: skip
                self.result = replace(result, **self._changes)
            yield StreamEvent(word, (number,), None, self.result)
            if self.result is not None:
                return

    def cancel(self):
        self._cancelled = True

    def close(self):
        self.closed = True


class FakeEngine:
    """A token a word, one more for each message and one for the reply's beginning."""

    def __init__(self, name="fake", context=100, template=True):
        self.context = context
        self.description = SimpleNamespace(
            name=name, path=f"models/{name}", weights="dense", weights_text="dense weights",
            recommended=NO_RECOMMENDATION,
        )  # fmt: skip
        self.draft_model, self.has_counts, self.has_head = None, False, False
        self.tokenizer = SimpleNamespace(
            encode_chat=lambda messages: (
                [0] * (1 + sum(1 + len(message.text.split()) for message in messages))
            ),
            encode=lambda text: text.split(),
            decode=lambda _ids, *, with_control: self.prompt_end,
            has_chat_template=template,
        )
        self.prompt_end = ""
        self.says, self.reason = ["fine ", "thanks"], "stop"
        self.changes = {}  # of its results
        self.asked, self.closed, self.resets = [], False, 0

    def drafter_of(self, config):
        name = drafter_name(config, self.draft_model, self.has_head or None)
        most = config.num_draft_tokens
        return SimpleNamespace(
            name=name, num_draft_tokens=default_num_draft_tokens(name) if most is None else most
        )

    def stream_chat(self, messages, config, *, progress=None):
        prompt = len(self.tokenizer.encode_chat(messages))
        assert prompt < self.context
        self.asked.append(messages)
        self.stream = FakeStream(prompt, self.says, self.reason, self.changes)
        return self.stream

    def reset(self):
        self.resets += 1

    def close(self):
        self.closed = True


def say(conversation, text, *, instead=False):
    with conversation.ask(Question(text, instead)) as reply:
        for _ in reply:
            pass
    return reply


def do(actions, line):
    return actions.run(*parse(line))
