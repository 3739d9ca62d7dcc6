"""Trace items in token ids."""

from collections.abc import Callable, Iterable

from akunu_py.bench.replay.runner import ReplayItem
from akunu_py.bench.replay.traces import TraceItem
from akunu_py.bench.result_file import Failure
from akunu_py.drafting.memory import vocabulary_fingerprint
from akunu_py.errors import AkunuError, ConfigError
from akunu_py.protocols import Tokenizer

MAX_OUTPUT_TOKENS = 1500
"""Longer outputs are cut here: a few that loop would otherwise outweigh all others."""


def tokenize(
    items: Iterable[TraceItem],
    tokenizer: Tokenizer,
    *,
    max_output_tokens: int = MAX_OUTPUT_TOKENS,
    failures: list[Failure] | None = None,
    progress: Callable[[], None] = lambda: None,
) -> list[ReplayItem]:
    """Encode prompts and outputs; control tokens written out in a text stay text.

    Items that have the ids of this very vocabulary keep them.

    An output ends with the tokenizer's end-of-generation id, which drafters have to predict like
    any other token, unless it was cut. `progress` is called after each item. With `failures` given,
    items that the tokenizer cannot encode go there and are left out.

    Raises ConfigError for an output without tokens.
    """
    empty = tokenizer.encode("")
    end = min(tokenizer.end_ids, default=None)
    encoded: list[ReplayItem] = []
    vocabulary = ""
    for item in items:
        try:
            if item.vocabulary and item.prompt_ids and item.token_ids:
                vocabulary = vocabulary or vocabulary_fingerprint(tokenizer.token_texts())
            if vocabulary and item.vocabulary == vocabulary:
                prompt, output = list(item.prompt_ids), list(item.token_ids)
                _check_ids(item, prompt + output, tokenizer.vocabulary_size)
            else:
                output = _inner(tokenizer.encode(item.output), empty)
                prompt = tokenizer.encode(item.prompt)
            if not output:
                raise ConfigError(f"the output of the item {item.id} has no tokens")
        # A tokenizer's own library may raise ValueError for a text it cannot encode.
        except (AkunuError, ValueError) as error:
            if failures is None:
                raise
            failures.append(Failure(item.id, str(error)))
        else:
            if end is not None and output[-1] not in tokenizer.end_ids:
                output.append(end)
            encoded.append(
                ReplayItem(
                    id=item.id,
                    category=item.category,
                    session=item.session,
                    half=item.half,
                    prompt=tuple(prompt),
                    output=tuple(output[:max_output_tokens]),
                )
            )
        progress()
    return encoded


def _check_ids(item: TraceItem, ids: Iterable[int], vocabulary_size: int) -> None:
    for token in ids:
        if token >= vocabulary_size:
            raise ConfigError(
                f"the item {item.id} has the id {token}; the vocabulary has {vocabulary_size}"
            )


def _inner(ids: list[int], empty: list[int]) -> list[int]:
    """Return ids without those that every text gets, such as begin-of-text."""
    if empty and ids[:1] == empty[:1]:
        ids = ids[1:]
    if len(empty) > 1 and ids[-1:] == empty[-1:]:
        ids = ids[:-1]
    return ids
