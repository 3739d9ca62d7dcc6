"""How many drafted tokens a model accepts, and what that brings on this machine.

Each prompt is answered twice, with drafting and without, from an empty KV cache and an empty
memory of earlier replies both times. The two replies follow each other at once and change places
from prompt to prompt, so that a machine that grows warm or gets other work slows both alike.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from akunu_py.bench.environment import Environment
from akunu_py.bench.report import HitRateReport, Model, Outcome
from akunu_py.bench.workloads import Prompt
from akunu_py.drafting.registry import (
    WITH_DRAFT_MODEL,
    default_num_draft_tokens,
    make_drafter,
)
from akunu_py.errors import ConfigError, ContextOverflowError
from akunu_py.types import DraftBudget, GenerationConfig, GenerationResult, Tokenizer

Progress = Callable[[int, int], None]
"""Called with the replies made and those to make."""


class BenchDescription(Protocol):
    """What a report says of a model."""

    @property
    def path(self) -> Path:
        """Return the file or folder."""

    @property
    def name(self) -> str:
        """Return the model's own name."""

    @property
    def architecture(self) -> str:
        """Return the model family."""

    @property
    def parameters(self) -> int:
        """Return the number of weights."""

    @property
    def weights(self) -> str:
        """Return the form the weights are kept in."""


class BenchEngine(Protocol):
    """The part of `akunu_py.engine.Engine` that a measurement needs."""

    @property
    def description(self) -> BenchDescription:
        """Return what is known of the model."""

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

    def logits(self, token_ids: Sequence[int]) -> NDArray[np.float32]:
        """Return the logits after each token, [n, vocab]."""

    def reset(self) -> None:
        """Forget what the KV cache holds."""

    def forget(self) -> None:
        """Forget what drafts could be taken from earlier replies."""


def run_hit_rate(
    engine: BenchEngine,
    prompts: Sequence[Prompt],
    *,
    drafter: str = "ngram",
    num_draft_tokens: int | None = None,
    draft_budget: DraftBudget = "always",
    max_tokens: int = 128,
    temperature: float = 0.0,
    seed: int = 0,
    progress: Progress | None = None,
) -> HitRateReport:
    """Answer each prompt with and without drafting and report rates, speeds and differences.

    The first prompt is answered both ways beforehand and not counted: the first passes of each
    size build what later ones reuse. With the draft budget "always" the rates are the drafter's and
    the same on every machine; with "auto" they are those of drafts that pay here. `progress` is
    called with replies made and to make, the uncounted ones left out.

    Raises ConfigError without prompts or for an option out of range, ContextOverflowError naming
    the prompt that does not fit, before anything is generated.
    """
    on = check_options(
        drafter=drafter,
        num_draft_tokens=num_draft_tokens,
        draft_budget=draft_budget,
        max_tokens=max_tokens,
        temperature=temperature,
        seed=seed,
    )
    off = replace(on, drafter="none")
    if not prompts:
        raise ConfigError("there are no prompts to measure with; give at least one")
    encoded = [encode_prompt(engine, prompt) for prompt in prompts]

    for config in (on, off):
        _reply(engine, encoded[0], config)
    outcomes: list[Outcome] = []
    num_replies = 2 * len(prompts)
    report_progress = progress or (lambda _done, _total: None)
    report_progress(0, num_replies)
    for number, (prompt, ids) in enumerate(zip(prompts, encoded, strict=True)):
        order = (off, on) if number % 2 == 0 else (on, off)
        replies: dict[bool, GenerationResult] = {}
        for config in order:
            replies[config is on] = _reply(engine, ids, config)
            report_progress(2 * number + len(replies), num_replies)
        outcomes.append(
            Outcome(
                id=prompt.id,
                category=prompt.category,
                off=replies[False],
                on=replies[True],
                first_difference=first_difference(
                    replies[False].token_ids, replies[True].token_ids
                ),
            )
        )
    if temperature == 0:
        # Only now: these passes would disturb the clocks and caches of replies still to come.
        outcomes = [
            _with_margin(engine, outcome, ids)
            for outcome, ids in zip(outcomes, encoded, strict=True)
        ]
    return HitRateReport(on, model_of(engine), Environment.current(), tuple(outcomes))


def check_options(
    *,
    drafter: str,
    num_draft_tokens: int | None,
    draft_budget: DraftBudget,
    max_tokens: int,
    temperature: float,
    seed: int,
) -> GenerationConfig:
    """Return the configuration of the replies with drafting, its number of tokens included.

    Raises ConfigError for an unknown drafter or an option out of range. Whether there is a draft
    model for a drafter that asks one is seen when it is made.
    """
    if num_draft_tokens is None:
        num_draft_tokens = default_num_draft_tokens(drafter)
    config = GenerationConfig(
        max_tokens=max_tokens,
        temperature=temperature,
        seed=seed,
        drafter=drafter,
        num_draft_tokens=num_draft_tokens,
        draft_budget=draft_budget,
    )
    if drafter not in WITH_DRAFT_MODEL:
        make_drafter(drafter, num_draft_tokens=num_draft_tokens)
    return config


def first_difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    """Return the first index at which two sequences differ, or None for equal ones.

    Where one begins with all of the other, that is the length of the shorter one.
    """
    for index, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return index
    return None if len(left) == len(right) else min(len(left), len(right))


def encode_prompt(engine: BenchEngine, prompt: Prompt) -> list[int]:
    """Return a prompt's ids, laid out by the chat template where prompt and model have one."""
    tokenizer = engine.tokenizer
    if prompt.kind == "chat" and tokenizer.has_chat_template:
        ids = tokenizer.encode_chat(prompt.messages)
    else:
        ids = tokenizer.encode(prompt.last_user_text)
    if len(ids) >= engine.context:
        raise ContextOverflowError(
            f"the prompt {prompt.id} has {len(ids)} tokens and the context holds {engine.context}, "
            "the reply included; load the model with a larger context or leave out the category "
            f"{prompt.category}"
        )
    return ids


def _reply(engine: BenchEngine, ids: Sequence[int], config: GenerationConfig) -> GenerationResult:
    # Otherwise what a drafter remembers would hold the reply that the warm-up made.
    engine.forget()
    engine.reset()
    return engine.generate(ids, config)


def _with_margin(engine: BenchEngine, outcome: Outcome, ids: Sequence[int]) -> Outcome:
    if outcome.first_difference is None:
        return outcome
    shared = [*ids, *outcome.off.token_ids[: outcome.first_difference]]
    second, first = np.partition(engine.logits(shared)[-1], -2)[-2:]
    return replace(outcome, top2_margin=float(first - second))


def model_of(engine: BenchEngine) -> Model:
    """Return what a report says of an engine's model."""
    description = engine.description
    return Model(
        path=str(description.path),
        name=description.name,
        architecture=description.architecture,
        parameters=description.parameters,
        weights=description.weights,
        context=engine.context,
    )
