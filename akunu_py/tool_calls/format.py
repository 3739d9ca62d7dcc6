"""The way in which a model writes tool calls.

All formats have the same order. Only the texts differ, and whether arguments are a JSON object or
texts between tags:

    start  open NAME after_name ARGUMENTS close  separator  open NAME ...  end

`{"name": "f", "arguments": {...}}` is a case of it, with JSON's punctuation as the texts. A text
may have places for an id or a number: the characters `ID` and `INDEX`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

ID = "\ue000"
"""Place of a call's id in a text of a format."""

INDEX = "\ue001"
"""Place of a call's number."""

SPACE = "\ue002"
"""Place of white space that a model may write in other ways, in a text that is read."""

_BESIDE_NAMES = rf"\s\w.\-{ID}{INDEX}"
_RUN = re.compile(rf"(?<=[^{_BESIDE_NAMES}])\s+|\s+(?=[^{_BESIDE_NAMES}])")

Kind = Literal["string", "number", "boolean", "null", "array", "object"]
"""Types of JSON values; a number may be an integer."""

TAG = re.compile(r"<[^<>\s][^<>]*>|\[/?[A-Z][A-Z_]*\]")
"""A tag, as control tokens and markup write it."""

_TAG_WITH_NAME = re.compile(r"""<[^<>]*\w=["']?""")


def flexible(text: str) -> str:
    """Return a text with places for the white space beside its punctuation."""
    return _RUN.sub(SPACE, text)


@dataclass(frozen=True, slots=True)
class TaggedArguments:
    r"""Arguments as texts between tags.

    Text between an argument and the next belongs to `key_start`.
    """

    key_start: str
    value_starts: Mapping[Kind, str]
    """Between name and value, by type of the value."""

    value_end: str
    """After a value. Texts are written as they are, so none can contain it together with what
    follows."""

    python: bool = False
    """Whether values other than texts may be in Python's notation (`True`, `None`)."""

    wrapper: tuple[str, str] | None = None
    """What stands around a text that holds markup, such as `<![CDATA[` and `]]>`; None where such
    texts are written like others."""


@dataclass(frozen=True, slots=True)
class PythonArguments:
    """Arguments as keywords of a call in Python: `place="Rome", days=2`."""

    quote: str = '"'
    """Around texts, as the template has it; models write both kinds."""


@dataclass(frozen=True, slots=True)
class QuotedArguments:
    """Arguments as an object in a notation like JSON, with keys without quotes."""

    quote: str
    """On both sides of a text; nothing is escaped."""


Arguments = Literal["json"] | TaggedArguments | PythonArguments | QuotedArguments


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFormat:
    r"""The texts around calls, their names and their arguments."""

    name: str
    opens: tuple[str, ...]
    """Before a name; the first is what the template writes, others are understood too. So are
    `after_names`."""

    after_names: tuple[str, ...]
    arguments: Arguments = "json"
    """How arguments are written; "json" for a JSON object."""

    start: str = ""
    close: str = ""
    empty: str | None = None
    """All between the name and the next call, for a call without arguments; None where it follows
    from the other texts."""

    separator: str = ""
    end: str = ""
    several: bool = True
    only_first: bool = False
    """Whether a call is recognised at the beginning of an answer alone, since no marker sets it
    apart from text."""

    trigger: str = ""
    """The text that announces a call, if it is not the first tag."""

    id_form: str = ""
    """Id of a call where the format derives it, with the fields `name` and `index`."""

    counts_each_message: bool = False
    """Whether `index` counts the calls of a message; else it counts those of a conversation."""

    result_form: str = ""
    """A result, with the fields `id` and `text`, where the template does not know its call."""

    id_length: int | None = None
    """Length of ids that the template demands, or None."""

    @property
    def writes_texts_as_they_are(self) -> bool:
        """Whether a text among the arguments has no escapes, so that a grammar can describe it."""
        return isinstance(self.arguments, TaggedArguments | QuotedArguments)

    @property
    def openings(self) -> tuple[str, ...]:
        """The texts from the marker to the first call's name."""
        return tuple(self.start + text for text in self.opens)

    @property
    def unwrapped(self) -> str:
        """The opening without its first tag, where the rest tells a call from text; else "".

        Models forget the first: `<function=` in place of `<tool_call>`, a line break, `<function=`.
        """
        rest = self._behind_tag
        return rest if _TAG_WITH_NAME.fullmatch(rest) else ""

    @property
    def bare(self) -> tuple[str, ...]:
        """Openings of a call that is a whole message without its tags: JSON, in a block or not."""
        rest = self._behind_tag.replace("{", "{ ", 1)
        is_json = self.arguments == "json" and rest.startswith('{ "')
        return (rest, "```json\n" + rest, "```\n" + rest) if is_json else ()

    @property
    def _behind_tag(self) -> str:
        tag = TAG.match(opening := self.openings[0].lstrip())
        return opening[tag.end() :].lstrip() if tag else ""

    @property
    def marker(self) -> str:
        """The text that announces a call: the first tag, or all before the name."""
        if self.trigger:
            return self.trigger
        opening = self.openings[0].lstrip()
        tag = TAG.match(opening)
        return opening if tag is None else tag.group()

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts that a call may have beside name and arguments."""
        found = [*self.openings, *self.opens, *self.after_names, self.close, self.separator]
        found += [self.end, self.empty or ""]
        if isinstance(self.arguments, TaggedArguments):
            tags = self.arguments
            found += [tags.key_start, *tags.value_starts.values(), tags.value_end]
            found += tags.wrapper or ()
        elif isinstance(self.arguments, QuotedArguments):
            found.append(self.arguments.quote)
        return tuple(dict.fromkeys(text for text in found if text))
