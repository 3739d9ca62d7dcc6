"""Tools of a chat: how the model is told of them, what it may call, and how its calls are read."""

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from akunu_py.engine.request_checks import ChatPlan
from akunu_py.protocols import Tokenizer
from akunu_py.system.errors import ConfigError, ModelFormatError
from akunu_py.tokenizers.accepted_turns import in_order_of_calls
from akunu_py.tool_calls.enforceable import enforceable
from akunu_py.tool_calls.format import ToolFormat
from akunu_py.tool_calls.given_reader import GivenParser, GivenReader, GivesReader
from akunu_py.tool_calls.grammar import (
    goes_with_answers,
    optional_calls,
    required_calls,
    unwritten,
)
from akunu_py.tool_calls.known import HARMONY, HERMES, known_format
from akunu_py.tool_calls.parser import CallParser
from akunu_py.tool_calls.probing import UnknownFormatError, probe_format
from akunu_py.tool_calls.schemas import by_name
from akunu_py.tool_calls.writing import with_calls_as_text, with_described_tools, with_ids_of
from akunu_py.values.constraint import Constraint
from akunu_py.values.messages import Message, Tool, ToolCall, ToolChoice
from akunu_py.values.reply_deltas import ContentDelta

_log = logging.getLogger(__name__)

_CHOICES = (
    "give 'auto', 'none', 'required', {'name': ...} with the name of a tool, or {'mode': 'auto' or "
    "'required', 'names': [...]}"
)
_SYSTEM = Message("system", "probe_system")
_ASK = Message("user", "a question")
_TOOL = Tool("probe_tool", "a description")
_CALL = ToolCall("probe_tool", {}, "probe0001")


class ToolUse:
    """Plans the chats of one engine; the template is asked for its format once.

    Args:
        tokenizer: the model's tokenizer.
        reader: what reads calls in place of the template's format; None: the format, if it is
            understood.

    """

    def __init__(self, tokenizer: Tokenizer, reader: GivenReader | None = None) -> None:
        self._tokenizer = tokenizer
        self._chosen = reader
        self._written: dict[bool, bool] = {}

    def plan(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        choice: ToolChoice,
        *,
        continued: Message | None = None,
    ) -> ChatPlan:
        """Return the plan of a chat, whose reply may continue the last message.

        Raises ConfigError for a choice that is malformed or without its tool, too many tools,
        arguments that the format cannot write, a template whose calls cannot be read, and a
        continued message that leaves no place for a call.
        """
        plan = self._plan(messages, tools, choice)
        if continued is not None and plan.constraint is not None:
            known = [one.tool for one in enforceable(tools)]
            _check_continued(continued.text, self._format, known)
        return replace(plan, continued=continued)

    def _plan(
        self, messages: Sequence[Message], tools: Sequence[Tool], choice: ToolChoice
    ) -> ChatPlan:
        callable_, required = _choice(tools, choice)
        listed = [tool for tool in tools if not tool.deferred]
        if not listed or self._writes_tools(system=messages[0].role == "system"):
            plan = ChatPlan(messages=self._with_texts(messages), tools=listed)
        else:
            _ = self._noticed
            given = with_described_tools(messages, listed, self._format)
            plan = ChatPlan(messages=self._with_texts(given))
        if not callable_:
            return plan
        if (reader := self._reader) is not None:
            if required:
                raise ConfigError(
                    f"tool calls of this model are read by {reader.name}, so they cannot be "
                    "required; give tool_choice='auto'"
                )
            texts = reader.start + reader.end
            marks = {id_: text for text, id_ in self._control_ids.items() if text in texts}
            return replace(plan, parser=GivenParser(reader, callable_), marks=marks)
        format_, control_ids = self._format, self._control_ids
        names = {tool.name for tool in callable_}
        # All of them, as whoever says what is not enforced.
        callable_ = [one.tool for one in enforceable(tools) if one.tool.name in names]
        if lost := unwritten(format_, [tool for tool in callable_ if tool.strict]):
            raise ConfigError(
                f"calls of this model cannot follow {', '.join(lost)[:300]}, which is of a strict "
                "tool; change the schema there, or leave strict out"
            )
        if required:
            one = not isinstance(choice, str) and "name" in choice
            grammar = required_calls(format_, callable_, control_ids, one=one)
        else:
            grammar = optional_calls(format_, callable_, control_ids)

        def calls_or_answer(schema: Constraint) -> Constraint:
            answer = json.loads(schema.source)
            return Constraint.tools(
                optional_calls(format_, callable_, control_ids, answer=answer),
                optional=required_calls(format_, callable_, control_ids),
            )

        texts = "".join(format_.texts)
        return ChatPlan(
            messages=plan.messages,
            tools=plan.tools,
            parser=CallParser(
                format_,
                [replace(tool, parameters=by_name(tool.parameters)) for tool in callable_],
            ),
            constraint=Constraint.tools(grammar),
            calls_or_answer=None if required or not goes_with_answers(format_) else calls_or_answer,
            from_start=format_ is HARMONY,
            marks={id_: text for text, id_ in control_ids.items() if text in texts},
        )

    def unwritten(self, tools: Sequence[Tool]) -> tuple[str, ...]:
        """Return the parts of schemas that calls cannot follow, since they cannot be written."""
        try:
            return () if self._reader is not None else unwritten(self._format, tools)
        except ConfigError:
            return ()

    @property
    def holds_grammars(self) -> bool:
        """Whether calls follow a tool's `input_form` where that is a grammar."""
        if self._chosen is not None:
            return False
        try:
            return self._format.writes_texts_as_they_are
        except ConfigError:
            return False

    @cached_property
    def _found(self) -> ToolFormat | UnknownFormatError:
        """The format of the template's calls, or why there is none."""
        tokenizer = self._tokenizer
        ends = [tokenizer.decode([id_], with_control=True) for id_ in tokenizer.end_ids]

        def render(messages: Sequence[Message], tools: Sequence[Tool]) -> str:
            shown = tools if self._writes_tools(system=False) else ()
            return tokenizer.chat_text(messages, tools=shown)

        try:
            return probe_format(render, [text for text in ends if text])
        except UnknownFormatError as error:
            return error

    @cached_property
    def _understood(self) -> ToolFormat | None:
        """The format of calls: the template's, that of a known model, or the one described."""
        if isinstance(self._found, ToolFormat):
            return self._found
        prompt = ""
        for system in (False, True):
            if not prompt and self._writes_tools(system=system):
                asked = (_SYSTEM, _ASK) if system else (_ASK,)
                prompt = self._tokenizer.chat_text(asked, tools=[_TOOL])
        return known_format(prompt, self._control_ids) or (None if prompt else HERMES)

    @cached_property
    def _reader(self) -> GivenReader | None:
        """What reads calls in place of their format: as chosen, or where none is understood."""
        if self._chosen is not None or self._understood is not None:
            return self._chosen
        tokenizer = self._tokenizer
        reader = tokenizer.call_reader() if isinstance(tokenizer, GivesReader) else None
        if reader is not None and isinstance(self._found, UnknownFormatError):
            _log.warning(
                "tool calls of this model are read by %s and are not forced to be valid, since "
                "their format is not understood: %s", reader.name, self._found.message,
            )  # fmt: skip
        return reader

    @property
    def _format(self) -> ToolFormat:
        if self._understood is not None:
            return self._understood
        reason = self._found.message if isinstance(self._found, UnknownFormatError) else ""
        raise ConfigError(
            f"tool calls of this model cannot be read: {reason}; with tool_choice='none' the reply "
            "is text, calls included"
        )

    def _with_texts(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return a conversation with calls as text, where the template has no place for them.

        Results are in the order of their calls, and ids are those of the format.
        """
        called = any(message.tool_calls or message.role == "tool" for message in messages)
        if not called or (format_ := self._understood) is None:
            return messages
        messages = with_ids_of(format_, in_order_of_calls(messages))
        if isinstance(self._found, ToolFormat):
            return messages
        has_place = self._writes_tools(system=messages[0].role == "system")
        if has_place and self._writes_calls:
            return messages
        return with_calls_as_text(messages, format_, results=not has_place)

    def _writes_tools(self, *, system: bool) -> bool:
        """Whether the template has a place for tools."""
        if system not in self._written:
            asked = (_SYSTEM, _ASK) if system else (_ASK,)
            try:
                self._tokenizer.chat_text(asked, tools=[_TOOL])
            except (ConfigError, ModelFormatError) as error:
                # A template that fails has no place for a system message, or for this small chat.
                self._written[system] = isinstance(error, ModelFormatError) and not system
            else:
                self._written[system] = True
        return self._written[system]

    @cached_property
    def _writes_calls(self) -> bool:
        """Whether the template has a place for calls, understood or not."""
        called = (_ASK, Message("assistant", tool_calls=(_CALL,)))
        try:
            self._tokenizer.chat_text(called, tools=[_TOOL])
        except (ConfigError, ModelFormatError):
            return False
        return True

    @cached_property
    def _control_ids(self) -> dict[str, int]:
        return {text: id_ for id_, text in self._tokenizer.control_tokens().items()}

    @cached_property
    def _noticed(self) -> bool:
        _log.warning(
            "the model's chat template has no place for tools; they are described in the system "
            "message, and a model that was not trained to call tools does it badly"
        )
        return True


def _check_continued(said: str, format_: ToolFormat, tools: Sequence[Tool]) -> None:
    """Refuse a beginning of a message, if the rest of it cannot be told from calls."""
    if format_ is HARMONY:
        raise ConfigError(
            "this model writes calls in messages of their own, so its last message cannot be "
            "continued where it may call tools; leave out the message, or forbid calls"
        )
    parser = CallParser(format_, tools)
    if any(
        not isinstance(delta, ContentDelta)
        for delta in (*parser.feed(said), *parser.finish(cut=True))
    ):
        raise ConfigError(
            "the assistant's last message begins a call, which cannot be continued; give it in "
            "tool_calls with its result, or leave it out"
        )


def _choice(tools: Sequence[Tool], choice: ToolChoice) -> tuple[Sequence[Tool], bool]:
    """Return the tools that may be called, and whether one must be."""
    match choice:
        case "auto" | "none":
            return (() if choice == "none" else tools), False
        case "required":
            if not tools:
                raise ConfigError("tool_choice is 'required', but there are no tools; give tools")
            return tools, True
        case {"name": str(name)} if len(choice) == 1:
            return _tools_named(tools, [name]), True
        case {"mode": "auto" | "required" as mode, "names": [_, *_] as names} if len(choice) == 2:
            return _tools_named(tools, names), mode == "required"
    raise ConfigError(f"tool_choice is {choice!r:.60}; {_CHOICES}")


def _tools_named(tools: Sequence[Tool], names: Sequence[str]) -> Sequence[Tool]:
    known = [tool.name for tool in tools]
    for name in names:
        if name not in known:
            raise ConfigError(
                f"tool_choice names {name!r:.60}, which is not among the tools: "
                f"{', '.join(known[:20]) or 'none'}"
            )
    return [tool for tool in tools if tool.name in names]
