"""Special tokens: found by their text, and kept out of the text of messages.

Converters name few of them in the metadata, so akunu finds them by text, as llama.cpp does. Source
of the lists: `llama-vocab.cpp` of llama.cpp (MIT). Unlike there, a token counts only if its type
sets it apart from text: in Qwen's vocabulary "</s>" is ordinary text.

A template's own control tokens are recognised, those written into a message are not. So their text
in messages is replaced before a template is rendered, and put back after the split.
"""

import bisect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from akunu_py.system.errors import ConfigError

# Every token with one of these texts ends a reply.
_END_TEXTS = frozenset(
    (
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
        "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]",
        "[EOS]", "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
        "<｜end▁of▁sentence｜>", "[e~[",
    )
)  # fmt: skip
_NAMES_THAT_END = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")

# Name -> texts; the first one that the vocabulary has is taken.
_DETECTED: Mapping[str, tuple[str, ...]] = {
    "eot": (
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>",
        "<|end_of_text|>", "<EOT>", "_<EOT>", "[EOT]", "<｜end▁of▁sentence｜>",
        "<end_of_utterance>",
    ),
    "eom": ("<|eom_id|>",),
    "fim_pre": (
        "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>",
        "<|code_prefix|>", "<|prefix|>",
    ),
    "fim_suf": (
        "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>",
        "<|code_suffix|>", "<|suffix|>",
    ),
    "fim_mid": (
        "<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>",
        "<|code_middle|>", "<|middle|>",
    ),
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}  # fmt: skip


def find_special_ids(marked: Mapping[str, int], named: Mapping[str, int]) -> dict[str, int]:
    """Return `named` with ids found by text: name ("eot", "fim_pre") -> id.

    `marked` has the text and id of each token whose type sets it apart from text.
    """
    ids = dict(named)
    for name, texts in _DETECTED.items():
        found = next((marked[text] for text in texts if text in marked), None)
        if name not in ids and found is not None:
            ids[name] = found
    return ids


def find_end_ids(marked: Mapping[str, int], special_ids: Mapping[str, int]) -> set[int]:
    """Return the ids that end a reply; arguments as `find_special_ids` takes and returns them."""
    ends = {special_ids[name] for name in _NAMES_THAT_END if name in special_ids}
    ends |= {id_ for text, id_ in marked.items() if text in _END_TEXTS}
    texts = {text for text, id_ in marked.items() if id_ in ends}
    calls = not texts.isdisjoint({"<|call|>", "<|calls|>"})
    if calls and not texts.isdisjoint({"<|return|>", "<|flush|>"}) and "<|end|>" in texts:
        # With these tokens <|end|> ends the analysis, not the reply (gpt-oss, Solar).
        ends.discard(marked["<|end|>"])
    if not texts.isdisjoint({"<|tool_response>", "<|plamo:eos|>"}) and "</s>" in texts:
        ends.discard(marked["</s>"])  # HTML, in Gemma 4 and PLaMo
    return ends


def fill_ids(special_ids: Mapping[str, int]) -> Iterable[tuple[str, int]]:
    """Yield name, without "fim_", and id of each token for filling in code."""
    for name, id_ in special_ids.items():
        if name.startswith("fim_"):
            yield name.removeprefix("fim_"), id_


_TEXTS = ("content", "reasoning_content", "reasoning", "thinking")
"""Fields of a message with free text, which may be a control token as a whole."""


@dataclass(frozen=True, slots=True)
class HiddenMessages:
    """Messages and tools in which private characters replace the text of control tokens."""

    messages: Sequence[dict[str, Any]]
    replaced: Mapping[str, str]
    tools: Sequence[dict[str, Any]] | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)

    def reveal(self, text: str) -> str:
        for character, original in self.replaced.items():
            text = text.replace(character, original)
        return text


class SpecialTextGuard:
    """Hides the text of control tokens in messages while a template is rendered and split.

    Only occurrences are replaced, each by one character of a private plane, so that templates that
    inspect or trim a message see the rest unchanged. Where a message begins or ends with a part of
    a control token, or is one, that part is replaced as well: the template's adjacent text could
    complete it.
    """

    _FIRST, _LAST = 0xF0000, 0x10FFFD  # the private planes

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = [text for text in texts if text]
        # Sorted, so that texts with a common beginning, or ending, are adjacent: a table of all
        # beginnings would take the square of a long token's length.
        self._sorted = sorted(self._texts)
        self._sorted_backwards = sorted(text[::-1] for text in self._texts)
        self._longest = max(map(len, self._texts), default=0)
        # Nearly all texts have none of these characters where they would matter.
        self._firsts = {text[0] for text in self._texts}
        self._lasts = {text[-1] for text in self._texts}
        self._first = re.compile("|".join(map(re.escape, self._firsts)) or "(?!)")

    def hide(
        self,
        messages: Sequence[Mapping[str, Any]],
        template: str,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> HiddenMessages:
        """Return the messages, tools and variables with such text replaced by unused characters.

        All have JSON values, as a template takes them. Raises ConfigError if no character is left.
        """
        free = self._unused(template, messages, tools, variables)
        characters: dict[str, str] = {}

        def character(text: str) -> str:
            if text not in characters:
                if (found := next(free, None)) is None:
                    raise ConfigError(
                        "the messages use all private characters of Unicode; leave some out"
                    )
                characters[text] = found
            return characters[text]

        hidden = [self._hide_message(message, character) for message in messages]
        hidden_tools = None
        if tools is not None:
            hidden_tools = [self._hide_value(tool, character) for tool in tools]
        given = {
            name: self._hide_value(value, character) for name, value in (variables or {}).items()
        }
        replaced = {private: text for text, private in characters.items()}
        return HiddenMessages(hidden, replaced, hidden_tools, given)

    def _unused(self, *values: object) -> Iterator[str]:
        """Yield private characters; the values are searched for them when the first is needed."""
        used = set().union(*texts_in(values))
        yield from (
            chr(code) for code in range(self._FIRST, self._LAST + 1) if chr(code) not in used
        )

    def _hide_message(
        self, message: Mapping[str, Any], character: Callable[[str], str]
    ) -> dict[str, Any]:
        hidden: dict[str, Any] = {}
        for name, value in message.items():
            if name in _TEXTS and isinstance(value, str):
                hidden[name] = self._hide_text(value, character)
            elif name == "content" and value is not None:
                hidden[name] = [
                    part | {"text": self._hide_text(part["text"], character)} for part in value
                ]
            else:
                # Templates compare the role with fixed words.
                hidden[name] = value if name == "role" else self._hide_value(value, character)
        return hidden

    def _hide_value(self, value: Any, character: Callable[[str], str]) -> Any:
        # A word such as "name" may be part of a control token, and templates look for it.
        if isinstance(value, str):
            return self._hide_text(value, character, whole=False)
        if isinstance(value, Mapping):
            return {
                self._hide_text(name, character, whole=False): self._hide_value(part, character)
                for name, part in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._hide_value(part, character) for part in value]
        return value

    def _hide_text(
        self, content: str, character: Callable[[str], str], *, whole: bool = True
    ) -> str:
        replaced = content
        for text in self._texts if self._first.search(content) else ():
            if text in replaced:
                replaced = replaced.replace(text, character(text))
        body = replaced.strip()
        if whole and body and any(body in text for text in self._texts):
            return replaced.replace(body, character(body), 1)
        return self._hide_end(self._hide_start(replaced, character), character)

    def _hide_start(self, text: str, character: Callable[[str], str]) -> str:
        body = text.lstrip()
        if self._lasts.isdisjoint(body[: self._longest]):
            return text
        for size in range(min(self._longest, len(body)), 0, -1):
            if _begins_one(self._sorted_backwards, body[:size][::-1]):
                margin = text[: len(text) - len(body)]
                return margin + character(body[:size]) + body[size:]
        return text

    def _hide_end(self, text: str, character: Callable[[str], str]) -> str:
        body = text.rstrip()
        if self._firsts.isdisjoint(body[-self._longest :]):
            return text
        for size in range(min(self._longest, len(body)), 0, -1):
            if _begins_one(self._sorted, body[-size:]):
                return body[:-size] + character(body[-size:]) + text[len(body) :]
        return text


def _begins_one(ordered: list[str], part: str) -> bool:
    """Return whether one of the texts begins with `part` and is longer."""
    index = bisect.bisect_right(ordered, part)
    return index < len(ordered) and ordered[index].startswith(part)


def texts_in(value: object) -> Iterator[str]:
    """Yield every text in a JSON value, including names."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, part in value.items():
            yield name
            yield from texts_in(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from texts_in(part)
