"""What a caller asks for, checked: options, prompts and their token ids, and chats."""

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from akunu_py.drafting.registry import draft_options
from akunu_py.protocols import Tokenizer
from akunu_py.system.errors import ConfigError, ContextOverflowError, ModelFormatError
from akunu_py.values.constraint import Constraint
from akunu_py.values.generation_config import FIELDS, GenerationConfig, GenerationOptions
from akunu_py.values.messages import Message, Tool
from akunu_py.values.option_fields import find_option, options_of

if TYPE_CHECKING:
    from akunu_py.tool_calls.given_reader import GivenParser
    from akunu_py.tool_calls.parser import CallParser


def with_options(config: GenerationConfig, options: GenerationOptions) -> GenerationConfig:
    """Return a configuration with some options replaced, those of drafters by name included.

    Raises ConfigError for unknown names.
    """
    found: dict[str, Any] = {}
    forms: list[str] = []
    for name, value in options.items():
        if name in _FORMS:
            found["constraint"] = _FORMS[name](value)
            forms.append(name)
        elif name in FIELDS or name in draft_options():
            forms += ["constraint"] * (name == "constraint")
            found[name] = value
        else:
            meant = find_option(options_of(GenerationConfig), name)
            known = (*sorted(FIELDS), *_FORMS, *draft_options())
            near = [meant.name] if meant else difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"
            raise ConfigError(f"there is no option named {name}{hint}")
    if len(forms) > 1:
        raise ConfigError(f"a reply has one form; give one of {' and '.join(forms)}")
    return config.with_values(found)


_FORMS: Mapping[str, Callable[[Any], Constraint]] = {
    "json_schema": Constraint.json_schema,
    "regex": Constraint.regex,
    "grammar": Constraint.grammar,
    "choices": Constraint.choices,
}


def not_for_replies(name: str) -> ConfigError:
    """Return the error of a model of embeddings that is asked for a reply."""
    return ConfigError(
        f"{name} was made for embeddings, not for replies; use it with akunu embed or "
        "/v1/embeddings, and another model for replies"
    )


def not_for_embeddings(name: str) -> ConfigError:
    """Return the error of a model of replies that is asked for embeddings."""
    return ConfigError(
        f"{name} was not made for embeddings; use a model such as qwen3-embedding:0.6b, or load "
        "this one with pooling 'last' or 'mean' (--pooling)"
    )


Prompt = str | Sequence[int]
"""Text, or token ids that are used unchanged."""


_SHORTEN = "shorten the prompt, or load the model with a larger context if it has one"

_PART = 65_536
"""Size of the parts in which a long text is counted, in characters; about 0.1 s each."""

_USUAL = 4
"""Usual characters per token; a text with fewer per token of the context may fit."""


def ids_of(
    prompt: Prompt, tokenizer: Tokenizer, vocabulary_size: int, *, parse_special: bool = False
) -> list[int]:
    """Return a prompt's ids; an empty text may have some.

    Raises as `checked_ids` does, and ModelFormatError if the tokenizer makes ids that the model
    lacks.
    """
    if not isinstance(prompt, str):
        return checked_ids(prompt, vocabulary_size)
    ids = tokenizer.encode(prompt, parse_special=parse_special)
    _check_tokenized(ids, vocabulary_size)
    return ids


def check_length(
    texts: Sequence[str], tokenizer: Tokenizer, context: int, *, parse_special: bool = False
) -> None:
    """Refuse texts whose beginning has twice as many tokens as the context, without the rest.

    Tokenizing a megabyte takes seconds. Texts that pass may still be too long. Tokenizing in parts
    gives a few more tokens, because words are cut at the ends; with parts of this size the number
    never doubles.

    Raises ContextOverflowError.
    """
    if sum(map(len, texts)) <= max(_USUAL * context, _PART):
        return
    begin = len(tokenizer.encode(""))
    characters = tokens = 0
    for text in texts:
        for start in range(0, len(text), _PART):
            part = text[start : start + _PART]
            characters += len(part)
            tokens += len(tokenizer.encode(part, parse_special=parse_special)) - begin
            if tokens > 2 * context:
                raise ContextOverflowError(
                    f"the first {characters:,} characters of the prompt have {tokens:,} tokens "
                    f"and the context holds {context}, the reply included; {_SHORTEN}",
                    num_tokens=tokens,
                    context=context,
                )


def check_chat_length(
    messages: Sequence[Message], tools: Sequence[Tool], tokenizer: Tokenizer, context: int
) -> None:
    """Check a conversation and its tools as `check_length` does.

    Messages of users and tools and descriptions of tools are counted. A template may leave out
    other messages or reasoning, and shorten the rest of a schema.
    """
    texts = [message.text for message in messages if message.role in ("user", "tool")]
    texts += [tool.description for tool in tools]
    check_length(texts, tokenizer, context)


def check_reply(
    prompt: Sequence[int], biases: Iterable[int], *, context: int, vocabulary_size: int
) -> None:
    """Check that a prompt leaves room for a reply, and that the ids of biases are valid.

    Raises ConfigError for a prompt without tokens or an id out of range, ContextOverflowError for a
    prompt that fills the context, ModelFormatError for ids that the model lacks.
    """
    if not prompt:
        raise ConfigError("the prompt has no tokens: its text, or what the chat template makes")
    _check_tokenized(prompt, vocabulary_size)
    if len(prompt) >= context:
        raise ContextOverflowError(
            f"the prompt has {len(prompt)} tokens and the context holds {context}, the reply "
            f"included; {_SHORTEN}",
            num_tokens=len(prompt),
            context=context,
        )
    for token in biases:
        check_id(token, "logit_bias", vocabulary_size)


def _check_tokenized(ids: Sequence[int], vocabulary_size: int) -> None:
    """Refuse ids of a model's own tokenizer for which the embedding has no rows."""
    if (largest := max(ids, default=0)) >= vocabulary_size:
        raise ModelFormatError(
            f"the tokenizer makes the id {largest}, and the model has {vocabulary_size} tokens: "
            "its files do not belong together; download the model again"
        )


def checked_ids(token_ids: Sequence[int], vocabulary_size: int) -> list[int]:
    """Return the ids of a prompt; raises ConfigError for no ids or an id out of range."""
    try:
        ids = list(token_ids)
    except TypeError:
        raise ConfigError(
            f"the prompt is a {type(token_ids).__name__}; give text or token ids"
        ) from None
    if not ids:
        raise ConfigError("the prompt is empty; give at least one token id")
    for token in ids:
        check_id(token, "the prompt", vocabulary_size)
    return [int(token) for token in ids]


def check_id(token: int, place: str, vocabulary_size: int) -> None:
    """Raise ConfigError for an id outside the vocabulary; `place` names its context."""
    whole = isinstance(token, int | np.integer) and not isinstance(token, bool)
    if not whole or not 0 <= token < vocabulary_size:
        raise ConfigError(
            f"{place} holds {token!r}; token ids are whole numbers from 0 to {vocabulary_size - 1}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatPlan:
    """A conversation as it is given to the tokenizer, and what its reply may call."""

    messages: Sequence[Message]
    tools: Sequence[Tool] = ()
    """Tools for the template."""

    parser: "CallParser | GivenParser | None" = None
    """Reads the calls of the reply; None where there are none."""

    constraint: Constraint | None = None
    """Grammar of the calls, or None."""

    calls_or_answer: Callable[[Constraint], Constraint] | None = None
    """Makes the grammar of a reply that is either calls or an answer in the form of a JSON schema;
    None where tools must be called, where a given reader reads the calls, and where these have no
    marker and are not JSON: their beginning hides that of an answer."""

    from_start: bool = False
    """Whether the constraint holds for the whole reply, reasoning included."""

    marks: Mapping[int, str] = field(default_factory=dict)
    """Texts of the control tokens around calls, by id."""

    continued: Message | None = None
    """The assistant's message that the reply continues, or None."""

    def constraint_with(self, given: Constraint | None) -> Constraint | None:
        """Return the constraint of the reply, where the caller has given one, too.

        Raises ConfigError if the two do not go together.
        """
        if self.continued is not None and given is not None:
            raise ConfigError(
                "a reply that continues the assistant's last message cannot have a form, since a "
                "part of it is there already; leave out the form, or the message"
            )
        if self.parser is None or given is None:
            return self.constraint or given
        if self.calls_or_answer is None or given.kind != "json_schema" or given.trigger:
            raise ConfigError(
                "a reply that may call tools cannot have a constraint, too (except a json_schema "
                "with tool_choice='auto', where akunu itself reads this model's calls, and they "
                "have a marker or are JSON); leave it out, or give tool_choice='none'"
            )
        return self.calls_or_answer(given)
