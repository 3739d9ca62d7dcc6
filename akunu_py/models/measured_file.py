"""Files of what was measured on this machine, one for each key: model, device, versions.

Missing, corrupt and foreign files are ignored, and so it is measured anew. If a file cannot be
written, nothing is remembered.
"""

import hashlib
import json
import logging
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from akunu_py.system.files import open_to_read, replace_file
from akunu_py.system.settings import cache_folder

_log = logging.getLogger(__name__)

_MOST_BYTES = 2**20


class Measured(msgspec.Struct, kw_only=True):
    """Content of a file."""

    key: dict[str, str]


Content = TypeVar("Content", bound=Measured)


class MeasuredFile(Generic[Content]):
    """The file of one key, among others of its name."""

    def __init__(
        self, name: str, kind: type[Content], key: dict[str, str], folder: Path | None = None
    ) -> None:
        self.key = key
        self._name, self._kind, self._folder = name, kind, folder

    @property
    def path(self) -> Path:
        digest = hashlib.sha256(json.dumps(self.key, sort_keys=True).encode()).hexdigest()[:16]
        return (self._folder or cache_folder()) / self._name / f"{digest}.json"

    def load(self) -> Content:
        """Return the content, or what a new file has."""
        try:
            with open_to_read(self.path) as stream:
                found = msgspec.json.decode(stream.read(_MOST_BYTES), type=self._kind)
            if found.key == self.key:
                return found
        except FileNotFoundError:
            pass
        except (OSError, RuntimeError, ValueError) as error:
            # msgspec's errors are ValueErrors; RuntimeError: no home folder can be found, or JSON
            # nested too deeply.
            _log.info("%s are measured anew: %s", self._name, error)
        return self._kind(key=self.key)

    def save(self, **content: object) -> None:
        """Replace the file, atomically."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(
                self.path, msgspec.json.encode({"key": self.key, **content}), private=False
            )
        except (OSError, RuntimeError) as error:
            _log.info("%s are not remembered: %s", self._name, error)


def installed_version(package: str) -> str:
    """Return a package's version; "unknown" if it was built from source and put on the path."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
