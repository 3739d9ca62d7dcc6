"""The two files of a report, which never replace a file of the user."""

import json
import math
import os
from itertools import count
from pathlib import Path

from akunu_py.diagnosis.full.page import page
from akunu_py.diagnosis.full.privacy import without_paths
from akunu_py.diagnosis.full.report import FullReport
from akunu_py.system.errors import ConfigError
from akunu_py.system.files import replace_file

NAME = "akunu-doctor"


class KeptReport:
    """`page` and `record`: `akunu-doctor.md` and `.json` in a folder, numbered if these exist.

    Both are created empty at once, so that an unwritable folder is reported before anything is
    measured. Raises ConfigError.
    """

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.page, self.record = _new_files(folder)
        except OSError as error:
            raise ConfigError(
                f"the report cannot be kept in {folder}: {error.strerror or error}; give --output "
                "another folder"
            ) from None

    def write(self, report: FullReport) -> None:
        """Replace both files; raises ConfigError if they cannot be written."""
        texts = {self.page: page(report), self.record: json_text(report) + "\n"}
        for path, text in texts.items():
            try:
                replace_file(path, text.encode("utf-8", "replace"), private=False)
            except OSError as error:
                raise ConfigError(f"cannot write {path}: {error.strerror or error}") from None


def json_text(report: FullReport) -> str:
    """Return the figures as one line of JSON without any path; null for NaN and infinities."""
    return json.dumps(_publishable(report.to_dict()), allow_nan=False)


def _publishable(value: object) -> object:
    if isinstance(value, dict):
        return {key: _publishable(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_publishable(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return without_paths(value) if isinstance(value, str) else value


def _new_files(folder: Path) -> tuple[Path, Path]:
    """Create the first pair of files whose names are both free."""
    names = (NAME if number == 1 else f"{NAME}-{number}" for number in count(1))
    pairs = ((folder / f"{name}.md", folder / f"{name}.json") for name in names)
    page_path, record = next(pair for pair in pairs if not any(map(os.path.lexists, pair)))
    page_path.touch(exist_ok=False)
    record.touch(exist_ok=False)
    return page_path, record
