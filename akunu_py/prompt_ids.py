"""Token ids that a caller gives, checked."""

from collections.abc import Sequence

import numpy as np

from akunu_py.errors import ConfigError


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
