"""A grammar for tool calls, in llguidance's dialect of Lark, from the format that also reads them.

What the grammar allows, `CallParser` reads: names are those of the tools, arguments follow their
schemas, and the texts around them are the format's own.
"""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from llguidance import regex_to_lark

from akunu_py.constraint import MOST_REFERENCES, MOST_TOOL_CHARACTERS, Constraint
from akunu_py.errors import ConfigError
from akunu_py.messages import Tool
from akunu_py.tool_calls.enforceable import closed
from akunu_py.tool_calls.format import (
    ID,
    INDEX,
    Kind,
    PythonArguments,
    QuotedArguments,
    TaggedArguments,
    ToolFormat,
)
from akunu_py.tool_calls.known import HARMONY
from akunu_py.tool_calls.text_limits import limits_of, slashed, without
from akunu_py.tool_calls.values import constants, kind_of, kinds_of, referred, resolved

_log = logging.getLogger(__name__)

MOST_TOOLS = 512
"""Tools of one call; the prompt has all of them, too."""

_LAYOUT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""Templates write JSON so, and what must come next is then known."""

_COMBINED = ("$ref", "allOf", "anyOf", "oneOf", "not", "if", "patternProperties")
_TEXT_LIMITS = {"pattern", "format", "minLength", "maxLength", *_COMBINED}
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_UNSAFE_KEY = re.compile(r"[<>\"'\n\r]")
_UNSAFE_QUOTED_KEY = re.compile(r"[^\w$.-]")

_ANYTHING: Mapping[str, Any] = {"type": "object", "additionalProperties": {}}

_SPACE = r"[\s\x1c-\x1f]*"
"""White space as Python has it: a call without a marker may follow it."""

_TERMINALS = r"""
TEXT: /(?s:.*)/
KEY: /[A-Za-z0-9_.-]{1,64}/
NUMBER: /-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/
SINGLE_QUOTED: /'([^'\\\n]|\\['"\\nrt])*'/
"""


def required_calls(
    format_: ToolFormat, tools: Sequence[Tool], control_ids: Mapping[str, int], *, one: bool = False
) -> str:
    """Return the grammar of an answer that consists of calls: at least one, or exactly one.

    `control_ids` has the id of each control token by its text. Raises ConfigError for too many
    tools, or for names of arguments that the format cannot write.
    """
    made = _Grammar(format_, tools, control_ids)
    if format_ is HARMONY:
        return made.source_of_messages()
    return made.source(several=not one)


def optional_calls(
    format_: ToolFormat,
    tools: Sequence[Tool],
    control_ids: Mapping[str, int],
    *,
    answer: Mapping[str, Any] | bool | None = None,
) -> str:
    """Return the grammar of an answer that may have calls after its text.

    A call is one from the end of its head on: the marker, the name of a tool, and what stands
    before the arguments. All that is less remains text, as for `CallParser`. With the JSON schema
    of an `answer` the reply is either such an answer, or calls. The other arguments and errors are
    those of `required_calls`.
    """
    made = _Grammar(format_, tools, control_ids)
    written = "TEXT" if answer is None else _json(_as_mapping(answer))
    if format_ is HARMONY:
        return made.source_of_messages(written)
    if answer is None:
        return made.source_of_text_and_calls()
    if format_.only_first:
        return _json_calls_or(format_, tools, _as_mapping(answer))
    return made.source(answer=written)


def goes_with_answers(format_: ToolFormat) -> bool:
    """Return whether a grammar can tell calls from an answer in the form of a JSON schema.

    Calls without a marker must be JSON themselves.
    """
    return not format_.only_first or _json_keys(format_) is not None


def _json_calls_or(format_: ToolFormat, tools: Sequence[Tool], answer: Mapping[str, Any]) -> str:
    """Return the grammar of an answer, or of one call that is a JSON object without a marker.

    Both are one schema, since a text that begins like a call would otherwise hide an answer.
    """
    keys = _json_keys(format_)
    given = [answer, *(tool.parameters for tool in tools)]
    if keys is None or '"$ref"' in json.dumps(given):
        raise ConfigError(
            "the calls of this model have no marker, so that a json_schema with $ref in it, or in "
            "the parameters of a tool, cannot go together with them; write the references out"
        )
    name, arguments = keys
    calls = [
        {
            "type": "object",
            "properties": {name: {"const": tool.name}, arguments: closed(_parameters(tool))},
            "required": [name, arguments],
            "additionalProperties": False,
        }
        for tool in tools
    ]
    return f"start: {_json({'anyOf': [answer, *calls]})}\n"


def _json_keys(format_: ToolFormat) -> tuple[str, str] | None:
    """Return the keys of name and arguments where a whole reply with a call is one JSON object."""
    word = "a_name"
    text = f"{format_.openings[0].lstrip()}{word}{format_.after_names[0]}{{}}{format_.close}"
    try:
        value = json.loads(text + format_.end)
    except ValueError:
        return None
    if format_.several or not isinstance(value, dict) or list(value.values()) != [word, {}]:
        return None
    name, arguments = value
    return name, arguments


class _Grammar:
    """Collects the rules of a grammar."""

    def __init__(
        self, format_: ToolFormat, tools: Sequence[Tool], control_ids: Mapping[str, int]
    ) -> None:
        if len(tools) > MOST_TOOLS:
            raise ConfigError(f"there are {len(tools)} tools; give at most {MOST_TOOLS}")
        self._format = format_
        self._tools = tools
        self._ids = control_ids
        names = sorted(filter(None, control_ids), key=len, reverse=True)
        parts = [*map(re.escape, names), ID, INDEX]
        self._parts = re.compile(f"({'|'.join(parts)})")
        self._rules: dict[str, str] = {}

    def opening(self) -> str:
        """Return the terms before the first name, at the beginning of an answer."""
        opening = self._format.openings[0]
        text = opening.lstrip()
        space = opening.removesuffix(text)
        optional = f"({self._terms(space)})? " if space else ""
        return optional + self._terms(text)

    def source(self, *, several: bool = True, answer: str = "") -> str:
        """Return the grammar of calls; `answer` has the terms of what may stand in their place."""
        calls = [self._call(number, tool) for number, tool in enumerate(self._tools)]
        self._rules["call"] = " | ".join(calls)
        self._rules["calls"] = f"{self.opening()} call {self._further_calls(several=several)}"
        self._rules["start"] = f"calls | {answer}" if answer else "calls"
        return self._written()

    def _further_calls(self, *, several: bool = True) -> str:
        """Return the terms behind a first call."""
        format_ = self._format
        more = self._terms(format_.separator + format_.opens[0])
        return (f"({more} call)* " if several and format_.several else "") + self._terms(
            format_.end
        )

    def source_of_text_and_calls(self) -> str:
        """Return the grammar of a text with calls behind it.

        What follows the lead of a call is either the rest of a call, or text that does not begin
        like one. The rest of a head is one terminal, and the terminal of texts excludes it:
        otherwise a longer text would always be preferred to it. A lead is a control token, or text
        that ends a terminal wherever it comes ("lazy").
        """
        format_, rules = self._format, self._rules
        opening = format_.openings[0].lstrip()
        marks = [part for part in self._parts.split(opening) if part in self._ids]
        first, lead, rest, space = "", opening, "", ""
        if format_.only_first:
            lead, rest, space = "", opening, _SPACE
        elif marks:
            # Text may have the first control token, too. Calls are decided behind the last one.
            place = opening.rindex(marks[-1]) + len(marks[-1])
            lead, rest = opening[:place], opening[place:]
            first = marks[0]
        calls: list[str] = []
        heads: list[str] = []
        for number, tool in enumerate(self._tools):
            rule = self._call(number, tool)
            for after in format_.after_names:
                text, *behind = self._up_to_control(rest + tool.name + after)
                name = f"HEAD_{len(calls)}"
                rules[name] = f"/{space}{text}/"
                if not behind:  # else the control token decides
                    heads.append(space + text + self._behind_names(after))
                calls.append(f"{name} {' '.join(behind)} {rule}_rest")
        rules["call"] = " | ".join(f"call_{number}" for number in range(len(self._tools)))
        rules["calls"] = f"({' | '.join(calls)}) {self._further_calls()}"
        other = f" & ~/({'|'.join(heads)})(?s:.*)/" if heads else ""
        rules["OTHER_TEXT"] = f"TEXT{other}"
        if not lead:
            rules["start"] = "OTHER_TEXT | calls"
        elif first:
            begun = self._terms(lead[lead.index(first) + len(first) :])
            rules["begun"] = f"{begun} (calls | OTHER_TEXT | OTHER_TEXT again)"
            rules["again"] = f"{self._terms(first)} (begun" + (
                " | TEXT | TEXT again)" if begun else ")"
            )
            rules["start"] = "TEXT | TEXT again"
        else:
            until = f"(?s:.*){self._up_to_control(lead)[0]}"
            rules["until_lead[lazy]"] = f"/{until}/"
            rules["until_again[lazy]"] = f"/{until}/{other}"
            rules["begun"] = "calls | OTHER_TEXT | until_again begun"
            rules["start"] = "TEXT | until_lead begun"
        return self._written()

    def _up_to_control(self, text: str) -> list[str]:
        """Return the expression of a text up to a control token in it, and the terms behind."""
        found, place = "", 0
        for part in self._parts.split(text):
            if part in self._ids:
                return [found, self._terms(text[place:])]
            place += len(part)
            if part in (ID, INDEX):
                found += self._term(part)[1:-1]
            else:
                found += slashed(re.escape(part))
        return [found]

    def _behind_names(self, after: str) -> str:
        """Return the expression of what decides, behind a head that ends with the tool's name."""
        if after:
            return ""
        arguments = self._format.arguments
        texts = ["{"]
        if isinstance(arguments, TaggedArguments):
            texts = [arguments.key_start, self._format.close]
        elif isinstance(arguments, PythonArguments):
            texts = ["("]
        return f"({'|'.join(slashed(re.escape(text[:1])) for text in texts)})"

    def source_of_messages(self, answer: str = "") -> str:
        """Return the grammar of a reply of gpt-oss: thoughts, remarks, an answer or a call.

        `answer` has the terms of an answer; "": a call is required.
        """
        rules = self._rules
        calls = [self._call(number, tool) for number, tool in enumerate(self._tools)]
        for channel in ("analysis", "commentary"):
            begin = self._terms(f"<|channel|>{channel}<|message|>")
            speaker = self._terms("<|start|>assistant")
            rules[channel] = f"{begin} {self._text(channel, '<|end|>')} {speaker}"
        opening = self._terms(self._format.opens[0])
        rules["calls"] = f"{opening} ({' | '.join(calls)})"
        final = f" | {self._terms('<|channel|>final<|message|>')} {answer}" if answer else ""
        rules["start"] = f"(analysis | commentary)* (calls{final})"
        return self._written()

    def _written(self) -> str:
        lines = (f"{name}: {body}" for name, body in self._rules.items())
        lark = "\n".join(lines) + _TERMINALS
        if len(lark) > MOST_TOOL_CHARACTERS:
            raise ConfigError(
                f"the {len(self._tools)} tools have schemas of {len(lark):,} characters, more than "
                f"{MOST_TOOL_CHARACTERS:,}; give fewer tools, or simpler parameters"
            )
        return lark

    def _call(self, number: int, tool: Tool) -> str:
        """Add the rule of a call from its name on, and one from its arguments on, NAME_rest.

        Returns the name of the first.
        """
        format_, rule = self._format, f"call_{number}"
        before = len(self._rules)
        close = self._terms(format_.close)
        arguments = format_.arguments
        if isinstance(arguments, TaggedArguments):
            body = self._tagged(rule, tool, arguments)
        elif isinstance(arguments, PythonArguments):
            body = f"{self._keywords(rule, tool, arguments)} {close}"
        elif isinstance(arguments, QuotedArguments):
            quote = arguments.quote
            if tool.input_form is not None:
                text = self._given(rule, tool.input_form, quote)
                written = f'"{{input:" {self._terms(quote)} {text} "}}"'
            else:
                written = self._object(rule, tool.parameters, tool.parameters, quote, tool.name)
            body = f"{written} {close}"
        else:
            body = f"{_json(closed(_parameters(tool)))} {close}"
        written_names = [self._terms(tool.name + after) for after in format_.after_names]
        self._rules[f"{rule}_rest"] = body
        self._rules[rule] = f"({' | '.join(written_names)}) {rule}_rest"
        # A chain of references stays within a tool.
        references = len(self._rules) - before + json.dumps(tool.parameters).count('"$ref"')
        if references > MOST_REFERENCES:
            _log.warning(
                "the parameters of the tool %s need %d rules, more than %d; any arguments are "
                "allowed", tool.name, references, MOST_REFERENCES,
            )  # fmt: skip
            for name in list(self._rules)[before:]:
                del self._rules[name]
            return self._call(number, replace(tool, parameters=_ANYTHING))
        return rule

    def _tagged(self, rule: str, tool: Tool, tags: TaggedArguments) -> str:
        """Return the terms for arguments that are written one by one, in their order."""
        format_, schema = self._format, tool.parameters
        close = self._terms(format_.close)
        required = schema.get("required", ())
        parameters = []
        for number, (key, part) in enumerate(_properties(tool).items()):
            unsafe = _UNSAFE_KEY.search(key) or any(s in key for s in tags.value_starts.values())
            if unsafe or not kinds_of(part, schema):
                _leave_out(tool.name, key)
                continue
            name = f"{rule}_{number}"
            if tool.input_form is not None and key == "input":
                before, behind = tags.wrapper or ("", "")
                begin = self._terms(tags.key_start + key + tags.value_starts["string"] + before)
                text = self._given(name, tool.input_form, behind + tags.value_end)
                self._rules[name] = f"{begin} {text}"
            else:
                self._rules[name] = self._parameter(name, _literal(key), part, schema, tags)
            parameters.append((name, key in required))
        if schema.get("additionalProperties") not in (None, False):
            name = f"{rule}_free"
            given = schema["additionalProperties"]
            self._rules[f"{name}_one"] = self._parameter(name, "KEY", given, schema, tags)
            self._rules[name] = f"{name}_one+"
            parameters.append((name, False))
        all_of = " ".join(name if needed else f"{name}?" for name, needed in parameters)
        if format_.empty is None:
            return f"{all_of} {close}"
        # Without arguments other text follows the name, which begins like that with some.
        some = []
        for number, (name, needed) in enumerate(parameters):
            rest = " ".join(n if must else f"{n}?" for n, must in parameters[number + 1 :])
            some.append(f"{name} {rest} {close}")
            if needed:
                break
        else:
            some.append(self._terms(format_.empty.removeprefix(format_.after_names[0])))
        return " | ".join(some)

    def _parameter(
        self, rule: str, key: str, schema: object, root: Mapping[str, Any], tags: TaggedArguments
    ) -> str:
        """Return the terms for one argument."""
        kinds = kinds_of(schema, root)
        alternatives: list[str] = []
        for start in dict.fromkeys(tags.value_starts.values()):
            here = [kind for kind in kinds if tags.value_starts[kind] == start]
            if here:
                name = f"{rule}_v{len(alternatives)}"
                value = self._value(name, here, schema, root, tags, part=len(here) < len(kinds))
                alternatives.append(f"{self._terms(start)} {value}")
        return f"{self._terms(tags.key_start)} {key} ({' | '.join(alternatives)})"

    def _value(
        self,
        rule: str,
        kinds: Sequence[Kind],
        schema: object,
        root: Mapping[str, Any],
        tags: TaggedArguments,
        *,
        part: bool,
    ) -> str:
        """Return the terms for a value of some types, and its end.

        `part` says whether the schema allows other types, too.
        """
        end = self._terms(tags.value_end)
        if "string" in kinds:
            if (values := constants(schema, root)) is not None:
                texts = [
                    value if isinstance(value, str) else json.dumps(value)
                    for value in values
                    if kind_of(value) in kinds
                ]
                return f"({' | '.join(map(_literal, texts))}) {end}"
            limits = ""
            if tuple(kinds) == ("string",) and not part:
                limits = limits_of(resolved(schema, root))
            if tags.wrapper is None:
                return self._text(rule, tags.value_end, limits)
            begin, wrapped_end = tags.wrapper
            text = self._text(rule, wrapped_end + tags.value_end, limits)
            self._rules[f"PLAIN_{rule.upper()}"] = " & ".join(filter(None, (r"/[^<&\n]+/", limits)))
            # An empty text without the wrapper, where nothing limits it.
            plain = f"PLAIN_{rule.upper()}" + ("" if limits else "?")
            return f"({self._terms(begin)} {text} | {plain} {end})"
        if tags.python and (words := _python_words(kinds, schema)):
            return f"{words} {end}"
        given = schema if isinstance(schema, Mapping) else {}
        if part:
            given = {"allOf": [given, {"type": list(kinds)}]}
        return f"{_json(_with_definitions(given, root))} {end}"

    def _given(self, rule: str, form: Constraint, end: str) -> str:
        """Return the terms for a text of a tool's own form, and the end."""
        if form.kind == "regex":
            return self._text(rule, end, f"/{regex_to_lark(form.source, 'dw')}/")
        self._rules[f"{rule}_given"] = f"%lark {{\n{form.source}\n}}"
        return f"{rule}_given {self._terms(end)}"

    def _text(self, rule: str, end: str, limits: str = "") -> str:
        """Return the terms for a text within limits up to an end, and the end."""
        first, *rest = [part for part in self._parts.split(end) if part]
        if first in self._ids:
            if not limits:
                return f"TEXT {self._terms(end)}"
            self._rules[f"LIMITED_{rule.upper()}"] = limits
            return f"LIMITED_{rule.upper()} {self._terms(end)}"
        body = f"{limits} & {without(first)}" if limits else "/(?s:.*)/"
        self._rules[f"{rule}_text[suffix={_literal(first)}]"] = body
        return " ".join([f"{rule}_text", *map(self._term, rest)])

    def _keywords(self, rule: str, tool: Tool, notation: PythonArguments) -> str:
        """Return the terms for arguments as Python's keywords; values are written as in JSON."""
        schema = _parameters(tool)
        required = schema.get("required", ())
        members = []
        for number, (key, part) in enumerate(schema.get("properties", {}).items()):
            if not key or _UNSAFE_QUOTED_KEY.search(key) or not kinds_of(part, schema):
                _leave_out(tool.name, key)
                continue
            name = f"{rule}_{number}"
            self._rules[name] = f"{_literal(key + '=')} {_python_value(part, schema, notation)}"
            members.append((name, key in required))
        if (given := schema.get("additionalProperties")) not in (None, False):
            value = _python_value(given, schema, notation)
            self._rules[f"{rule}_one"] = f'KEY "=" {value}'
            self._rules[f"{rule}_free"] = f'{rule}_one (", " {rule}_one)*'
            members.append((f"{rule}_free", False))
        return self._list(rule, members, ", ")

    # An object in the notation of `QuotedArguments`.

    def _object(
        self, rule: str, schema: Mapping[str, Any], root: Mapping[str, Any], quote: str, tool: str
    ) -> str:
        """Return the terms for an object; keys are in the order in which templates sort them."""
        properties = schema.get("properties", {})
        if not properties and (rule.count("_") > 1 or schema.get("additionalProperties")):
            return self._anything("object", quote)
        required = schema.get("required", ())
        members = []
        for number, key in enumerate(sorted(properties, key=lambda key: (key.lower(), key))):
            if _UNSAFE_QUOTED_KEY.search(key) or not kinds_of(properties[key], root):
                _leave_out(tool, key)
                continue
            name = f"{rule}_{number}"
            value = self._quoted(name, properties[key], root, quote, tool)
            self._rules[name] = f"{_literal(key + ':')} {value}"
            members.append((name, key in required))
        return f'"{{" {self._list(rule, members, ",")} "}}"' if members else '"{" "}"'

    def _list(self, rule: str, members: Sequence[tuple[str, bool]], comma: str) -> str:
        """Return the terms for some rules in their order; each may be left out unless required."""
        # Commas stand between members that are there, so the rest depends on whether one was.
        rest = ""
        for number in range(len(members) - 1, -1, -1):
            name, needed = members[number]
            more, first = f"{rule}_m{number}", f"{rule}_f{number}"
            self._rules[more] = f"({_literal(comma)} {name}{')' if needed else ')?'} {rest}"
            begun = f"{name} {rest}"
            if not needed:
                later = f"{rule}_f{number + 1}" if number + 1 < len(members) else '""'
                begun += f" | {later}"
            self._rules[first] = begun
            rest = more
        return f"{rule}_f0" if members else ""

    def _quoted(
        self, rule: str, schema: object, root: Mapping[str, Any], quote: str, tool: str
    ) -> str:
        """Return the terms for a value of a schema."""
        if isinstance(schema, Mapping) and isinstance(place := schema.get("$ref"), str):
            # Other tools may have other definitions of this name.
            named = "_".join((*rule.split("_")[:2], "ref", place.encode().hex()))
            if named not in self._rules:
                self._rules[named] = ""  # a schema may refer to itself
                found = referred(place, root)
                self._rules[named] = self._quoted(named, found, root, quote, tool)
            return named
        given = schema if isinstance(schema, Mapping) else {}
        values = given.get("enum", [given["const"]] if "const" in given else None)
        if values is not None and not any(isinstance(value, list | dict) for value in values):
            kinds = kinds_of(given, root)
            fitting = [value for value in values if kind_of(value) in kinds]
            return f"({' | '.join(self._constant(value, quote) for value in fitting)})"
        parts = given.get("anyOf", given.get("oneOf"))
        if parts:
            written = (
                self._quoted(f"{rule}_a{number}", part, root, quote, tool)
                for number, part in enumerate(parts)
            )
            return f"({' | '.join(written)})"
        alternatives: list[str] = []
        for kind in kinds_of(given, root):
            if kind == "object":
                alternatives.append(self._object(f"{rule}_o", given, root, quote, tool))
            elif kind == "array" and "items" in given:
                item = self._quoted(f"{rule}_i", given["items"], root, quote, tool)
                self._rules[f"{rule}_e"] = item
                alternatives.append(f'"[" ({rule}_e ("," {rule}_e)*)? "]"')
            elif kind == "number":
                alternatives.append(_json({**_numeric(given), "type": _number_type(given)}))
            elif kind == "string" and (limits := limits_of(given)):
                begin = self._terms(quote)
                alternatives.append(f"{begin} {self._text(f'{rule}_s', quote, limits)}")
            else:
                alternatives.append(self._anything(kind, quote))
        return f"({' | '.join(alternatives)})"

    def _anything(self, kind: Kind, quote: str) -> str:
        """Return the terms for any value of a type."""
        if kind in ("number", "boolean", "null"):
            return {"number": "NUMBER", "boolean": '("true" | "false")', "null": '"null"'}[kind]
        if "any_string" not in self._rules:
            self._rules["any_string"] = f"{self._terms(quote)} {self._text('any', quote)}"
            value = (
                "any_string",
                "NUMBER",
                '"true"',
                '"false"',
                '"null"',
                "any_array",
                "any_object",
            )
            self._rules["any_value"] = " | ".join(value)
            self._rules["any_array"] = '"[" (any_value ("," any_value)*)? "]"'
            self._rules["any_member"] = 'KEY ":" any_value'
            self._rules["any_object"] = '"{" (any_member ("," any_member)*)? "}"'
        return f"any_{kind}"

    def _constant(self, value: object, quote: str) -> str:
        if isinstance(value, str):
            return f"{self._terms(quote)} {_literal(value)} {self._terms(quote)}"
        return _literal(json.dumps(value))

    def _terms(self, text: str) -> str:
        """Return a text as terms; control tokens in it stand for themselves."""
        return " ".join(self._term(part) for part in self._parts.split(text) if part)

    def _term(self, part: str) -> str:
        if part == ID:
            length = self._format.id_length
            return f"/[A-Za-z0-9]{{{length}}}/" if length else "/[A-Za-z0-9_-]{1,64}/"
        if part == INDEX:
            return "/[0-9]{1,4}/"
        return f"<[{self._ids[part]}]>" if part in self._ids else _literal(part)


def _leave_out(tool: str, key: str) -> None:
    """Say that calls cannot have an argument: the template cannot write it, or no value fits."""
    _log.warning("calls of the tool %s are made without the argument %r", tool, key)


def _parameters(tool: Tool) -> Mapping[str, Any]:
    """Return the schema of a tool's arguments, with the expression of its input."""
    form = tool.input_form
    if form is None or form.kind != "regex":
        return tool.parameters
    text = {"type": "string", "pattern": f"^(?:{form.source})$"}
    return {**tool.parameters, "properties": {"input": text}}


def _properties(tool: Tool) -> Mapping[str, Any]:
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    return properties


def _as_mapping(schema: Mapping[str, Any] | bool) -> Mapping[str, Any]:
    return {"allOf": [schema]} if isinstance(schema, bool) else schema


def _with_definitions(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    if '"$ref"' not in json.dumps(schema):
        return schema
    return {**{word: root[word] for word in ("$defs", "definitions") if word in root}, **schema}


def _choices(schema: object, *, any_kind: bool = False) -> Sequence[Any] | None:
    """Return the values of an enum; only texts, unless `any_kind`."""
    if not isinstance(schema, Mapping):
        return None
    values: object = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if not isinstance(values, list):
        return None
    if any_kind:
        return values
    return [value for value in values if isinstance(value, str)] or None


def _json(schema: Mapping[str, Any]) -> str:
    return "%json " + json.dumps({"x-guidance": _LAYOUT, **schema}, ensure_ascii=False)


def _number_type(schema: Mapping[str, Any]) -> str:
    named = schema.get("type")
    types = [named] if isinstance(named, str) else named or []
    return "integer" if "integer" in types and "number" not in types else "number"


def _numeric(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the bounds of a schema's numbers."""
    return {word: schema[word] for word in _BOUNDS if word in schema}


def _python_words(kinds: Sequence[Kind], schema: object) -> str:
    """Return the terms for truth values and null, in JSON's words and Python's; "" for others."""
    if not set(kinds) <= {"boolean", "null"} or _choices(schema, any_kind=True) is not None:
        return ""
    words = {"boolean": ("true", "false", "True", "False"), "null": ("null", "None")}
    return f"({' | '.join(_literal(word) for kind in kinds for word in words[kind])})"


def _python_value(schema: object, root: Mapping[str, Any], notation: PythonArguments) -> str:
    """Return the terms for a value in Python's notation: JSON, of which all is read."""
    kinds = kinds_of(schema, root)
    if words := _python_words(kinds, schema):
        return words
    given = schema if isinstance(schema, Mapping) else {}
    written = _json(_with_definitions(given, root))
    if notation.quote == "'" and tuple(kinds) == ("string",):
        texts = _choices(schema)
        if texts is not None:
            plain = [f"'{text}'" for text in texts if not re.search(r"['\\\n]", text)]
            return f"({' | '.join([written, *map(_literal, plain)])})"
        if not _TEXT_LIMITS & set(given):
            return f"({written} | SINGLE_QUOTED)"
    return written


def _literal(text: str) -> str:
    # Lark's lexer takes no DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
