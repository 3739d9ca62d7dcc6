"""What a decoding step, and a reply, came to: counts, rates and times."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

VerificationKind = Literal["bonus", "recovered"]
Origin = Literal["target", "residual"]
"""What a step's last token was drawn from: the target's own row, or what rejections left of it."""


TreeVerified = Literal["tree", "chain", "nothing"]
TreeReason = Literal["gain", "probe", "target", "all"]
"""Why as much of a tree was verified: it brings most for its time; to learn what rows cost; the
target takes no trees; nothing bounds it."""


@dataclass(frozen=True, slots=True)
class DraftedToken:
    """A token of a draft and what became of it.

    Attributes:
        token: its id.
        parent: index of the token it follows in the draft, -1 for the last committed one.
        accepted: None where it was not tested: what it follows was rejected, or a sibling taken.
        confidence: the drafter's estimate that the target agrees; None without one.
        p: the target's probability, of what earlier rejections at its position left.
        q: the probability it was drawn with.
        uniform: the number that decided. These three are None where drafts are compared with the
            target's choices.
        source: who drafted it, or what text it is copied from, where that is more than the step's
            source says.
        place: the prompt's token that it is a copy of; None where it is none. Not part of records.

    """

    token: int
    parent: int
    accepted: bool | None
    confidence: float | None = None
    p: float | None = None
    q: float | None = None
    uniform: float | None = None
    source: str | None = None
    place: int | None = None

    @property
    def ratio(self) -> float | None:
        """Return p / q; None where either is unknown or q is 0."""
        return self.p / self.q if self.p is not None and self.q else None


@dataclass(frozen=True, slots=True)
class TreePart:
    """So many nodes of a tree, and what they were expected to do beyond plain decoding.

    `tokens` is what they bring, `cost` what their rows cost, in plain steps; None where nobody
    weighed that.
    """

    nodes: int
    tokens: float | None = None
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class TreeCut:
    """A drafted tree and what of it was verified.

    Attributes:
        nodes: of the tree as it was drafted.
        verified: what was left of it.
        reason: why.
        kept: what was verified.
        whole: all of it.
        rate: tokens that the time of a plain step was taken to bring elsewhere: what is verified
            has the most `tokens - rate * cost`; None where nobody weighed that.

    """

    nodes: int
    verified: TreeVerified
    reason: TreeReason
    kept: TreePart
    whole: TreePart
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class StepDetail:
    """One step, token by token; nothing of it is needed to decode.

    Attributes:
        position: of the step's first token, counted from the beginning of the prompt.
        source: who drafted, as in `StepStats`.
        match_length: how many tokens of context the draft was found by; 0 where none were.
        drafted: the draft.
        token: the step's last token, which the target chose or a verifier drew.
        kind: whether that followed a whole accepted draft or a rejection.
        origin: what it was drawn from.
        entropy: H that an entropy-adaptive length came from, 0 to 1; None without.
        gamma: that length.
        tree: what a drafted tree was cut to; None where no tree was drafted.

    """

    position: int
    source: str
    match_length: int
    drafted: tuple[DraftedToken, ...]
    token: int
    kind: VerificationKind
    origin: Origin
    entropy: float | None = None
    gamma: int | None = None
    tree: TreeCut | None = None

    @property
    def accepted(self) -> tuple[int, ...]:
        """Return the accepted tokens, in order."""
        return tuple(drafted.token for drafted in self.drafted if drafted.accepted)

    def to_dict(self) -> dict[str, object]:
        """Return the step as JSON-ready values; what is None is left out."""
        record = _known(asdict(self))
        record["drafted"] = [_known(asdict(replace(one, place=None))) for one in self.drafted]
        record["accepted"] = len(self.accepted)
        return record


def _known(record: dict[str, object]) -> dict[str, object]:
    return {
        name: _known(value) if isinstance(value, dict) else value
        for name, value in record.items()
        if value is not None
    }


@dataclass(frozen=True, slots=True)
class StepStats:
    """One step: what was drafted, what was accepted, and where the time went (seconds).

    `propose_s` is the drafter's own time, to propose and to observe, and the budget's to cut. MLX
    is lazy: `target_s` spans the forward pass up to the transfer of the chosen ids. `describe`
    puts the detail together; the steps of the loop have it.
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

    @property
    def detail(self) -> StepDetail | None:
        """Return the step token by token, made when asked for; None where it is not known."""
        return None if self.describe is None else self.describe()


@dataclass(frozen=True, slots=True)
class DecodeStats:
    """Counts over the steps of one reply, or of several added up; see docs/benchmarks.md.

    `tested` counts drafted tokens the target compared: accepted ones and, for each step that ended
    in a recovered token, the one it rejected. `accepted_per_position[i]` counts steps in which
    draft token i was accepted, `drafted_per_position[i]` those in which there was one.
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

    @property
    def hit_rate(self) -> float | None:
        """Accepted / drafted, also called acceptance rate; None when nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def alpha(self) -> float | None:
        """Accepted / tested (Leviathan et al. 2023, section 3.1); None when nothing was tested."""
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
        def longest(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
            size = max(len(a), len(b))
            padded = (x + (0,) * (size - len(x)) for x in (a, b))
            return tuple(x + y for x, y in zip(*padded, strict=True))

        return DecodeStats(
            steps=self.steps + other.steps,
            steps_with_draft=self.steps_with_draft + other.steps_with_draft,
            drafted=self.drafted + other.drafted,
            accepted=self.accepted + other.accepted,
            tested=self.tested + other.tested,
            output_tokens=self.output_tokens + other.output_tokens,
            drafted_per_position=longest(self.drafted_per_position, other.drafted_per_position),
            accepted_per_position=longest(self.accepted_per_position, other.accepted_per_position),
            propose_s=self.propose_s + other.propose_s,
            target_s=self.target_s + other.target_s,
            commit_s=self.commit_s + other.commit_s,
        )

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
        }
