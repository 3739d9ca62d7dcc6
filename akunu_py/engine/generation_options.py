"""The fields of a `GenerationConfig` as keyword arguments."""

import dataclasses
import difflib
from collections.abc import Mapping
from typing import TypedDict

from akunu_py.errors import ConfigError
from akunu_py.option_fields import options_of
from akunu_py.types import DraftBudget, DraftLength, DraftSampling, GenerationConfig


class GenerationOptions(TypedDict, total=False):
    """The fields of `GenerationConfig`, as keyword arguments.

    They are written out for type checkers. mypy compares each with its field in `with_options`, and
    a test finds missing ones.
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
    stop_loops: bool
    drafter: str | None
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


def with_options(config: GenerationConfig, options: GenerationOptions) -> GenerationConfig:
    """Return a configuration with some fields replaced; raises ConfigError for unknown names."""
    names = [declared.name for declared in options_of(GenerationConfig)]
    for name in options:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(names)}"
            raise ConfigError(f"there is no option {name}{hint}")
    return dataclasses.replace(config, **options)
