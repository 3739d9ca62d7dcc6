"""Counts, rates and times of a decoding step and of a reply."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import zip_longest
from typing import Any, Literal

VerificationKind = Literal["bonus", "recovered"]
Origin = Literal["target", "residual"]
"""Origin of a step's last token: the target's own row, or the residual after rejections."""


@dataclass(frozen=True, slots=True)
class DraftedToken:
    """A drafted token and its outcome."""

    token: int
    parent: int
    """Index of the token it follows in the draft, -1 for the last committed one."""

    accepted: bool | None
    """Whether the token was accepted; None if it was not tested, since its parent was rejected or a
    sibling taken."""

    confidence: float | None = None
    """The drafter's estimate that the target agrees; None without one."""

    p: float | None = None
    """The target's probability, after earlier rejections at its position."""

    q: float | None = None
    """The probability it was drawn with."""

    uniform: float | None = None
    """The number that decided. It, p and q are None if drafts are compared with the target's
    choices."""

    source: str | None = None
    """Who drafted it, or the text it is copied from, if that adds to the step's source."""

    place: int | None = None
    """The prompt's token that it copies; None if it copies none. Not part of records."""

    @property
    def ratio(self) -> float | None:
        """Return p / q; None if either is unknown or q is 0."""
        return self.p / self.q if self.p is not None and self.q else None


@dataclass(frozen=True, slots=True)
class StepDetail:
    """One step, token by token, for display; decoding does not need it."""

    position: int
    """Position of the step's first token, counted from the beginning of the prompt."""

    source: str
    match_length: int
    """Number of context tokens that matched; 0 without a match."""

    drafted: tuple[DraftedToken, ...]
    token: int
    """The step's last token, chosen by the target or drawn by a verifier."""

    kind: VerificationKind
    """Whether `token` followed a wholly accepted draft or a rejection."""

    origin: Origin
    entropy: float | None = None
    """H and length of an entropy-adaptive draft; None without one."""

    gamma: int | None = None

    @property
    def accepted(self) -> tuple[int, ...]:
        """Return the accepted tokens, in order."""
        return tuple(drafted.token for drafted in self.drafted if drafted.accepted)

    def to_dict(self) -> dict[str, object]:
        """Return the step as JSON-ready values, without None."""
        record = _known_values(self)
        record["drafted"] = [_known_values(replace(one, place=None)) for one in self.drafted]
        record["accepted"] = len(self.accepted)
        return record


def _known_values(value: DraftedToken | StepDetail) -> dict[str, object]:
    return {name: entry for name, entry in asdict(value).items() if entry is not None}


@dataclass(frozen=True, slots=True)
class StepStats:
    """One step: drafted and accepted tokens, and times in seconds.

    `propose_s` is the drafter's time to propose and observe, and the budget's time to cut. MLX is
    lazy, so `target_s` spans the forward pass up to the transfer of the chosen ids. `describe`
    makes the detail; steps of the loop have it. `drafted_from` has the origin of each drafted token
    (`Draft.origins`, or else the draft's source), `accepted_from` those of the accepted ones.
    """

    source: str
    num_draft_tokens: int
    num_tested_tokens: int
    num_accepted_tokens: int
    num_output_tokens: int
    kind: VerificationKind
    propose_s: float
    target_s: float
    commit_s: float
    describe: Callable[[], StepDetail] | None = field(default=None, compare=False, repr=False)
    drafted_from: tuple[str, ...] = ()
    accepted_from: tuple[str, ...] = ()

    @property
    def detail(self) -> StepDetail | None:
        """Return the step token by token, computed on demand; None if it is unknown."""
        return None if self.describe is None else self.describe()


UNNAMED = "drafter"
"""Source of a draft that names none."""


@dataclass(frozen=True, slots=True)
class SourceStats:
    """Tokens of one source, such as "prompt" or "mtp", that were drafted and accepted."""

    source: str
    drafted: int
    accepted: int

    @property
    def hit_rate(self) -> float | None:
        """Accepted / drafted; None if nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None


def sum_sources(parts: Iterable[Iterable[SourceStats]]) -> tuple[SourceStats, ...]:
    """Return the counts of each source over all parts, in the order of their names."""
    drafted: Counter[str] = Counter()
    accepted: Counter[str] = Counter()
    for part in parts:
        for one in part:
            drafted[one.source] += one.drafted
            accepted[one.source] += one.accepted
    return by_source(drafted, accepted)


def by_source(drafted: Mapping[str, int], accepted: Mapping[str, int]) -> tuple[SourceStats, ...]:
    """Return counts by source in the order of names; nothing was accepted from those missing."""
    return tuple(
        SourceStats(name, drafted[name], accepted.get(name, 0)) for name in sorted(drafted)
    )


@dataclass(frozen=True, slots=True)
class DecodeStats:
    """Counts over the steps of one reply, or of several added up; see docs/measuring.md.

    `tested` counts drafted tokens that the target compared: accepted ones and, for each step that
    ended in a recovered token, the rejected one. `accepted_per_position[i]` counts steps in which
    draft token i was accepted, `drafted_per_position[i]` steps that had one. `sources` counts by
    where drafted tokens come from, in the order of names.
    """

    steps: int = 0
    steps_with_draft: int = 0
    drafted: int = 0
    accepted: int = 0
    tested: int = 0
    output_tokens: int = 0
    drafted_per_position: tuple[int, ...] = ()
    accepted_per_position: tuple[int, ...] = ()
    propose_s: float = 0.0
    target_s: float = 0.0
    commit_s: float = 0.0
    sources: tuple[SourceStats, ...] = ()

    def of_source(self, name: str) -> "DecodeStats":
        """Return the same counts, with all drafted tokens from one source."""
        one = SourceStats(name, self.drafted, self.accepted)
        return replace(self, sources=(one,) if self.drafted else ())

    @property
    def hit_rate(self) -> float | None:
        """Accepted / drafted, also called acceptance rate; None if nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def alpha(self) -> float | None:
        """Accepted / tested (Leviathan et al. 2023, section 3.1); None if nothing was tested."""
        return self.accepted / self.tested if self.tested else None

    @property
    def tokens_per_pass(self) -> float | None:
        """Output tokens / all target passes of decoding; None before the first."""
        return self.output_tokens / self.steps if self.steps else None

    @property
    def fire_rate(self) -> float | None:
        """Passes with a draft / all passes; None before the first."""
        return self.steps_with_draft / self.steps if self.steps else None

    def __add__(self, other: "DecodeStats") -> "DecodeStats":
        def total(mine: Any, theirs: Any) -> Any:
            if not isinstance(mine, tuple):
                return mine + theirs
            return tuple(map(sum, zip_longest(mine, theirs, fillvalue=0)))

        names = (one.name for one in fields(self) if one.name != "sources")
        totals = {name: total(getattr(self, name), getattr(other, name)) for name in names}
        return DecodeStats(**totals, sources=sum_sources((self.sources, other.sources)))

    def to_dict(self) -> dict[str, object]:
        """Return counts and rates as JSON-ready values."""
        return {
            "steps": self.steps,
            "steps_with_draft": self.steps_with_draft,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "tested": self.tested,
            "output_tokens": self.output_tokens,
            "drafted_per_position": list(self.drafted_per_position),
            "accepted_per_position": list(self.accepted_per_position),
            "hit_rate": self.hit_rate,
            "alpha": self.alpha,
            "tokens_per_pass": self.tokens_per_pass,
            "fire_rate": self.fire_rate,
            "propose_s": self.propose_s,
            "target_s": self.target_s,
            "commit_s": self.commit_s,
            "sources": source_figures(self.sources),
        }


def source_figures(sources: Iterable[SourceStats]) -> dict[str, object]:
    """Return the counts and the rate of each source by its name, as JSON-ready values."""
    return {
        one.source: {"drafted": one.drafted, "accepted": one.accepted, "hit_rate": one.hit_rate}
        for one in sources
    }
