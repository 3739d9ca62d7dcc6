"""The share of drafted tokens that a model accepts, and the speedup on this machine.

Each prompt is answered twice, with drafting and without, from an empty KV cache. The two replies
follow each other immediately, and their order alternates from prompt to prompt, so that heat or
other work on the machine slows both alike. A drafter's memory is emptied before each session: a
single prompt finds nothing in it, a turn of a conversation finds the earlier turns.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import groupby
from time import perf_counter
from typing import Protocol, Unpack

import numpy as np
from numpy.typing import NDArray

from akunu_py.bench import metrics
from akunu_py.bench.hit_rate_report import HitRateReport, Outcome, Reply
from akunu_py.bench.measured_model import BenchDescription, Model, model_from
from akunu_py.bench.metrics import Pass
from akunu_py.bench.result_file import Failure
from akunu_py.bench.resume import ItemStore
from akunu_py.bench.workloads import Prompt
from akunu_py.drafting.registry import check_drafter, default_num_draft_tokens
from akunu_py.engine.generation_options import with_options
from akunu_py.models.pass_times import ROWS, PassTimes
from akunu_py.protocols import Tokenizer
from akunu_py.system.errors import AkunuError, ConfigError, ContextOverflowError
from akunu_py.values.generation_config import (
    DRAFTING_FIELDS,
    GenerationConfig,
    GenerationOptions,
)
from akunu_py.values.types import GenerationResult, StreamEvent

DEFAULT = GenerationConfig(max_tokens=128, seed=0, drafter="ngram", draft_budget="always")
"""Verifies every draft: the rates are the drafter's, and the same on every machine."""

Progress = Callable[[int, int], None]
"""Called with the number of finished replies and of all replies."""

_COSTS_AFTER = 128
"""Most tokens of a prompt in front of measured passes."""
_COST_REPEATS = 3


class BenchStream(Iterator[StreamEvent], AbstractContextManager["BenchStream"], Protocol):
    """The events of a reply; leaving the context closes it."""


class BenchEngine(Protocol):
    """The part of `akunu_py.engine.engine.Engine` that a measurement needs."""

    @property
    def description(self) -> BenchDescription:
        """Return the facts about the model."""

    @property
    def context(self) -> int:
        """Return the most tokens of prompt and reply together."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Return the model's tokenizer."""

    def generate(
        self, prompt: Sequence[int], config: GenerationConfig | None = None
    ) -> GenerationResult:
        """Continue a prompt."""

    def stream(self, prompt: Sequence[int], config: GenerationConfig | None = None) -> BenchStream:
        """Continue a prompt, event by event."""

    def tune(self, prompt: Sequence[int], *, repeats: int = 7) -> PassTimes:
        """Measure the cost of passes after a prompt."""

    def logits(self, token_ids: Sequence[int]) -> NDArray[np.float32]:
        """Return the logits after each token, [n, vocab]."""

    def reset(self) -> None:
        """Empty the KV cache."""

    def forget(self) -> None:
        """Forget earlier replies, which drafts could copy."""


@dataclass(frozen=True, slots=True)
class _Item:
    prompt: Prompt
    ids: list[int]


def run_hit_rate(
    engine: BenchEngine,
    prompts: Sequence[Prompt],
    config: GenerationConfig = DEFAULT,
    *,
    measure_costs: bool = False,
    store: ItemStore | None = None,
    progress: Progress | None = None,
    until: Callable[[], bool] | None = None,
    **options: Unpack[GenerationOptions],
) -> HitRateReport:
    """Answer each prompt with and without drafting and report rates, speeds and differences.

    The first prompt is answered both ways beforehand, uncounted, since the first pass of each size
    builds what later passes reuse. With the draft budget "always" the rates are the drafter's and
    the same on every machine; with "auto" they cover only drafts that pay on this machine. A prompt
    that cannot be answered becomes a failure, and the run continues. After an interrupt the report
    covers the prompts that were answered.

    Args:
        engine: the model.
        prompts: turns of one session follow each other.
        config: of the replies with drafting; replies without it have the same sampling options.
        measure_costs: whether passes and memory are measured first, after the first prompt.
        store: finished prompts, also from an interrupted run; a session is skipped if the store
            has all of it.
        progress: called with finished and all replies, without the uncounted ones.
        until: called before each prompt but the first; the run ends early when it returns true.
        options: fields of the config to replace.

    Raises ConfigError without prompts or for an option out of range, before anything is generated.

    """
    on = settled_config(with_options(config, options))
    if not prompts:
        raise ConfigError("there are no prompts to measure with; give at least one")
    run = _Run(engine, on, ItemStore(None, {}) if store is None else store, progress)
    items = run.encoded(prompts)
    finished = True
    try:
        if items:
            if measure_costs:
                run.measure_costs(items[0].ids)
            run.answer(items, until or (lambda: False))
        if on.temperature == 0 and on.exactness != "none":
            # Only now: these passes would disturb the clocks and caches of replies still to come.
            run.find_margins(items)
    except KeyboardInterrupt:
        finished = False
    return HitRateReport(
        config=on,
        outcomes=tuple(run.outcomes[item.prompt.id] for item in items
                       if item.prompt.id in run.outcomes),
        failures=tuple(run.failures),
        times=run.times,
        finished=finished,
    )  # fmt: skip


class _Run:
    """The state of one run; `outcomes` by the prompt's id."""

    def __init__(
        self,
        engine: BenchEngine,
        config: GenerationConfig,
        store: ItemStore,
        progress: Progress | None,
    ) -> None:
        self._engine = engine
        self._on = config
        self._off = plain_config(config)
        self._store = store
        self._progress = progress or (lambda _done, _total: None)
        self.outcomes: dict[str, Outcome] = {}
        self.failures: list[Failure] = []
        self.times: PassTimes | None = None

    def encoded(self, prompts: Iterable[Prompt]) -> list[_Item]:
        """Return the prompts in ids; those that the model cannot take become failures."""
        items: list[_Item] = []
        for prompt in prompts:
            try:
                ids = encode_prompt(self._engine, prompt)
            # A tokenizer's own library may raise ValueError for a text it cannot encode.
            except (AkunuError, ValueError) as error:
                self._fail(prompt, error)
            else:
                items.append(_Item(prompt, ids))
        return items

    def measure_costs(self, ids: Sequence[int]) -> None:
        """Measure passes after the beginning of a prompt, where they fit into the context."""
        ids = ids[: min(_COSTS_AFTER, self._engine.context - 2 * max(ROWS))]
        if len(ids) > 1:
            self.times = self._engine.tune(ids, repeats=_COST_REPEATS)

    def answer(self, items: Sequence[_Item], until: Callable[[], bool]) -> None:
        """Answer both ways all prompts that the store lacks, or as many until `until` is true."""
        unfinished = self._without_finished(items)
        total = 2 * len(items)
        done = total - 2 * sum(map(len, unfinished))
        if unfinished:
            for config in (self._on, self._off):
                self._engine.forget()
                self._reply(unfinished[0][0].ids, config)
        self._progress(done, total)
        for number, session in enumerate(unfinished):
            # Otherwise the drafter would remember the reply of the warm-up.
            self._engine.forget()
            for turn, item in enumerate(session):
                if (number or turn) and until():
                    return
                order = (self._off, self._on) if (number + turn) % 2 == 0 else (self._on, self._off)

                def tell(made: int, before: int = done) -> None:
                    self._progress(before + made, total)

                self._answer_item(item, order, tell)
                done += 2

    def _answer_item(
        self, item: _Item, order: Sequence[GenerationConfig], tell: Callable[[int], None]
    ) -> None:
        replies: dict[bool, Reply] = {}
        try:
            for config in order:
                replies[config is self._on] = self._reply(item.ids, config)
                tell(len(replies))
        except (AkunuError, ValueError) as error:
            self._fail(item.prompt, error)
            return
        prompt = item.prompt
        outcome = Outcome(
            id=prompt.id,
            category=prompt.category,
            session=prompt.session,
            turn=prompt.turn,
            num_prompt_tokens=len(item.ids),
            off=replies[False],
            on=replies[True],
        )
        self.outcomes[prompt.id] = outcome
        self._store.put(prompt.id, outcome)

    def _reply(self, ids: Sequence[int], config: GenerationConfig) -> Reply:
        self._engine.reset()
        passes: list[Pass] = []
        first_token_s: float | None = None
        result: GenerationResult | None = None
        started = perf_counter()
        with self._engine.stream(ids, config) as stream:
            for event in stream:
                if first_token_s is None and event.token_ids:
                    first_token_s = perf_counter() - started
                if event.step is not None:
                    step = event.step
                    passes.append(
                        Pass(
                            step.num_draft_tokens,
                            step.num_accepted_tokens,
                            step.num_output_tokens,
                        )
                    )
                result = event.result
        assert result is not None  # noqa: S101 - the last event carries the result
        # Without what compares rows behind a reply, once for a length.
        before_s = (first_token_s or 0.0) - (result.time_to_first_token_s or 0.0)
        return Reply(
            token_ids=result.token_ids,
            finish_reason=result.finish_reason,
            prefill_s=result.prefill_s,
            first_token_s=first_token_s or 0.0,
            decode_s=result.decode_s,
            whole_s=before_s + result.prefill_s + result.decode_s,
            stats=result.stats,
            passes=tuple(passes),
            row_bits=result.row_bits,
        )

    def _without_finished(self, items: Sequence[_Item]) -> list[list[_Item]]:
        """Take over the sessions that are complete in the store; return the others."""
        unfinished: list[list[_Item]] = []
        for _, group in groupby(items, key=lambda item: item.prompt.session or item.prompt.id):
            session = list(group)
            found = [self._store.get(item.prompt.id, Outcome) for item in session]
            # A turn needs the drafter's memory of the earlier turns.
            if None in found:
                unfinished.append(session)
                continue
            self.outcomes |= {outcome.id: outcome for outcome in found if outcome is not None}
        return unfinished

    def find_margins(self, items: Sequence[_Item]) -> None:
        """Measure the margin between the two likeliest tokens where replies differ."""
        for item in items:
            outcome = self.outcomes.get(item.prompt.id)
            place = None if outcome is None else outcome.first_difference
            if outcome is None or place is None:
                continue
            shared = [*item.ids, *outcome.off.token_ids[:place]]
            margin = metrics.top2_margin(self._engine.logits(shared)[-1])
            self.outcomes[item.prompt.id] = outcome.with_margin(margin)

    def _fail(self, prompt: Prompt, error: Exception) -> None:
        self.failures.append(Failure(prompt.id, str(error)))


def settled_config(config: GenerationConfig) -> GenerationConfig:
    """Return the configuration with the number of tokens that its drafter drafts.

    Raises ConfigError for an unknown drafter or an option that it lacks, and without a drafter or a
    seed, since a figure must be repeatable. A missing draft model is found later, when the drafter
    is made.
    """
    drafter = config.drafter
    if drafter is None or config.seed is None:
        raise ConfigError("a measurement needs a drafter and a seed; set both")
    most = config.num_draft_tokens
    if most is None:
        most = default_num_draft_tokens(drafter)
        config = replace(config, num_draft_tokens=most)
    check_drafter(drafter, num_draft_tokens=most, config=config)
    return config


def plain_config(config: GenerationConfig) -> GenerationConfig:
    """Return the configuration of plain decoding with the same sampling options."""
    default = GenerationConfig()
    drafting = {name: getattr(default, name) for name in DRAFTING_FIELDS}
    return replace(config, **{**drafting, "drafter": "none"})


def encode_prompt(engine: BenchEngine, prompt: Prompt) -> list[int]:
    """Return a prompt's ids, rendered by the chat template if it is a chat and the model has one.

    Raises ContextOverflowError, which names the prompt, if it fills the context, and ConfigError if
    it has no tokens.
    """
    ids = prompt.encode(engine.tokenizer)
    if len(ids) >= engine.context:
        raise ContextOverflowError(
            f"the prompt {prompt.id} has {len(ids)} tokens and the context holds {engine.context}, "
            "the reply included; load the model with a larger context or leave out the category "
            f"{prompt.category}"
        )
    if not ids:
        raise ConfigError(f"the prompt {prompt.id} has no tokens for this model's tokenizer")
    return ids


def model_of(engine: BenchEngine, *, hashed: bool = False) -> Model:
    """Return the facts about an engine's model for a report; see `model_from`."""
    return model_from(engine.description, engine.context, hashed=hashed)
