"""Cost curves for comparisons of drafters: shipped by name, or from a JSON file."""

from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, json

from akunu_py.api import ConfigError, CostCurve, Row

Rows = Annotated[int, Meta(ge=1, lt=10**6)]


class _Curve(Row, frozen=True):
    points: dict[Rows, float]
    flat_after: Rows | None = None
    flat_until: Rows | None = None
    source: str = ""


class _File(Row, frozen=True):
    curves: dict[str, Any]
    what: str = ""


def shipped_curves() -> dict[str, CostCurve]:
    """Return the curves of `cost_curves.json` by name; their sources are in that file."""
    text = (files("akunu_lab.replay") / "cost_curves.json").read_text(encoding="utf-8")
    return parse_curves(text, "cost_curves.json")


def load_curves(names: Iterable[str]) -> dict[str, CostCurve]:
    """Return curves by name; each of `names` is a shipped curve, or a file with one or more.

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
                f"there is neither a curve nor a file named {name!r}; choose from "
                f"{', '.join(shipped)}, or give a JSON file of curves"
            )
        try:
            curves |= parse_curves(path.read_text(encoding="utf-8"), name)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{name} cannot be read: {error}") from None
    return curves


def parse_curves(text: str, name: str) -> dict[str, CostCurve]:
    """Read `{"curves": {NAME: {"points": {ROWS: COST, ...}, ...}, ...}}`.

    Between `flat_after` and `flat_until` rows costs do not rise; past the last point the last
    segment's slope continues. Raises ConfigError, which names the file, the curve and the field.
    """
    file = _File.from_json(text, name)
    if not file.curves:
        raise ConfigError(f"{name} has no curves; give one or more by name")
    curves: dict[str, CostCurve] = {}
    for key, value in file.curves.items():
        where = f"{name}, curve {key!r}"
        curves[key] = _made(_Curve.from_json(json.encode(value), where), where)
    return curves


def _made(curve: _Curve, name: str) -> CostCurve:
    flat = None
    if curve.flat_after is not None or curve.flat_until is not None:
        flat = (curve.flat_after or 0, curve.flat_until or 0)
        if not max(curve.points, default=1) <= flat[0] <= flat[1]:
            raise ConfigError(
                f"{name}: flat_after and flat_until are numbers of rows past the last point, in "
                "order; give both or neither"
            )
    try:
        return CostCurve(curve.points, flat)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None
