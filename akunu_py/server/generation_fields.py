"""Fields of a request that say how to sample and when to end; the same in several APIs."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, get_args

import msgspec

from akunu_py.server.errors import RequestError
from akunu_py.system.errors import ConfigError
from akunu_py.values.constraint import Constraint
from akunu_py.values.generation_config import Effort, GenerationConfig

JSON_OBJECT = Constraint.json_schema({"type": "object"})
"""What the type "json_object" of OpenAI's APIs asks for."""

EFFORTS: tuple[str, ...] = get_args(Effort)
"""Words for how much to think."""


class ModelBody(msgspec.Struct, kw_only=True):
    """The body of a request in any format."""

    model: str | None = None


class _StructuredOutputs(msgspec.Struct):
    """The forms of vLLM that akunu has."""

    json: dict[str, Any] | str | None = None
    regex: str | None = None
    choice: list[str] | None = None


class SamplingFields(ModelBody, kw_only=True):
    """Sampling, the end and the form of a reply as OpenAI's APIs, vLLM and llama.cpp name them."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    repeat_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    max_tokens: int | None = None
    json_schema: dict[str, Any] | None = None
    guided_json: dict[str, Any] | str | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    structured_outputs: _StructuredOutputs | None = None

    def options(self) -> dict[str, Any]:
        """Return the fields that were given, as those of a `GenerationConfig`."""
        given = {name: getattr(self, name) for name in _SAMPLING}
        if self.repetition_penalty is None:
            given["repetition_penalty"] = self.repeat_penalty
        for name, (said, meant) in _OTHER_VALUES.items():
            if given[name] == said:
                given[name] = meant
        given["constraint"] = self._form()
        if isinstance(self.stop, str):
            given["stop"] = [self.stop]
        if self.logit_bias is not None:
            given["logit_bias"] = {_id(token): bias for token, bias in self.logit_bias.items()}
        return given

    def _form(self) -> Constraint | None:
        """Return the form that vLLM's or llama.cpp's fields ask for."""
        outputs = self.structured_outputs or _StructuredOutputs()
        forms: dict[str, tuple[Callable[[Any], Constraint], Any]] = {
            "json_schema": (Constraint.json_schema, self.json_schema),
            "guided_json": (Constraint.json_schema, self.guided_json),
            "guided_regex": (Constraint.regex, self.guided_regex),
            "guided_choice": (Constraint.choices, self.guided_choice),
            "structured_outputs.json": (Constraint.json_schema, outputs.json),
            "structured_outputs.regex": (Constraint.regex, outputs.regex),
            "structured_outputs.choice": (Constraint.choices, outputs.choice),
        }
        given = {name: form for name, form in forms.items() if form[1] is not None}
        if len(given) > 1:
            raise RequestError(f"a reply has one form; give one of {' and '.join(given)}")
        for name, (make, value) in given.items():
            try:
                return make(value)
            except ConfigError as error:
                raise RequestError(error.message, param=name) from None
        return None


_SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty",
    "frequency_penalty", "logit_bias", "seed", "stop", "max_tokens",
)  # fmt: skip
"""Fields with the names of a `GenerationConfig`."""

_OTHER_VALUES: Mapping[str, tuple[int, int | None]] = {
    "top_k": (-1, 0),
    "seed": (-1, None),
    "max_tokens": (-1, None),
}
"""What vLLM and llama.cpp write for all tokens, any seed, and no limit."""


def configured(defaults: GenerationConfig, given: Mapping[str, Any]) -> GenerationConfig:
    """Return the defaults with the fields of a request; None stands for a field left out.

    So does an empty text for a stop text: forms of clients send what was not filled in.

    Raises RequestError that names the field.
    """
    options = {name: value for name, value in given.items() if value is not None}
    if "stop" in options:
        options["stop"] = tuple(filter(None, options["stop"]))
    try:
        return replace(defaults, **options)
    except ConfigError as error:
        first = error.message.partition(" ")[0]
        raise RequestError(error.message, param=first if first in options else "") from None


def refuse(fields: Mapping[str, str], given: Mapping[str, Any]) -> None:
    """Refuse fields that akunu lacks and that would change the meaning of a request.

    `fields` has what to do instead, by field; `given` the values, of which null, false, 0 and empty
    ones are as good as a field left out. Raises RequestError.
    """
    for name, advice in fields.items():
        if given.get(name):
            raise RequestError(f"{name} is not supported; {advice}", param=name)


def _id(token: str) -> int:
    if not token.isdecimal() or len(token) > 9:
        raise RequestError(
            f"logit_bias has the key {token!r:.60}; give ids of tokens", param="logit_bias"
        )
    return int(token)
