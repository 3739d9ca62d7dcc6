"""The choice of a chat template: one of the file's, or a fallback."""

import logging
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from akunu_py.system.errors import ConfigError
from akunu_py.tokenizers.chat_template import ChatTemplate
from akunu_py.tokenizers.fallback_templates import choose_fallback
from akunu_py.tokenizers.vocabulary import TokenType, Vocabulary, get_text

_log = logging.getLogger(__name__)
_KEY = "tokenizer.chat_template"


class Templates:
    """The templates of a file."""

    def __init__(
        self,
        main: str | None,
        source: str | None,
        named: Mapping[str, str],
        special_texts: Mapping[str, str],
    ) -> None:
        # Origin of the main one: "file", "fallback:" and a format's name, or None.
        self.source = source
        self.names = tuple(sorted(named))
        self._special_texts = special_texts
        self._named = named
        self._compiled: dict[str, ChatTemplate] = {}
        self._main = main

    @property
    def has_main(self) -> bool:
        return self._main is not None

    @property
    def main(self) -> str:
        """Return the text of the unnamed template; "" for none."""
        return self._main or ""

    @cached_property
    def _noticed(self) -> bool:
        _log.warning(
            "the file has no chat template; conversations are written as %s, the usual format for "
            "its architecture and control tokens. Give the prompt yourself (--raw) if replies are "
            "off",
            str(self.source).removeprefix("fallback:"),
        )
        return True

    def choose(self, name: str | None, *, with_tools: bool) -> ChatTemplate:
        """Return the template `name`, or the one for a conversation with or without tools.

        A notice is logged when a fallback is first used. Raises ConfigError if there is none.
        """
        if name is None and with_tools and "tool_use" in self._named:
            name = "tool_use"
        if name is not None:
            if name not in self._named:
                known = f"it has {', '.join(self.names)}" if self.names else "it has none"
                raise ConfigError(
                    f"the file has no chat template named {name!r}: {known}; leave the name out "
                    "for the main one"
                )
            if name not in self._compiled:
                self._compiled[name] = ChatTemplate(self._named[name], self._special_texts)
            return self._compiled[name]
        if self._main is None:
            raise ConfigError(
                "the model has no chat template, and its vocabulary lacks the control tokens of "
                "known formats, so it was not made for conversations; give it a text to continue"
            )
        if self.source != "file":
            _ = self._noticed
        if "" not in self._compiled:
            # Compiled late: a model with a broken template can still continue raw prompts.
            self._compiled[""] = ChatTemplate(self._main, self._special_texts)
        return self._compiled[""]


def read_templates(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> Templates:
    """Return the templates in `GGUFFile.metadata`, or a fallback for a file without any.

    Raises ModelFormatError for one that is not a text. A template is compiled when it is chosen,
    which raises ModelFormatError if it is not jinja2.
    """
    names = ("bos", "eos", "unknown", "padding")
    special_texts = {name: vocabulary.text_of(name) for name in names}
    named = {
        key.removeprefix(_KEY + "."): text
        for key in metadata
        if key.startswith(_KEY + ".") and (text := get_text(metadata, key)) is not None
    }
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
            return Templates(None, None, named, special_texts)
        main, source = fallback.source, f"fallback:{fallback.name}"
    return Templates(main, source, named, special_texts)
