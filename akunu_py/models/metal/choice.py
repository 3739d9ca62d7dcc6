"""Who computes few rows of a pass on this Mac: raced once for a shape, then remembered.

One file has the races of one machine, with this macOS, MLX and kernel.
"""

import hashlib
import logging
import platform
import time
from collections.abc import Callable
from functools import partial

import mlx.core as mx
import msgspec
from mlx import nn

from akunu_py.models.attention import largest_part, met, won
from akunu_py.models.cache import make_caches
from akunu_py.models.load_steps import Steps
from akunu_py.models.measured_file import Measured, MeasuredFile
from akunu_py.models.metal.few_rows import BODY, HEADER, MatrixForm
from akunu_py.models.metal.layers import form_of, give_few_rows
from akunu_py.models.metal.race import SIZES, Raced, race, race_attention
from akunu_py.models.passes.forward import forward_of
from akunu_py.models.passes.plan import PassPlan, PassRows

_log = logging.getLogger(__name__)

_MACHINE = ("device_name", "architecture", "memory_size")
_MOST_S = 3.0
"""Seconds after which no further shape races; the next load goes on."""


class _Races(Measured, kw_only=True):
    shapes: dict[str, Raced] = msgspec.field(default_factory=dict)


_Contest = tuple[Callable[[], Raced], Callable[[list[int]], None]]
"""A race, and what is done with the rows for which akunu won it."""


def choose_products(model: nn.Module) -> Steps[tuple[tuple[str, str], ...]]:
    """Let akunu compute where it won; return choice and costs of each shape, in words.

    Shapes that did not race yet do so now.
    """
    file, contests = _file(), {**_products(model), **_attentions(model)}
    found = file.load()
    new = [name for name in contests if name not in found.shapes]
    if new:
        _log.warning("measuring passes of few rows on this Mac, once for each of their shapes")
    started = time.monotonic()
    for name in new:
        if time.monotonic() - started > _MOST_S:
            break
        try:
            found.shapes[name] = contests[name][0]()
        except (RuntimeError, ValueError) as error:
            # Metal's compiler or the driver refused it.
            text = str(error).strip().splitlines()[0]
            found.shapes[name] = Raced(f"does not run: {text:.80}")
        yield
    if new:
        file.save(shapes=found.shapes)
    said = []
    for name, (_, use) in contests.items():
        raced = found.shapes.get(name, Raced("was not measured yet"))
        use(raced.own_rows())
        said.append((f"{name}: {raced.choice()}", raced.costs()))
        _log.info("%s", ": ".join(filter(None, said[-1])))
    return tuple(said)


def _products(model: nn.Module) -> dict[str, _Contest]:
    """Return races of products, those with the most weights first."""
    shapes: dict[tuple[MatrixForm, str], list[nn.Module]] = {}
    for _, layer in model.named_modules():
        form = form_of(layer)
        if form is not None:
            shapes.setdefault((form, str(layer.scales.dtype)), []).append(layer)
    largest = sorted(shapes.items(), key=lambda of: -sum(one.weight.nbytes for one in of[1]))
    return {
        f"product of {form}, {kind.removeprefix('mlx.core.')}": (
            partial(race, form, layers),
            partial(give_few_rows, layers, form),
        )
        for (form, kind), layers in largest
    }


def _attentions(model: nn.Module) -> dict[str, _Contest]:
    met.clear()
    # Built, but not computed.
    forward_of(model)(PassPlan([PassRows(mx.array([0, 1]), make_caches(model))]))
    return {
        "attention of {} heads over {}, width {} and {}, {}".format(*shape): (
            partial(race_attention, shape),
            partial(won.__setitem__, shape),
        )
        for shape in met
        if largest_part(shape)
    }


def forget_races() -> None:
    """Have the shapes of the next model race again."""
    try:
        _file().path.unlink(missing_ok=True)
    except (OSError, RuntimeError) as error:
        _log.info("races cannot be forgotten: %s", error)


def _file() -> MeasuredFile[_Races]:
    info = mx.device_info()
    kernel = BODY + HEADER.read_text(encoding="utf-8")
    key = {
        "machine": " ".join(str(info.get(name)) for name in _MACHINE),
        "macos": platform.mac_ver()[0],
        "mlx": str(getattr(mx, "__version__", "")),
        "kernel": hashlib.sha256(kernel.encode()).hexdigest()[:16],
        "sizes": str(SIZES),
    }
    return MeasuredFile("products", _Races, key)
