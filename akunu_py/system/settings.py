"""The user's settings file and cache folder.

The command line applies settings to the options of commands (`akunu_py.cli.command_settings`).
"""

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from akunu_py.system.errors import ConfigError
from akunu_py.system.files import open_to_read

CONFIG_VARIABLE = "AKUNU_CONFIG"
"""Names another file than the platform's own; the null device stands for no file."""

CACHE_VARIABLE = "AKUNU_CACHE_DIR"
"""Names another cache folder than the platform's own."""

MODEL_KEY, MODEL_VARIABLE = "model", "AKUNU_MODEL"
FOLDERS_KEY, FOLDERS_VARIABLE = "model-folders", "AKUNU_MODEL_FOLDERS"

KEY_VARIABLE = "AKUNU_API_KEY"
"""Holds the key of `akunu serve` for an agent that `akunu launch` starts."""

FETCH_VARIABLE = "AKUNU_FETCH_MODEL"
"""Where it is set, the default model is fetched without a question; scripts/akunu sets it."""

METAL_VARIABLE = "AKUNU_METAL"
"""Who computes with few rows on Metal: "auto" lets a race decide, "mlx" leaves it to MLX."""

OTHER_VARIABLES = frozenset({
    CONFIG_VARIABLE, "AKUNU_BLAS", "AKUNU_CPU", CACHE_VARIABLE, "AKUNU_DATA_DIR", FETCH_VARIABLE,
    FOLDERS_VARIABLE, KEY_VARIABLE, METAL_VARIABLE,
})  # fmt: skip
"""Variables that do not belong to an option of a command."""

_MOST_BYTES = 2**20


class Settings(NamedTuple):
    """The content of a settings file."""

    path: Path
    found: bool
    """Whether the file exists."""
    values: Mapping[str, object]
    """Its keys and tables from TOML, with hyphens for underscores in keys."""
    model: str | None
    """For commands without MODEL: AKUNU_MODEL, else the file's `model`; None for the default."""
    model_folders: tuple[Path, ...]
    """AKUNU_MODEL_FOLDERS, separated like PATH, else the file's `model-folders`."""


def config_path() -> Path:
    """Return the path of the settings file: AKUNU_CONFIG, or the platform's place for settings."""
    chosen = os.environ.get(CONFIG_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_config_path

    return user_config_path("akunu", appauthor=False) / "config.toml"


def cache_folder() -> Path:
    """Return the folder for data that akunu can make again.

    AKUNU_CACHE_DIR names it; otherwise it is the platform's own place.
    """
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "akunu"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "akunu"
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG base directory specification demands that a relative path is ignored.
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "akunu"


def load_settings(path: Path | None = None) -> Settings:
    """Read the settings file, `config_path()` by default; a missing file counts as empty.

    Raises ConfigError as `parse_settings`, for a file that cannot be read, and for AKUNU_CONFIG
    naming a file that does not exist.
    """
    named = path is not None or bool(os.environ.get(CONFIG_VARIABLE))
    path = config_path() if path is None else path
    content = settings_content(path)
    if content is None and named:
        raise ConfigError(f"the settings file {path}, named by {CONFIG_VARIABLE}, does not exist")
    return parse_settings(path, content)


def parse_settings(path: Path, content: bytes | None) -> Settings:
    """Return the settings in the content of a file; None stands for no file.

    Raises ConfigError for content that is not TOML, and for `model` and `model-folders` of a wrong
    type.
    """
    values = {} if content is None else _hyphenated(_parsed(path, content), path)
    return Settings(
        path=path,
        found=content is not None,
        values=values,
        model=os.environ.get(MODEL_VARIABLE) or _model(path, values),
        model_folders=_folders(path, values),
    )


def nearest(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean ...?" with the known name closest to a wrong one, or an empty text."""
    import difflib  # only for mistakes

    matches = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    return f" Did you mean {matches[0]}?" if matches else ""


def settings_content(path: Path) -> bytes | None:
    """Return the bytes of a settings file; None where there is none. Raises ConfigError."""
    if str(path) == os.devnull:
        return b""
    try:
        with open_to_read(path) as stream:
            content = stream.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(
            f"the settings file {path} cannot be read: {error.strerror or error}"
        ) from None
    if len(content) > _MOST_BYTES:
        raise ConfigError(f"the settings file {path} is larger than 1 MB")
    return content


def _parsed(path: Path, content: bytes) -> dict[str, object]:
    import tomllib  # most have no file

    try:
        # Some editors begin a file with a byte order mark.
        return tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (byte {error.start})") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None


def _hyphenated(table: Mapping[str, object], path: Path) -> dict[str, object]:
    """Return a table with hyphens in keys, also in its tables; two spellings are an error."""
    result: dict[str, object] = {}
    for written, value in table.items():
        key = written.replace("_", "-")
        if key in result:
            raise ConfigError(f"{path} has {key} twice, with a hyphen and with an underscore")
        result[key] = _hyphenated(value, path) if isinstance(value, dict) else value
    return result


def _model(path: Path, values: Mapping[str, object]) -> str | None:
    model = values.get(MODEL_KEY)
    if model is not None and (not isinstance(model, str) or not model):
        raise ConfigError(f"{path}: {MODEL_KEY} is {model!r}; give a name or a path as text")
    return model


def _folders(path: Path, values: Mapping[str, object]) -> tuple[Path, ...]:
    chosen = os.environ.get(FOLDERS_VARIABLE)
    if chosen:
        return tuple(Path(part).expanduser() for part in chosen.split(os.pathsep) if part)
    folders = values.get(FOLDERS_KEY, [])
    if not isinstance(folders, list) or not all(isinstance(part, str) for part in folders):
        raise ConfigError(f"{path}: {FOLDERS_KEY} is {folders!r}; give a list of folders")
    return tuple(Path(part).expanduser() for part in folders)
