"""How a reply is sampled, drafted and ended: the one declaration of its options."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, TypedDict, get_args

from akunu_py.system.errors import ConfigError
from akunu_py.values.constraint import Constraint
from akunu_py.values.option_fields import (
    Biases,
    Choice,
    Count,
    Functions,
    NameOrMaker,
    Number,
    Switch,
    Texts,
    Value,
    Variables,
    check_options,
    option,
    options_of,
)

DraftBudget = Literal["auto", "always"]
DraftSampling = Literal["coupled", "rejection"]
DraftLength = Literal["budget", "fixed", "entropy", "lower-bound"]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Exactness = Literal["stream", "distribution", "none"]
RowBits = Literal["equal", "different", "unknown"]

LogitsProcessor = Callable[[Any, Any], Any]
"""Tokens of prompt and reply so far, [n], and logits, [1, vocab], to logits; all are MLX arrays."""

TokenSampler = Callable[[Any], Any]
"""Log probabilities, an MLX array [1, vocab], to an id: an int, or an array with one."""

TEMPERATURE = Number(
    1e-3, 100, "0 for the likeliest token, or a number from 0.001 to 100", or_zero=True
)
"""Range of the temperature of replies and of drafts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingConfig:
    """How the probabilities are changed before a token is chosen.

    The `group` of an option says how it works. A "filter" drops tokens before the draw; it has no
    effect at temperature 0, since every filter keeps the likeliest token. "logits" changes single
    logits.

    Raises ConfigError naming the field and its range.
    """

    temperature: float = option(
        0.0,
        TEMPERATURE,
        "0 takes the likeliest token, more draws at random.",
        metavar="T",
        words="0 picks the likeliest token; higher varies more",
        also=("t", "temp"),
        wire=("completions", "messages", "responses", "ollama"),
    )
    top_k: int = option(
        0,
        Count(0, "a whole number, 0 for all tokens"),
        "Draw from the K likeliest tokens; 0: from all.",
        metavar="K",
        group="filter",
        heading="Sampling",
        words="keep this many of the likeliest tokens; 0: all",
        wire=("completions", "messages", "ollama"),
    )
    top_p: float = option(
        1.0,
        Number(0, 1, "a number above 0, at most 1 (1 keeps all tokens)", excluded=0),
        "Draw from the likeliest tokens that together have probability P.",
        metavar="P",
        group="filter",
        heading="Sampling",
        words="keep the likeliest tokens up to this total",
        wire=("completions", "messages", "responses", "ollama"),
    )
    min_p: float = option(
        0.0,
        Number(0, 1, "a number from 0 to 1"),
        "Draw from tokens at least P times as likely as the likeliest.",
        metavar="P",
        group="filter",
        heading="Sampling",
        words="drop tokens below this share of the likeliest",
        wire=("completions", "ollama"),
    )
    repetition_penalty: float = option(
        1.0,
        Number(1e-3, 1e3, "a positive number such as 1.1 (1 turns it off)"),
        "Divide logits of tokens in the text so far by X, multiply those below 0.",
        metavar="X",
        group="logits",
        heading="Sampling",
        words="above 1 repeats less",
        also=("repeat_penalty",),
        wire=("completions", "ollama"),
    )
    """Keskar et al. 2019, arXiv:1909.05858, section 4.1."""
    presence_penalty: float = option(
        0.0,
        Number(-1e3, 1e3, "a number (0 turns it off)"),
        "Subtract X from the logits of tokens in the text so far.",
        metavar="X",
        group="logits",
        heading="Sampling",
        rare=True,
        words="above 0 avoids tokens that were used before",
        wire=("completions", "ollama"),
    )
    frequency_penalty: float = option(
        0.0,
        Number(-1e3, 1e3, "a number (0 turns it off)"),
        "Subtract X for each time a token is in the text so far.",
        metavar="X",
        group="logits",
        heading="Sampling",
        rare=True,
        words="the same, but more for tokens used often",
        wire=("completions", "ollama"),
    )
    penalty_window: int = option(
        20,
        Count(1, "1 or more"),
        "Penalties look at the last N tokens, including the prompt's.",
        metavar="N",
        heading="Sampling",
        words="how many recent tokens the penalties look at",
        wire=("ollama",),
    )
    logit_bias: Mapping[int, float] = option(
        {},
        Biases(),
        "Add BIAS to the logit of the token with this id.",
        metavar="ID=BIAS",
        group="logits",
        heading="Sampling",
        rare=True,
        words="make tokens more or less likely: 42=-1.5",
        wire=("completions",),
    )

    def __post_init__(self) -> None:
        check_options(self)

    def without_filters(self) -> Self:
        """Return the configuration that keeps all tokens: filters at their defaults."""
        filters = [one for one in options_of(SamplingConfig) if one.group == "filter"]
        return replace(self, **{one.name: one.default for one in filters})


TEMPLATE_NAMES = frozenset({
    "messages", "tools", "add_generation_prompt", "continue_final_message", "tokenize",
    "chat_template", "conversation", "bos_token", "eos_token", "unk_token", "pad_token",
    "raise_exception", "strftime_now", "namespace", "range", "dict", "cycler", "joiner",
    "self", "loop", "caller", "varargs", "kwargs",
})  # fmt: skip
"""Names that mean something else in a chat template, or where it is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationConfig(SamplingConfig):
    """How a reply is sampled, drafted and ended.

    Rare options under "Drafting" are ignored or refused without a drafter.

    Raises ConfigError naming the field and its range.
    """

    max_tokens: int | None = option(
        None,
        Count(1, "1 or more, or leave it out: until the context is full"),
        "Generate at most N tokens; else until the context ends.",
        metavar="N",
        words="the most tokens in a reply",
        also=("n", "num_predict", "n_predict", "predict", "max_new_tokens"),
        wire=("completions", "messages", "responses", "ollama"),
    )
    seed: int | None = option(
        None,
        Count(0, "a whole number, 0 or more and below 2**64", most=2**64 - 1),
        "Draw the same tokens again; else a new seed each time.",
        metavar="N",
        words="the same seed gives the same reply",
        also=("s",),
        wire=("completions", "ollama"),
    )
    """Seed of the noise. The result reports the one used."""
    stop: tuple[str, ...] = option(
        (),
        Texts(most=64, longest=256),
        "End before TEXT.",
        metavar="TEXT",
        heading="Output",
        words="the reply ends before this text",
        wire=("completions", "messages", "ollama"),
    )
    """In a conversation they count in the answer alone, not in reasoning."""
    min_tokens: int = option(
        0,
        Count(0, "0 or more, at most max_tokens"),
        "Do not end before N tokens, except where the form of a reply leaves nothing else.",
        metavar="N",
        heading="Output",
        wire=("completions",),
    )
    ignore_eos: bool = option(
        False,
        Switch(),
        "Never choose the model's end token, but go on to the limit of tokens.",
        heading="Output",
        wire=("completions",),
    )
    stop_loops: bool = option(
        False,
        Switch(),
        "End a reply that repeats itself. On in chats and for generate, else off.",
        heading="Output",
        words="end a reply that repeats itself over and over",
        wire=("completions", "messages", "responses", "ollama"),
    )
    """The finish reason is then "loop": see `akunu_py.decoding.stopping`."""
    constraint: Constraint | None = option(
        None,
        Value(Constraint, "a Constraint, or one of json_schema, regex, grammar and choices"),
        "Give the reply a form: a JSON schema, an expression, a grammar or choices.",
        heading="Output",
        words="json_schema FILE, regex R, grammar FILE or choices A | B",
    )
    """See `akunu_py.constraints`."""
    logprobs: int | None = option(
        None,
        Count(
            0, "0 to 20, the number of likeliest tokens to report beside the chosen one", most=20
        ),
        "Report the log probabilities of each token and of the N likeliest ones.",
        metavar="N",
        heading="Output",
        also=("top_logprobs",),
    )
    """For programs: see `akunu_py.values.types.TokenLogprob`."""
    thinking: bool | None = option(
        None,
        Switch(),
        "Think before the answer, or do not, in a chat with a model that leaves it open.",
        heading="Output",
        words="whether to think before the answer, if the model leaves it open",
    )
    """For replies to conversations alone, as `effort` is: see `akunu_py.engine.reasoning`."""
    effort: Effort | None = option(
        None,
        Choice(get_args(Effort)),
        "Think that much, in a chat with a model that leaves it open.",
        metavar="WORD",
        heading="Output",
        rare=True,
        words="how much: none, minimal, low, medium, high, xhigh or max",
    )
    template_variables: Mapping[str, Any] = option(
        {},
        Variables(TEMPLATE_NAMES, most=2**17),
        "Pass the chat template further variables, by name.",
        heading="Output",
    )
    """For programs, as `logprobs` are."""
    logits_processors: Sequence[LogitsProcessor] = option(
        (),
        Functions(several=True),
        "Change the logits of each token, in turn, before penalties.",
        heading="Sampling",
    )
    """For programs: see docs/python.md."""
    sampler: TokenSampler | None = option(
        None,
        Functions(),
        "Choose each token, in place of temperature and filters.",
        heading="Sampling",
    )
    """For programs: see docs/python.md."""
    drafter: str | Any | None = option(
        None,
        NameOrMaker(),
        "Draft with the drafter of this name, or with none. When left out: auto, or for options "
        "about a model's draws draft-model or mtp, where there is one.",
        metavar="NAME",
        words="what guesses the next tokens; none: nothing",
    )
    """Names are in `akunu_py.drafting`. For programs also a `Drafter` of their own, or a function
    that makes one for each reply."""
    num_draft_tokens: int | None = option(
        None,
        Count(0, "at most 64, at least 0 (no drafts)", most=64),
        "Draft at most N tokens a pass.",
        metavar="N",
        heading="Drafting",
        words="the most tokens guessed at once",
    )
    draft_budget: DraftBudget = option(
        "auto",
        Choice(get_args(DraftBudget)),
        "Draft what pays on this machine (auto), or everything (always).",
        metavar="WHEN",
        heading="Drafting",
        words="auto: guess when it pays; always: at each step",
    )
    draft_sampling: DraftSampling = option(
        "coupled",
        Choice(get_args(DraftSampling)),
        "Compare drafts with the model's own choices, which keeps the text of plain decoding, or "
        "accept them by probability, which gives another text of the same distribution.",
        heading="Drafting",
        rare=True,
    )
    """"rejection" is Leviathan et al. 2023, arXiv:2211.17192."""
    draft_temperature: float | None = option(
        None,
        TEMPERATURE,
        "Temperature of a draft model or of counts; the reply's, when left out.",
        metavar="T",
        heading="Drafting",
        rare=True,
    )
    draft_length: DraftLength = option(
        "budget",
        Choice(get_args(DraftLength)),
        "Where a draft of a draft model or counts ends: by draft_budget, at num_draft_tokens, "
        "earlier if the first token is uncertain, or at an unlikely token.",
        heading="Drafting",
        rare=True,
    )
    """The rules are in lab/docs/methods.md."""
    min_draft_tokens: int | None = option(
        None,
        Count(0, "0 or more"),
        "With draft_length entropy: draft N tokens at least. 1 when left out.",
        metavar="N",
        heading="Drafting",
        rare=True,
    )
    draft_length_beta: float | None = option(
        None,
        Number(0, 1, "0 (no memory) or more, below 1", excluded=1),
        "With draft_length entropy: weight of earlier drafts in the smoothed entropy, below 1. "
        "0 when left out.",
        metavar="B",
        heading="Drafting",
        rare=True,
    )
    draft_length_bound: float | None = option(
        None,
        Number(0, 1, "0 (never stop) to 1"),
        "With draft_length lower-bound: end a draft below this probability. 0.4 when left out.",
        metavar="P",
        heading="Drafting",
        rare=True,
    )
    ngram_order: int | None = option(
        None,
        Count(2, "2 or more"),
        "Tokens of the longest n-gram of ngram, ngram-window and lookup. 4 when left out.",
        metavar="N",
        heading="Drafting",
        rare=True,
    )
    ngram_window: int | None = option(
        None,
        Count(2, "2 or more"),
        "Number of last tokens that ngram-window counts. 512 when left out.",
        metavar="N",
        heading="Drafting",
        rare=True,
    )
    ngram_min_match: int | None = option(
        None,
        Count(1, "1 or more"),
        "Fewest tokens of context that may decide a drafted token, for the same drafters. 1 when "
        "left out.",
        metavar="N",
        heading="Drafting",
        rare=True,
    )
    num_proposals: int = option(
        1,
        Count(1, "1 to 8", most=8),
        "Let a draft model propose K tokens for each position, verified as a tree.",
        metavar="K",
        heading="Drafting",
        rare=True,
    )
    """More than one is for "draft-model" and "draft-model-ngram" (lab/docs/methods.md)."""
    lenience: float = option(
        1.0,
        Number(0, 1, "a number above 0, at most 1 (1 is exact)", excluded=0),
        "Below 1 replies are not exact: drafted tokens come up to 1/L times as often as they "
        "should, at temperature 0 in place of tokens up to 1/L times as likely. 1 when left out.",
        metavar="L",
        heading="Drafting",
        rare=True,
    )
    """A drafted token is accepted with probability min(1, p / (l q)), a form of rejection; at
    temperature 0 if p >= l max p, with p at temperature 1 (Leviathan et al. 2023, appendix A.5)."""
    adjust_residual: bool = option(
        True,
        Switch(),
        "Draw from the residual after a rejection, or, for study and not exact, from p.",
        heading="Drafting",
        rare=True,
    )

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            object.__setattr__(self, "stop", (self.stop,))
        check_options(self)
        self._check_draft_length()
        if (self.logits_processors or self.sampler) and self.verifier != "match":
            raise ConfigError(
                "logits_processors and sampler are asked for the model's own choices; leave them "
                "out, or leave draft_sampling and lenience at their defaults"
            )
        self._check_lenience()
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise ConfigError(
                f"min_tokens is {self.min_tokens}, more than max_tokens, {self.max_tokens}; give "
                "fewer, or leave it out"
            )
        if self.logprobs is not None and self.verifier != "match":
            raise ConfigError(
                "logprobs are those of the model's own choices; leave them out, or leave "
                "draft_sampling and lenience at their defaults"
            )

    def _check_draft_length(self) -> None:
        """Check that options of a rule of length belong to the chosen rule."""
        rules: dict[str, DraftLength] = {
            "min_draft_tokens": "entropy",
            "draft_length_beta": "entropy",
            "draft_length_bound": "lower-bound",
        }
        for name, rule in rules.items():
            if getattr(self, name) is not None and self.draft_length != rule:
                raise ConfigError(
                    f"{name} is for draft_length {rule!r}, but draft_length is "
                    f"{self.draft_length!r}; leave {name} out, or set draft_length"
                )

    def _check_lenience(self) -> None:
        """Check that options that give up exactness have an effect with the other fields."""
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

        "match" compares them with the model's own choices; other rules are plug-ins
        (`akunu_py.decoding.loop`).
        """
        if self.temperature == 0 and self.lenience < 1:
            return "lenient-greedy"
        return "match" if self.draft_sampling == "coupled" else "rejection"

    @property
    def shapes_draws(self) -> bool:
        """Whether the configuration has options about the draws of a model that drafts."""
        return (
            self.draft_sampling == "rejection"
            or self.draft_length != "budget"
            or self.num_proposals > 1
        )

    @property
    def exactness(self) -> Exactness:
        """What drafting keeps unchanged: see `akunu_py.values.types.GenerationResult`."""
        if self.lenience < 1 or not self.adjust_residual:
            return "none"
        return "distribution" if self.draft_sampling == "rejection" else "stream"


DRAFTING_FIELDS = tuple(
    declared.name
    for declared in options_of(GenerationConfig)
    if declared.heading == "Drafting" and declared.rare
)
"""Fields of a `GenerationConfig` that are ignored or refused without a drafter."""


class ConstraintOptions(TypedDict, total=False):
    """Keywords that make a `GenerationConfig.constraint`; at most one of them is given."""

    json_schema: Mapping[str, Any] | bool | str
    regex: str
    grammar: str
    choices: Sequence[str]


class GenerationOptions(ConstraintOptions, total=False):
    """The fields of `GenerationConfig`, as keyword arguments, and what makes a constraint.

    They are written out for type checkers; a test finds missing ones.
    """

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    penalty_window: int
    logit_bias: Mapping[int, float]
    max_tokens: int | None
    seed: int | None
    stop: tuple[str, ...]
    min_tokens: int
    ignore_eos: bool
    stop_loops: bool
    constraint: Constraint | None
    logprobs: int | None
    thinking: bool | None
    effort: Effort | None
    template_variables: Mapping[str, Any]
    logits_processors: Sequence[LogitsProcessor]
    sampler: TokenSampler | None
    drafter: str | Any | None
    num_draft_tokens: int | None
    draft_budget: DraftBudget
    draft_sampling: DraftSampling
    draft_temperature: float | None
    draft_length: DraftLength
    min_draft_tokens: int | None
    draft_length_beta: float | None
    draft_length_bound: float | None
    ngram_order: int | None
    ngram_window: int | None
    ngram_min_match: int | None
    num_proposals: int
    lenience: float
    adjust_residual: bool
