"""Predicted speed next to measured speed: theory from an acceptance, and a clock.

Leviathan et al. 2023 (arXiv:2211.17192) compare theorem 3.8 with measured times in table 4. Their
theorem assumes that a pass over several rows costs as much as a pass over one; the measured C is
the cost on this machine.
"""

from collections.abc import Callable, Sequence

import numpy as np

from akunu_lab.alpha.report import Prediction, SourceFigures
from akunu_lab.alpha.texts import AlphaEngine
from akunu_lab.theory import expected_tokens
from akunu_py.bench.hit_rate import run_hit_rate
from akunu_py.bench.runner import encode_prompt
from akunu_py.bench.workloads import Prompt

MAX_TOKENS = 128


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
    engine: AlphaEngine,
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
    drafter without any draft is left out. Raises as `run_hit_rate` and `tune` do.
    """
    costs = engine.tune(encode_prompt(engine.tokenizer, prompts[0], engine.context)).costs
    found: list[Prediction] = []
    per_drafter = 2 * len(prompts)
    for number, (name, num_draft_tokens, figures) in enumerate(drafters):

        def tell(done: int, _total: int, before: int = number * per_drafter) -> None:
            if progress:
                progress(before + done)

        total = run_hit_rate(
            engine,
            prompts,
            drafter=name,
            num_draft_tokens=num_draft_tokens,
            max_tokens=MAX_TOKENS,
            temperature=temperature,
            seed=seed,
            progress=tell,
        ).total
        plain, stats = total.off.tokens_per_s, total.on.stats
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
                measured=total.decode,
                tokens_per_pass=passes,
            )
        )
    return found
