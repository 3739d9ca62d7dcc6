"""The description of the model in a converted folder; `akunu_py.models.converted` has the rest."""

import json
import re
from pathlib import Path
from typing import Any

from akunu_py.errors import ModelFormatError
from akunu_py.gguf.plan import ModelPlan, RotaryScaling
from akunu_py.models.number_limits import check_numbers

DESCRIPTION = "akunu.json"
"""The file that marks a folder as a converted model."""

FORMAT = 2
_MAX_DESCRIPTION_BYTES = 64 * 2**20
_MODULE_NAME = re.compile(r"(variants\.)?[a-z0-9][a-z0-9_-]*")


def read_converted_plan(folder: Path) -> tuple[ModelPlan, int]:
    """Return the plan (without placements) of a converted model, and the most codes per weight.

    Raises ModelFormatError for a missing or malformed description.
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
    """Return the content of a file DESCRIPTION; raise ValueError for one of another version."""
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

    Raises LookupError, TypeError, ValueError or AttributeError for a malformed description.
    """
    model = str(description["model"])
    # The name decides which module is imported.
    if not _MODULE_NAME.fullmatch(model):
        raise ValueError(f"no model is called {model!r}")
    sizes = ("arguments", "num_layers", "context_length", "vocabulary_size")
    check_numbers({name: description[name] for name in sizes})
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
