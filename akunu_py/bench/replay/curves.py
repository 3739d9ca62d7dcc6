"""Cost curves to compare drafters under: the shipped ones by name, or a JSON file's."""

import json
import math
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

from akunu_py.cost_curve import CostCurve
from akunu_py.errors import ConfigError

_FIELDS = {"points", "flat_after", "flat_until", "source"}


def shipped_curves() -> dict[str, CostCurve]:
    """Return the curves of `cost_curves.json` by name; their sources are in that file."""
    text = (files("akunu_py.bench.replay") / "cost_curves.json").read_text(encoding="utf-8")
    return parse_curves(text, "cost_curves.json")


def load_curves(names: Iterable[str]) -> dict[str, CostCurve]:
    """Return curves by name, each of `names` a shipped curve or a file with one or several.

    Raises ConfigError for a name that is neither, and for a file that is malformed.
    """
    shipped = shipped_curves()
    curves: dict[str, CostCurve] = {}
    for name in names:
        if name in shipped:
            curves[name] = shipped[name]
            continue
        path = Path(name)
        if not path.is_file():
            raise ConfigError(
                f"there is no curve and no file {name!r}; choose from {', '.join(shipped)}, or "
                "give a JSON file of curves"
            )
        try:
            curves |= parse_curves(path.read_text(encoding="utf-8"), name)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{name} cannot be read: {error}") from None
    return curves


def parse_curves(text: str, name: str) -> dict[str, CostCurve]:
    """Read `{"curves": {NAME: {"points": {ROWS: COST, ...}, ...}, ...}}`.

    `flat_after` and `flat_until` are rows between which costs do not rise; past the last point the
    last segment's slope goes on. Raises ConfigError naming the file, the curve and the field.
    """
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name} is not JSON: {error}") from None
    curves = record.get("curves") if isinstance(record, dict) else None
    if not isinstance(curves, dict) or not curves:
        raise ConfigError(f'{name} needs a field "curves" with one curve or more by name')
    return {key: _curve(value, f"{name}, curve {key!r}") for key, value in curves.items()}


def _curve(record: Any, name: str) -> CostCurve:
    if not isinstance(record, dict) or not isinstance(record.get("points"), dict):
        raise ConfigError(f'{name} needs a field "points": {{"1": 1.0, ...}}')
    for field in record:
        if field not in _FIELDS:
            raise ConfigError(f"{name}, field {field}: unknown; known are {sorted(_FIELDS)}")
    points: dict[int, float] = {}
    for rows, cost in record["points"].items():
        if not rows.isascii() or not rows.isdigit() or len(rows) > 6:
            raise ConfigError(f"{name}, field points: {rows!r} is no number of rows")
        if not isinstance(cost, int | float) or isinstance(cost, bool) or not math.isfinite(cost):
            raise ConfigError(f"{name}, field points: {cost!r} is no cost")
        points[int(rows)] = float(cost)
    flat = tuple(record[field] for field in ("flat_after", "flat_until") if field in record)
    if not flat:
        return _made(points, None, name)
    whole = all(isinstance(rows, int) and not isinstance(rows, bool) for rows in flat)
    if len(flat) != 2 or not whole or not max(points) <= flat[0] <= flat[1]:
        raise ConfigError(
            f"{name}: flat_after and flat_until are numbers of rows past the last point, in order"
        )
    return _made(points, (flat[0], flat[1]), name)


def _made(points: dict[int, float], flat: tuple[int, int] | None, name: str) -> CostCurve:
    try:
        return CostCurve(points, flat)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None
