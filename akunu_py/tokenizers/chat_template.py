"""Messages to the prompt a model was trained on, by the template in its file.

A template is a program by whoever made the file: it runs in `sandbox`. The text of messages is by
whoever writes them: control tokens in it must reach the model as text, so they are hidden from
the tokenizer's search for control tokens (`SpecialTextGuard`).
"""

import datetime as dt
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import jinja2

from akunu_py.errors import ConfigError, ModelFormatError
from akunu_py.tokenizers.sandbox import BoundedEnvironment, TemplateLimitError
from akunu_py.types import Message

_MAX_SOURCE = 1 << 18
_ROLE_LENGTH = 64
_MAX_INDENT = 16


def check_messages(messages: object) -> None:
    """Check that messages are mappings of a role and a content; raise ConfigError otherwise."""
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes) or not messages:
        raise ConfigError('messages must be a list such as [{"role": "user", "content": "Hi"}]')
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping) or message.keys() != {"role", "content"}:
            raise ConfigError(f"message {index} must have 'role' and 'content' and nothing else")
        role, content = message["role"], message["content"]
        if not isinstance(role, str) or not isinstance(content, str):
            raise ConfigError(f"message {index}: role and content must be texts")
        # A role is written next to control tokens: only a plain word cannot be mistaken for one.
        if not (role.isascii() and role.isidentifier()) or len(role) > _ROLE_LENGTH:
            raise ConfigError(
                f"message {index} has the role {role[:_ROLE_LENGTH]!r}; use 'system', 'user' or "
                "'assistant'"
            )


def _to_json(value: Any, indent: int | None = None, **options: Any) -> str:
    # Unlike jinja2's own filter: no HTML escapes, letters as they are (as transformers has it).
    if unknown := options.keys() - {"ensure_ascii", "separators", "sort_keys"}:
        raise TypeError(f"tojson has no option {', '.join(sorted(unknown))}")
    if indent is not None and not 0 <= indent <= _MAX_INDENT:
        raise TemplateLimitError(f"indents JSON by more than {_MAX_INDENT}")
    return json.dumps(value, indent=indent, **({"ensure_ascii": False} | options))


def _raise_exception(message: object = "") -> NoReturn:
    raise jinja2.TemplateError(str(message))


def _strftime_now(format_: str) -> str:
    if len(format_) > 256:
        raise TemplateLimitError("formats a date by more than 256 characters")
    return dt.datetime.now().astimezone().strftime(format_)


class ChatTemplate:
    """A chat template, compiled once. Rendering never reaches beyond the sandbox's limits.

    Args:
        source: jinja2 text, with the names Hugging Face's transformers defines.
        special_texts: "bos", "eos", "unknown", "padding" -> text, for `bos_token` and so on.

    Raises ModelFormatError for a source that is too long or not jinja2.

    """

    def __init__(self, source: str, special_texts: Mapping[str, str]) -> None:
        if len(source) > _MAX_SOURCE:
            raise ModelFormatError(
                f"the chat template has {len(source)} characters, more than {_MAX_SOURCE}; use "
                "--raw, or another model"
            )
        self.source = source
        self._environment = BoundedEnvironment()
        self._environment.add_filter("tojson", _to_json)
        self._environment.globals["raise_exception"] = _raise_exception
        self._environment.globals["strftime_now"] = _strftime_now
        short = {"unknown": "unk", "padding": "pad"}
        self._names: dict[str, object] = {
            f"{short.get(name, name)}_token": text for name, text in special_texts.items()
        }
        # Templates ask whether there are tools with `is not none`, so the names must exist.
        self._names |= {"tools": None, "documents": None, "add_generation_prompt": True}
        try:
            self._template = self._environment.compile_bounded(source)
        except (
            jinja2.TemplateError,
            RecursionError,
            ValueError,
            SyntaxError,
            MemoryError,
        ) as error:
            raise ModelFormatError(_failure(error)) from error

    def render(self, messages: Sequence[Message]) -> str:
        """Return the prompt for messages, up to where the reply begins.

        Raises ModelFormatError where the template fails, refuses the messages or takes too long.
        """
        values = [dict(message) for message in messages]
        try:
            return self._environment.render_bounded(
                self._template,
                input_size=sum(len(message["content"]) for message in messages),
                names={**self._names, "messages": values},
            )
        except Exception as error:  # a template can raise anything
            raise ModelFormatError(_failure(error)) from error


def _failure(error: BaseException) -> str:
    line = f" at line {error.lineno}" if isinstance(error, jinja2.TemplateSyntaxError) else ""
    reason = str(error)[:500] or type(error).__name__
    return f"the model's chat template fails{line}: {reason}; use --raw to give the prompt yourself"


@dataclass(frozen=True, slots=True)
class HiddenMessages:
    """Messages in which the text of control tokens is replaced by private characters."""

    messages: Sequence[Message]
    replaced: Mapping[str, str]

    def reveal(self, text: str) -> str:
        """Put the replaced text back."""
        for character, original in self.replaced.items():
            text = text.replace(character, original)
        return text


class SpecialTextGuard:
    """Hides the text of control tokens in messages while a template is rendered and split.

    Only occurrences are replaced, each by one character of a private plane, so that templates
    that look at a message or trim it see the rest as it is. Where a message begins or ends with a
    part of a control token, or is one, that part is replaced too: with the template's text next
    to it, it could become whole.
    """

    _FIRST, _LAST = 0xF0000, 0x10FFFD  # the private planes, without meaning in any text

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = [text for text in texts if text]
        # The parts that a message may end or begin with, the whole text not among them.
        self._heads = {text[:size] for text in self._texts for size in range(1, len(text))}
        self._tails = {text[size:] for text in self._texts for size in range(1, len(text))}
        self._longest = max(map(len, self._texts), default=0)

    def hide(self, messages: Sequence[Message], template: str) -> HiddenMessages:
        """Return the messages with such text replaced by characters found nowhere in them."""
        contents = [message["content"] for message in messages]
        used = set(template).union(*contents)
        free = (chr(code) for code in range(self._FIRST, self._LAST + 1) if chr(code) not in used)
        characters: dict[str, str] = {}

        def character(text: str) -> str:
            if text not in characters:
                if (found := next(free, None)) is None:
                    raise ConfigError("the messages use up the private characters of Unicode")
                characters[text] = found
            return characters[text]

        hidden: list[Message] = []
        for message, content in zip(messages, contents, strict=True):
            replaced = content
            for text in self._texts:
                if text in replaced:
                    replaced = replaced.replace(text, character(text))
            body = replaced.strip()
            if body and any(body in text for text in self._texts):
                replaced = replaced.replace(body, character(body), 1)
            else:
                replaced = self._hide_end(self._hide_start(replaced, character), character)
            hidden.append({"role": message["role"], "content": replaced})
        return HiddenMessages(hidden, {private: text for text, private in characters.items()})

    def _hide_start(self, text: str, character: Callable[[str], str]) -> str:
        body = text.lstrip()
        for size in range(min(self._longest, len(body)), 0, -1):
            if body[:size] in self._tails:
                margin = text[: len(text) - len(body)]
                return margin + character(body[:size]) + body[size:]
        return text

    def _hide_end(self, text: str, character: Callable[[str], str]) -> str:
        body = text.rstrip()
        for size in range(min(self._longest, len(body)), 0, -1):
            if body[-size:] in self._heads:
                return body[:-size] + character(body[-size:]) + text[len(body) :]
        return text
