"""Embeddings: hidden states of texts, pooled; texts of similar length share passes."""

from collections.abc import Generator, Sequence

import mlx.core as mx
import numpy as np
from mlx import nn
from numpy.typing import NDArray

from akunu_py.models.cached_rows import PREFILL_CHUNK, Passes, prompt_rows
from akunu_py.models.hidden_states import StateTap
from akunu_py.models.pooling import Kind

EmbeddingSteps = Generator[int, None, NDArray[np.float32]]
"""Yields the number of texts done at each pause; the result is [texts, width]."""


def embed_texts(
    model: nn.Module, texts: Sequence[Sequence[int]], pooling: Kind, stream: mx.Stream
) -> EmbeddingSteps:
    """Return the pooled states behind the last norm of texts of one or more tokens, as they are.

    Pauses are those of a prompt (`Passes.feeding`). Raises ConfigError for a model whose last norm
    is not found.
    """
    tap = StateTap(model, "normed")
    found: list[NDArray[np.float32] | None] = [None] * len(texts)
    done = 0
    for batch in batches([len(text) for text in texts]):
        yield done
        tokens, weights = _rows([texts[place] for place in batch], pooling)
        pooled = mx.zeros((), dtype=mx.float32)
        passes, start = Passes(model, None), 0
        while start < tokens.shape[1]:
            end = min(start + prompt_rows(start), tokens.shape[1])
            feeding = passes.feeding(mx.array(tokens[:, start:end]))
            while True:
                # Not around the `yield`: other work of this thread has streams of its own.
                with mx.stream(stream), tap.listening():
                    if next(feeding, None) is None:
                        break
                yield done
            with mx.stream(stream):
                assert tap.states is not None  # noqa: S101 - of the pass that was run
                states = tap.states.astype(mx.float32)
                pooled = pooled + mx.array(weights[:, None, start:end]) @ states
                mx.eval(pooled)
            start = end
        for place, vector in zip(batch, np.array(pooled[:, 0]), strict=True):
            found[place] = vector
        done += len(batch)
        tap.states = None
        mx.clear_cache()
    return np.stack([vector for vector in found if vector is not None])


def batches(lengths: Sequence[int]) -> list[list[int]]:
    """Return the places of texts that share passes: of similar length, as many as a pass holds.

    A longer text is alone.
    """
    found: list[list[int]] = []
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        if found and (len(found[-1]) + 1) * max(2, lengths[found[-1][0]]) <= PREFILL_CHUNK:
            found[-1].append(place)
        else:
            found.append([place])
    return found


def _rows(
    texts: Sequence[Sequence[int]], pooling: Kind
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the tokens of texts, filled up behind their ends, and what each counts.

    No token sees a later one, so what follows a text changes nothing.
    """
    # A tap reads a batch of texts of one row each as rows of one text.
    longest = max(2, *map(len, texts)) if len(texts) > 1 else len(texts[0])
    tokens = np.zeros((len(texts), longest), np.int32)
    weights = np.zeros((len(texts), longest), np.float32)
    for row, text in enumerate(texts):
        tokens[row, : len(text)] = text
        if pooling == "last":
            weights[row, len(text) - 1] = 1
        else:
            weights[row, : len(text)] = 1 / len(text)
    return tokens, weights
