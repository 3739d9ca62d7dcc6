"""Thinking on or off, and how much: what a chat template has a switch for.

Templates name their switches as they like, and none says which it has. So each known name is tried
once on a small conversation: a name that changes the prompt is a switch. The engine then passes the
template the values that serve a wish best.
"""

import logging
from collections.abc import Mapping
from functools import cached_property
from typing import Literal, get_args

from akunu_py.protocols import TemplateVariable, Tokenizer
from akunu_py.system.errors import AkunuError
from akunu_py.values.generation_config import Effort, GenerationConfig
from akunu_py.values.messages import Message

_log = logging.getLogger(__name__)

ThinkingOption = Literal["thinking", "effort"]
"""Options of a reply that only a template can follow."""

_SWITCHES: tuple[tuple[str, TemplateVariable, TemplateVariable], ...] = (
    ("enable_thinking", True, False),
    ("thinking", True, False),
    ("reasoning", True, False),
    ("thinking_mode", "thinking", "chat"),
    ("thinking_option", "on", "off"),
    ("thinking_budget", -1, 0),
)
"""Names of switches, with the values for on and off.

In order: Qwen, GLM and most others; DeepSeek V3.1, Granite and Kimi; Cohere; DeepSeek V4; Ling;
Seed-OSS, where -1 is a budget without limit.
"""

_EFFORT = "reasoning_effort"
"""The variable of gpt-oss, Solar, Mistral and others."""

_WORDS: tuple[Effort, ...] = get_args(Effort)
_COMMON: tuple[Effort, ...] = ("low", "medium", "high")
_NO_WORD = "probe_effort"
_ASK = (Message("user", "a question"),)


class Thinking:
    """Finds a template's switches when they are first asked for."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def variables(self, config: GenerationConfig) -> Mapping[str, TemplateVariable]:
        """Return the template's variables for a reply; none where it asks for nothing special.

        An effort asks for reasoning, and "none" for none, unless `thinking` says otherwise. A
        template that lacks a word of effort gets the nearest one.
        """
        thinking, effort = config.thinking, config.effort
        if thinking is None and effort is None:
            return {}
        if self.supported != frozenset(get_args(ThinkingOption)):
            _ = self._noticed
        if thinking is None:
            thinking = effort != "none"
        values: dict[str, TemplateVariable] = {}
        if self._switch is not None:
            name, on, off = self._switch
            values[name] = on if thinking else off
        if self._efforts and not thinking:
            effort = "none"
        if self._efforts and effort is not None:
            values[_EFFORT] = self._nearest(effort)
        return values

    @cached_property
    def supported(self) -> frozenset[ThinkingOption]:
        """The options that change something here."""
        found: set[ThinkingOption] = set()
        if self._switch is not None or "none" in self._efforts:
            found.add("thinking")
        if self._efforts:
            found.add("effort")
        return frozenset(found)

    @cached_property
    def _switch(self) -> tuple[str, TemplateVariable, TemplateVariable] | None:
        for name, on, off in _SWITCHES:
            prompts = self._prompt({name: on}), self._prompt({name: off})
            if None not in prompts and prompts[0] != prompts[1]:
                return name, on, off
        return None

    @cached_property
    def _efforts(self) -> tuple[Effort, ...]:
        """The words of effort that the template knows; none for a template without effort."""
        on = {} if self._switch is None else {self._switch[0]: self._switch[1]}
        given = {word: self._prompt({**on, _EFFORT: word}) for word in (*_WORDS, _NO_WORD)}
        unknown = given.pop(_NO_WORD)
        if len({*given.values()} - {None}) < 2:
            return ()
        # A template that writes any word, as that of gpt-oss does, knows the common ones.
        writes = unknown is not None and _NO_WORD in self._tokenizer.decode(unknown)
        return tuple(
            word
            for word in _WORDS
            if given[word] is not None
            and (word in _COMMON or not (writes or given[word] == unknown))
        )

    def _nearest(self, effort: Effort) -> Effort:
        wanted = _WORDS.index(effort)
        return min(self._efforts, key=lambda word: abs(_WORDS.index(word) - wanted))

    def _prompt(self, variables: Mapping[str, TemplateVariable]) -> tuple[int, ...] | None:
        """Return the prompt of a question, None where the template refuses the variables."""
        try:
            return tuple(self._tokenizer.encode_chat(_ASK, variables=variables))
        except AkunuError:
            return None

    @cached_property
    def _noticed(self) -> bool:
        missing = sorted(frozenset(get_args(ThinkingOption)) - self.supported)
        _log.warning(
            "the model's chat template has no switch for %s; it is ignored", " and ".join(missing)
        )
        return True
