"""Custom tools of OpenAI's APIs, whose input is a text.

A model sees one as a function with the argument `input`; a call is returned with the text itself.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from akunu_py.server.conversation import tool_at
from akunu_py.server.errors import RequestError
from akunu_py.server.json_body import begun_object
from akunu_py.system.errors import ConfigError
from akunu_py.values.constraint import Constraint
from akunu_py.values.messages import Tool

_INPUT = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}


def custom_tool(place: str, given: Mapping[str, Any], shown: str) -> Tool:
    """Return a custom tool as the model sees it, under a name.

    Raises RequestError that names the field at fault with its place.
    """
    tool = tool_at(place, shown, given.get("description"), _INPUT)
    place = f"{place}.format"
    try:
        return replace(tool, input_form=_form(given.get("format"), place))
    except ConfigError as error:
        raise RequestError(f"{place}: {error.message}", param=place) from None


def custom_input(arguments: str) -> str:
    """Return the text in the arguments of a custom tool's call; "" if it was cut.

    Clients carry out an input as it is: half of a patch or of a program would be taken for one.
    """
    try:
        return str(msgspec.json.decode(arguments)["input"])
    except (KeyError, TypeError):
        return arguments
    except ValueError:
        return str(begun_object(arguments).get("input", ""))


def _form(given: object, place: str) -> Constraint | None:
    """Return the form of a custom tool's input; None for any text."""
    match given:
        case None | {"type": "text"}:
            return None
        case {"type": "grammar", "grammar": dict(nested)}:  # as chat completions have it
            return _form({"type": "grammar", **nested, "grammar": None}, place)
        case {"type": "grammar", "syntax": "lark", "definition": str(definition)}:
            return Constraint.grammar(definition)
        case {"type": "grammar", "syntax": "regex", "definition": str(definition)}:
            return Constraint.regex(definition)
    raise RequestError(
        f'{place} is malformed; give {{"type": "text"}} or {{"type": "grammar", "syntax": "lark" '
        'or "regex", "definition": ...}',
        param=place,
    )
