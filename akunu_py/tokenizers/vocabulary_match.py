"""The ids that mean the same text in two models' vocabularies."""

import re
from collections.abc import Sequence

from akunu_py.system.errors import ConfigError

# llama.cpp's converter writes these for rows of the embedding without a token; folders of the same
# model have no text there.
_PADDING = re.compile(r"\[PAD\d+\]|")


def common_ids(target: Sequence[str], draft: Sequence[str]) -> int:
    """Return how many ids, from 0 on, have the same text in two vocabularies.

    `target` and `draft` are `Tokenizer.token_texts()`. Padding at the end is ignored: models of one
    family pad their embeddings to different sizes. One vocabulary may also be longer than the
    other, as with tokens added by a fine-tune.

    Raises ConfigError, naming the first id with different texts.
    """
    size = min(_without_padding(target), _without_padding(draft))
    for token in range(size):
        padding = _PADDING.fullmatch(target[token]) and _PADDING.fullmatch(draft[token])
        if target[token] != draft[token] and not padding:
            raise ConfigError(
                f"the draft model has another vocabulary: id {token} is {target[token]!r} for the "
                f"model and {draft[token]!r} for the draft model; choose a draft model of the same "
                "family"
            )
    if size == 0:
        raise ConfigError(
            "the draft model and the model share no token; choose a draft model of the same family"
        )
    return size


def _without_padding(texts: Sequence[str]) -> int:
    """Return the number of texts up to the last one that is not padding."""
    size = len(texts)
    while size and _PADDING.fullmatch(texts[size - 1]):
        size -= 1
    return size
