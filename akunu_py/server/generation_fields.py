"""Fields of a request that say how to sample and when to end; the same in several APIs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

import msgspec

from akunu_py.constraint import Constraint
from akunu_py.errors import ConfigError
from akunu_py.generation_config import Effort, GenerationConfig
from akunu_py.server.errors import RequestError

JSON_OBJECT = Constraint.json_schema({"type": "object"})
"""What the type "json_object" of OpenAI's APIs asks for."""

EFFORTS: tuple[str, ...] = get_args(Effort)
"""Words for how much to think."""


class ModelBody(msgspec.Struct, kw_only=True):
    """The body of a request in any format."""

    model: str | None = None


class SamplingFields(ModelBody, kw_only=True):
    """Sampling as OpenAI's APIs, vLLM and llama.cpp name it."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None

    def options(self) -> dict[str, Any]:
        """Return the fields that were given, as those of a `GenerationConfig`."""
        names = {*SamplingFields.__struct_fields__} - {*ModelBody.__struct_fields__}
        given = {name: getattr(self, name) for name in names}
        if isinstance(self.stop, str):
            given["stop"] = [self.stop]
        if self.logit_bias is not None:
            given["logit_bias"] = {_id(token): bias for token, bias in self.logit_bias.items()}
        return given


def configured(defaults: GenerationConfig, given: Mapping[str, Any]) -> GenerationConfig:
    """Return the defaults with the fields of a request; None stands for a field left out.

    Raises RequestError that names the field.
    """
    options = {name: value for name, value in given.items() if value is not None}
    if "stop" in options:
        options["stop"] = tuple(options["stop"])
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
