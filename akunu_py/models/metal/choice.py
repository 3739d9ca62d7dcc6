"""Who multiplies few rows of a model on this Mac: raced once for a shape, then remembered.

One file has the races of one machine, with this macOS, MLX and kernel. Missing, corrupt and
foreign files are ignored, and so the shapes race again.
"""

import hashlib
import json
import logging
import platform
import time
from pathlib import Path

import mlx.core as mx
import msgspec
from mlx import nn

from akunu_py.models.load_steps import Steps
from akunu_py.models.metal.few_rows import BODY, HEADER, Form
from akunu_py.models.metal.layers import form_of, give_few_rows
from akunu_py.models.metal.race import SIZES, Raced, race
from akunu_py.system.files import open_to_read, replace_file
from akunu_py.system.settings import cache_folder

_log = logging.getLogger(__name__)

_MACHINE = ("device_name", "architecture", "memory_size")
_MOST_BYTES = 2**20
_MOST_S = 3.0
"""Seconds after which no further shape races; the next load goes on."""


class _File(msgspec.Struct):
    key: dict[str, str]
    shapes: dict[str, Raced] = {}


def choose_products(model: nn.Module) -> Steps[tuple[tuple[str, str], ...]]:
    """Let the kernel multiply where it won; return choice and costs of each shape, in words.

    Shapes that did not race yet do so now, those with the most weights first.
    """
    shapes: dict[tuple[Form, str], list[nn.Module]] = {}
    for _, layer in model.named_modules():
        form = form_of(layer)
        if form is not None:
            shapes.setdefault((form, str(layer.scales.dtype)), []).append(layer)
    found = _remembered()
    names = {shape: f"{shape[0]}, {shape[1].removeprefix('mlx.core.')}" for shape in shapes}
    new = [shape for shape in shapes if names[shape] not in found.shapes]
    new.sort(key=lambda shape: -sum(layer.weight.nbytes for layer in shapes[shape]))
    if new:
        _log.warning("measuring products of few rows on this Mac, once for each of their shapes")
    started = time.monotonic()
    for shape in new:
        if time.monotonic() - started > _MOST_S:
            break
        found.shapes[names[shape]] = race(shape[0], shapes[shape])
        yield
    if new:
        _remember(found)
    said = []
    for shape, layers in shapes.items():
        raced = found.shapes.get(names[shape], Raced("was not measured yet"))
        rows = raced.own_rows()
        for layer in layers if rows else ():
            give_few_rows(layer, shape[0], rows)
        said.append((f"{names[shape]}: {raced.choice()}", raced.costs()))
        _log.info("%s", ": ".join(filter(None, said[-1])))
    return tuple(said)


def forget_races() -> None:
    """Have the shapes of the next model race again."""
    try:
        _path(_key()).unlink(missing_ok=True)
    except (OSError, RuntimeError) as error:
        _log.info("races cannot be forgotten: %s", error)


def _key() -> dict[str, str]:
    info = mx.device_info()
    kernel = BODY + HEADER.read_text(encoding="utf-8")
    return {
        "machine": " ".join(str(info.get(name)) for name in _MACHINE),
        "macos": platform.mac_ver()[0],
        "mlx": str(getattr(mx, "__version__", "")),
        "kernel": hashlib.sha256(kernel.encode()).hexdigest()[:16],
        "sizes": str(SIZES),
    }


def _path(key: dict[str, str]) -> Path:
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    return cache_folder() / "products" / f"{digest}.json"


def _remembered() -> _File:
    key = _key()
    try:
        with open_to_read(_path(key)) as stream:
            file = msgspec.json.decode(stream.read(_MOST_BYTES), type=_File)
    except (OSError, RuntimeError, ValueError):
        # msgspec's errors are ValueErrors; RuntimeError: no home folder can be found.
        return _File(key)
    return file if file.key == key else _File(key)


def _remember(file: _File) -> None:
    try:
        path = _path(file.key)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, msgspec.json.encode(file), private=False)
    except (OSError, RuntimeError) as error:
        _log.info("races are not remembered: %s", error)
