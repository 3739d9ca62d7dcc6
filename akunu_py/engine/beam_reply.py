"""One beam search over a model: prompt ids in, hypotheses with text and statistics out."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Required, TypedDict, get_args

from mlx import nn

from akunu_py.decoding.beam import BeamModel, beam_search, speculative_beam_search
from akunu_py.drafting.counts import NgramModel
from akunu_py.drafting.counts.beams import CountRows
from akunu_py.errors import ConfigError, ContextOverflowError
from akunu_py.models.beam_rows import BeamRows
from akunu_py.models.cached_rows import Progress
from akunu_py.models.token_model import CachedTokenModel
from akunu_py.types import Tokenizer

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
    progress: Progress | None
    check: Callable[[], None] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamOptions:
    """How a beam search goes.

    Attributes:
        width: hypotheses kept after each step, 1 to the size of the vocabulary.
        max_tokens: most tokens of a hypothesis.
        length_penalty: hypotheses are returned by log-probability / length ** length_penalty; the
            search itself goes by the log-probability.
        drafter: what searches ahead: "draft-model", "ngram" (counts of the prompt's n-grams of 1
            to 4 tokens) or "none". None: "draft-model" where the engine has one, else "none".
        draft_width: of the search ahead, `width` to the size of the vocabulary; None: twice the
            width, or the vocabulary where that is smaller.
        num_draft_steps: most steps searched ahead for one pass.
        progress: called with prompt tokens done and in all.
        check: called before each pass; what it raises ends the search.

    Raises ConfigError naming the field and its range.

    """

    width: int
    max_tokens: int
    length_penalty: float = 0.0
    drafter: BeamDrafter | None = None
    draft_width: int | None = None
    num_draft_steps: int = 4
    progress: Progress | None = None
    check: Callable[[], None] | None = None

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
    """One text that a beam search found.

    Attributes:
        text: without the end-of-generation token.
        token_ids: with it, where there is one.
        log_probability: of all of these tokens after the prompt, in nats.
        score: what hypotheses are ordered by: see `BeamOptions.length_penalty`.
        finished: whether the last token ends the text; False for one that reached `max_tokens`.

    """

    text: str
    token_ids: tuple[int, ...]
    log_probability: float
    score: float
    finished: bool


@dataclass(frozen=True, slots=True)
class BeamStats:
    """What a search took.

    Attributes:
        steps: of the search: a token of every unfinished hypothesis.
        passes: of the model, without those over the prompt.
        rows: fed to the model for each time it was asked, in one pass where it takes trees.
        draft_steps: searched ahead; `kept_draft_steps` of them saved asking the model.
        draft_passes: of the draft model, if one searched ahead.
        seconds: of the search, without the prompt.

    """

    steps: int
    passes: int
    rows: tuple[int, ...]
    draft_steps: int
    kept_draft_steps: int
    draft_passes: int
    seconds: float

    @property
    def acceptance(self) -> float | None:
        """Return the share of draft steps that were kept; None where there was none."""
        return self.kept_draft_steps / self.draft_steps if self.draft_steps else None


@dataclass(frozen=True, slots=True)
class BeamResult:
    """A finished search: hypotheses, best first, and what they took."""

    hypotheses: tuple[BeamHypothesis, ...]
    num_prompt_tokens: int
    stats: BeamStats


@dataclass(frozen=True, slots=True)
class BeamSource:
    """What an engine searches with."""

    model: nn.Module
    tokenizer: Tokenizer
    vocabulary_size: int
    context: int
    kv_bits: int | None
    drafts: CachedTokenModel | None


def search_beams(source: BeamSource, prompt: Sequence[int], options: BeamOptions) -> BeamResult:
    """Search for the best continuations of a prompt of at least one token.

    Raises ConfigError for a width beyond the vocabulary or a draft model that is not there,
    ContextOverflowError for a prompt that leaves no room for `max_tokens`; before any pass.
    """
    wide = _draft_width(options, source.vocabulary_size)
    _check_room(len(prompt), options.max_tokens, source.context, "the model")
    draft, draft_rows = _draft(source, prompt, options)
    rows = BeamRows(
        source.model,
        prompt,
        vocabulary_size=source.vocabulary_size,
        context=source.context,
        kv_bits=source.kv_bits,
        check=options.check,
        progress=options.progress,
    )
    rows.prefill()
    if draft_rows is not None:
        draft_rows.prefill()
    end_ids = source.tokenizer.end_ids
    started = time.perf_counter()
    if draft is None:
        found = beam_search(
            rows, width=options.width, max_tokens=options.max_tokens, end_ids=end_ids
        )
    else:
        found = speculative_beam_search(
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
            _text(source.tokenizer, one.tokens),
            one.tokens,
            one.log_probability,
            one.log_probability / len(one.tokens) ** options.length_penalty,
            one.ended,
        )
        for one in found.hypotheses
    ]
    # Stable: equal scores stay in the order of the search.
    hypotheses.sort(key=lambda one: -one.score)
    return BeamResult(tuple(hypotheses), len(prompt), stats)


def _draft(
    source: BeamSource, prompt: Sequence[int], options: BeamOptions
) -> tuple[BeamModel | None, BeamRows | None]:
    """Return what searches ahead, and once more if it is a model."""
    name = options.drafter
    if name is None:
        name = "none" if source.drafts is None else "draft-model"
    if name == "ngram":
        counts = NgramModel(source.vocabulary_size, order=_NGRAM_ORDER)
        counts.observe(prompt)
        return CountRows(counts, prompt), None
    if name == "none":
        return None, None
    if source.drafts is None:
        raise ConfigError(
            "drafter is 'draft-model', and the engine has none; load it with draft_model=PATH"
        )
    _check_room(len(prompt), options.max_tokens, source.drafts.context, "the draft model")
    rows = source.drafts.beam_rows(prompt, options.check)
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
