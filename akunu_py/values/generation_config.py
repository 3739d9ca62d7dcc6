"""How a reply is sampled, drafted and ended: the one declaration of its options."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, TypedDict, get_args

from akunu_py.system.errors import ConfigError, ContractError
from akunu_py.system.plug_ins import load_plug_in, plug_ins
from akunu_py.values.constraint import Constraint
from akunu_py.values.option_fields import (
    Biases,
    Count,
    DeclaredOption,
    Functions,
    NameOrMaker,
    Number,
    Texts,
    Value,
    Variables,
    check_options,
    make_options,
    option,
    options_of,
)

DraftBudget = Literal["auto", "always"]
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

VERIFIER_GROUP = "akunu.verifiers"


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
        words="make tokens more or less likely: 42=-1.5",
        wire=("completions",),
        setting=True,
    )

    def __post_init__(self) -> None:
        check_options(self)

    def without_filters(self) -> Self:
        """Return the configuration that keeps all tokens: filters at their defaults."""
        filters = [one for one in options_of(SamplingConfig) if one.group == "filter"]
        return replace(self, **{one.name: one.default for one in filters})


class VerifierOptions:
    """Options of a rule that accepts drafted tokens; none of its own is the rule "match".

    "match" compares drafted tokens with the model's own choices. A package offers another rule as
    an entry point of the group "akunu.verifiers": a subclass that is a frozen dataclass, whose
    fields are declared with `option`. It verifies the replies that have one of these options.
    """

    @property
    def exactness(self) -> Exactness:
        """What drafting keeps unchanged: "stream" are the model's own choices."""
        return "stream"

    @property
    def independent(self) -> bool:
        """Whether a model draws its drafts independently of the reply's own noise."""
        return False

    def check(self, config: "GenerationConfig") -> None:
        """Raise ConfigError for a configuration that it cannot follow."""

    def make(self, config: "GenerationConfig", seed: int) -> Any:
        """Return the `akunu_py.decoding.verifier.Verifier` of a reply; None for "match"."""

    @classmethod
    def among(cls, given: Mapping[str, Any]) -> list[str]:
        """Return which of the given options are its own."""
        own = () if cls is VerifierOptions else options_of(cls)
        return [declared.name for declared in own if declared.name in given]


_MATCH = VerifierOptions()


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
        bool,
        "Never choose the model's end token, but go on to the limit of tokens.",
        heading="Output",
        wire=("completions",),
    )
    stop_loops: bool = option(
        False,
        bool,
        "End a reply that repeats itself. On in chats and for generate, else off.",
        heading="Output",
        words="end a reply that repeats itself over and over",
        wire=("completions", "messages", "responses", "ollama"),
        setting=True,
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
        bool,
        "Think before the answer, or do not, in a chat with a model that leaves it open.",
        heading="Output",
        words="whether to think before the answer, if the model leaves it open",
    )
    """For replies to conversations alone, as `effort` is: see `akunu_py.engine.reasoning`."""
    effort: Effort | None = option(
        None,
        get_args(Effort),
        "Think that much, in a chat with a model that leaves it open.",
        metavar="WORD",
        heading="Output",
        words="how much: none, minimal, low, medium, high, xhigh or max",
        setting=True,
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
        get_args(DraftBudget),
        "Draft what pays on this machine (auto), or everything (always).",
        metavar="WHEN",
        heading="Drafting",
        words="auto: guess when it pays; always: at each step",
        setting=True,
    )
    draft_options: Mapping[str, Any] = option(
        {},
        Value(Mapping, "options by name"),
        "Options that drafters and verifiers declare, by name.",
        heading="Drafting",
    )
    """A drafter checks its own when it is chosen (`akunu_py.drafting.registry`)."""

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            object.__setattr__(self, "stop", (self.stop,))
        check_options(self)
        verifier = self.verifier
        verifier.check(self)
        for name in ("logits_processors", "sampler", "logprobs"):
            if verifier.exactness != "stream" and getattr(self, name) not in (None, (), []):
                raise ConfigError(
                    f"{name} is about the model's own choices; leave it out, or leave out "
                    f"{' and '.join(verifier.among(self.draft_options))}"
                )
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise ConfigError(
                f"min_tokens is {self.min_tokens}, more than max_tokens, {self.max_tokens}; give "
                "fewer, or leave it out"
            )

    @property
    def verifier(self) -> VerifierOptions:
        """The rule that accepts drafted tokens: the installed one whose options are given."""
        rules = verifier_rules() if self.draft_options else ()
        found = [rule for rule in rules if rule.among(self.draft_options)]
        if len(found) > 1:
            names = [name for rule in found for name in rule.among(self.draft_options)]
            raise ConfigError(
                f"{' and '.join(names)} choose several rules that accept drafts; give one's"
            )
        return make_options(found[0], self.draft_options) if found else _MATCH

    @property
    def drafter_options(self) -> dict[str, Any]:
        """Those of `draft_options` that are for the drafter."""
        others = self.verifier.among(self.draft_options)
        return {name: value for name, value in self.draft_options.items() if name not in others}

    def value_of(self, declared: DeclaredOption) -> Any:
        """Return the value of an option, which may be a drafter's or verifier's own."""
        if declared.name in FIELDS:
            return getattr(self, declared.name)
        return self.draft_options.get(declared.name, declared.default)

    def with_values(self, values: Mapping[str, Any]) -> Self:
        """Return a configuration with options set by name, those of drafters included."""
        fields = {name: value for name, value in values.items() if name in FIELDS}
        own = {name: value for name, value in values.items() if name not in FIELDS}
        if own:
            fields["draft_options"] = {**self.draft_options, **own}
        return replace(self, **fields)

    @property
    def exactness(self) -> Exactness:
        """What drafting keeps unchanged: see `akunu_py.values.types.GenerationResult`."""
        return self.verifier.exactness


FIELDS = frozenset(declared.name for declared in options_of(GenerationConfig))
"""Names of the options that are no drafter's or verifier's own."""


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
    draft_options: Mapping[str, Any]


def check_own_names(options: type[Any]) -> None:
    """Raise ContractError if a plug-in's option has the name of one of akunu's."""
    taken = [declared.name for declared in options_of(options) if declared.name in FIELDS]
    if taken:
        raise ContractError(f"its option {taken[0]} has the name of one of akunu's")


def _rule(offered: Any) -> type[VerifierOptions]:
    if not (isinstance(offered, type) and issubclass(offered, VerifierOptions)):
        raise ContractError("it is no subclass of VerifierOptions")
    check_own_names(offered)
    return offered


def verifier_rules() -> list[type[VerifierOptions]]:
    """Return the rules that installed packages offer."""
    found = (load_plug_in(VERIFIER_GROUP, name, _rule) for name in plug_ins(VERIFIER_GROUP))
    return [rule for rule in found if rule is not None]
