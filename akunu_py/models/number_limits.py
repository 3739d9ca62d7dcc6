"""Bounds on the numbers that a model's class is built from, checked before it is built.

A class makes layers, lists and loops from these numbers before it sees a weight. Widths need no
narrow bound: arrays are allocated when they are computed, and before that their shapes are compared
with the shapes of the weights.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

MAX_LAYERS = 10_000
_MAX_CONTEXT = 2.0**40

# The first matching pattern decides; numbers in a list are checked under the list's name.
_LIMITS = tuple(
    (re.compile(pattern), low, high)
    for pattern, low, high in (
        # Ids of tokens and layers: nothing is allocated by them.
        (r"(_id|_ids|_idx|_idxs|_index)$", -(2.0**63), 2.0**63),
        (r"eps(ilon)?$", 0.0, 1.0),
        (r"theta$|base(_freq)?$", 0.0, 1e15),
        (r"^factor$|^(short|long)_factor$", 1e-9, 1e9),
        (r"position|context|ctx|length|seq|window|chunk", -1.0, _MAX_CONTEXT),
        (r"layers?$|blocks?$|loops?$|loop_num$|iters$|inputs$|groups?$", -MAX_LAYERS, MAX_LAYERS),
        (r"experts?$|experts_per_tok(en)?$|expert_num$", 0.0, 2.0**14),
        (r"heads?$", 0.0, 2.0**16),
        (r"", -_MAX_CONTEXT, _MAX_CONTEXT),
    )
)
_ENDLESS = re.compile(r"^time_step")
"""Limits of a time step, which may be infinite."""


def check_numbers(arguments: Mapping[str, Any]) -> None:
    """Check every number in the arguments, also in lists and groups.

    Raises ValueError, naming the entry, for a number that is out of range or NaN.
    """
    for name, number in _numbers("", arguments):
        low, high = next((low, high) for kind, low, high in _LIMITS if kind.search(name))
        endless = number in (math.inf, -math.inf) and _ENDLESS.search(name)
        # Written so that NaN is refused.
        if not low <= number <= high and not endless:
            raise ValueError(f"{name} is {str(number)[:40]}, not a number from {low:g} to {high:g}")


def _numbers(name: str, value: Any) -> Iterator[tuple[str, float]]:
    """Yield the numbers in a value, each with the name of its entry."""
    if isinstance(value, Mapping) and value.keys() == {"__float__"}:
        # How transformers writes values that JSON has no number for.
        yield name, float(value["__float__"])
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _numbers(str(key), part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _numbers(name, part)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield name, value
