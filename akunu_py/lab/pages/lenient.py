"""Figures looked up in results of any command: what is missing or of another kind is None.

The figures of a result are nested by names that each command chooses, and files may come from
anywhere. A page shows what it understands and says what it lacks.
"""

from collections.abc import Mapping, Sequence

_MOST = 1e9
"""No figure that is drawn or judged comes near it; floats beyond it overflow a scale."""


def mapping(value: object, *names: str) -> Mapping[str, object]:
    """Return the object under these names, one in another; an empty one where there is none."""
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def number(value: object) -> float | None:
    """Return a number, 0 to 1e9."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return value if 0 <= value <= _MOST else None  # NaN is refused, too


def count(value: object) -> int | None:
    """Return a whole number, 0 to 1e9."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= _MOST else None


def counts(value: object, longest: int) -> tuple[int, ...] | None:
    """Return a list of up to `longest` such whole numbers."""
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) > longest:
        return None
    found = [known for entry in value if (known := count(entry)) is not None]
    return tuple(found) if len(found) == len(value) else None
