"""Where the model that ships with akunu lies."""

from pathlib import Path

from akunu_py.errors import ConfigError

DEFAULT_MODEL = "akunu-tiny.gguf"

_PACKAGE = Path(__file__).resolve().parents[1]
# In a checkout the model lies in models/, in an installed package beside the code.
_FOLDERS = (_PACKAGE / "default_models", _PACKAGE.parent / "models")


def default_model_path() -> Path:
    """Return the path of the model that ships with akunu.

    Raises ConfigError where it was not installed.
    """
    for folder in _FOLDERS:
        if (folder / DEFAULT_MODEL).is_file():
            return folder / DEFAULT_MODEL
    raise ConfigError(
        f"the default model {DEFAULT_MODEL} is not installed; give the path of a GGUF file or of "
        "an MLX model folder"
    )
