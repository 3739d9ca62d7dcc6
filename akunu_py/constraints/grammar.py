"""Constraints as grammars of llguidance.

JSON Schema allows an object any further members, of which whoever wrote the schema did not think,
and small models add them until a reply is cut. So an object whose schema has properties and says
nothing of others has no others, as for llama.cpp, xgrammar and Outlines: as if the schema said
`unevaluatedProperties: false`, which llguidance lacks. One without properties stays open.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from llguidance import regex_to_lark

from akunu_py.constraints.vocabulary import MatcherVocabulary
from akunu_py.values.constraint import Constraint

_OF_ROOT = frozenset({"$defs", "definitions", "x-guidance", "$id", "$schema"})
_VALUES = frozenset({"items", "prefixItems", "additionalItems", "additionalProperties"})
_EITHER = frozenset({"anyOf", "oneOf"})
_JOINED = frozenset({"allOf", *_EITHER})
_OTHERS = frozenset({"additionalProperties", "unevaluatedProperties", "patternProperties"})
"""Words that say what members an object may have besides its properties."""

_OF_MEMBERS = frozenset({"properties", "required", "$ref", *_JOINED, *_OTHERS})

_UNSAFE = re.compile(r"\W", re.ASCII)
"""What a reference would have to escape."""


def close_objects(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON schema whose objects have no members but those that it mentions."""
    return _Closing(schema).whole()


def look_up(place: str, root: Mapping[str, Any]) -> object:
    """Return the schema at a place such as #/$defs/word; None if there is none."""
    value: object = root
    for word in place.removeprefix("#").split("/")[1:]:
        name = word.replace("~1", "/").replace("~0", "~")
        if not isinstance(value, Mapping) or name not in value:
            return None
        value = value[name]
    return value


@dataclass(frozen=True, slots=True)
class _Members:
    """What schemas of one object say of its members."""

    names: tuple[str, ...] = ()
    named: bool = False  # Whether one has properties.
    others: bool = False  # Whether one says what others there may be.


_NONE = _Members()


class _Closing:
    """Closes the objects of one schema.

    Schemas that describe one object together are left open, and what all of them name closes it. So
    a definition may be needed twice: closed, and open.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        # Names of the definitions that are needed, by place and whether they are closed.
        self._needed: dict[tuple[str, bool], str] = {}

    def whole(self) -> dict[str, Any]:
        body = {word: part for word, part in self._root.items() if word != "$id"}
        found = {**self._root, **self._closed(body)}
        made: dict[str, Any] = {}
        # Not within each other: chains of references are longer than Python's stack.
        while len(made) < len(self._needed):
            (place, closed), name = list(self._needed.items())[len(made)]
            target = look_up(place, self._root)
            assert isinstance(target, Mapping)  # noqa: S101 - else it would not be needed
            bare = {word: part for word, part in target.items() if word not in _OF_ROOT}
            made[name] = self._closed(bare) if closed else self._open(bare)
        if made:
            given = found.get("$defs")
            found["$defs"] = {**given, **made} if isinstance(given, Mapping) else made
        return found

    def _closed(self, schema: Any, beside: _Members = _NONE) -> Any:
        """Return a schema that closes its object to its own members and those `beside` it."""
        words = _words(schema)
        if not words:
            return self._open(schema)
        if beside == _NONE and words == {"$ref"}:
            return self._open(schema, "$ref", self._reference(schema["$ref"], closed=True))
        parts = _list(schema.get("allOf"))
        if beside == _NONE and words == {"allOf"} and len([*filter(_words, parts)]) == 1:
            return self._open(schema, "allOf", list(map(self._closed, parts)))
        either = words & _EITHER
        patterns = beside == _NONE and words <= {"properties", "required", "patternProperties"}
        left_out = either | {"patternProperties"} if patterns else either
        here = self._members({w: p for w, p in schema.items() if w not in left_out}, beside)
        if here.others or len(either) > 1:
            return self._open(schema)
        for word in either:
            parts = [self._closed(part, here) for part in _list(schema[word])]
            return self._open(schema, word, parts)
        found = self._open(schema)
        few = isinstance(least := schema.get("minProperties"), int) and least > len(here.names)
        own = found.get("properties", {})
        if few or not isinstance(own, dict) or not (here.named or "patternProperties" in words):
            return found
        found.pop("properties", None)
        # llguidance lets the members of the last word come first.
        members = {name: own.get(name, {}) for name in here.names}
        return found | {"additionalProperties": False, "properties": members}

    def _open(self, schema: Any, given: str = "", by: Any = None) -> Any:
        """Return a schema that closes objects inside its object alone; the word `given` is `by`.

        One that is a document of its own stays as it is: its references lead into itself.
        """
        if not isinstance(schema, Mapping) or "$id" in schema:
            return schema
        found: dict[str, Any] = {}
        for word, value in schema.items():
            found[word] = value
            if word == given:
                found[word] = by
            elif word in {"properties", "patternProperties"} and isinstance(value, Mapping):
                found[word] = {name: self._closed(part) for name, part in value.items()}
            elif word in _VALUES:
                several = isinstance(value, list)
                found[word] = list(map(self._closed, value)) if several else self._closed(value)
            elif word in _JOINED and isinstance(value, list):
                found[word] = list(map(self._open, value))
            elif word == "$ref":
                found[word] = self._reference(value, closed=False)
        return found

    def _reference(self, place: object, *, closed: bool) -> object:
        """Return where a definition will be, by where it is; the same for another document's."""
        target = self._target(place)
        if not isinstance(target, Mapping) or ("$id" in target and target is not self._root):
            return place
        # Errors show it. No two numbers are equal.
        name = f"{_UNSAFE.sub('_', str(place).rpartition('/')[2])}_{len(self._needed)}"
        return f"#/$defs/{self._needed.setdefault((unquote(str(place)), closed), name)}"

    def _target(self, place: object) -> object:
        inside = isinstance(place, str) and (place == "#" or place.startswith("#/"))
        return look_up(unquote(str(place)), self._root) if inside else None

    def _members(self, schema: Mapping[str, Any], beside: _Members) -> _Members:
        """Return what a schema, all that it joins, and those `beside` it say together."""
        names = list(beside.names)
        required: list[str] = []
        named, others = beside.named, beside.others
        waiting: list[Any] = [schema]  # names and schemas, the next one last
        seen: set[str] = set()
        while waiting:
            part = waiting.pop()
            if isinstance(part, str):
                names.append(part)
            if not isinstance(part, Mapping):
                continue
            named |= isinstance(part.get("properties"), Mapping)
            others |= bool(_OTHERS & part.keys())
            required += [name for name in _list(part.get("required")) if isinstance(name, str)]
            more: list[Any] = []
            for word, value in part.items():
                if word == "properties":
                    more += value if isinstance(value, Mapping) else ()
                elif word in _JOINED:
                    more += _list(value)
                elif word == "$ref" and str(value) not in seen:
                    seen.add(str(value))
                    target = self._target(value)
                    others |= not isinstance(target, Mapping)
                    more.append(target)
            waiting += reversed(more)
        return _Members(tuple(dict.fromkeys([*names, *required])), named, others)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _words(schema: Any) -> frozenset[str]:
    """Return the words of a schema that say something of an object's members."""
    own = isinstance(schema, Mapping) and "$id" not in schema
    return _OF_MEMBERS.intersection(schema if own else ())


LAYOUT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""One way to write a value, which is Python's: what must come next is then a sure draft."""

_BODY = "akunu_body"


def followed_schema(schema: Mapping[str, Any] | bool) -> dict[str, Any]:
    """Return a JSON schema as replies follow it: in one layout, with closed objects."""
    given = {"allOf": [schema]} if isinstance(schema, bool) else close_objects(schema)
    return {"x-guidance": LAYOUT, **given}


def inline_schema(schema: Mapping[str, Any] | bool) -> str:
    """Return a JSON schema as a term of a Lark grammar, as `followed_schema` has it."""
    return "%json " + json.dumps(followed_schema(schema), ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Opening:
    """What may come before a constraint begins: reasoning, and what a model's format asks for.

    All texts may contain control tokens.
    """

    inside: str = ""  # Marker that closes the reasoning that the prompt opened, or "".
    # Opening and closing marker of reasoning that the reply may open.
    reasoning: tuple[tuple[str, str], ...] = ()
    # Markers of which one begins the answer; none if it begins without one.
    answers: tuple[str, ...] = ()
    # Text that may precede a further message, in formats of several messages, or "".
    speaker: str = ""
    space: bool = False  # Whether the reply begins with a space, which decoding drops.


def source_of(
    constraint: Constraint, vocabulary: MatcherVocabulary, opening: Opening | None = None
) -> str:
    """Return a constraint as llguidance's grammar, in JSON."""
    body = _body(constraint)
    rules = _Rules(vocabulary)
    rest = f"@{_BODY}"
    if constraint.trigger:
        rules.add("triggered", f"{rules.until(constraint.trigger)} {rest}")
        rest = "(FREE | triggered)"
    start = f"{rules.opening(opening)} {rest}" if opening else rest
    if not rules.used and start == rest:
        return json.dumps({"grammars": [body]}, ensure_ascii=False)
    rules.add("start", start)
    # The name of a grammar is what the first one calls it by.
    return json.dumps(
        {"grammars": [{"lark_grammar": str(rules)}, {**body, "name": _BODY}]}, ensure_ascii=False
    )


class _Rules:
    """Rules of a Lark grammar around a constraint, as they are written."""

    def __init__(self, vocabulary: MatcherVocabulary) -> None:
        self._vocabulary = vocabulary
        self._lines: list[str] = []

    @property
    def used(self) -> bool:
        return bool(self._lines)

    def __str__(self) -> str:
        return "\n".join((*self._lines, "FREE: /(?s:.*)/", r"SPACE: /[ \n]{1,4}/", ""))

    def add(self, name: str, terms: str) -> str:
        """Add a rule; return its name."""
        self._lines.append(f"{name}: {terms}")
        return name.partition("[")[0]

    def until(self, marker: str) -> str:
        """Return terms for free text up to and including a marker."""
        first, *others = terms_of(marker, self._vocabulary)
        if first.startswith("<"):
            return " ".join(("FREE", first, *others))
        name = self.add(f"until_{len(self._lines)}[lazy]", f"FREE {first}")
        return " ".join((name, *others))

    def opening(self, opening: Opening) -> str:
        """Return terms for what may come before the constraint."""

        def literal(text: str) -> str:
            return " ".join(terms_of(text, self._vocabulary))

        speaker = f"[{literal(opening.speaker)}]" if opening.speaker else ""
        blocks = [f"{literal(begin)} {self.until(end)} [SPACE]" for begin, end in opening.reasoning]
        answer = ""
        if opening.answers:
            answer = f"{speaker} ({' | '.join(map(literal, opening.answers))})"
        reasoning = f"({' | '.join(blocks)})" if blocks else ""
        if opening.inside:
            first = f"{self.until(opening.inside)} [SPACE]"
        elif opening.space:
            first = f'(" " | {reasoning})' if reasoning else '" "'
        else:
            first = f"[{reasoning}]" if reasoning else ""
        more = f"({speaker} {reasoning})*" if speaker and reasoning else ""
        return f"{first} {more} {answer}".strip()


def terms_of(text: str, vocabulary: MatcherVocabulary) -> list[str]:
    """Return a text as terms of a Lark rule; control tokens in it stand for themselves."""
    names = sorted(filter(None, vocabulary.control_ids), key=len, reverse=True)
    pattern = re.compile(f"({'|'.join(map(re.escape, names))})") if names else None
    parts = [part for part in (pattern.split(text) if pattern else [text]) if part]
    ids = vocabulary.control_ids
    return [f"<[{ids[part]}]>" if part in ids else _literal(part) for part in parts]


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _body(constraint: Constraint) -> dict[str, Any]:
    source = constraint.source
    match constraint.kind:
        case "json_schema":
            return {"json_schema": followed_schema(json.loads(source))}
        case "regex":
            return {"lark_grammar": f"start: /{regex_to_lark(source, '')}/\n"}
        case "choices":
            texts = " | ".join(map(_literal, json.loads(source)))
            # One terminal: as many rules would be followed side by side.
            return {"lark_grammar": f"start: TEXT\nTEXT: {texts}\n"}
        case "grammar" | "tools":
            return {"lark_grammar": source}
