"""The only place that puts anything in the way of mlx-lm's code.

`install` is called once for a model, when it is loaded. It wraps functions of the modules that the
model's classes are from, found by name. A wrapped function is mlx-lm's own unless a plan or a
record is open in the thread, or keys are quantized; other models, threads and programs notice
nothing. Norms whose hidden states are read have a class that hands them on (`tap`).
"""

import contextlib
import functools
import inspect
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from importlib.metadata import version
from typing import Any

import mlx.core as mx
from mlx import nn

from akunu_py.models.attention import attend_few, attend_quantized
from akunu_py.models.passes.caches import Apart, Held, RowsCache
from akunu_py.models.passes.plan import PassPlan, by_row
from akunu_py.models.rollback.recurrence import RecurrentStep, recording, row_by_row, take_note
from akunu_py.system.errors import ModelFormatError

ATTENTION = "scaled_dot_product_attention"

STEPS: Sequence[tuple[str, str, RecurrentStep]] = (
    ("gated_delta_update", "bailing_moe_v3 kimi_k3 kimi_linear olmo_hybrid qwen3_5 qwen3_next",
     RecurrentStep(dict.fromkeys(("q", "k", "v", "a", "b"), 1), "state")),
    ("ssm_update", "falcon_h1 granitemoehybrid mamba2 nemotron_h plamo2",
     RecurrentStep(dict.fromkeys(("hidden_states", "B", "C", "dt"), 1), "state")),
    ("recurrent_gla", "bailing_hybrid bailing_moe_linear",
     RecurrentStep(dict.fromkeys(("q", "k", "v"), 2), "h")),
    # It treats the first row of a text in its own way.
    ("RGLRU.__call__", "recurrent_gemma", RecurrentStep({"x": 1}, "cache")),
    ("Conv1d.__call__", "recurrent_gemma", RecurrentStep({"x": 1}, "cache", window=True)),
    ("_wkv7", "rwkv7", RecurrentStep(dict.fromkeys(("r", "w", "k", "v", "a", "b"), 1), "state")),
    ("TokenShift.__call__", "rwkv7", RecurrentStep({"x": 1}, "state", returns=False, window=True)),
    ("ssm_step", "jamba", RecurrentStep({"x": 1}, "state")),
    # Takes one row, [texts, width].
    ("ssm_step", "mamba", RecurrentStep({"x": 0}, "state")),
    ("Attention._custom_convolution", "baichuan_m1",
     RecurrentStep({"u": 2}, "state", returns=False, window=True)),
    ("NgramEmbedding.__call__", "longcat_flash_ngram",
     RecurrentStep({"input_ids": 1}, "cache", returns=False, window=True)),
)  # fmt: skip
"""Functions of modules and methods of classes, by name, with the files of mlx-lm that have them."""

_CHANGED: Mapping[str, Callable[..., Any]] = {"ssm_update": row_by_row}

_wrapped: set[Callable[..., Any]] = set()
"""Functions that are wrapped already. Wrappers of others are wrapped like any function."""
_open = threading.local()


@contextlib.contextmanager
def open_plan(plan: PassPlan | None) -> Iterator[None]:
    """Let what is called inside, in this thread, be for the texts of a plan."""
    before, _open.plan = _plan(), plan
    try:
        yield
    finally:
        _open.plan = before


def _plan() -> PassPlan | None:
    return getattr(_open, "plan", None)


def texts_of_pass() -> int:
    """Return the number of texts whose rows are in the pass that this thread builds."""
    plan = _plan()
    return 1 if plan is None else len(plan.parts)


def install(model: nn.Module) -> None:
    """Wrap what the model's classes call, once for each module and class.

    Raises ModelFormatError where mlx-lm has not what it had.
    """
    classes = {type(module) for module in model.modules()}
    holders: list[Any] = [sys.modules[name] for name in {kind.__module__ for kind in classes}]
    found: set[tuple[str, str]] = set()
    for holder in (*holders, *classes):
        # A class of akunu's own is known by mlx-lm's that it derives from.
        files = {_file(kind) for kind in getattr(holder, "__mro__", (holder,))}
        for name, function in list(vars(holder).items()):
            if not inspect.isfunction(function):
                continue
            qualified = f"{holder.__name__}.{name}"
            found |= {(file, known) for file in files for known in (name, qualified)}
            if function not in _wrapped:
                wrapped = _wrapper(function, name, qualified, files)
                if wrapped is not None:
                    _wrapped.add(wrapped)
                    setattr(holder, name, wrapped)
    _check(type(model), classes, found)


def _file(holder: Any) -> str:
    name: str = holder.__module__ if inspect.isclass(holder) else holder.__name__
    return name.rpartition(".")[2]


def _check(model: type, classes: Collection[type], found: Collection[tuple[str, str]]) -> None:
    """Raise ModelFormatError where a class needs a function that its module does not have."""
    needed = set()
    for kind in classes:
        if kind.__module__.startswith("mlx_lm.models."):
            file = _file(kind)
            needed |= {(file, name) for name, files, _ in STEPS if file in files.split()}
            needed |= {(of, name) for of, name in _OWN if of == file}
            code = getattr(inspect.unwrap(kind.__call__), "__code__", None)
            own = (file, f"{kind.__name__}.__call__") in _OWN
            if code is not None and "update_and_fetch" in code.co_names and not own:
                needed.add((file, ATTENTION))
    for file, name in sorted(needed.difference(found)):
        raise ModelFormatError(
            f"mlx-lm {version('mlx-lm')} has no {name} in {file}.py, by which akunu runs "
            f"{model.__name__}; install a version of mlx-lm that akunu's requirements name"
        )


def _wrapper(
    function: Callable[..., Any], name: str, qualified: str, files: set[str]
) -> Callable[..., Any] | None:
    if name == ATTENTION:
        return _attention(function)
    own = next((_OWN[file, qualified] for file in files if (file, qualified) in _OWN), None)
    if own is not None:
        return own(function)
    # A name that two have is of a file; others are known wherever they are.
    kinds = [(of, kind) for known, of, kind in STEPS if known in {name, qualified}]
    here = (kind for of, kind in kinds if len(kinds) == 1 or not files.isdisjoint(of.split()))
    kind = next(here, None)
    if kind is None:
        return None
    return _step(_CHANGED[name](function) if name in _CHANGED else function, kind)


def _attention(function: Callable[..., mx.array]) -> Callable[..., mx.array]:
    @functools.wraps(function)
    def attend(  # noqa: PLR0917 - those of mlx-lm's
        queries: mx.array, keys: Any, values: Any, cache: Any, scale: float, mask: Any,
        sinks: mx.array | None = None,
    ) -> mx.array:  # fmt: skip
        if type(keys) is mx.array:
            return attend_few(function, queries, keys, values, cache, scale, mask, sinks)
        if isinstance(keys, Held):
            # A layer may attend to the rows of another, and then has no cache.
            return keys.caches.attend(attend, queries, keys, values, scale, mask, sinks)
        if sinks is not None:
            return function(queries, keys, values, cache, scale, mask, sinks)
        return attend_quantized(queries, keys, values, cache, scale=scale, mask=mask)

    return attend


def _binding(function: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """Return what gives arguments of a call their names, in the order of a function's parameters.

    `inspect.Signature.bind` also checks what the call will check, which takes much longer.
    """
    names = tuple(inspect.signature(function).parameters)

    def bind(values: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        given = dict(zip(names, values, strict=False))
        return given | {name: named[name] for name in names if name in named}

    return bind


def _by_text(
    layer: Any, plan: PassPlan, axis: int, inputs: Mapping[str, mx.array]
) -> Iterator[Any]:
    """Yield a copy of a layer that has one text's products of `inputs`, made for all rows."""
    own = copy(layer)
    made = [plan.split(getattr(layer, name)(rows), axis) for name, rows in inputs.items()]
    for products in zip(*made, strict=True):
        for name, product in zip(inputs, products, strict=True):
            vars(own)[name] = lambda _rows, product=product: product
        yield own


def _own_attention(function: Callable[..., mx.array]) -> Callable[..., mx.array]:
    """Let attention that computes with keys itself do so for each text alone."""
    bind = _binding(function)

    def turned(layer: Any, places: list[int], rows: mx.array, **_offset: Any) -> mx.array:
        return by_row(layer.rope(by_row(rows, 2), offset=mx.array(places)), 2)

    @functools.wraps(function)
    def attend(*values: Any, **named: Any) -> mx.array:
        plan = _plan()
        if plan is None:
            return function(*values, **named)
        layer, x, mask, cache = bind(values, named).values()
        inputs = {name: x for name in layer if name.endswith("proj") and name != "o_proj"}
        layers = _by_text(layer, plan, 0, inputs)
        # Only the shape of a text's rows counts, which its products are given.
        given, found = zip(plan.split(by_row(x, 1), 1), mask.parts, cache.parts, strict=True), []
        for text, own, its in zip(plan.parts, layers, given, strict=True):
            vars(own)["o_proj"] = lambda attended: attended
            tree = text.tree is not None
            vars(own)["rope"] = partial(turned, layer, text.places) if tree else layer.rope
            found.append(function(own, *its))
        made: mx.array = layer.o_proj(by_row(mx.concatenate(found, axis=1), 1))
        return made

    return attend


def _indexer(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let DeepSeek V3.2 choose keys for each text alone."""

    @functools.wraps(function)
    def choose(layer: Any, x: mx.array, qr: mx.array, mask: Any, cache: Any = None) -> Any:
        plan = _plan()
        if plan is None or len(plan.parts) == 1:
            return function(layer, x, qr, mask, cache)
        layers = _by_text(layer, plan, 0, {"wq_b": qr, "wk": x, "weights_proj": x})
        rows = plan.split(x, 0)
        texts = zip(layers, rows, plan.parts, cache.parts, plan.latent_masks, strict=True)
        for number, (own, its, text, part, seen) in enumerate(texts):
            standing = RowsCache.standing(PassPlan([text]), [part], cache.latent)
            keys = function(own, its, its, standing.seen(seen), cache=standing)
            for latents in plan.latents if keys is not None else ():
                latents.choose(number, keys)
        return None

    return choose


def _step(function: Callable[..., Any], kind: RecurrentStep) -> Callable[..., Any]:
    bind = _binding(function)
    axis = next(iter(kind.rows.values()))

    def call(given: Mapping[str, Any]) -> Any:
        made = function(**given)
        if recording():
            take_note(function, kind, given, made)
        return made

    def call_rows(given: Mapping[str, Any]) -> tuple[mx.array, Any]:
        ((name, _),) = kind.rows.items()
        outputs, state = [], given[kind.state]
        for row in mx.split(given[name], given[name].shape[0]):
            output, state = call({**given, name: row, kind.state: state})
            outputs.append(output)
        return mx.concatenate(outputs), state

    @functools.wraps(function)
    def step(*values: Any, **named: Any) -> Any:
        plan = _plan()
        if plan is None and not recording():
            return function(*values, **named)
        given = bind(values, named)
        if plan is None:
            return call(given)
        state = given.get(kind.state)
        states = state.parts if isinstance(state, Apart | RowsCache) else [None] * len(plan.parts)
        turned = {name: plan.turned(place) for name, place in kind.rows.items()}
        rows = {
            name: plan.split(by_row(given[name], place), place)
            for name, place in turned.items()
            if given.get(name) is not None
        }
        made: list[Any] = []
        for number, part in enumerate(plan.parts):
            own = {name: pieces[number] for name, pieces in rows.items()}
            # It may call the function of the class that it derives from.
            with part.record, open_plan(None):
                whole = {**given, **own, kind.state: states[number]}
                made.append(call(whole) if axis else call_rows(whole))
        back = plan.turned(axis)
        if not kind.returns:
            return by_row(mx.concatenate(made, axis=back), back)
        outputs = mx.concatenate([one[0] for one in made], axis=back)
        return (by_row(outputs, back), [one[1] for one in made], *made[0][2:])

    return step


def _window(function: Callable[..., mx.array]) -> Callable[..., mx.array]:
    kind = RecurrentStep({"x": 1}, "", window=True)

    def call(layer: nn.Conv1d, x: mx.array) -> mx.array:
        made = function(layer, x)
        if recording():
            take_note(function, kind, {"x": x}, made)
        return made

    @functools.wraps(function)
    def convolve(layer: nn.Conv1d, x: mx.array) -> mx.array:
        plan = _plan()
        if plan is None or not plan.asked:
            return call(layer, x)
        # Models ask for windows in the order in which they use them.
        cache, slot = plan.asked.pop(0)
        axis = plan.turned(1)
        rows = plan.split(by_row(x[:, -1:], axis), axis)
        kept = x.shape[1] - 1
        found = []
        for part, own, new in zip(plan.parts, cache.parts, rows, strict=True):
            before = own[slot]
            if before is None:
                before = mx.zeros((1, kept, x.shape[2]), x.dtype)
            whole = mx.concatenate([before, new], axis=1)
            with part.record:
                found.append(call(layer, whole))
            own[slot] = mx.contiguous(whole[:, -kept:])
        return by_row(mx.concatenate(found, axis=axis), axis)

    return convolve


_OWN: Mapping[tuple[str, str], Callable[..., Callable[..., Any]]] = {
    ("convolution", "Conv1d.__call__"): _window,
    ("deepseek_v32", "Indexer.__call__"): _indexer,
    ("gemma2", "Attention.__call__"): _own_attention,
    ("minimax_m3_vl", "Attention.__call__"): _own_attention,
    ("plamo2", "Attention.__call__"): _own_attention,
}
"""Wrappers of one method each, by its file and name."""

Tap = Callable[[nn.Module, mx.array, mx.array], None]
"""Gets a norm, its input and its output."""

_tapped: dict[type, type] = {}
"""Classes whose calls go to taps as well, by the class that each stands for and by themselves."""


def tap(norms: Collection[nn.Module]) -> None:
    """Let norms also hand what they get and make to the taps that are open in a thread."""
    for norm in norms:
        kind = type(norm)
        norm.__class__ = _tapped.get(kind) or _tapped_class(kind)


def _tapped_class(kind: Any) -> type:
    def call(norm: nn.Module, x: mx.array) -> mx.array:
        normed: mx.array = kind.__call__(norm, x)
        for take in getattr(_open, "taps", ()):
            take(norm, x, normed)
        return normed

    names = {"__call__": call, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    made = type(kind.__name__, (kind,), names)
    _tapped[kind] = _tapped[made] = made
    return made


@contextlib.contextmanager
def tapping(take: Tap) -> Iterator[None]:
    """Open a tap for what is called inside."""
    before = getattr(_open, "taps", ())
    _open.taps = (*before, take)
    try:
        yield
    finally:
        _open.taps = before
