"""Messages to a prompt as the model was trained on, by the template in its file.

A template is a program by an unknown author, so it runs in `sandbox`. Control tokens in the text of
messages must reach the model as text, so they are hidden from the tokenizer's search for control
tokens (`special_tokens`).

A file without a template gets a format by its architecture, if the vocabulary has every control
token that it writes: no model was trained on their text in ordinary tokens. The formats are of the
models from before files had templates, and follow what their makers wrote for a plain conversation.
"""

import datetime as dt
import json
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import jinja2

from akunu_py.protocols import TemplateVariable
from akunu_py.system.errors import ChatTemplateError, ConfigError
from akunu_py.tokenizers.sandbox import BoundedEnvironment, TemplateLimitError, collect
from akunu_py.tokenizers.special_tokens import HiddenMessages, SpecialTextGuard, texts_in
from akunu_py.tokenizers.template_input import TemplateInput, Value, cut_at, with_mark
from akunu_py.tokenizers.vocabulary import TokenType, Vocabulary, get_text
from akunu_py.values.messages import GivenMessage, GivenTool, Message, read_messages, read_tools

_LOOP = "{% for message in messages %}"
_END = "{% endfor %}"
# These formats have no system message: its text goes before the first question.
_MERGED_SYSTEM = (
    "{% set system = messages[0].content + '\\n\\n' if messages[0].role == 'system' else '' %}"
    "{% set rest = messages[1:] if system else messages %}"
)


@dataclass(frozen=True, slots=True)
class Format:
    """A conversation's format."""

    name: str
    tokens: tuple[str, ...]  # The control tokens that it writes.
    source: str  # In jinja2.


def _turns(name: str, tokens: tuple[str, ...], turn: str, reply: str, start: str = "") -> Format:
    """Return a format with a `turn` for each message and `reply` where the reply begins."""
    return Format(
        name,
        tokens,
        f"{start}{_LOOP}{turn}{_END}{{% if add_generation_prompt %}}{reply}{{% endif %}}",
    )


def _merge_system(
    name: str, tokens: tuple[str, ...], user: str, assistant: str, reply: str = ""
) -> Format:
    """Return a format in which the system's text goes before the first question."""
    turn = (
        "{% if message.role == 'assistant' %}" + assistant + "{% else %}"
        "{% set content = (system if loop.first else '') + message.content %}"
        + user
        + "{% endif %}"
    )
    source = f"{{{{ bos_token }}}}{_MERGED_SYSTEM}{{% for message in rest %}}{turn}{_END}"
    source += f"{{% if add_generation_prompt %}}{reply}{{% endif %}}"
    return Format(name, tokens, source)


_FORMATS = (
    _turns(
        "chatml",
        ("<|im_start|>", "<|im_end|>"),
        "{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}",
        "{{ '<|im_start|>assistant\\n' }}",
    ),
    _turns(
        "llama3",
        ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        "{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n'"
        " + message.content | trim + '<|eot_id|>' }}",
        "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}",
        "{{ bos_token }}",
    ),
    _merge_system(
        "mistral",
        ("[INST]", "[/INST]"),
        "{{ '[INST] ' + content + '[/INST]' }}",
        "{{ ' ' + message.content + eos_token }}",
    ),
    # Llama 2 writes no control token but begin and end, so it is for models named for chatting.
    _merge_system(
        "llama2",
        (),
        "{{ (bos_token if not loop.first else '') + '[INST] ' + content + ' [/INST]' }}",
        "{{ ' ' + message.content + ' ' + eos_token }}",
    ),
    _merge_system(
        "gemma",
        ("<start_of_turn>", "<end_of_turn>"),
        "{{ '<start_of_turn>user\\n' + content | trim + '<end_of_turn>\\n' }}",
        "{{ '<start_of_turn>model\\n' + message.content | trim + '<end_of_turn>\\n' }}",
        "{{ '<start_of_turn>model\\n' }}",
    ),
    _turns(
        "phi3",
        ("<|user|>", "<|assistant|>", "<|end|>"),
        "{{ '<|' + message.role + '|>\\n' + message.content + '<|end|>\\n' }}",
        "{{ '<|assistant|>\\n' }}",
    ),
)  # fmt: skip
_BY_NAME = {format_.name: format_ for format_ in _FORMATS}

# Formats of the models of each architecture, the most specific first. "chatml" is the last for all.
_BY_ARCHITECTURE = {
    "llama": ("llama3", "mistral"),
    **dict.fromkeys(("gemma", "gemma2"), ("gemma",)),
    "phi3": ("phi3",),
}


def choose_fallback(
    architecture: str | None, controls: Collection[str], names: str
) -> Format | None:
    """Return the format for a file without a chat template, None if none fits.

    Args:
        architecture: `general.architecture`.
        controls: texts of the control and user-defined tokens.
        names: the file's names of the model, for formats without control tokens.

    """
    if architecture is None:
        return None
    for name in (*_BY_ARCHITECTURE.get(architecture, ()), "chatml"):
        format_ = _BY_NAME[name]
        if all(token in controls for token in format_.tokens):
            return format_
    named = names.lower()
    if architecture == "llama" and ("chat" in named or "instruct" in named):
        return _BY_NAME["llama2"]
    return None


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


_log = logging.getLogger(__name__)
_KEY = "tokenizer.chat_template"


class Templates:
    """The templates of a file or folder.

    Args:
        main: text of the main one, None for none.
        source: its origin, "file" or "fallback:" and a format's name; None for none.
        with_tools: text of the one for conversations with tools, None for the main one.
        special_texts: as `ChatTemplate` takes them.
        library: what lays out every conversation in place of these; None for them.

    """

    def __init__(
        self,
        main: str | None,
        source: str | None,
        with_tools: str | None,
        special_texts: Mapping[str, str],
        library: ChatTemplate | None = None,
    ) -> None:
        self.source = source
        self.main = main or ""
        self.has_main = main is not None or library is not None
        self._special_texts = special_texts
        self._texts = (main, main if with_tools is None else with_tools)
        self._library = library
        self._compiled: dict[str, ChatTemplate] = {}

    @cached_property
    def _noticed(self) -> bool:
        _log.warning(
            "the file has no chat template; conversations are written as %s, the usual format for "
            "its architecture and control tokens. Give the prompt yourself (--raw) if replies are "
            "off",
            str(self.source).removeprefix("fallback:"),
        )
        return True

    def choose(self, *, with_tools: bool) -> ChatTemplate:
        """Return the template for a conversation with or without tools.

        A notice is logged when a fallback is first used. Raises ConfigError if there is none.
        """
        if self._library is not None:
            return self._library
        text = self._texts[with_tools]
        if text is None:
            raise ConfigError(
                "the model has no chat template, and its vocabulary lacks the control tokens of "
                "known formats, so it was not made for conversations; give it a text to continue"
            )
        if text == self.main and self.source != "file":
            _ = self._noticed
        if text not in self._compiled:
            # Compiled late: a model with a broken template can still continue raw prompts.
            self._compiled[text] = ChatTemplate(text, self._special_texts)
        return self._compiled[text]

    def lay_out(
        self,
        messages: Sequence[GivenMessage],
        tools: Sequence[GivenTool] | None,
        variables: Mapping[str, TemplateVariable] | None,
        guard: SpecialTextGuard,
        *,
        continued: bool,
    ) -> tuple[str, HiddenMessages]:
        """Return the prompt for a conversation, and what reveals the texts hidden in it.

        Otherwise as `akunu_py.protocols.Tokenizer.encode_chat`.
        """
        said: Sequence[Message] = read_messages(messages)
        checked_tools = read_tools(tools)
        mark = ""
        if continued:
            said, mark = with_mark(said)
        template = self.choose(with_tools=bool(checked_tools))
        given, given_tools = template.input.of(said, checked_tools)
        hidden = guard.hide(given, template.source, given_tools, variables)
        text = template.render(
            hidden.messages,
            tools=hidden.tools,
            add_generation_prompt=not continued,
            variables=hidden.variables,
        )
        return cut_at(mark, text) if continued else text, hidden

    def text(
        self,
        messages: Sequence[GivenMessage],
        tools: Sequence[GivenTool] | None,
        variables: Mapping[str, TemplateVariable] | None = None,
    ) -> str:
        """Return a conversation as the template writes it, without the beginning of a reply."""
        checked_messages, checked_tools = read_messages(messages), read_tools(tools)
        template = self.choose(with_tools=bool(checked_tools))
        given, given_tools = template.input.of(checked_messages, checked_tools)
        return template.render(
            given, tools=given_tools, add_generation_prompt=False, variables=variables
        )


def read_templates(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> Templates:
    """Return the templates in `GGUFFile.metadata`, or a fallback for a file without any.

    Raises ModelFormatError for one that is not a text. A template is compiled when it is chosen,
    which raises ModelFormatError if it is not jinja2.
    """
    names = ("bos", "eos", "unknown", "padding")
    special_texts = {name: vocabulary.text_of(name) for name in names}
    with_tools = get_text(metadata, f"{_KEY}.tool_use")
    main = get_text(metadata, _KEY)
    source = "file"
    if main is None:
        controls = {
            text
            for text, _, kind in vocabulary.uncommon
            if kind in (TokenType.CONTROL, TokenType.USER_DEFINED)
        }
        called = (get_text(metadata, f"general.{key}") for key in ("name", "finetune", "basename"))
        fallback = choose_fallback(
            get_text(metadata, "general.architecture"),
            controls,
            " ".join(text for text in called if text),
        )
        if fallback is None:
            return Templates(None, None, with_tools, special_texts)
        main, source = fallback.source, f"fallback:{fallback.name}"
    return Templates(main, source, with_tools, special_texts)
