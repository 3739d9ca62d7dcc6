"""Rules of arguments that are written one by one, as texts between tags."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from akunu_py.tool_calls.format import Kind, TaggedArguments, ToolFormat
from akunu_py.tool_calls.python_rules import words_of
from akunu_py.tool_calls.rules import Rules, json_value, literal
from akunu_py.tool_calls.schemas import constants, kinds_of, resolve
from akunu_py.tool_calls.text_limits import limits_of
from akunu_py.tool_calls.values import kind_of
from akunu_py.values.messages import Tool

_UNSAFE = r"[<>\"'\n\r]"


def tagged_terms(
    rules: Rules,
    rule: str,
    tool: Tool,
    schema: Mapping[str, Any],
    tags: TaggedArguments,
    *,
    format_: ToolFormat,
) -> str:
    """Return the terms for a tool's arguments by a schema, in order, and what closes the call."""
    required, root = schema.get("required", ()), tool.parameters
    close, made = rules.terms(format_.close), _Arguments(rules, tags, root)
    unsafe = re.compile("|".join([_UNSAFE, *map(re.escape, tags.value_starts.values())]))
    members = []
    for number, key, part in rules.writable(tool.name, schema.get("properties", {}), root, unsafe):
        name = f"{rule}_{number}"
        if tool.input_form is not None and key == "input":
            before, behind = tags.wrapper or ("", "")
            begin = rules.terms(tags.key_start + key + tags.value_starts["string"] + before)
            text = rules.given_terms(name, tool.input_form, behind + tags.value_end)
            rules[name] = f"{begin} {text}"
        else:
            rules[name] = made.argument(name, literal(key), part)
        members.append((name, key in required))
    if (free := schema.get("additionalProperties")) not in (None, False):
        name = f"{rule}_free"
        rules[f"{name}_one"] = made.argument(name, "KEY", free)
        rules[name] = f"{name}_one+"
        members.append((name, False))
    all_of = " ".join(name if needed else f"{name}?" for name, needed in members)
    if format_.empty is None:
        return f"{all_of} {close}"
    # Without arguments other text follows the name, which begins like that with some.
    some = []
    for number, (name, needed) in enumerate(members):
        rest = " ".join(n if must else f"{n}?" for n, must in members[number + 1 :])
        some.append(f"{name} {rest} {close}")
        if needed:
            break
    else:
        some.append(rules.terms(format_.empty.removeprefix(format_.after_names[0])))
    return " | ".join(some)


@dataclass(frozen=True, slots=True)
class _Arguments:
    """Makes the rules of arguments; `root` is the schema in which references are found."""

    rules: Rules
    tags: TaggedArguments
    root: Mapping[str, Any]

    def argument(self, rule: str, key: str, schema: object) -> str:
        """Return the terms for one argument; `key` has those of its name."""
        starts, terms = self.tags.value_starts, self.rules.terms
        kinds = kinds_of(schema, self.root)
        alternatives: list[str] = []
        for start in dict.fromkeys(starts.values()):
            here = [kind for kind in kinds if starts[kind] == start]
            if here:
                name = f"{rule}_v{len(alternatives)}"
                value = self._value(name, here, schema, part=len(here) < len(kinds))
                alternatives.append(f"{terms(start)} {value}")
        return f"{terms(self.tags.key_start)} {key} ({' | '.join(alternatives)})"

    def _value(self, rule: str, kinds: Sequence[Kind], schema: object, *, part: bool) -> str:
        """Return the terms for a value of some types, and its end.

        `part` says whether the schema allows other types, too.
        """
        end = self.rules.terms(self.tags.value_end)
        if "string" in kinds:
            if (values := constants(schema, self.root)) is not None:
                texts = [
                    value if isinstance(value, str) else json.dumps(value)
                    for value in values
                    if kind_of(value) in kinds
                ]
                return f"({' | '.join(map(literal, texts))}) {end}"
            alone = tuple(kinds) == ("string",) and not part
            return self._text(rule, limits_of(resolve(schema, self.root)) if alone else "")
        if self.tags.python and (words := words_of(kinds, schema)):
            return f"{words} {end}"
        given = schema if isinstance(schema, Mapping) else {}
        if part:
            given = {"allOf": [given, {"type": list(kinds)}]}
        return f"{json_value(given, self.root)} {end}"

    def _text(self, rule: str, limits: str) -> str:
        """Return the terms for a text within limits, and its end."""
        rules, value_end = self.rules, self.tags.value_end
        if self.tags.wrapper is None:
            return rules.text(rule, value_end, limits)
        begin, wrapped_end = self.tags.wrapper
        text = rules.text(rule, wrapped_end + value_end, limits)
        plain = f"PLAIN_{rule.upper()}"
        rules[plain] = " & ".join(filter(None, (r"/[^<&\n]+/", limits)))
        # An empty text without the wrapper, where nothing limits it.
        without = plain if limits else f"{plain}?"
        return f"({rules.terms(begin)} {text} | {without} {rules.terms(value_end)})"
