"""How a reply is sampled, drafted and ended."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from akunu_py.errors import ConfigError

DraftBudget = Literal["auto", "always"]
DraftSampling = Literal["coupled", "rejection"]
DraftLength = Literal["budget", "fixed", "entropy", "lower-bound"]
Exactness = Literal["stream", "distribution", "none"]
RowBits = Literal["equal", "different", "unknown"]

DRAFTING_FIELDS = (
    "draft_sampling", "draft_temperature", "draft_length", "min_draft_tokens", "draft_length_beta",
    "draft_length_bound", "ngram_order", "ngram_window", "ngram_min_match", "num_proposals",
    "lenience", "adjust_residual",
)  # fmt: skip
"""Fields of a `GenerationConfig` that mean nothing, or are refused, without a drafter."""


def _check_number(name: str, value: float, low: float, high: float, hint: str) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not low <= value <= high:
        raise ConfigError(f"{name} is {value!r}; {hint}")


def _check_temperature(name: str, value: float) -> None:
    _check_number(name, value, 0, 100, "give a number from 0 to 100")
    if 0 < value < 1e-3:
        raise ConfigError(f"{name} is {value!r}; give 0 for the likeliest token, or 0.001 and more")


def _check_count(name: str, value: int, low: int, hint: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise ConfigError(f"{name} is {value!r}; {hint}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationConfig:
    """How a reply is sampled, drafted and ended.

    Attributes:
        max_tokens: most tokens to generate; None: until the context is full.
        temperature: 0 takes the most likely token, above it tokens are drawn.
        top_k: keep the k most likely tokens; 0 keeps all.
        top_p: keep the smallest set with this probability mass; 1 keeps all.
        min_p: keep tokens at least this share as likely as the likeliest; 0 keeps all.
        repetition_penalty: divides positive and multiplies negative logits of the tokens among
            the last `penalty_window`; 1 is none (Keskar et al. 2019, arXiv:1909.05858, 4.1).
        presence_penalty: subtracted once from tokens in the window.
        frequency_penalty: subtracted for each occurrence in the window.
        penalty_window: how many last tokens, prompt included, the penalties look at.
        logit_bias: token id -> added to its logit.
        seed: of the noise, 0 to 2**64 - 1; None draws one, reported in the result.
        stop: texts that end the reply; they are not part of it.
        stop_loops: end the reply, with the finish reason "loop", where it repeats one cycle of
            tokens over and over (`akunu_py.decoding.stopping`).
        drafter: a drafter's name (see `akunu_py.drafting`), or "none"; None: "draft-model" where
            the engine has a draft model, else "auto".
        num_draft_tokens: most tokens drafted for one pass; None: as many as the drafter's own
            default says.
        draft_budget: "auto" drafts as many tokens as pay on this machine, none included; "always"
            as many as the drafter has.
        draft_sampling: "coupled" compares drafts with the model's own choices: the text is that of
            plain decoding. "rejection" accepts them by probability (Leviathan et al. 2023,
            arXiv:2211.17192): the text follows the same law and is another one.
        draft_temperature: of a drafter that draws from probabilities; None: `temperature`.
        draft_length: where such a drafter's draft ends. "budget": where `draft_budget` says;
            "fixed": at `num_draft_tokens`; "entropy": the earlier the less certain it is of the
            first token; "lower-bound": where a token is unlikely (docs/methods.md).
        min_draft_tokens: with "entropy", tokens of the shortest draft; None: 1.
        draft_length_beta: with "entropy", the share of drafts before in what certainty is taken
            to be, 0 or more, below 1; None: 0.
        draft_length_bound: with "lower-bound", the probability below which a draft ends; None: 0.4.
        ngram_order: tokens of the longest n-gram of `ngram`, `ngram-window` and `lookup`; None: 4.
        ngram_window: last tokens that `ngram-window` counts; None: 512.
        ngram_min_match: fewest tokens of context that decide a drafted one, of the same three;
            None: 1.
        num_proposals: tokens that a draft model proposes for each position, 1 to 8
            (docs/methods.md); more than one is for "draft-model" and "draft-model-ngram".
        lenience: l above 0, at most 1. Below 1 replies are not exact: drafted tokens are accepted
            with min(1, p / (l q)), at temperature 0 where p >= l max p, p at temperature 1
            (Leviathan et al. 2023, appendix A.5). Above temperature 0 that is a form of rejection.
        adjust_residual: False draws from p itself after a rejection, for study: not exact.

    Raises ConfigError naming the field and its range.

    """

    max_tokens: int | None = None
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_window: int = 20
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_loops: bool = False
    drafter: str | None = None
    num_draft_tokens: int | None = None
    draft_budget: DraftBudget = "auto"
    draft_sampling: DraftSampling = "coupled"
    draft_temperature: float | None = None
    draft_length: DraftLength = "budget"
    min_draft_tokens: int | None = None
    draft_length_beta: float | None = None
    draft_length_bound: float | None = None
    ngram_order: int | None = None
    ngram_window: int | None = None
    ngram_min_match: int | None = None
    num_proposals: int = 1
    lenience: float = 1.0
    adjust_residual: bool = True

    def __post_init__(self) -> None:
        if self.max_tokens is not None:
            _check_count("max_tokens", self.max_tokens, 1, "give 1 or more, or None for no limit")
        _check_temperature("temperature", self.temperature)
        if self.draft_temperature is not None:
            _check_temperature("draft_temperature", self.draft_temperature)
        _check_count("top_k", self.top_k, 0, "give a whole number, 0 for all tokens")
        _check_number("top_p", self.top_p, 0, 1, "give a number above 0, at most 1")
        if self.top_p == 0:
            raise ConfigError("top_p is 0; give a number above 0, at most 1 (1 keeps all tokens)")
        _check_number("min_p", self.min_p, 0, 1, "give a number from 0 to 1")
        _check_number(
            "repetition_penalty", self.repetition_penalty, 1e-3, 1e3,
            "give a positive number such as 1.1 (1 is none)",
        )  # fmt: skip
        for name in ("presence_penalty", "frequency_penalty"):
            _check_number(name, getattr(self, name), -1e3, 1e3, "give a number (0 is none)")
        _check_count("penalty_window", self.penalty_window, 1, "give 1 or more")
        if not isinstance(self.logit_bias, Mapping):
            raise ConfigError(f"logit_bias is {self.logit_bias!r}; give a dict of id and bias")
        for token, bias in self.logit_bias.items():
            _check_count("a token id in logit_bias", token, 0, "give ids of the vocabulary")
            _check_number(f"the bias of token {token}", bias, -1e9, 1e9, "give a finite number")
        if self.seed is not None:
            _check_count("seed", self.seed, 0, "give a whole number from 0 to 2**64 - 1")
            if self.seed >= 2**64:
                raise ConfigError(f"seed is {self.seed}; give a number below 2**64")
        if not isinstance(self.stop, tuple | list) or not all(
            isinstance(s, str) and s for s in self.stop
        ):
            raise ConfigError(f"stop is {self.stop!r}; give a tuple of texts, none of them empty")
        if not isinstance(self.stop_loops, bool):
            raise ConfigError(f"stop_loops is {self.stop_loops!r}; give True or False")
        if self.drafter is not None and not isinstance(self.drafter, str):
            raise ConfigError(f"drafter is {self.drafter!r}; give a drafter's name, or 'none'")
        if self.num_draft_tokens is not None:
            _check_count("num_draft_tokens", self.num_draft_tokens, 0, "give 0 (no drafts) or more")
            if self.num_draft_tokens > 64:
                raise ConfigError(f"num_draft_tokens is {self.num_draft_tokens}; give at most 64")
        for name, kinds in (
            ("draft_budget", DraftBudget),
            ("draft_sampling", DraftSampling),
            ("draft_length", DraftLength),
        ):
            if getattr(self, name) not in get_args(kinds):
                known = " or ".join(map(repr, get_args(kinds)))
                raise ConfigError(f"{name} is {getattr(self, name)!r}; give {known}")
        self._check_draft_length()
        _check_count("num_proposals", self.num_proposals, 1, "give 1 to 8")
        if self.num_proposals > 8:
            raise ConfigError(f"num_proposals is {self.num_proposals}; give 1 to 8")
        for name, least in (("ngram_order", 2), ("ngram_window", 2), ("ngram_min_match", 1)):
            if getattr(self, name) is not None:
                _check_count(name, getattr(self, name), least, f"give {least} or more")
        self._check_lenience()

    def _check_draft_length(self) -> None:
        """Check the numbers of the rules of length, and that their rule is the one that is used."""
        rules: dict[str, DraftLength] = {
            "min_draft_tokens": "entropy",
            "draft_length_beta": "entropy",
            "draft_length_bound": "lower-bound",
        }
        for name, rule in rules.items():
            if getattr(self, name) is not None and self.draft_length != rule:
                raise ConfigError(
                    f"{name} is for draft_length {rule!r}, and that is {self.draft_length!r}; "
                    f"leave {name} out, or set draft_length"
                )
        if self.min_draft_tokens is not None:
            _check_count("min_draft_tokens", self.min_draft_tokens, 0, "give 0 or more")
        if self.draft_length_beta is not None:
            hint = "give 0 (no memory) or more, below 1"
            _check_number("draft_length_beta", self.draft_length_beta, 0, 1, hint)
            if self.draft_length_beta == 1:
                raise ConfigError(f"draft_length_beta is 1; {hint}")
        if self.draft_length_bound is not None:
            hint = "give 0 (never stop) to 1"
            _check_number("draft_length_bound", self.draft_length_bound, 0, 1, hint)

    def _check_lenience(self) -> None:
        """Check what gives exactness up, and that the other fields let it do something."""
        hint = "give a number above 0, at most 1 (1 is exact)"
        _check_number("lenience", self.lenience, 0, 1, hint)
        if self.lenience == 0:
            raise ConfigError(f"lenience is 0; {hint}")
        if not isinstance(self.adjust_residual, bool):
            raise ConfigError(f"adjust_residual is {self.adjust_residual!r}; give True or False")
        rejection = self.draft_sampling == "rejection"
        if self.lenience < 1 and self.temperature > 0 and not rejection:
            raise ConfigError(
                f"lenience {self.lenience:g} at temperature {self.temperature:g} is a form of "
                "rejection sampling; set draft_sampling to 'rejection', or temperature to 0"
            )
        if not self.adjust_residual and not (rejection and self.temperature > 0):
            raise ConfigError(
                "without adjust_residual nothing changes but rejection sampling; set "
                "draft_sampling to 'rejection' and a temperature above 0"
            )

    @property
    def verifier(self) -> str:
        """Name of the rule that accepts drafted tokens.

        "match", comparison with the model's own choices, or that of a plug-in
        (`akunu_py.decoding.verifier`).
        """
        if self.temperature == 0 and self.lenience < 1:
            return "lenient-greedy"
        return "match" if self.draft_sampling == "coupled" else "rejection"

    @property
    def exactness(self) -> Exactness:
        """What drafting leaves alone: see `akunu_py.types.GenerationResult`."""
        if self.lenience < 1 or not self.adjust_residual:
            return "none"
        return "distribution" if self.draft_sampling == "rejection" else "stream"
