"""The share of drafted tokens that a model accepts, and the speedup on this machine.

Two arms of one engine, with drafting and without, answer each prompt from an empty KV cache.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Unpack

from akunu_py.bench import metrics
from akunu_py.bench.bootstrap import Ratio
from akunu_py.bench.engine_arm import EngineArm, measure_costs
from akunu_py.bench.figures import ArmFigures, Difference
from akunu_py.bench.result_file import Failure
from akunu_py.bench.runner import Item, ItemReplies, Progress, run_arms
from akunu_py.bench.workloads import Prompt, order_of
from akunu_py.drafting.registry import check_drafter, default_num_draft_tokens
from akunu_py.engine.engine import Engine
from akunu_py.engine.request_checks import with_options
from akunu_py.models.pass_times import PassTimes
from akunu_py.system.errors import ConfigError
from akunu_py.values.generation_config import (
    Exactness,
    GenerationConfig,
    GenerationOptions,
)

DEFAULT = GenerationConfig(max_tokens=128, seed=0, drafter="ngram", draft_budget="always")
"""Verifies every draft: the rates are the drafter's, and the same on every machine."""

OFF, ON = "off", "on"
"""The arms: without drafting and with it."""


@dataclass(frozen=True)
class HitRateFigures:
    """The figures of some prompts that both arms answered.

    `differences` are None if replies need not be the same.
    """

    runs: tuple[ItemReplies, ...]
    differences: dict[str, Difference] | None = None

    @cached_property
    def off(self) -> ArmFigures:
        return ArmFigures.of(self.runs, OFF)

    @cached_property
    def on(self) -> ArmFigures:
        return ArmFigures.of(self.runs, ON)

    @property
    def num_identical(self) -> int | None:
        """Prompts whose two replies have the same tokens; None if they need not be the same."""
        if self.differences is None:
            return None
        return sum(run.item.id not in self.differences for run in self.runs)

    @cached_property
    def decode(self) -> Ratio:
        """The speedup of decoding, with its interval."""
        return self.on.over(OFF)

    @cached_property
    def end_to_end(self) -> Ratio:
        """The speedup of prompt and decoding together, with its interval."""
        return self.on.over(OFF, "whole")


@dataclass(frozen=True)
class HitRateReport:
    """A hit-rate run.

    `config` is that of the replies with drafting, `runs` are the prompts that both arms answered.
    `times` are the costs of passes in this run, None if they were not measured. `differences` are
    the replies that differ although they should not, by prompt; None if they may.
    """

    config: GenerationConfig
    runs: tuple[ItemReplies, ...]
    failures: tuple[Failure, ...] = ()
    times: PassTimes | None = None
    differences: dict[str, Difference] | None = None
    finished: bool = True

    @cached_property
    def categories(self) -> dict[str, HitRateFigures]:
        """The figures of each category that has a prompt, in the order of `order_of`."""
        return {
            category: self._figures(run for run in self.runs if run.item.category == category)
            for category in order_of(run.item.category for run in self.runs)
        }

    @cached_property
    def total(self) -> HitRateFigures:
        """The figures of all prompts."""
        return self._figures(self.runs)

    @property
    def exactness(self) -> Exactness:
        """What drafting keeps unchanged."""
        return metrics.reply_exactness(self.config)

    def _figures(self, runs: Iterable[ItemReplies]) -> HitRateFigures:
        return HitRateFigures(tuple(runs), self.differences)


def run_hit_rate(
    engine: Engine,
    prompts: Sequence[Prompt],
    config: GenerationConfig = DEFAULT,
    *,
    with_costs: bool = False,
    progress: Progress | None = None,
    until: Callable[[], bool] = lambda: False,
    **options: Unpack[GenerationOptions],
) -> HitRateReport:
    """Answer each prompt with and without drafting and report rates, speeds and differences.

    With the draft budget "always" the rates are the drafter's and the same on every machine; with
    "auto" they cover only drafts that pay on this machine. A prompt that cannot be answered becomes
    a failure, and the run continues. After an interrupt the report covers the prompts that were
    answered.

    Args:
        engine: the model.
        prompts: turns of one session follow each other.
        config: of the replies with drafting; replies without it have the same sampling options.
        with_costs: whether passes and memory are measured first, after the first prompt.
        progress, until: as in `run_arms`.
        options: fields of the config to replace.

    Raises ConfigError without prompts or for an option out of range, before anything is generated.

    """
    on = settled_config(with_options(config, options))
    if not prompts:
        raise ConfigError("there are no prompts to measure with; give at least one")
    items, failures = Item.encoded(prompts, engine.tokenizer, engine.context)
    arms = [
        EngineArm(OFF, engine, replace(on, drafter="none", draft_options={}), plain=OFF),
        EngineArm(ON, engine, on, plain=OFF),
    ]
    report = HitRateReport(on, (), tuple(failures), finished=False)
    try:
        if with_costs and items:
            report = replace(report, times=measure_costs(engine, items[0].prompt))
        done = run_arms(arms, items, progress=progress, until=until)
        answered = tuple(run for run in done.items if len(run.replies) == len(arms))
        report = replace(report, runs=answered, failures=(*failures, *done.failures))
        if report.exactness != "stream":
            return replace(report, finished=done.finished)
        arm = ArmFigures.of(answered, ON)
        report = replace(report, differences=dict(arm.identity(OFF).differences))
        if on.temperature == 0 and done.finished:
            # Only now: these passes would disturb the clocks and caches of replies still to come.
            found = arm.identity(OFF, engine.logits).differences
            report = replace(report, differences=dict(found))
        return replace(report, finished=done.finished)
    except KeyboardInterrupt:
        return report


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
