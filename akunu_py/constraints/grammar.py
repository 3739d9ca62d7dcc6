"""Constraints as grammars of llguidance."""

import json
import re
from collections.abc import Mapping
from typing import Any

from llguidance import regex_to_lark

from akunu_py.constraint import Constraint
from akunu_py.constraints.vocabulary import MatcherVocabulary

_LAYOUT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""One way to write a value, which is Python's: what must come next is then a sure draft."""

_BODY = "akunu_body"


def inline_schema(schema: Mapping[str, Any]) -> str:
    """Return a JSON schema as a term of a Lark grammar, in the layout of `json_schema`."""
    return "%json " + json.dumps({"x-guidance": _LAYOUT, **schema}, ensure_ascii=False)


def source_of(constraint: Constraint, vocabulary: MatcherVocabulary) -> str:
    """Return a constraint as llguidance's grammar, in JSON."""
    body = _body(constraint)
    if not constraint.trigger:
        return json.dumps({"grammars": [body]}, ensure_ascii=False)
    # The name of a grammar is what the first one calls it by.
    head = f"start: FREE | head @{_BODY}\nFREE: /(?s:.*)/\n{_head(constraint.trigger, vocabulary)}"
    return json.dumps(
        {"grammars": [{"lark_grammar": head}, {**body, "name": _BODY}]}, ensure_ascii=False
    )


def _head(trigger: str, vocabulary: MatcherVocabulary) -> str:
    """Return the rule for free text up to and including a trigger."""
    terms = terms_of(trigger, vocabulary)
    if terms[0].startswith("<"):
        return f"head: FREE {' '.join(terms)}\n"
    return f"head: until {' '.join(terms[1:])}\nuntil[lazy]: FREE {terms[0]}\n"


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
            schema = json.loads(source)
            given = schema if isinstance(schema, dict) else {"allOf": [schema]}
            return {"json_schema": {"x-guidance": _LAYOUT, **given}}
        case "regex":
            return {"lark_grammar": f"start: /{regex_to_lark(source, '')}/\n"}
        case "choices":
            texts = " | ".join(map(_literal, json.loads(source)))
            return {"lark_grammar": f"start: {texts}\n"}
        case "grammar":
            return {"lark_grammar": source}
