"""Where a model's prediction head lies; nothing that runs one is imported here."""

from pathlib import Path

from akunu_py.models.library_errors import explain_errors

AUTO = "auto"
"""Asks for the head that `akunu_py.models.nearby_heads` finds."""

OWN = "own"
"""Asks for a model's own head, from `own_place`."""

_PACKAGE = Path(__file__).resolve().parents[1]
_SHIPPED = (_PACKAGE / "default_models", _PACKAGE.parent / "models")
"""Where the installed package, or a checkout, has the heads that it ships."""


def own_place(model: Path) -> Path:
    """Return where a model has its own head: a side-car of a GGUF file, or the model itself.

    The side-car of NAME.gguf is NAME.head.safetensors, beside it or among those that akunu ships.
    A folder has its side-cars inside.
    """
    name = f"{model.stem}.head.safetensors"
    beside = (folder / name for folder in (model.parent, *_SHIPPED))
    found = (place for place in beside if model.suffix == ".gguf" and place.is_file())
    return next(found, model)


def head_place(model: Path, heads: str | Path) -> Path:
    """Return where the head lies that a user asked for; "own" stands for `own_place`.

    Raises ConfigError for an unknown home directory.
    """
    with explain_errors(heads):
        own = str(heads) == OWN
        return own_place(model.expanduser()) if own else Path(heads).expanduser()
