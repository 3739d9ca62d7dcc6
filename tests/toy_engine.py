"""Engines over tiny random models of any family, with a tokenizer whose texts have many spellings."""

import functools
from pathlib import Path

from family_models import build_family
from tiny_families import VOCABULARY

from akunu_py.engine.engine import Engine
from akunu_py.models.load import LoadedModel, ModelDescription
from akunu_py.system.errors import ConfigError
from akunu_py.values.load_options import EngineOptions
from akunu_py.values.messages import read_messages

BEGIN, SYSTEM, USER, ASSISTANT, TOOL, THINK, END = range(7)
CONTROL = ("<s>", "<sys>", "<user>", "<reply>", "<tool>", "<think>", "<end>")
_LETTERS = "abcdefghijklmnopqrstuvwxyz .,:;!?-0123456789\n"
_PAIRS = [one + other for one in "abcdefg" for other in "abcdefg"]
TEXTS = (*CONTROL, *_LETTERS, *_PAIRS)[:VOCABULARY]
_SPEAKERS = {"system": SYSTEM, "user": USER, "assistant": ASSISTANT, "tool": TOOL}


class _Plain:
    """A detokenizer: every id is whole characters."""

    def __init__(self, tokenizer):
        self._tokenizer = tokenizer

    def feed(self, ids):
        return self._tokenizer.decode(ids)

    def finish(self):
        return ""


class ToyTokenizer:
    """Letters and pairs of letters; text is cut into the longest.

    `thoughts` says what the template does with earlier thoughts: "keep" or "drop". With `opens` the
    prompt ends within thoughts, which the model ends by `thought_end`. With the variable `switch`
    set to False it ends after empty thoughts.
    """

    vocabulary_size = VOCABULARY
    end_ids = frozenset({END})
    has_chat_template = True

    def __init__(self, *, thoughts="keep", opens=False, thought_end="z", switch=""):
        self._switch = switch
        self._thought_end = thought_end
        self._opening = "\n" if opens else ""
        self._thoughts = thoughts
        self._opens = opens
        self._ids = {text: token for token, text in enumerate(TEXTS) if token >= len(CONTROL)}

    def encode(self, text, *, parse_special=False):
        return [BEGIN, *self._cut(text)]

    def _cut(self, text):
        ids, place = [], 0
        while place < len(text):
            size = 2 if text[place : place + 2] in self._ids else 1
            ids.append(self._ids.get(text[place : place + size], self._ids["?"]))
            place += size
        return ids

    def encode_chat(self, messages, *, tools=None, variables=None, continued=False):
        messages = read_messages(messages)
        if any(message.text == "refuse" for message in messages):
            raise ConfigError("the template refuses this")
        ids = [BEGIN]
        for message in messages:
            ids.append(_SPEAKERS[message.role])
            shown = message.reasoning or (self._opens and message.role == "assistant")
            if shown and self._thoughts == "keep":
                ids += [THINK, *self._cut(self._opening + message.reasoning + self._thought_end)]
            ids += [*self._cut(message.text), END]
        if continued:
            return ids[:-1]
        opening = [THINK, *self._cut(self._opening)] if self._opens else []
        if self._switch and not (variables or {}).get(self._switch, True):
            opening = [THINK, *self._cut(self._thought_end)]
        return [*ids, ASSISTANT, *opening]

    def chat_text(self, messages, *, tools=None, variables=None):
        if tools:
            raise ConfigError("the template has no place for tools")
        return self.decode(self.encode_chat(messages, variables=variables), with_control=True)

    def decode(self, ids, *, with_control=False):
        ids = [token for token in ids if token >= len(CONTROL) or with_control]
        return "".join(TEXTS[token] for token in ids)

    def token_texts(self):
        return TEXTS

    def token_bytes(self):
        return [b""] * len(CONTROL) + [text.encode() for text in TEXTS[len(CONTROL) :]]

    def control_tokens(self):
        return dict(enumerate(TEXTS[: len(CONTROL)]))

    def detokenizer(self, *, continues=False):
        return _Plain(self)


@functools.cache
def family(name):
    return build_family(name)


def toy_engine(name="llama", *, tokenizer=None, context=1024, head=None, **options):
    """An engine over the random model of a family (`tiny_families`)."""
    description = ModelDescription(
        path=Path(__file__), name=name, architecture=name, parameters=1, weights="dense",
        context=4096, file_bytes=1,
    )  # fmt: skip
    loaded = LoadedModel(family(name), tokenizer or ToyTokenizer(), description)
    return Engine(loaded, EngineOptions(context=context, **options), head=head)


# Only plain text: replies end by their length.
PLAIN = dict.fromkeys(range(len(CONTROL)), -1e6)
