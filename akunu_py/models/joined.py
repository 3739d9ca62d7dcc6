"""One pass over the rows of several sessions, each with its own caches.

The rows lie side by side, [1, all rows]. All layers of a model treat a row alone, except those that
take a cache: attention, recurrent layers, convolutions. Such a *mixer* is called once for each
session, unchanged, with that session's rows, cache and mask, as in a pass of that session alone. So
caches, rollback and kernels of attention stay what they are, and a session's bits can differ only
where a product's depend on its number of rows.

Inside a mixer two kinds of layers still run once for all rows, so that their weights are read once:
those that get the mixer's own input, or what such a layer made of it (the projections to queries,
keys and values), and a last one whose output the mixer returns.

Most models need no such mixer: their attention uses positions in ropes alone, and its cache to keep
rows and to hand them to mlx-lm's attention function. Then the whole model runs once, ropes turn
each row by its own position, and only that function is called for each session.
"""

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx_lm.models import base

from akunu_py.cpu.blas import fit_threads
from akunu_py.decoding.shared_passes import Offer
from akunu_py.models.cached_rows import CachedRows
from akunu_py.models.session import Choosing, Session
from akunu_py.models.tree.positions import RowPositions
from akunu_py.models.tree.trees import FAILURES, HALF_TOLERANCE, TOLERANCE, distance
from akunu_py.values.types import Draft

_log = logging.getLogger(__name__)

_ROW_LAYERS = ("Linear", "Norm")
"""Parts of the names of classes that treat each row of a mixer's [1, rows, width] alone: those of
MLX, of mlx-lm and our own. A layer with another shape of input is never taken for one."""

_TRIED = ((3, 1, 1), (5, 3, 2))
"""Rows that the two sessions of a try feed, pass by pass."""


class JoinedForward:
    """Passes of one model over the rows of several sessions, if they give what passes alone give.

    That is tried once, on throwaway caches. A model that asks its cache for what only one session
    has, such as a position to compute with, raises there, before any cache has moved.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._mixers = [_Mixer(*slot) for slot in _mixers(model)]
        self._positions = RowPositions(model)
        # Whether attention runs once for all rows, but for mlx-lm's function.
        self._once = False
        # Why passes are not joined, empty where they are; None before the try.
        self._refusal: str | None = None

    def refusal(self, session: Session) -> str:
        """Return why passes of this model are not joined; an empty text if they can be.

        The first call tries it, on empty caches of the session's kind.
        """
        if self._refusal is None:
            with mx.stream(session.stream):
                self._refusal = self._try(session.rows, session.vocabulary_size)
            if self._refusal:
                _log.info("replies take turns: %s", self._refusal)
        return self._refusal

    def __call__(
        self,
        rows: Sequence[mx.array],
        caches: Sequence[Sequence[Any]],
        calls: Sequence[AbstractContextManager[object]] | None = None,
    ) -> list[mx.array]:
        """Return the logits [1, n, vocabulary] of each session's rows [n], not yet evaluated.

        Each session's caches take in its rows, and its `calls` are entered around the mixers that
        run for it alone. After an error the caches of all are unknown.
        """
        fit_threads()
        sizes = [own.size for own in rows]
        ends = list(accumulate(sizes))[:-1]
        kind = _OnceCaches if self._once else _Caches
        standing = [kind(layer, sizes) for layer in zip(*caches, strict=True)]
        calls = calls or [nullcontext()] * len(rows)
        with ExitStack() as stack:
            if self._once:
                firsts = zip((own[0].offset for own in caches), sizes, strict=True)
                places = [first + row for first, size in firsts for row in range(size)]
                stack.enter_context(self._positions.at(mx.array(places)))
            else:
                for mixer in self._mixers:
                    mixer.put_in_place(ends, calls)
                    stack.callback(mixer.put_back)
            logits = self._model(mx.concatenate(list(rows))[None], cache=standing)
        return list(mx.split(logits, ends, axis=1))

    def _try(self, rows: CachedRows, size: int) -> str:
        refusal = ""
        # What states are computed from is recorded for each session.
        for self._once in (True, False) if rows.rollback.drops_rows else (False,):
            try:
                refusal = self._compare(rows.empty, size)
            except FAILURES as error:
                refusal = f"{type(error).__name__}: {error}"
            if not refusal:
                break
        return refusal

    def _compare(self, new_rows: Callable[[], CachedRows], size: int) -> str:
        """Feed two sessions of different lengths, alone and joined; return why they differ."""
        together, alone = ([new_rows() for _ in _TRIED] for _ in range(2))
        found: list[mx.array] = []
        expected: list[mx.array] = []
        for number, counts in enumerate(zip(*_TRIED, strict=True)):
            # Any tokens that are not all equal serve. (7919 is a prime that no vocabulary divides.)
            rows = [
                mx.array([(1 + 7919 * (17 * number + 5 * place + row)) % size for row in range(n)])
                for place, n in enumerate(counts)
            ]
            found += self(rows, [session.caches for session in together])
            expected += [session.feed(own) for session, own in zip(alone, rows, strict=True)]
        distances = [distance(*pair) for pair in zip(found, expected, strict=True)]
        # Python's own max passes a NaN over.
        differing = float(np.max(distances))
        allowed = TOLERANCE if found[0].dtype == mx.float32 else HALF_TOLERANCE
        # Written so that a NaN is refused.
        if differing <= allowed:
            return ""
        return f"logits of joined passes differ by {differing:.1e} of the largest"


@dataclass(slots=True)
class WantedChoice:
    """What a session is asked to choose: the arguments of `Session.choose`."""

    session: Session
    last: int
    draft: Draft
    offer: Offer | None = None
    """What the draft promises, if it may be cut before the work begins."""
    work: Choosing | None = field(default=None, init=False)
    """The session's work on it, once it has begun."""
    rows: mx.array | None = field(default=None, init=False)
    """The rows that the work waits for."""


Forward = Callable[..., list[mx.array]]
"""A `JoinedForward`, or what calls one."""

Choices = list[int] | BaseException | None
"""What a session chooses, or its own error; None if the choice comes with the next pass."""


def choose_together(forward: Forward | None, wanted: Sequence[WantedChoice]) -> list[Choices]:
    """Return what each session chooses, with their rows in one pass.

    The sessions are of one model. One that wants a further pass, to have a step in flight again
    behind a draft, gets it with the next call's: rows of their own would read all weights again.
    Without `forward`, as for one session, each has all its passes now. Passes over trees are run
    alone. The host waits for a choice only when those of all sessions are queued.

    Raises the error of a joined pass, after which the rows of all these sessions are unknown.
    """
    found: list[Choices] = [None] * len(wanted)
    waiting: list[int] = []

    def go_on(sent: Mapping[int, mx.array | None]) -> None:
        for place, logits in sent.items():
            one = wanted[place]
            one.work = one.work or one.session.choosing(one.last, one.draft)
            try:
                one.rows = one.work.send(logits)
            except StopIteration as end:
                found[place] = end.value
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # noqa: BLE001 - of whatever kind, it is its own
                found[place] = error
            else:
                if one.rows is None:
                    waiting.append(place)

    with mx.stream(wanted[0].session.stream):
        go_on({place: None for place, one in enumerate(wanted) if one.rows is None})
        while feeding := {n: one.rows for n, one in enumerate(wanted) if one.rows is not None}:
            for place in feeding:
                wanted[place].rows = None
            go_on(_feed(forward, wanted, feeding))
            if forward is not None:
                break
        go_on(dict.fromkeys(waiting))
    return found


def _feed(
    forward: Forward | None, wanted: Sequence[WantedChoice], feeding: Mapping[int, mx.array]
) -> dict[int, mx.array]:
    """Run one pass over the rows of sessions, by their places; return the logits of each."""
    sessions = [wanted[place].session for place in feeding]
    if len(sessions) < 2 or forward is None:
        return {place: wanted[place].session.feed(rows) for place, rows in feeding.items()}
    ends = (0, *accumulate(rows.size for rows in feeding.values()))
    with ExitStack() as stack:
        calls = []
        for session, (start, end) in zip(sessions, pairwise(ends), strict=True):
            session.largest_pass = max(session.largest_pass, ends[-1])
            calls.append(stack.enter_context(session.building(end - start, slice(start, end))))
        caches = [session.rows.caches for session in sessions]
        logits = forward(list(feeding.values()), caches, calls)
    return dict(zip(feeding, logits, strict=True))


class _Apart:
    """A value for each session: a mask, a position, or what mixers hand to each other.

    It travels through a model untouched.
    """

    def __init__(self, parts: Iterator[Any] | Sequence[Any]) -> None:
        self.parts = list(parts)


class _Caches(_Apart):
    """Stands for one cache of every session where a model asks for masks and positions.

    What it lacks raises AttributeError, and the model is not joined.
    """

    def __init__(self, parts: Sequence[Any], sizes: Sequence[int]) -> None:
        super().__init__(parts)
        self._sizes = sizes

    def __getitem__(self, key: Any) -> "_Caches":
        return _Caches([part[key] for part in self.parts], self._sizes)

    @property
    def offset(self) -> Any:
        return _Apart([part.offset for part in self.parts])

    def keys_and_values(self) -> _Apart:
        return _Apart([part.keys_and_values() for part in self.parts])

    def make_mask(self, _rows: int, **options: Any) -> _Apart:
        sizes = zip(self.parts, self._sizes, strict=True)
        return _Apart([part.make_mask(size, **options) for part, size in sizes])


class _OwnPlaces:
    """Stands for the offset of caches where ropes have the position of each row."""

    def __add__(self, places: mx.array) -> mx.array:
        return places


class _OnceCaches(_Caches):
    """Stands for one cache of every session also within attention over the rows of all.

    Attention asks it, since it has `bits` (`late_quantization`): it runs for each session alone.
    """

    group_size = None

    @property
    def offset(self) -> _OwnPlaces:
        return _OwnPlaces()

    @property
    def bits(self) -> "_OnceCaches":
        return self

    def split(self, whole: mx.array) -> list[mx.array]:
        """Return each session's rows of an array [1, heads, rows, width]."""
        if whole.shape[2] != sum(self._sizes):
            raise ValueError(f"rows of several replies do not have the shape {whole.shape}")
        return list(mx.split(whole, list(accumulate(self._sizes))[:-1], axis=2))

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[_Apart, _Apart]:
        rows = zip(self.parts, self.split(keys), self.split(values), strict=True)
        held = [part.update_and_fetch(*own) for part, *own in rows]
        return _Apart([own for own, _ in held]), _Apart([own for _, own in held])

    def attend(
        self, queries: mx.array, keys: _Apart, values: _Apart, scale: float, mask: Any
    ) -> mx.array:
        """Run mlx-lm's attention for each session."""
        masks = mask.parts if isinstance(mask, _Apart) else [mask] * len(self.parts)
        rows = zip(self.split(queries), keys.parts, values.parts, self.parts, masks, strict=True)
        found = [base.scaled_dot_product_attention(*own, scale, seen) for *own, seen in rows]
        return mx.concatenate(found, axis=2)


def _part_of(value: Any, session: int) -> Any:
    return value.parts[session] if isinstance(value, _Apart) else value


class _Mixer:
    """Takes the place of a mixer, an entry of its owner, while a joined pass is built."""

    def __init__(self, owner: Any, key: Any, mixer: nn.Module) -> None:
        self._owner, self._key, self._mixer = owner, key, mixer
        self._ends: list[int] = []
        self._calls: Sequence[AbstractContextManager[object]] = ()
        self._layers = [
            _RowLayer(part, name, value)
            for part in mixer.modules()
            for name, value in part.items()
            if isinstance(value, nn.Module)
            and any(kind in type(value).__name__ for kind in _ROW_LAYERS)
        ]
        # The layer whose output the mixer returns, once a pass has shown it.
        self._last: _RowLayer | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._mixer, name)

    def put_in_place(
        self, ends: list[int], calls: Sequence[AbstractContextManager[object]]
    ) -> None:
        self._ends, self._calls = ends, calls
        self._owner[self._key] = self

    def put_back(self) -> None:
        self._owner[self._key] = self._mixer

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        # The rows come first, by place or by name.
        name = None if arguments else next(iter(options))
        whole = arguments[0] if name is None else options[name]
        known = _KnownRows(self._ends)
        made: list[Any] = []
        with ExitStack() as stack:
            for layer in self._layers:
                layer.put_in_place(known, skipped=layer is self._last)
                stack.callback(layer.put_back)
            for session, own in enumerate(known.split(whole)):
                given = [_part_of(value, session) for value in arguments]
                named = {key: _part_of(value, session) for key, value in options.items()}
                if name is None:
                    given[0] = own
                else:
                    named[name] = own
                with self._calls[session]:
                    made.append(self._mixer(*given, **named))
        # Some return further values for other mixers, behind the rows.
        alone = isinstance(made[0], mx.array)
        outputs = made if alone else [one[0] for one in made]
        joined = mx.concatenate(outputs, axis=1)
        if self._last is not None:
            joined = self._last.layer(joined)
        elif known.last is not None and known.last[1] is outputs[-1]:
            # From the next pass on it is skipped inside, and runs here.
            self._last = known.last[0]
        if alone:
            return joined
        return (joined, *(_Apart(rest) for rest in list(zip(*made, strict=True))[1:]))


class _RowLayer:
    """Takes the place of a linear layer or a norm inside a mixer."""

    def __init__(self, owner: nn.Module, name: str, layer: nn.Module) -> None:
        self._owner, self._name, self.layer = owner, name, layer
        self._known = _KnownRows([])
        self._skipped = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.layer, name)

    def put_in_place(self, known: "_KnownRows", *, skipped: bool) -> None:
        self._known, self._skipped = known, skipped
        self._owner[self._name] = self

    def put_back(self) -> None:
        self._owner[self._name] = self.layer

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if self._skipped:
            return arguments[0]
        if len(arguments) == 1 and not options:
            shared = self._known.shared(self, arguments[0])
            if shared is not None:
                return shared
        made = self.layer(*arguments, **options)
        self._known.last = self, made
        return made


class _KnownRows:
    """Which arrays of a mixer's call are a session's part of which array of all rows."""

    def __init__(self, ends: list[int]) -> None:
        self._ends = ends
        # By the part's id; the parts are held with it, so that no id is given twice.
        self._parts: dict[int, tuple[mx.array, mx.array, int]] = {}
        self._made: dict[tuple[_RowLayer, int], list[mx.array]] = {}
        # The layer that ran for one session alone last, and what it made.
        self.last: tuple[_RowLayer, Any] | None = None

    def split(self, whole: mx.array) -> list[mx.array]:
        """Return the parts of an array [1, rows, width], and know them from now on."""
        parts = list(mx.split(whole, self._ends, axis=1))
        for session, part in enumerate(parts):
            self._parts[id(part)] = part, whole, session
        return parts

    def shared(self, layer: _RowLayer, part: Any) -> mx.array | None:
        """Return what a layer makes of a known part; its first call computes it for all rows."""
        found = self._parts.get(id(part))
        if found is None:
            return None
        _, whole, session = found
        key = layer, id(whole)
        if key not in self._made:
            self._made[key] = self.split(layer.layer(whole))
        return self._made[key][session]


def _mixers(model: Any) -> Iterator[tuple[Any, Any, nn.Module]]:
    """Yield owner, key and module of each outermost taker of a cache that holds no whole layer."""
    layers = {id(layer) for layer in model.layers}
    owners = [model]
    for owner in owners:
        for key, value in owner.items():
            entries = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
            for index, part in entries:
                if not isinstance(part, nn.Module):
                    continue
                inner = {id(module) for module in part.modules()}
                if _takes_cache(part) and not inner & layers:
                    yield (owner, key, part) if index is None else (value, index, part)
                else:
                    owners.append(part)


def _takes_cache(module: nn.Module) -> bool:
    return "cache" in inspect.signature(type(module).__call__).parameters
