"""One beam search with an engine: prompt in, hypotheses with text and statistics out."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Required, TypedDict, Unpack, get_args

from akunu_lab.beam.rows import BeamRows, CountRows
from akunu_lab.beam.search import BeamModel
from akunu_lab.beam.search import beam_search as search
from akunu_lab.counts import NgramModel
from akunu_py.api import ConfigError, ContextOverflowError, Engine, LentModel, Tokenizer

BeamDrafter = Literal["none", "ngram", "draft-model"]

MAX_DRAFT_STEPS = 64
_NGRAM_ORDER = 4


class BeamKeywords(TypedDict, total=False):
    """The fields of `BeamOptions` as keywords."""

    width: Required[int]
    max_tokens: Required[int]
    length_penalty: float
    drafter: BeamDrafter | None
    draft_width: int | None
    num_draft_steps: int
    progress: Callable[[int, int], None] | None
    check: Callable[[], None] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamOptions:
    """Options of a beam search.

    Raises ConfigError naming the field and its range.
    """

    width: int
    """Hypotheses kept after each step, 1 to the size of the vocabulary."""

    max_tokens: int
    length_penalty: float = 0.0
    """Hypotheses are returned in the order of log-probability / length ** length_penalty; the
    search uses the log-probability itself."""

    drafter: BeamDrafter | None = None
    """What searches ahead: "draft-model", "ngram" (counts of the prompt's n-grams of 1 to 4 tokens)
    or "none". None: "draft-model" if the engine has one, else "none"."""

    draft_width: int | None = None
    """Width of the search ahead, `width` to the size of the vocabulary; None: twice the width, at
    most the vocabulary."""

    num_draft_steps: int = 4
    """Limit of steps searched ahead for one pass."""

    progress: Callable[[int, int], None] | None = None
    """Called with the number of prompt tokens done and in all."""

    check: Callable[[], None] | None = None
    """Called before each pass; an exception from it ends the search."""

    def __post_init__(self) -> None:
        _check_count("width", self.width)
        _check_count("max_tokens", self.max_tokens)
        penalty = self.length_penalty
        number = isinstance(penalty, int | float) and not isinstance(penalty, bool)
        if not number or not math.isfinite(penalty) or abs(penalty) > 100:
            raise ConfigError(f"length_penalty is {penalty!r}; give a number, 0 for none")
        if self.drafter is not None and self.drafter not in get_args(BeamDrafter):
            known = ", ".join(map(repr, get_args(BeamDrafter)))
            raise ConfigError(f"drafter is {self.drafter!r}; a beam search takes {known}")
        if self.draft_width is not None:
            _check_count("draft_width", self.draft_width)
            if self.draft_width < self.width:
                raise ConfigError(
                    f"draft_width is {self.draft_width}; give the width {self.width} or more"
                )
        _check_count("num_draft_steps", self.num_draft_steps)
        if self.num_draft_steps > MAX_DRAFT_STEPS:
            raise ConfigError(
                f"num_draft_steps is {self.num_draft_steps}; give at most {MAX_DRAFT_STEPS}"
            )


@dataclass(frozen=True, slots=True)
class BeamHypothesis:
    """One text that a beam search found."""

    text: str
    """Text without the end-of-generation token."""

    token_ids: tuple[int, ...]
    log_probability: float
    """Log-probability of these tokens after the prompt, in nats."""

    score: float
    """Value that orders hypotheses; see `BeamOptions.length_penalty`."""

    finished: bool


@dataclass(frozen=True, slots=True)
class BeamStats:
    """Cost of a search."""

    steps: int
    passes: int
    """Without the prefill, as `seconds` is."""

    rows: tuple[int, ...]
    """Rows fed to the model at each call; a call is one pass if the model takes trees."""

    draft_steps: int
    """Steps searched ahead; `kept_draft_steps` of them saved a call of the model."""

    kept_draft_steps: int
    draft_passes: int
    """Passes of the draft model, if one searched ahead."""

    seconds: float

    @property
    def acceptance(self) -> float | None:
        """Return the share of draft steps that were kept; None without draft steps."""
        return self.kept_draft_steps / self.draft_steps if self.draft_steps else None


@dataclass(frozen=True, slots=True)
class BeamResult:
    """A finished search: hypotheses, best first, and its cost."""

    hypotheses: tuple[BeamHypothesis, ...]
    num_prompt_tokens: int
    stats: BeamStats


def beam_search(engine: Engine, prompt: Any, **options: Unpack[BeamKeywords]) -> BeamResult:
    """Return the `width` best continuations of a prompt that a beam search finds, best first.

    Options are the fields of `BeamOptions`. A drafter that searches ahead gives the same result in
    fewer passes (lab/docs/methods.md). The conversation's caches stay as they are.

    Raises as `Engine.generate` does, ConfigError for a reproducible engine or a missing draft
    model, ContextOverflowError for a prompt that leaves no room for `max_tokens`: all before any
    pass. Whatever `check` raises ends the search.
    """
    ids = engine.prompt_ids(prompt)
    if engine.reproducible:
        raise ConfigError(
            "beam search has no reproducible passes; load the engine without reproducible"
        )
    if not ids:
        raise ConfigError("the prompt is empty; give some text")
    settled = BeamOptions(**options)
    with engine.lend("this reply was ended by a beam search on the same engine") as lent:
        return _search(lent, engine.tokenizer, ids, settled)


def _search(
    source: LentModel, tokenizer: Tokenizer, prompt: Sequence[int], options: BeamOptions
) -> BeamResult:
    """Search for the best continuations of a prompt of at least one token."""
    wide = _draft_width(options, source.shared)
    _check_room(len(prompt), options.max_tokens, source.context, "the model")
    draft, draft_rows = _draft(source, prompt, options)
    rows = BeamRows(
        source,
        prompt,
        vocabulary_size=source.shared,
        check=options.check,
        progress=options.progress,
    )
    rows.prefill()
    if draft_rows is not None:
        draft_rows.prefill()
    end_ids = tokenizer.end_ids
    started = time.perf_counter()
    found = search(
        rows,
        draft,
        width=options.width,
        draft_width=wide,
        num_draft_steps=options.num_draft_steps,
        max_tokens=options.max_tokens,
        end_ids=end_ids,
    )
    stats = BeamStats(
        steps=found.steps,
        passes=sum(call.passes for call in rows.calls),
        rows=tuple(call.rows for call in rows.calls),
        draft_steps=found.draft_steps,
        kept_draft_steps=found.kept_draft_steps,
        draft_passes=sum(call.passes for call in draft_rows.calls) if draft_rows else 0,
        seconds=time.perf_counter() - started,
    )
    hypotheses = [
        BeamHypothesis(
            _text(tokenizer, one.tokens),
            one.tokens,
            one.log_probability,
            one.log_probability / len(one.tokens) ** options.length_penalty,
            one.ended,
        )
        for one in found.hypotheses
    ]
    # Stable: equal scores keep the order of the search.
    hypotheses.sort(key=lambda one: -one.score)
    return BeamResult(tuple(hypotheses), len(prompt), stats)


def _draft(
    source: LentModel, prompt: Sequence[int], options: BeamOptions
) -> tuple[BeamModel | None, BeamRows | None]:
    """Return the model that searches ahead, and its rows if it is a draft model."""
    name = options.drafter
    if name is None:
        name = "none" if source.draft_model is None else "draft-model"
    if name == "ngram":
        counts = NgramModel(source.shared, order=_NGRAM_ORDER)
        counts.observe(prompt)
        return CountRows(counts, prompt), None
    if name == "none":
        return None, None
    if source.draft_model is None:
        raise ConfigError(
            "drafter is 'draft-model', and the engine has none; load it with draft_model=PATH"
        )
    _check_room(len(prompt), options.max_tokens, source.draft_model.context, "the draft model")
    rows = BeamRows(
        source.draft_model,
        prompt,
        vocabulary_size=source.shared,
        check=options.check,
    )
    return rows, rows


def _draft_width(options: BeamOptions, vocabulary_size: int) -> int:
    wide = options.draft_width
    for name, value in (("width", options.width), ("draft_width", wide or options.width)):
        if value > vocabulary_size:
            raise ConfigError(f"{name} is {value}; the vocabulary has {vocabulary_size} tokens")
    return min(2 * options.width, vocabulary_size) if wide is None else wide


def _check_room(prompt: int, max_tokens: int, context: int, what: str) -> None:
    if prompt + max_tokens > context:
        raise ContextOverflowError(
            f"the prompt has {prompt} tokens and hypotheses may have {max_tokens}; {what} has a "
            f"context of {context}: shorten the prompt or ask for fewer tokens"
        )


def _text(tokenizer: Tokenizer, tokens: Sequence[int]) -> str:
    detokenizer = tokenizer.detokenizer(continues=True)
    shown = detokenizer.feed(token for token in tokens if token not in tokenizer.end_ids)
    return shown + detokenizer.finish()


def _check_count(name: str, value: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{name} is {value!r}; give 1 or more")
