"""Verification of a reply's drafts: by the target's own choices, or by a plug-in's rule.

A package offers a rule as an entry point of the group "akunu.verifiers". Its name is a value of
`GenerationConfig.verifier`; its object is a function of the reply's configuration and seed that
returns a `Verifier`.
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points

from akunu_py.decoding.budget import Budget
from akunu_py.decoding.loop import Step, decode
from akunu_py.system.errors import ConfigError
from akunu_py.values.types import GenerationConfig

ENTRY_POINT_GROUP = "akunu.verifiers"


@dataclass(frozen=True, slots=True)
class Verifier:
    """A rule that accepts drafted tokens."""

    decode: Callable[..., Iterator[Step]]
    """Arguments as for `akunu_py.decoding.loop.decode`."""

    budget: Callable[..., Budget]
    """Arguments as for `akunu_py.decoding.budget.Budget`."""

    sampling: GenerationConfig
    """What the target samples with."""

    by_choice: bool = False
    """Whether it accepts what the target chooses, so that anybody may run the target's pass."""


def make_verifier(config: GenerationConfig, seed: int) -> Verifier:
    """Return the verifier of a reply; `seed` seeds its random choices.

    Raises ConfigError for a rule that no installed package offers.
    """
    if config.verifier == "match":
        return Verifier(decode, Budget, config, by_choice=True)
    make = _plug_in(config.verifier)
    if make is not None:
        return make(config, seed)
    raise ConfigError(
        f"no installed package offers the verifier {config.verifier!r}, which draft_sampling "
        f"{config.draft_sampling!r} with lenience {config.lenience:g} needs; leave them out, or "
        "install akunu with its laboratory"
    )


@functools.cache
def _plug_in(name: str) -> Callable[[GenerationConfig, int], Verifier] | None:
    """Return the rule that an installed package offers; the search takes about 10 ms."""
    for point in entry_points(group=ENTRY_POINT_GROUP, name=name):
        try:
            made: Callable[[GenerationConfig, int], Verifier] = point.load()
        except ModuleNotFoundError:
            continue
        return made
    return None
