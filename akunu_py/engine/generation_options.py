"""The fields of a `GenerationConfig` as keyword arguments."""

import dataclasses
import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from akunu_py.system.errors import ConfigError
from akunu_py.values.constraint import Constraint
from akunu_py.values.generation_config import Effort
from akunu_py.values.option_fields import options_of
from akunu_py.values.types import DraftBudget, DraftLength, DraftSampling, GenerationConfig


class ConstraintOptions(TypedDict, total=False):
    """Keywords that make a `GenerationConfig.constraint`; at most one of them is given."""

    json_schema: Mapping[str, Any] | bool | str
    regex: str
    grammar: str
    choices: Sequence[str]


class GenerationOptions(ConstraintOptions, total=False):
    """The fields of `GenerationConfig`, as keyword arguments, and what makes a constraint.

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
    constraint: Constraint | None
    logprobs: int | None
    thinking: bool | None
    effort: Effort | None
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
    fields: dict[str, Any] = {}
    forms: list[str] = []
    for name, value in options.items():
        if name in _FORMS:
            fields["constraint"] = _FORMS[name](value)
            forms.append(name)
        elif name in names:
            forms += ["constraint"] * (name == "constraint")
            fields[name] = value
        else:
            near = difflib.get_close_matches(name, (*names, *_FORMS), n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(names)}"
            raise ConfigError(f"there is no option named {name}{hint}")
    if len(forms) > 1:
        raise ConfigError(f"a reply has one form; give one of {' and '.join(forms)}")
    return dataclasses.replace(config, **fields)


_FORMS: Mapping[str, Callable[[Any], Constraint]] = {
    "json_schema": Constraint.json_schema,
    "regex": Constraint.regex,
    "grammar": Constraint.grammar,
    "choices": Constraint.choices,
}
