"""Prompts and token ids that a caller gives, checked."""

from collections.abc import Iterable, Sequence

import numpy as np

from akunu_py.errors import ConfigError, ContextOverflowError, ModelFormatError
from akunu_py.types import Tokenizer

Prompt = str | Sequence[int]
"""Text, or token ids that are used as they are."""


def ids_of(
    prompt: Prompt, tokenizer: Tokenizer, vocabulary_size: int, *, parse_special: bool = False
) -> list[int]:
    """Return a prompt's ids; raises as `checked_ids` does. An empty text may have some, or none.

    Raises ModelFormatError where the tokenizer makes ids that the model does not have.
    """
    if not isinstance(prompt, str):
        return checked_ids(prompt, vocabulary_size)
    ids = tokenizer.encode(prompt, parse_special=parse_special)
    _check_tokenized(ids, vocabulary_size)
    return ids


def check_reply(
    prompt: Sequence[int], biases: Iterable[int], *, context: int, vocabulary_size: int
) -> None:
    """Check that a prompt leaves room for a reply, and that the ids of biases are the model's.

    Raises ConfigError for a prompt without tokens or an id out of range, ContextOverflowError for a
    prompt that fills the context, ModelFormatError for ids of a tokenizer that is another model's.
    """
    if not prompt:
        raise ConfigError("the prompt has no tokens: its text, or what the chat template makes")
    _check_tokenized(prompt, vocabulary_size)
    if len(prompt) >= context:
        raise ContextOverflowError(
            f"the prompt has {len(prompt)} tokens and the context holds {context}, the "
            "reply included; shorten the prompt or load the model with a larger context"
        )
    for token in biases:
        check_id(token, "logit_bias", vocabulary_size)


def _check_tokenized(ids: Sequence[int], vocabulary_size: int) -> None:
    """Refuse ids that a model's own tokenizer made and the embedding has no rows for."""
    if (largest := max(ids, default=0)) >= vocabulary_size:
        raise ModelFormatError(
            f"the tokenizer makes the id {largest}, and the model has {vocabulary_size} tokens: "
            "its files do not belong together; download the model again"
        )


def checked_ids(token_ids: Sequence[int], vocabulary_size: int) -> list[int]:
    """Return the ids of a prompt; raise ConfigError for none, or one that is out of range."""
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
    """Raise ConfigError for an id that the vocabulary has not; `place` is where it stands."""
    whole = isinstance(token, int | np.integer) and not isinstance(token, bool)
    if not whole or not 0 <= token < vocabulary_size:
        raise ConfigError(
            f"{place} holds {token!r}; token ids are whole numbers from 0 to {vocabulary_size - 1}"
        )
