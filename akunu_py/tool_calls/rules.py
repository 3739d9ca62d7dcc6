"""The rules of a grammar in llguidance's dialect of Lark, and texts as terms in them.

Within JSON llguidance follows lengths and patterns of texts itself. Texts between tags and in
foreign quotes are not JSON, so that they get expressions for these.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llguidance import regex_to_lark

from akunu_py.constraints import inline_schema
from akunu_py.tool_calls.format import ID, INDEX, SPACE
from akunu_py.tool_calls.schemas import kinds_of, with_definitions
from akunu_py.values.constraint import Constraint

_LONGEST = 4096
"""Characters up to which a length is counted; the state of a grammar grows with it."""

_WITHIN_CLASS = re.compile(r"\[\^?\]?(?:[^\]\\]|\\.)*\]", re.DOTALL)
_BEYOND = re.compile(r"\\[1-9bBkpPuxc]|\(\?(?!:)|[*+?}][+]")
"""What an expression of llguidance does not have, or has in another meaning."""


def limits_of(schema: object) -> str:
    """Return an expression for the texts that a schema allows; "" where it does not limit them.

    A pattern that llguidance cannot follow, and a length of more than 4,096, do not limit.
    """
    if not isinstance(schema, Mapping):
        return ""
    parts = []
    least, most = schema.get("minLength", 0), schema.get("maxLength", "")
    if (least or most != "") and all(size == "" or 0 <= size <= _LONGEST for size in (least, most)):
        parts.append(f"/(?s:.{{{least},{most}}})/")
    if isinstance(pattern := schema.get("pattern"), str) and (found := _search_expression(pattern)):
        parts.append(f"/{found}/")
    return " & ".join(parts)


def text_without(text: str) -> str:
    """Return an expression for texts that do not contain a text."""
    return f"~/(?s:.*){escape_slashes(re.escape(text))}(?s:.*)/"


def escape_slashes(expression: str) -> str:
    """Return an escaped text as it is written between slashes, on one line."""
    return expression.replace("/", "\\/").replace("\\\n", "\\n")


def _search_expression(pattern: str) -> str:
    """Return an expression for whole texts in which a pattern is found; "" if there is none."""
    bare = _WITHIN_CLASS.sub("", pattern)
    if _BEYOND.search(pattern):
        return ""
    begins, ends = bare.startswith("^"), re.search(r"(?<!\\)(?:\\\\)*\$$", bare) is not None
    inner = re.sub(r"\\.", "", bare, flags=re.DOTALL)[begins : -1 if ends else None]
    if "^" in inner or "$" in inner or ((begins or ends) and "|" in re.sub(r"\(.*\)", "", inner)):
        return ""
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return ""
    body = pattern[begins : -1 if ends else None]
    before, after = ("" if begins else "(?s:.*)"), ("" if ends else "(?s:.*)")
    return f"{before}({regex_to_lark(body, 'dw')}){after}".replace("\n", "\\n")


_TERMINALS = r"""
TEXT: /(?s:.*)/
KEY: /[A-Za-z0-9_.-]{1,64}/
NUMBER: /-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/
SINGLE_QUOTED: /'([^'\\\n]|\\['"\\nrt])*'/
"""


class Rules(dict[str, str]):
    """The bodies of a grammar's rules, by name.

    Args:
        control_ids: id of each control token by its text; in a text it stands for itself.
        id_length: length of the ids of calls, or None.
    """

    def __init__(self, control_ids: Mapping[str, int], id_length: int | None = None) -> None:
        super().__init__()
        self.control_ids = control_ids
        # What calls cannot follow, such as "tools.read.parameters.properties.a b".
        self.lost: list[str] = []
        self._id_length = id_length
        names = sorted(filter(None, control_ids), key=len, reverse=True)
        parts = [*map(re.escape, names), ID, INDEX, SPACE]
        self._parts = re.compile(f"({'|'.join(parts)})")

    def writable(
        self,
        tool: str,
        properties: Mapping[str, Any],
        root: Mapping[str, Any],
        unsafe: re.Pattern[str],
    ) -> Iterator[tuple[int, str, Any]]:
        """Yield number, name and schema of the arguments that a format can write.

        Arguments are lost if their names are `unsafe`, or if no value fits their schemas.
        """
        for number, (key, part) in enumerate(properties.items()):
            if unsafe.search(key) or not kinds_of(part, root):
                self.lost.append(f"tools.{tool}.parameters.properties.{key}")
            else:
                yield number, key, part

    def __str__(self) -> str:
        """Return the grammar."""
        lines = (f"{name}: {body}" for name, body in self.items())
        return "\n".join(lines) + _TERMINALS

    def parts(self, text: str) -> list[str]:
        """Return a text in parts, of which control tokens and places of ids are some."""
        return [part for part in self._parts.split(text) if part]

    def terms(self, text: str) -> str:
        """Return a text as terms."""
        return " ".join(map(self._term, self.parts(text)))

    def _term(self, part: str) -> str:
        if part == ID:
            length = self._id_length
            return f"/[A-Za-z0-9]{{{length}}}/" if length else "/[A-Za-z0-9_-]{1,64}/"
        if part == INDEX:
            return "/[0-9]{1,4}/"
        if part == SPACE:
            return r"/[ \t\r\n]{0,8}/"
        return f"<[{self.control_ids[part]}]>" if part in self.control_ids else literal(part)

    def expressions(self, text: str) -> str:
        """Return a text as terms, of which control tokens and what is between them are each one."""
        found, here = [], ""
        for part in [*self.parts(text), ""]:
            if part and part not in self.control_ids:
                here += self._expression(part)
                continue
            found += [f"/{here}/"] if here else []
            found += [self._term(part)] if part else []
            here = ""
        return " ".join(found)

    def up_to_control(self, text: str) -> list[str]:
        """Return the expression of a text up to a control token in it, and the terms behind."""
        found, place = "", 0
        for part in self.parts(text):
            if part in self.control_ids:
                return [found, self.terms(text[place:])]
            place += len(part)
            found += self._expression(part)
        return [found]

    def _expression(self, part: str) -> str:
        if part in (ID, INDEX, SPACE):
            return self._term(part)[1:-1]
        return escape_slashes(re.escape(part))

    def text(self, rule: str, end: str, limits: str = "") -> str:
        """Return the terms for a text within limits up to an end, and the end."""
        first, *rest = self.parts(end)
        if first in self.control_ids:
            if not limits:
                return f"TEXT {self.terms(end)}"
            self[f"LIMITED_{rule.upper()}"] = limits
            return f"LIMITED_{rule.upper()} {self.terms(end)}"
        body = f"{limits} & {text_without(first)}" if limits else "/(?s:.*)/"
        self[f"{rule}_text[suffix={literal(first)}]"] = body
        return " ".join([f"{rule}_text", *map(self._term, rest)])

    def given_terms(self, rule: str, form: Constraint, end: str) -> str:
        """Return the terms for a text of a tool's own form, and the end."""
        if form.kind == "regex":
            return self.text(rule, end, f"/{regex_to_lark(form.source, 'dw')}/")
        self[f"{rule}_given"] = f"%lark {{\n{form.source}\n}}"
        return f"{rule}_given {self.terms(end)}"

    def members(self, rule: str, members: Sequence[tuple[str, bool]], comma: str) -> str:
        """Return the terms for some rules in their order; each may be left out unless required."""
        # Commas stand between members that are there, so the rest depends on whether one was.
        rest = ""
        for number in range(len(members) - 1, -1, -1):
            name, needed = members[number]
            more, first = f"{rule}_m{number}", f"{rule}_f{number}"
            self[more] = f"({literal(comma)} {name}{')' if needed else ')?'} {rest}"
            begun = f"{name} {rest}"
            if not needed:
                later = f"{rule}_f{number + 1}" if number + 1 < len(members) else '""'
                begun += f" | {later}"
            self[first] = begun
            rest = more
        return f"{rule}_f0" if members else ""


def literal(text: str) -> str:
    """Return a text as one term; control tokens in it are text, too."""
    # Lark's lexer takes no DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def json_value(schema: Mapping[str, Any], root: Mapping[str, Any] | None = None) -> str:
    """Return the terms for a value in JSON; references of its schema lead into `root`."""
    if root is not None and '"$ref"' in json.dumps(schema):
        schema = with_definitions(schema, root)
    return inline_schema(schema)
