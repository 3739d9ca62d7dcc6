"""Messages to a prompt as the model was trained on, by the template in its file.

A template is a program by an unknown author, so it runs in `sandbox`. Control tokens in the text of
messages must reach the model as text, so they are hidden from the tokenizer's search for control
tokens (`special_text`).
"""

import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import jinja2

from akunu_py.system.errors import ChatTemplateError
from akunu_py.tokenizers.sandbox import BoundedEnvironment
from akunu_py.tokenizers.special_text import texts_in
from akunu_py.tokenizers.template_input import TemplateInput, Value
from akunu_py.tokenizers.template_limits import TemplateLimitError, collect

_MAX_SOURCE = 1 << 18
_MAX_INDENT = 16


def _to_json(value: Any, indent: int | None = None, **options: Any) -> str:
    # Unlike jinja2's own filter, no HTML escapes and unescaped letters, as in transformers.
    if unknown := options.keys() - {"ensure_ascii", "separators", "sort_keys"}:
        raise TypeError(f"tojson has no option {', '.join(sorted(unknown))}")
    if indent is not None and not 0 <= indent <= _MAX_INDENT:
        raise TemplateLimitError(f"indents JSON by more than {_MAX_INDENT}")
    # Piece by piece, since indents and separators can make a small value large.
    given: dict[str, Any] = {"ensure_ascii": False, "default": _list_iterator} | options
    encoder = json.JSONEncoder(indent=indent, **given)
    return "".join(collect("", encoder.iterencode(value)))


def _list_iterator(value: object) -> list[Any]:
    # llama.cpp's `map` gives a list, Jinja's a generator, and templates are written for both.
    if isinstance(value, Iterator):
        return list(value)
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")


def _raise_exception(message: object = "") -> NoReturn:
    raise jinja2.TemplateError(str(message))


def _strftime_now(format_: str) -> str:
    if len(format_) > 256:
        raise TemplateLimitError("formats a date by more than 256 characters")
    return dt.datetime.now().astimezone().strftime(format_)


class ChatTemplate:
    """A chat template, compiled once and rendered within the sandbox's limits.

    Args:
        source: jinja2 text, with the names that Hugging Face's transformers defines.
        special_texts: "bos", "eos", "unknown", "padding" -> text, for `bos_token` and so on.

    Raises ChatTemplateError for a source that is too long or not jinja2.

    """

    def __init__(self, source: str, special_texts: Mapping[str, str]) -> None:
        if len(source) > _MAX_SOURCE:
            raise ChatTemplateError(
                f"the chat template has {len(source)} characters, more than {_MAX_SOURCE}; "
                "use another model"
            )
        self.source = source
        # Converts messages and tools to what `render` takes.
        self.input = TemplateInput(lambda messages, tools: self.render(messages, tools=tools))
        self._environment = BoundedEnvironment()
        self._environment.add_filter("tojson", _to_json)
        self._environment.globals["raise_exception"] = _raise_exception
        self._environment.globals["strftime_now"] = _strftime_now
        short = {"unknown": "unk", "padding": "pad"}
        self._names: dict[str, object] = {
            f"{short.get(name, name)}_token": text for name, text in special_texts.items()
        }
        try:
            self._template = self._environment.compile_bounded(source)
        except (
            jinja2.TemplateError,
            RecursionError,
            ValueError,
            SyntaxError,
            MemoryError,
        ) as error:
            raise ChatTemplateError(_failure(error)) from error

    def render(
        self,
        messages: Sequence[Value],
        *,
        tools: Sequence[Value] | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """Return the prompt for messages, up to where the reply begins.

        `messages` and `tools` are as returned by `input`; `variables` are further names for the
        template. Raises ChatTemplateError if the template fails, refuses the messages or takes too
        long.
        """
        values = {
            "messages": [dict(message) for message in messages],
            "tools": tools,
            "add_generation_prompt": add_generation_prompt,
        }
        given = (messages, tools, variables)
        size = sum(len(text) for part in given for text in texts_in(part))
        # Templates ask whether there are documents with `is not none`, so the name must exist.
        further = {"documents": None, **(variables or {})}
        try:
            return self._environment.render_bounded(
                self._template,
                input_size=size,
                names={**further, **self._names, **values},
            )
        except Exception as error:  # a template can raise anything
            raise ChatTemplateError(_failure(error)) from error


def _failure(error: BaseException) -> str:
    line, reason = "", str(error)
    verb = "refuses the conversation" if type(error) is jinja2.TemplateError else "fails"
    if isinstance(error, jinja2.TemplateSyntaxError):
        line, reason = f" at line {error.lineno}", error.message or ""
    reason = reason[:500] or type(error).__name__
    return f"the model's chat template {verb}{line}: {reason}"
