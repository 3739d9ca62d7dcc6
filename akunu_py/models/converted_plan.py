"""What a converted model's folder says of its model; `akunu_py.models.converted` has the rest."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from akunu_py.errors import ModelFormatError
from akunu_py.gguf.plan import ModelPlan, RotaryScaling

DESCRIPTION = "akunu.json"
"""The file by which a folder is known to be a converted model."""

FORMAT = 2
_MAX_LAYERS = 10_000
_MAX_DESCRIPTION_BYTES = 64 * 2**20
_MODULE_NAME = re.compile(r"(variants\.)?[a-z0-9][a-z0-9_-]*")


def read_converted_plan(folder: Path) -> tuple[ModelPlan, int]:
    """Return the plan (without placements) of a converted model, and the most codes of a weight.

    Raises ModelFormatError where the folder does not say it.
    """
    try:
        description = read_description(folder / DESCRIPTION)
        layers = description["layers"].values()
        codes = max((len(layer.get("multipliers", ())) for layer in layers), default=0)
        return plan_of(description), max(1, codes)
    except (LookupError, TypeError, ValueError, AttributeError, OSError) as error:
        raise ModelFormatError(
            f"the converted model in {folder} does not hold together ({error}); convert it again "
            "from its GGUF file"
        ) from error


def read_description(path: Path) -> dict[str, Any]:
    """Return what a file DESCRIPTION holds; raise ValueError where it is none of this version."""
    if path.stat().st_size > _MAX_DESCRIPTION_BYTES:
        raise ValueError(f"{path.name} is too large")
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError(f"{path.name} is nested too deeply") from None
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise ValueError(f"{path.name} is of another version")
    return description


def plan_of(description: dict[str, Any]) -> ModelPlan:
    """Return the plan, without placements, of a description.

    Raises LookupError, TypeError, ValueError or AttributeError where it does not make one.
    """
    model = str(description["model"])
    # It names a module to import.
    if not _MODULE_NAME.fullmatch(model):
        raise ValueError(f"no model is called {model!r}")
    arguments = description["arguments"]
    # As the readers of GGUF files bound them: a class makes its layers before it sees a weight.
    for size in _numbers(arguments):
        if not -(2**40) <= size <= 2**40:
            raise ValueError(f"its arguments have the number {size}")
    for key, value in _items(arguments):
        if "layers" in key and isinstance(value, int) and value > _MAX_LAYERS:
            raise ValueError(f"its {key} is {value}")
    rotary = description["rotary"]
    return ModelPlan(
        architecture=str(description["architecture"]),
        model=model,
        arguments=dict(description["arguments"]),
        placements=(),
        num_layers=int(description["num_layers"]),
        context_length=int(description["context_length"]),
        vocabulary_size=int(description["vocabulary_size"]),
        rotary=None if rotary is None else RotaryScaling(**rotary),
    )


def _items(arguments: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the entries of arguments and of the groups within them."""
    for key, value in arguments.items():
        yield str(key), value
        if isinstance(value, dict):
            yield from _items(value)


def _numbers(arguments: dict[str, Any]) -> Iterator[float]:
    for _, value in _items(arguments):
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, int | float) and number == number:  # noqa: PLR0124 - not NaN
                yield number
