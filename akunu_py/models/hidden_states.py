"""What a drafter may read of a model's rows: hidden states, and kept keys and values."""

import contextlib
from collections.abc import Callable, Sequence

import mlx.core as mx
from mlx import nn
from mlx_lm.models.cache import KVCache, RotatingKVCache

from akunu_py.models.cache import Cache
from akunu_py.models.cached_rows import CachedRows
from akunu_py.models.passes.seams import tap, tapping, texts_of_pass
from akunu_py.models.rollback.parts import rows_in_order
from akunu_py.protocols import Drafter, Hidden
from akunu_py.system.errors import ConfigError

_LAST_NORMS = ("norm", "norm_f", "final_norm", "final_layernorm", "embedding_norm")
"""Names of the norm behind the last layer, in mlx-lm's classes."""


class StateTap:
    """Keeps the hidden states of the last pass that was built while it listened.

    mlx-lm's classes hide these states between their layers, and between the last layer and the
    output head. The norms there get them, or make them; see `seams.tap`.

    Raises ConfigError for a model whose norms are not found.
    """

    def __init__(self, model: nn.Module, hidden: Hidden) -> None:
        if isinstance(hidden, tuple):
            owners = [layer_norm(model, number) for number in hidden]
        else:
            owners = [last_norm(model)]
        norms = [owner[name] for owner, name in owners]
        tap(norms)
        self._places = {id(norm): place for place, norm in enumerate(norms)}
        self._normed = hidden == "normed"
        # States of the first norms of a pass that is being built.
        self._found: list[mx.array] = []
        # [1, rows, width] as built, without waiting for the device; None before a pass. With
        # numbers of layers, the states of all of them side by side, [1, rows, layers * width].
        self.states: mx.array | None = None

    def listening(self) -> contextlib.AbstractContextManager[None]:
        """Keep the states of passes that are built inside."""
        return tapping(self._take)

    def _take(self, norm: nn.Module, x: mx.array, normed: mx.array) -> None:
        place = self._places.get(id(norm))
        if place is None:
            return
        # Those behind are of a pass that failed.
        self._found[place:] = [normed if self._normed else x]
        if len(self._found) == len(self._places):
            self.states = mx.concatenate(self._found, axis=-1)
            texts, rows = self.states.shape[:2]
            # Rows of a pass may be a batch of texts of one row each; those of training are longer.
            if texts > 1 and rows == 1:
                self.states = self.states.swapaxes(0, 1)
                if texts_of_pass() == 1:
                    # The thread that reads on may be another, which cannot use this one's stream.
                    mx.async_eval(self.states)  # type: ignore[no-untyped-call]
            self._found = []


def layer_norm(model: nn.Module, number: int) -> tuple[nn.Module, str]:
    """Return the layer of this number and the name of the norm that its input goes through first.

    Raises ConfigError where it is not found.
    """
    layers = model.layers
    if number < len(layers) and isinstance(layers[number].get("input_layernorm"), nn.Module):
        return layers[number], "input_layernorm"
    raise ConfigError(
        f"the norm before layer {number} of this model was not found, so the hidden states there "
        "cannot be read; leave heads out"
    )


def last_norm(model: nn.Module) -> tuple[nn.Module, str]:
    """Return the module that has the norm behind the last layer, and its name there.

    Raises ConfigError where it is not found.
    """
    # From the outside in; the norms of layers lie in lists.
    modules = [model]
    for module in modules:
        for name in _LAST_NORMS:
            if isinstance(module.get(name), nn.Module):
                return module, name
        modules += [part for part in module.values() if isinstance(part, nn.Module)]
    raise ConfigError(
        "the last norm of this model was not found, so its hidden states cannot be read: it takes "
        "no prediction head and makes no embeddings"
    )


class HandedStates:
    """Hands the states of one reply's rows to its drafter, each once and in order.

    A row may be fed several times: drafted and rejected, kept of an undone pass, or again with
    its block. So a pass is known by the place of its first row in the text, and rows are handed by
    place, once they are sure to stay.
    """

    def __init__(self, model: nn.Module, observer: Drafter, prompt: Sequence[int]) -> None:
        self._observer = observer
        self._prompt = prompt
        assert observer.hidden is not None  # noqa: S101 - else nobody hands it states
        self._tap = StateTap(model, observer.hidden)
        self.listening = self._tap.listening
        # Place of the next row to hand; None before the prefill.
        self._next: int | None = None
        # The last pass: its states, and the place of its first row.
        self._states: mx.array | None = None
        self._first = 0

    def prefilled(self, held: int) -> None:
        """Take note of the number of rows held: of those cached already, then after each pass."""
        if self._next is None:
            self._observer.begin_states(self._prompt, held)
        elif held > self._next and self._tap.states is not None:
            states = self._tap.states
            # Now, since they hold on to everything that they are computed from.
            mx.eval(states)
            self._observer.observe_states(states, 0, states.shape[1])
            self._tap.states = None
        self._next = held

    def built(self, first: int, rows: slice) -> None:
        """Take note that a pass was built, whose `rows` are the reply's, from place `first` on."""
        states = self._tap.states
        self._states, self._first = None if states is None else states[:, rows], first

    def keep(self, path: Sequence[int]) -> None:
        """Take note that of the last pass, over a tree, only the rows of a path stay, in order."""
        if self._states is not None:
            self._states = self._states[:, mx.array(list(path), dtype=mx.int32)]

    def hand(self, settled: int) -> None:
        """Hand rows of the last pass: the first `settled` rows of the text stay as they are."""
        if self._states is None or self._next is None or settled <= self._next:
            return
        self._observer.observe_states(self._states, self._next - self._first, settled - self._first)
        self._next = settled


class SessionRows:
    """Reads the rows that a session holds now; the `KeptRows` of its drafter.

    Nothing is copied or kept: caches are the only place that knows what was rolled back, reused and
    exchanged. They may hold more rows than the text has, such as the row of a step in flight, or
    padding; those lie behind the rows that are asked for.
    """

    def __init__(self, rows: Callable[[], CachedRows]) -> None:
        """Make a reader; `rows` returns the rows that the session holds when it is called."""
        self._rows = rows

    def read(
        self, cache: int, end: int, most: int | None = None
    ) -> tuple[mx.array, mx.array] | None:
        """Return keys and values; see `akunu_py.protocols.KeptRows`.

        Raises ConfigError for a cache of another kind.
        """
        rows = self._rows()
        held = rows.caches[cache]
        if not rows.settled or not 0 < end <= int(held.offset):
            return None
        keys, values = _arrays(held)
        stop = keys.shape[2] - (int(held.offset) - end)
        start = 0 if most is None else max(0, stop - most)
        return keys[..., start:stop, :], values[..., start:stop, :]


def _arrays(cache: Cache) -> tuple[mx.array, mx.array]:
    """Return keys and values whose last row is the last one that was fed."""
    if type(cache) is KVCache:
        return cache.keys[..., : cache.offset, :], cache.values[..., : cache.offset, :]
    if type(cache) is RotatingKVCache and cache.keep == 0:
        return rows_in_order(cache)
    raise ConfigError(
        f"the prediction head cannot read the rows in a {type(cache).__name__}; leave heads out"
    )
