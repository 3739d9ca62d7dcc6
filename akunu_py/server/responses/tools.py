"""The tools of a request: functions, functions in namespaces, and custom tools.

A model sees a flat list of functions. So a function of a namespace gets a name made of both names,
and a custom tool, whose input is a text, becomes a function with the argument `input`. Calls are
returned under the names and in the form that the client gave.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from akunu_py.server.conversation import announced, openai_choice, tool_at
from akunu_py.server.custom_tools import custom_tool
from akunu_py.server.errors import RequestError
from akunu_py.values.messages import Tool, ToolChoice

_LONGEST_NAME = 128
_MALFORMED_CHOICE = (
    "tool_choice is malformed; give 'auto', 'none', 'required', or "
    '{"type": "function", "name": ...} with the name of a tool'
)


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool as the client named it, and as the model sees it."""

    shown: Tool
    """What the model sees."""
    name: str
    namespace: str = ""
    """The namespace that has it; "" for none."""
    custom: bool = False
    """Whether its input is a text."""


@dataclass(slots=True)
class ToolBook:
    """The tools of a request, by the names that the model sees."""

    offered: dict[str, OfferedTool] = field(default_factory=dict)

    def add(self, tools: Sequence[Mapping[str, Any]], place: str, ignored: list[str]) -> None:
        """Add tools of `place`; those that only OpenAI's servers have are added to `ignored`.

        Raises RequestError for a malformed one.
        """
        for index, tool in enumerate(tools):
            self._add(tool, f"{place}[{index}]", "", ignored)

    def add_later(self, tools: Sequence[Mapping[str, Any]], place: str, ignored: list[str]) -> str:
        """Add tools that an item brings, and return the text that tells of them.

        The prompt would begin differently if it listed them.
        """
        found = ToolBook()
        found.add(tools, place, ignored)
        for name, tool in found.offered.items():
            later = replace(tool, shown=replace(tool.shown, deferred=True))
            self.offered.setdefault(name, later)
        shown = [self.offered[name].shown for name in found.offered]
        return announced([tool for tool in shown if tool.deferred])

    def _add(
        self, given: Mapping[str, Any], place: str, namespace: str, ignored: list[str]
    ) -> None:
        match given.get("type"):
            case "function":
                self._offer(given, place, namespace)
            case "custom":
                self._offer(given, place, namespace, custom=True)
            case "namespace":
                name, tools = given.get("name"), given.get("tools")
                if not isinstance(name, str) or not isinstance(tools, list):
                    raise RequestError(f"{place} needs a name and a list of tools", param=place)
                for index, tool in enumerate(tools):
                    if isinstance(tool, dict):
                        self._add(tool, f"{place}.tools[{index}]", name, ignored)
            case kind:
                ignored.append(str(kind))

    def _offer(
        self, given: Mapping[str, Any], place: str, namespace: str, *, custom: bool = False
    ) -> None:
        name = given.get("name")
        if not isinstance(name, str):
            raise RequestError(f"{place}.name is missing; give a text", param=place)
        shown = shown_name(namespace, name)
        if custom:
            tool = custom_tool(place, given, shown)
        else:
            schema, strict = given.get("parameters"), given.get("strict")
            tool = tool_at(place, shown, given.get("description"), schema, strict=strict)
        self.offered[tool.name] = OfferedTool(tool, name, namespace, custom)

    @property
    def shown(self) -> tuple[Tool, ...]:
        """The tools as the model sees them."""
        return tuple(tool.shown for tool in self.offered.values())

    def called(self, shown: str) -> OfferedTool:
        """Return the tool that a model called; a call of an unknown one keeps its name."""
        return self.offered.get(shown) or OfferedTool(Tool(shown), shown)

    def choice(self, given: str | Mapping[str, Any] | None) -> ToolChoice:
        """Return the choice of a request; raises RequestError for a malformed one."""
        return openai_choice(
            given, given, self.shown, name_of=_chosen_name, malformed=_MALFORMED_CHOICE
        )


def shown_name(namespace: str, name: str) -> str:
    """Return the name under which a model sees a function of a namespace.

    It depends on both names only, so that calls of earlier turns keep theirs.
    """
    if not namespace:
        return name
    joined = re.sub(r"[^A-Za-z0-9_.-]", "_", f"{namespace.removesuffix('__')}__{name}")
    if len(joined) <= _LONGEST_NAME:
        return joined
    digest = hashlib.sha256(f"{namespace}\n{name}".encode()).hexdigest()[:16]
    return f"{joined[: _LONGEST_NAME - 17]}_{digest}"


def _chosen_name(tool: object) -> str | None:
    match tool:
        case {"name": str(name), "namespace": str(namespace)}:
            return shown_name(namespace, name)
        case {"name": str(name)}:
            return name
    return None
