"""The grammar of a reply that may call tools, from the format that also reads it.

What the grammar allows, `CallParser` reads: names are those of the tools, arguments follow their
schemas, and the texts around them are the format's own. `rules` has the dialect of Lark.
"""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from akunu_py.constraints import inline_schema
from akunu_py.system.errors import ConfigError
from akunu_py.tool_calls.argument_rules import keywords, quoted_terms, tagged_terms
from akunu_py.tool_calls.enforceable import close_schema
from akunu_py.tool_calls.format import (
    PythonArguments,
    TaggedArguments,
    ToolFormat,
    flexible,
)
from akunu_py.tool_calls.known import HARMONY
from akunu_py.tool_calls.rules import Rules, escape_slashes, json_value
from akunu_py.tool_calls.schemas import alternatives, by_name
from akunu_py.values.constraint import MOST_REFERENCES, MOST_TOOL_CHARACTERS
from akunu_py.values.messages import Tool

_log = logging.getLogger(__name__)

MOST_TOOLS = 512
"""Tools of one call; the prompt has all of them, too."""

_LONGEST_LIST = 300
"""Characters of a list in a message."""

_MOST_APART = 2**15
"""Characters of rules up to which the alternatives of a tool's arguments stay apart."""

_ANYTHING: Mapping[str, Any] = {"type": "object", "additionalProperties": {}}

_SPACE = r"[\s\x1c-\x1f]*"
"""White space as Python has it: a call without a marker may follow it."""


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
    written = "TEXT" if answer is None else inline_schema(answer)
    if format_ is HARMONY:
        return made.source_of_messages(written)
    if answer is None:
        return made.source_of_text_and_calls()
    if format_.only_first:
        return _json_calls_or(format_, tools, answer)
    return made.source(answer=written)


def unwritten(format_: ToolFormat, tools: Sequence[Tool]) -> tuple[str, ...]:
    """Return the parts of the tools' schemas that calls of this format cannot follow.

    They are arguments whose names it cannot write, and schemas of too many parts.
    """
    made = _Grammar(format_, tools, {})
    for number, tool in enumerate(tools):
        made.add(number, tool)
    return made.lost


def goes_with_answers(format_: ToolFormat) -> bool:
    """Return whether a grammar can tell calls from an answer in the form of a JSON schema.

    Calls without a marker must be JSON themselves.
    """
    return not format_.only_first or _json_keys(format_) is not None


def _json_calls_or(
    format_: ToolFormat, tools: Sequence[Tool], answer: Mapping[str, Any] | bool
) -> str:
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
            "properties": {name: {"const": tool.name}, arguments: close_schema(_parameters(tool))},
            "required": [name, arguments],
            "additionalProperties": False,
        }
        for tool in tools
    ]
    return f"start: {json_value({'anyOf': [answer, *calls]})}\n"


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
    """Makes the rules of a reply and of the calls in it."""

    def __init__(
        self, format_: ToolFormat, tools: Sequence[Tool], control_ids: Mapping[str, int]
    ) -> None:
        if len(tools) > MOST_TOOLS:
            raise ConfigError(f"there are {len(tools)} tools; give at most {MOST_TOOLS}")
        self._format = format_
        self._tools = tools
        self._rules = Rules(control_ids, format_.id_length)
        self._terms = self._rules.terms

    def opening(self) -> str:
        """Return the terms before the first name, at the beginning of an answer."""
        opening = self._format.openings[0]
        text = opening.lstrip()
        space = opening.removesuffix(text)
        optional = f"({self._terms(space)})? " if space else ""
        return optional + self._terms(text)

    def source(self, *, several: bool = True, answer: str = "") -> str:
        """Return the grammar of calls; `answer` has the terms of what may stand in their place."""
        calls = [self.add(number, tool) for number, tool in enumerate(self._tools)]
        self._rules["call"] = " | ".join(calls)
        self._rules["calls"] = f"{self.opening()} call {self._further_calls(several=several)}"
        self._rules["start"] = f"calls | {answer}" if answer else "calls"
        return self._written()

    def _further_calls(self, *, several: bool = True) -> str:
        """Return the terms behind a first call."""
        format_ = self._format
        more = f"({self._terms(format_.separator + format_.opens[0])} call)* "
        return (more if several and format_.several else "") + self._terms(format_.end)

    def source_of_text_and_calls(self) -> str:
        """Return the grammar of a text with calls behind it.

        What follows the lead of a call is either the rest of a call, or text that does not begin
        like one. The rest of a head is one terminal, and the terminal of texts excludes it:
        otherwise a longer text would always be preferred to it. A lead is a control token, or text
        that ends a terminal wherever it comes ("lazy").
        """
        format_, rules = self._format, self._rules
        opening = flexible(format_.openings[0].lstrip())
        if format_.unwrapped and not any(
            part in rules.control_ids for part in rules.parts(opening)
        ):
            opening = flexible(format_.unwrapped)  # what is before it is text, be it there or not
        marks = [part for part in rules.parts(opening) if part in rules.control_ids]
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
            rule = self.add(number, tool)
            for after in format_.after_names:
                text, *behind = rules.up_to_control(rest + tool.name + flexible(after))
                name = f"HEAD_{len(calls)}"
                rules[name] = f"/{space}{text}/"
                if not behind:  # else the control token decides
                    heads.append(space + text + self._behind_names(after))
                calls.append(f"{name} {' '.join(behind)} {rule}_rest")
        rules["call"] = " | ".join(f"call_{number}" for number in range(len(self._tools)))
        rules["calls"] = f"({' | '.join(calls)}) {self._further_calls()}"
        other = f" & ~/({'|'.join(heads)})(?s:.*)/" if heads else ""
        rules["OTHER_TEXT"] = f"TEXT{other}"
        bare, not_bare = self._bare_calls()
        rules["FIRST_TEXT"] = f"TEXT{not_bare}"
        if not lead:
            rules["start"] = "OTHER_TEXT | calls"
        elif first:
            begun = rules.expressions(lead[lead.index(first) + len(first) :])
            rules["begun"] = f"{begun} (calls | OTHER_TEXT | OTHER_TEXT again)"
            rules["again"] = f"{self._terms(first)} (begun" + (
                " | TEXT | TEXT again)" if begun else ")"
            )
            rules["start"] = f"FIRST_TEXT | FIRST_TEXT again{bare}"
        else:
            until = f"(?s:.*){rules.up_to_control(lead)[0]}"
            rules["until_lead[lazy]"] = f"/{until}/{not_bare}"
            rules["until_again[lazy]"] = f"/{until}/{other}"
            rules["begun"] = "calls | OTHER_TEXT | until_again begun"
            rules["start"] = f"FIRST_TEXT | until_lead begun{bare}"
        return self._written()

    def _bare_calls(self) -> tuple[str, str]:
        """Return the terms of a call without its tags in place of an answer, and what excludes it.

        Both are to be added to others; "" where the format has no such calls.
        """
        rules, format_ = self._rules, self._format
        if not format_.bare:
            return "", ""
        openings = (rules.up_to_control(flexible(text))[0] for text in format_.bare)
        rules["BARE_OPENING"] = f"/{_SPACE}({'|'.join(openings)})/"
        names, calls = [], []
        for number, tool in enumerate(self._tools):
            names.append(rules.up_to_control(tool.name + flexible(format_.after_names[0]))[0])
            rules[f"BARE_{number}"] = f"BARE_OPENING /{names[-1]}/"
            calls.append(f"BARE_{number} call_{number}_value")
        rules["BARE_BEGUN"] = f"BARE_OPENING /({'|'.join(names)})(?s:.*)/"
        close, block = (self._terms(flexible(text)) for text in ("\n}", "\n```"))
        rules["bare"] = f"({' | '.join(calls)}) {close} ({block})?"
        return " | bare", " & ~BARE_BEGUN"

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
        return f"({'|'.join(escape_slashes(re.escape(text[:1])) for text in texts)})"

    def source_of_messages(self, answer: str = "") -> str:
        """Return the grammar of a reply of gpt-oss: reasoning, remarks, an answer or a call.

        `answer` has the terms of an answer; "": a call is required.
        """
        rules = self._rules
        calls = [self.add(number, tool) for number, tool in enumerate(self._tools)]
        for channel in ("analysis", "commentary"):
            begin = self._terms(f"<|channel|>{channel}<|message|>")
            speaker = self._terms("<|start|>assistant")
            rules[channel] = f"{begin} {rules.text(channel, '<|end|>')} {speaker}"
        opening = self._terms(self._format.opens[0])
        rules["calls"] = f"{opening} ({' | '.join(calls)})"
        final = f" | {self._terms('<|channel|>final<|message|>')} {answer}" if answer else ""
        rules["start"] = f"(analysis | commentary)* (calls{final})"
        return self._written()

    def _written(self) -> str:
        lark = str(self._rules)
        if len(lark) > MOST_TOOL_CHARACTERS:
            raise ConfigError(
                f"the {len(self._tools)} tools have schemas of {len(lark):,} characters, more than "
                f"{MOST_TOOL_CHARACTERS:,}; give fewer tools, or simpler parameters"
            )
        if lost := self.lost:
            _log.warning("calls cannot follow %s", ", ".join(lost)[:_LONGEST_LIST])
        return lark

    @property
    def lost(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._rules.lost))

    def add(self, number: int, tool: Tool) -> str:
        """Add the rule of a call from its name on, and one from its arguments on, NAME_rest.

        Returns the name of the first.
        """
        format_, rules, rule = self._format, self._rules, f"call_{number}"
        before = len(rules)
        each = alternatives(_parameters(tool)) if format_.arguments != "json" else ()
        written_names = [self._terms(tool.name + after) for after in format_.after_names]
        rules[f"{rule}_rest"] = self._arguments(rule, tool, each)
        rules[rule] = f"({' | '.join(written_names)}) {rule}_rest"
        # A chain of references stays within a tool.
        references = len(rules) - before + json.dumps(tool.parameters).count('"$ref"')
        made = list(rules)[before:]
        apart = len(each) > 1
        large = apart and sum(len(rules[name]) for name in made) > _MOST_APART
        if references <= MOST_REFERENCES and not large:
            return rule
        if not apart:
            rules.lost.append(f"tools.{tool.name}.parameters")
        for name in made:
            del rules[name]
        less = by_name(tool.parameters) if apart else _ANYTHING
        return self.add(number, replace(tool, parameters=less))

    def _arguments(self, rule: str, tool: Tool, each: Sequence[Mapping[str, Any]]) -> str:
        """Return the terms for the arguments of a call, any of some, and what closes it."""
        format_, rules, notation = self._format, self._rules, self._format.arguments
        close = self._terms(format_.close)
        if notation == "json":
            rules[f"{rule}_value"] = json_value(close_schema(_parameters(tool)))
            return f"{rule}_value {close}"
        written = []
        for number, schema in enumerate(each):
            name = rule if len(each) == 1 else f"{rule}x{number}"
            if isinstance(notation, TaggedArguments):
                written.append(tagged_terms(rules, name, tool, schema, notation, format_=format_))
            elif isinstance(notation, PythonArguments):
                written.append(f"{keywords(rules, name, tool, schema, notation)} {close}")
            else:
                written.append(f"{quoted_terms(rules, name, tool, schema, notation.quote)} {close}")
        return " | ".join(written)


def _parameters(tool: Tool) -> Mapping[str, Any]:
    """Return the schema of a tool's arguments, with the expression of its input."""
    form = tool.input_form
    if form is None or form.kind != "regex":
        return tool.parameters
    text = {"type": "string", "pattern": f"^(?:{form.source})$"}
    return {**tool.parameters, "properties": {"input": text}}
