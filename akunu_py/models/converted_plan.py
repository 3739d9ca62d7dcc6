"""The description of the model in a converted folder; `akunu_py.models.converted` has the rest."""

import re
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from akunu_py.gguf.plan import ModelPlan, RotaryScaling
from akunu_py.gguf.reader import GGUFFile
from akunu_py.models.folder_settings import read_json
from akunu_py.models.library_errors import errors_of
from akunu_py.models.number_limits import check_numbers
from akunu_py.models.weight_files import check_weight_file, check_weight_files
from akunu_py.tokenizers.codecs import check_vocabulary

DESCRIPTION = "akunu.json"
"""The file that marks a folder as a converted model."""

EXTRA = "akunu.safetensors"
METADATA = "metadata.gguf"
FORMAT = 2
_MODULE_NAME = re.compile(r"(variants\.)?[a-z0-9][a-z0-9_-]*")


def read_converted_plan(folder: Path) -> tuple[ModelPlan, int]:
    """Return the plan (without placements) of a converted model, and the most codes per weight.

    Raises ModelFormatError for files that are missing or malformed, but for their weights.
    """
    with errors_of_converted(folder):
        check_weight_files(folder)
        check_weight_file(folder / EXTRA)
        with GGUFFile.open(folder / METADATA) as file:
            check_vocabulary(file.metadata)
        description = read_description(folder / DESCRIPTION)
        layers = description["layers"].values()
        codes = max((len(layer.get("multipliers", ())) for layer in layers), default=0)
        return plan_of(description), max(1, codes)


def errors_of_converted(folder: Path) -> AbstractContextManager[None]:
    """Turn whatever is raised inside into a ModelFormatError that names the folder."""
    return errors_of(
        f"the converted model in {folder} does not hold together",
        "convert it again from its GGUF file",
    )


def read_description(path: Path) -> dict[str, Any]:
    """Return the content of a file DESCRIPTION; raise ValueError for one of another version."""
    description = read_json(path)
    if description.get("format") != FORMAT:
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
