"""The models with names of akunu's own: the default model, and the toy that akunu ships with."""

import os
from pathlib import Path

from akunu_py.model_store.package_index import SMOLLM2
from akunu_py.system.errors import ConfigError

TOY_NAME = "akunu-tiny"
_TOY_FILE = f"{TOY_NAME}.gguf"

DATA_VARIABLE = "AKUNU_DATA_DIR"

_PACKAGE = Path(__file__).resolve().parents[1]
_CHECKOUT = _PACKAGE.parent
# The toy is in models/ of a checkout, or in the installed package.
_TOY_FOLDERS = (_PACKAGE / "default_models", _CHECKOUT / "models")


def data_folder() -> Path:
    """Return the folder of the fetched default model.

    AKUNU_DATA_DIR names it; otherwise it is models/ of a checkout, else the platform's folder for
    user data.
    """
    chosen = os.environ.get(DATA_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    if (_CHECKOUT / "pyproject.toml").is_file() and (_CHECKOUT / "models").is_dir():
        return _CHECKOUT / "models"
    from platformdirs import user_data_path

    return user_data_path("akunu", appauthor=False) / "models"


def fetched_model_path() -> Path | None:
    """Return the path of the default model; None if it was not fetched."""
    place = data_folder() / SMOLLM2.file_name
    return place if place.is_file() else None


def toy_model_path() -> Path:
    """Return the path of the toy that ships with akunu; raise ConfigError if it is missing."""
    for folder in _TOY_FOLDERS:
        if (folder / _TOY_FILE).is_file():
            return folder / _TOY_FILE
    raise ConfigError(
        f"{_TOY_FILE} is not installed; give the path of a GGUF file or of an MLX model folder"
    )


def default_model_path() -> Path:
    """Return the model to use where none is named: the default one if fetched, or the toy.

    Raises ConfigError if neither is there.
    """
    return fetched_model_path() or toy_model_path()


def is_toy(path: Path) -> bool:
    """Return whether a path is the toy's."""
    return path.name == _TOY_FILE and path.parent in _TOY_FOLDERS
