"""Constraints as grammars of llguidance."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from llguidance import regex_to_lark

from akunu_py.constraints.closing import close_objects
from akunu_py.constraints.vocabulary import MatcherVocabulary
from akunu_py.values.constraint import Constraint

LAYOUT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""One way to write a value, which is Python's: what must come next is then a sure draft."""

_BODY = "akunu_body"


def followed_schema(schema: Mapping[str, Any] | bool) -> dict[str, Any]:
    """Return a JSON schema as replies follow it: in one layout, with closed objects."""
    given = {"allOf": [schema]} if isinstance(schema, bool) else close_objects(schema)
    return {"x-guidance": LAYOUT, **given}


def inline_schema(schema: Mapping[str, Any]) -> str:
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
        literal = partial(_join_terms, vocabulary=self._vocabulary)
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


def _join_terms(text: str, vocabulary: MatcherVocabulary) -> str:
    return " ".join(terms_of(text, vocabulary))


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
