"""What `auto` learned that is not text, and the files that keep it: one for each model.

A file holds the weights of the estimate and lambda, some hundred numbers. It has neither tokens nor
their outcomes, from which text could be guessed. A file that is damaged, or belongs to another
model or other start weights, is ignored, and so is a failure to write it: `auto` learns anew.
"""

import hashlib
import json
import logging
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from akunu_py.atomic_file import replace_file
from akunu_py.regular_file import open_to_read
from akunu_py.settings import cache_folder

_log = logging.getLogger(__name__)

_FORMAT = 1
_MOST_BYTES = 64 * 1024
_MOST_WEIGHT = 20.0  # in log-odds; one weight of that size decides alone
_MOST_PACE = 100.0  # tokens in the time of a plain step
_DIGITS = 4


class Learned(NamedTuple):
    """Weights of the features (`features`), and lambda, in tokens for the time of a plain step."""

    weights: tuple[float, ...]
    pace: float

    def cautious(self) -> list[float]:
        """Return weights to begin with: of each feature the lower one of start and learned weight.

        The work may be of another kind than that which was learned from. What made estimates too
        high does so in all kinds; what made them too low belongs to one (docs/drafting.md).
        """
        return [min(pair) for pair in zip(start_weights(), self.weights, strict=True)]


@cache
def start_weights() -> tuple[float, ...]:
    """Return the fitted weights that a new engine starts from."""
    text = resources.files(__package__).joinpath("start_weights.json").read_text("utf-8")
    return tuple(json.loads(text)["weights"])


class LearnedFile:
    """The file of one model; `model` identifies it."""

    def __init__(self, model: Mapping[str, str], folder: Path | None = None) -> None:
        # Other start weights come with other features, so their weights mean something else.
        start = hashlib.sha256(json.dumps(start_weights()).encode()).hexdigest()[:16]
        self.key = {**model, "start": start}
        self._folder = folder
        self._known: Learned | None = None

    @property
    def path(self) -> Path:
        """Return the path of the file."""
        digest = hashlib.sha256(json.dumps(self.key, sort_keys=True).encode()).hexdigest()[:16]
        return (self._folder or _folder()) / f"{digest}.json"

    def load(self) -> Learned | None:
        """Return the content of the file, or None if there is no usable file."""
        try:
            with open_to_read(self.path) as stream:
                self._known = self._parsed(stream.read(_MOST_BYTES + 1))
        except FileNotFoundError:
            return None
        except (OSError, RuntimeError, ValueError, ArithmeticError) as error:
            # RuntimeError: no home folder can be found, or JSON nested too deeply.
            _log.debug("auto learns anew: %s", error)
            return None
        return self._known

    def save(self, learned: Learned) -> None:
        """Replace the file atomically, unless nothing is new; only its owner can read it."""
        weights = [max(-_MOST_WEIGHT, min(_MOST_WEIGHT, weight)) for weight in learned.weights]
        kept = Learned(
            tuple(round(weight, _DIGITS) for weight in weights),
            round(min(learned.pace, _MOST_PACE), _DIGITS),
        )
        if kept == self._known or learned.weights == start_weights():
            return
        record = {"format": _FORMAT, "key": self.key, **kept._asdict()}
        try:
            path = self.path
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.parent.chmod(0o700)
            replace_file(path, json.dumps(record).encode(), private=True)
        except (OSError, RuntimeError) as error:
            _log.debug("what auto learned is not kept: %s", error)
        else:
            self._known = kept

    def delete(self) -> None:
        """Delete the file, if it is there; raises OSError if that cannot be done."""
        self.path.unlink(missing_ok=True)
        self._known = None

    def _parsed(self, data: bytes) -> Learned:
        """Parse a file's bytes; raises ValueError for anything that `save` does not write."""
        if len(data) > _MOST_BYTES:
            raise ValueError(f"{self.path} is larger than {_MOST_BYTES} bytes")
        record = json.loads(data)
        if not isinstance(record, dict) or record.get("format") != _FORMAT:
            raise ValueError(f"{self.path} has another format")
        if record.get("key") != self.key:
            raise ValueError(f"{self.path} belongs to another model or version")
        weights = record.get("weights")
        if not isinstance(weights, list) or len(weights) != len(start_weights()):
            raise ValueError(f"{self.path} does not have a weight for each feature")
        return Learned(
            tuple(_number(weight, -_MOST_WEIGHT, _MOST_WEIGHT) for weight in weights),
            _number(record.get("pace"), 1.0, _MOST_PACE),
        )


def delete_learned() -> int:
    """Delete what `auto` learned of all models; return the number of files.

    Raises OSError if a file cannot be deleted, RuntimeError if there is no home folder.
    """
    files = sorted(_folder().glob("*.json"))
    for path in files:
        path.unlink(missing_ok=True)
    return len(files)


def _folder() -> Path:
    return cache_folder() / "learned"


def _number(value: object, least: float, most: float) -> float:
    """Return a number in a range; raises ValueError for anything else, NaN included."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ValueError(f"{str(value)[:20]!r} is not a number from {least:g} to {most:g}")
    return float(value)
