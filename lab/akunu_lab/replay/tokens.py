"""Traces in token ids."""

import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from akunu_lab.replay.runner import ReplayItem
from akunu_lab.replay.traces import TraceItem, read_trace
from akunu_py.api import AkunuError, ConfigError, Failure, Tokenizer, vocabulary_fingerprint

MAX_OUTPUT_TOKENS = 1500
"""Most tokens of an output: a few long loops would otherwise outweigh all others."""


Bar = Callable[[str], AbstractContextManager[Callable[[int, int], None]]]
"""Opens a progress bar with a title; the bar is called with the done and total numbers."""


def read_traces(
    paths: Iterable[Path], limit: int | None, failures: list[Failure]
) -> dict[str, list[TraceItem]]:
    """Return the first `limit` items of each file by its name; bad lines go to `failures`.

    Raises ConfigError for a file that is given twice, cannot be read or has no item.
    """
    read: dict[str, list[TraceItem]] = {}
    seen: set[str] = set()
    for path in paths:
        # Not Path.resolve, which raises for cyclic links; reading gives a better error.
        place = os.path.realpath(path)
        if place in seen:
            raise ConfigError(f"{path} is given twice; name each trace once")
        seen.add(place)
        read[path.stem if path.stem not in read else str(path)] = read_trace(path, failures)[:limit]
    return read


def tokenize_traces(
    traces: Mapping[str, Sequence[TraceItem]],
    tokenizer: Tokenizer,
    failures: list[Failure],
    bar: Bar,
) -> dict[str, tuple[ReplayItem, ...]]:
    """Return traces in ids; items that cannot be encoded go to `failures`.

    Raises ConfigError for a trace without an item that can be encoded.
    """
    total = sum(map(len, traces.values()))
    with bar("items tokenized") as progress:
        done = itertools.count(1)

        def count() -> None:
            progress(next(done), total)

        encoded = {
            name: tuple(tokenize(items, tokenizer, failures=failures, progress=count))
            for name, items in traces.items()
        }
    for name, found in encoded.items():
        if not found:
            last = failures[-1]
            raise ConfigError(
                f"the tokenizer can encode no item of {name}; {last.item}: {last.error}"
            )
    return encoded


def tokenize(
    items: Iterable[TraceItem],
    tokenizer: Tokenizer,
    *,
    max_output_tokens: int = MAX_OUTPUT_TOKENS,
    failures: list[Failure] | None = None,
    progress: Callable[[], None] = lambda: None,
) -> list[ReplayItem]:
    """Encode prompts and outputs; control tokens written out in a text stay text.

    Items with ids of the same vocabulary keep them. Unless it was cut, an output ends with the
    tokenizer's end-of-generation id, which drafters must predict like any other token. `progress`
    is called after each item. With `failures` given, items that the tokenizer cannot encode go
    there and are left out.

    Raises ConfigError for an output without tokens.
    """
    empty = tokenizer.encode("")
    end = min(tokenizer.end_ids, default=None)
    encoded: list[ReplayItem] = []
    vocabulary = ""
    for item in items:
        try:
            has_ids = bool(item.vocabulary and item.prompt_ids and item.token_ids)
            if has_ids:
                vocabulary = vocabulary or vocabulary_fingerprint(tokenizer.token_texts())
            if has_ids and item.vocabulary == vocabulary:
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
    """Return ids without the ones that every text begins or ends with, such as begin-of-text."""
    if empty and ids[:1] == empty[:1]:
        ids = ids[1:]
    if len(empty) > 1 and ids[-1:] == empty[-1:]:
        ids = ids[:-1]
    return ids
