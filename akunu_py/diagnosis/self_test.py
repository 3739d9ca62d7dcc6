"""Self-test: ten seconds of the default model, for its speed and whether drafts change its text.

On a slow machine replies are shorter and fewer, so that the test takes ten seconds there, too.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from akunu_py.engine.engine import Engine
from akunu_py.values.types import GenerationResult, RowBits

SECONDS = 10.0
_TOKENS = 48
_FEWEST_TOKENS = 8
"""Lengths of replies: of the first, which sets the length of the others, and the least."""
_PROMPTS = (
    '{"name": "one", "size": 1}\n{"name": "two", "size": 2}\n{"name": "three", ',
    "import json\n\nwith open(path) as stream:\n    data = json.load(stream)\n\nwith open(",
    'def first(items):\n    """Return the first item."""\n    return items[0]\n\n\ndef second(',
)
"""The longest first: rows found bit-equal at its end are known to be so in shorter texts."""
_TEMPERATURES = (0.0, 1.0)
_ROW_BITS: tuple[RowBits, ...] = ("equal", "unknown", "different")
"""Values of `row_bits` with drafts; replies without drafts are always "equal"."""


@dataclass(frozen=True, slots=True)
class SelfTest:
    """Results of the self-test; a speed is None if no time passed."""

    replies: int  # In each of three ways: plain, drafted within the budget, and always drafted.
    different: int  # Replies that drafting changed.
    row_bits: RowBits  # As in `GenerationResult`.
    drafted: int  # Drafted and verified tokens.
    accepted: int
    plain_tokens_per_s: float | None
    tokens_per_s: float | None  # Of drafting within the budget.
    seconds: float  # Including loading.


def run_self_test(
    seconds: float = SECONDS, clock: Callable[[], float] = time.perf_counter
) -> SelfTest:
    """Make replies of the default model for about `seconds`, at least one of each kind.

    Raises what `Engine.load` and `Engine.generate` raise.
    """
    started = clock()
    plain: list[GenerationResult] = []
    auto: list[GenerationResult] = []
    always: list[GenerationResult] = []
    cases = [(prompt, temperature) for temperature in _TEMPERATURES for prompt in _PROMPTS]
    with Engine.load() as engine:

        def reply(case: int, drafter: str, budget: str, tokens: int) -> GenerationResult:
            prompt, temperature = cases[case]
            engine.reset()
            return engine.generate(
                prompt,
                max_tokens=tokens,
                temperature=temperature,
                seed=case,
                drafter=drafter,
                draft_budget="auto" if budget == "auto" else "always",
            )

        # The first reply compiles kernels, and the second is timed.
        reply(0, "none", "auto", 1)
        before = clock()
        reply(0, "none", "auto", _FEWEST_TOKENS)
        last = 3 * (clock() - before)
        left = seconds - (clock() - started)
        tokens = min(_TOKENS, max(_FEWEST_TOKENS, int(_FEWEST_TOKENS * left / last)))
        last *= tokens / _FEWEST_TOKENS
        for case in range(len(cases)):
            before = clock()
            if case and before - started + last > seconds:
                break
            plain.append(reply(case, "none", "auto", tokens))
            auto.append(reply(case, "auto", "auto", tokens))
            always.append(reply(case, "ngram", "always", tokens))
            last = clock() - before
    same = [
        one.token_ids == two.token_ids == three.token_ids
        for one, two, three in zip(plain, auto, always, strict=True)
    ]
    stats = [result.stats for result in (*auto, *always)]
    return SelfTest(
        replies=len(same),
        different=same.count(False),
        row_bits=max((result.row_bits for result in always), key=_ROW_BITS.index),
        drafted=sum(one.drafted for one in stats),
        accepted=sum(one.accepted for one in stats),
        plain_tokens_per_s=_speed(plain),
        tokens_per_s=_speed(auto),
        seconds=clock() - started,
    )


def _speed(results: list[GenerationResult]) -> float | None:
    seconds = sum(result.decode_s for result in results)
    return sum(len(result.token_ids) for result in results) / seconds if seconds > 0 else None
