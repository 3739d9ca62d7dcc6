"""How the drafts of a reply are verified: by the target's own choices, or by a plug-in's rule.

A package offers a rule by an entry point of the group "akunu.verifiers", named as
`GenerationConfig.verifier` names it, whose object is called with the reply's configuration and seed
and returns a `Verifier`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points

from akunu_py.decoding.budget import Budget
from akunu_py.decoding.loop import Step, decode
from akunu_py.errors import ConfigError
from akunu_py.types import GenerationConfig

ENTRY_POINT_GROUP = "akunu.verifiers"


@dataclass(frozen=True, slots=True)
class Verifier:
    """A rule by which drafted tokens are accepted, as a reply uses it.

    Attributes:
        decode: the decode loop that goes by it, with the arguments of
            `akunu_py.decoding.loop.decode`.
        budget: makes the reply's budget, with the arguments of
            `akunu_py.decoding.budget.Budget`.
        sampling: the configuration that the target samples with.

    """

    decode: Callable[..., Iterator[Step]]
    budget: Callable[..., Budget]
    sampling: GenerationConfig


def make_verifier(config: GenerationConfig, seed: int) -> Verifier:
    """Return what decides over the drafts of a reply; `seed` is that of its random choices.

    Raises ConfigError for a rule that no installed package offers.
    """
    if config.verifier == "match":
        return Verifier(decode, Budget, config)
    for point in entry_points(group=ENTRY_POINT_GROUP, name=config.verifier):
        try:
            make: Callable[[GenerationConfig, int], Verifier] = point.load()
        except ModuleNotFoundError:
            continue
        return make(config, seed)
    raise ConfigError(
        f"no installed package offers the verifier {config.verifier!r}, which draft_sampling "
        f"{config.draft_sampling!r} with lenience {config.lenience:g} needs; leave them out, or "
        "install akunu with its laboratory"
    )
