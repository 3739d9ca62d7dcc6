"""Predicted speed next to measured speed: theory from an acceptance, and a clock.

Leviathan et al. 2023 (arXiv:2211.17192) compare theorem 3.8 with measured times in table 4. Their
theorem assumes that a pass over several rows costs as much as a pass over one; the measured C is
the cost on this machine.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from akunu_lab.alpha.report import Prediction, SourceFigures
from akunu_lab.theory import expected_tokens
from akunu_py.api import (
    ArmFigures,
    ConfigError,
    Engine,
    EngineArm,
    GenerationConfig,
    Item,
    Prompt,
    run_arms,
)

MAX_TOKENS = 128
_OFF, _ON = "off", "on"


def predict(
    acceptance: float, known: float, num_draft_tokens: int, draft_cost: float, pass_cost: float
) -> tuple[float, float]:
    """Return tokens a pass and speed over plain decoding.

    A pass with a draft emits (1 - a^(g+1)) / (1 - a) tokens for g c + C plain steps; a pass without
    a draft is a plain step. With `pass_cost` 1 and `known` 1 the speed is theorem 3.8's.
    """
    tokens = known * expected_tokens(acceptance, num_draft_tokens) + 1 - known
    cost = known * (num_draft_tokens * draft_cost + pass_cost) + 1 - known
    return tokens, tokens / cost


def measure_speed(
    engine: Engine,
    prompts: Sequence[Prompt],
    drafters: Sequence[tuple[str, int, SourceFigures]],
    *,
    temperature: float,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> list[Prediction]:
    """Answer the prompts with and without each drafter; compare prediction and measured speed.

    `drafters` are names, numbers of draft tokens and the measured acceptance of the first token.
    Passes are measured after the first prompt. `progress` is called with finished replies. A
    drafter without any draft is left out. Raises as `run_arms` and `tune` do.
    """
    items, failures = Item.encoded(prompts, engine.tokenizer, engine.context)
    if not items:
        raise ConfigError(f"no prompt can be answered: {failures[0].error}")
    costs = engine.tune(items[0].prompt).costs
    found: list[Prediction] = []
    per_drafter = 2 * len(items)
    for number, (name, num_draft_tokens, figures) in enumerate(drafters):

        def tell(done: int, _total: int, before: int = number * per_drafter) -> None:
            if progress:
                progress(before + done)

        drafted = GenerationConfig(
            max_tokens=MAX_TOKENS, temperature=temperature, seed=seed, drafter=name,
            draft_budget="always", num_draft_tokens=num_draft_tokens,
        )  # fmt: skip
        plainly = replace(drafted, drafter="none", num_draft_tokens=None)
        arms = [
            EngineArm(_OFF, engine, plainly, plain=_OFF),
            EngineArm(_ON, engine, drafted, plain=_OFF),
        ]
        runs = run_arms(arms, items, progress=tell).items
        both = [run for run in runs if len(run.replies) == len(arms)]
        off, on = (ArmFigures.of(both, arm.name) for arm in arms)
        plain, stats = off.tokens_per_s, on.stats
        passes = stats.tokens_per_pass
        if plain is None or passes is None or not stats.drafted:
            continue
        acceptance, known = figures.coupled_known or 0.0, figures.known
        draft_cost = stats.propose_s / stats.drafted * plain
        rows = sorted(costs)
        pass_cost = float(np.interp(num_draft_tokens + 1, rows, [costs[size] for size in rows]))
        tokens, predicted = predict(acceptance, known, num_draft_tokens, draft_cost, pass_cost)
        found.append(
            Prediction(
                drafter=name,
                temperature=temperature,
                num_draft_tokens=num_draft_tokens,
                acceptance=acceptance,
                known=known,
                draft_cost=draft_cost,
                pass_cost=pass_cost,
                theorem=predict(acceptance, known, num_draft_tokens, draft_cost, 1.0)[1],
                predicted=predicted,
                predicted_tokens_per_pass=tokens,
                measured=on.over(_OFF),
                tokens_per_pass=passes,
            )
        )
    return found
