"""Fields of a request that say how to sample and when to end; the same in several APIs."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any, ClassVar, TypeVar, cast, get_args

import msgspec

from akunu_py.drafting.registry import draft_options
from akunu_py.server.errors import RequestError
from akunu_py.system.errors import ConfigError
from akunu_py.values.constraint import Constraint
from akunu_py.values.generation_config import Effort, GenerationConfig
from akunu_py.values.option_fields import (
    Biases,
    Count,
    DeclaredOption,
    Kind,
    Number,
    Switch,
    Texts,
    WireFormat,
    options_of,
)

JSON_OBJECT = Constraint.json_schema({"type": "object"})
"""What the type "json_object" of OpenAI's APIs asks for."""

EFFORTS: tuple[str, ...] = get_args(Effort)
"""Words for how much to think."""

_NAMES: Mapping[tuple[WireFormat | None, str], tuple[str, ...]] = {
    ("completions", "repetition_penalty"): ("repetition_penalty", "repeat_penalty"),
    ("messages", "stop"): ("stop_sequences",),
    ("responses", "max_tokens"): ("max_output_tokens",),
    ("ollama", "max_tokens"): ("num_predict",),
    ("ollama", "penalty_window"): ("repeat_last_n",),
    ("ollama", "repetition_penalty"): ("repeat_penalty",),
}
"""Fields of options that are called otherwise in a format; the first that is given counts."""

_TYPES: Mapping[type[Kind[Any]], Any] = {
    Number: float, Count: int | float, Switch: bool, Texts: list[str], Biases: dict[str, float],
}  # fmt: skip
"""JSON types of the kinds of options; those of the others are texts."""

_OTHER_VALUES: Mapping[str, tuple[int, int | None]] = {
    "top_k": (-1, 0),
    "seed": (-1, None),
    "max_tokens": (-1, None),
}
"""What vLLM, llama.cpp and Ollama write for all tokens, any seed, and no limit."""


REFUSED_SAMPLING: Mapping[str, str] = {
    "mirostat": "use temperature and top_p",
    "tfs_z": "use min_p",
    "typical_p": "use min_p",
}
"""Samplers of other servers, and what to do instead; see `refuse`."""

REFUSED_BY_OPENAI_FORMATS: Mapping[str, str] = {
    **REFUSED_SAMPLING,
    "xtc_probability": "use min_p",
    "top_n_sigma": "use min_p",
    "dry_multiplier": "use repetition_penalty",
    "dynatemp_range": "use temperature",
    "use_beam_search": "use n",
    **dict.fromkeys(
        ("grammar", "ebnf"), "use json_schema or regex, or give Lark as guided_grammar"
    ),
    **dict.fromkeys(
        ("structural_tag", "structured_outputs.structural_tag"), "use tools, or response_format"
    ),
    "stop_token_ids": "use stop",
    "stop_regex": "use stop",
    "bad_words": "use logit_bias",
    "allowed_token_ids": "use logit_bias",
    "truncate_prompt_tokens": "send a shorter prompt",
    "t_max_predict_ms": "use max_tokens",
    "logits_processors": "use logit_bias",
    "custom_logit_processor": "use logit_bias",
    **dict.fromkeys(("lora", "lora_path"), "start the server with --adapter PATH"),
}

_NEUTRAL: Mapping[str, float] = {"tfs_z": 1, "typical_p": 1, "top_n_sigma": -1}
"""Values with which a sampler changes nothing, besides 0."""


class OptionFields(msgspec.Struct, kw_only=True):
    """Fields of a request that are options; `with_options` adds them."""

    wire: ClassVar[WireFormat | None] = None
    """The format whose options are its fields; None for none."""

    def options(self) -> dict[str, Any]:
        """Return the options that the fields give, by name; None for one that was left out."""
        return {one.name: self._option(one) for one in _options(self.wire)}

    def spelling(self, *, within: str = "") -> dict[str, str]:
        """Return the fields' names by option, as they were given in `within`."""
        names = {one.name: _names(self.wire, one) for one in _options(self.wire)}
        return {
            option: within + next((one for one in given if getattr(self, one) is not None), option)
            for option, given in names.items()
        }

    def _option(self, one: DeclaredOption) -> Any:
        given = (getattr(self, name) for name in _names(self.wire, one))
        value = next((value for value in given if value is not None), None)
        if isinstance(one.kind, Biases) and value is not None:
            return {_id(token): bias for token, bias in value.items()}
        # Clients whose language has one kind of number write 3.0.
        if isinstance(one.kind, Count) and isinstance(value, float) and value.is_integer():
            return int(value)
        return value


class RequestBody(OptionFields, kw_only=True):
    """The body of a request in any format."""

    model: str | None = None


_Fields = TypeVar("_Fields", bound=OptionFields)


@cache
def with_options(body: type[_Fields]) -> type[_Fields]:
    """Return a class with a field for each option that its format has."""
    fields = [
        (name, _TYPES.get(type(one.kind), str) | None, None)
        for one in _options(body.wire)
        for name in _names(body.wire, one)
        if name not in body.__struct_fields__
    ]
    made = msgspec.defstruct(body.__name__, fields, bases=(body,), kw_only=True)
    return cast("type[_Fields]", made)


@cache
def _options(wire: WireFormat | None) -> Sequence[DeclaredOption]:
    declared = (*options_of(GenerationConfig), *draft_options().values())
    return [one for one in declared if wire in one.wire]


def _names(wire: WireFormat | None, one: DeclaredOption) -> tuple[str, ...]:
    return _NAMES.get((wire, one.name), (one.name,))


class _StructuredOutputs(msgspec.Struct):
    """The forms of vLLM that akunu has."""

    json: dict[str, Any] | str | None = None
    json_object: bool | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class OpenAIBody(RequestBody, kw_only=True):
    """What both of OpenAI's older APIs have, with what vLLM, SGLang and llama.cpp add to them."""

    wire: ClassVar[WireFormat] = "completions"

    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    n: int | None = None
    timings_per_token: bool | None = None
    stop: str | list[str] | None = None
    json_schema: dict[str, Any] | None = None
    guided_json: dict[str, Any] | str | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    regex: str | None = None
    structured_outputs: _StructuredOutputs | None = None

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with the usage."""
        return bool(self.stream_options and self.stream_options.include_usage)

    def options(self) -> dict[str, Any]:
        given = with_other_values(super().options())
        given["constraint"] = self._form()
        if isinstance(self.stop, str):
            given["stop"] = [self.stop]
        return given

    def _form(self) -> Constraint | None:
        """Return the form that fields of vLLM, SGLang or llama.cpp ask for."""
        outputs = self.structured_outputs or _StructuredOutputs()
        forms: dict[str, tuple[Callable[[Any], Constraint], Any]] = {
            "json_schema": (Constraint.json_schema, self.json_schema),
            "guided_json": (Constraint.json_schema, self.guided_json),
            "guided_regex": (Constraint.regex, self.guided_regex),
            "guided_choice": (Constraint.choices, self.guided_choice),
            "guided_grammar": (_lark, self.guided_grammar),
            "regex": (Constraint.regex, self.regex),
            "structured_outputs.json": (Constraint.json_schema, outputs.json),
            "structured_outputs.regex": (Constraint.regex, outputs.regex),
            "structured_outputs.choice": (Constraint.choices, outputs.choice),
            "structured_outputs.grammar": (_lark, outputs.grammar),
            "structured_outputs.json_object": (lambda _: JSON_OBJECT, outputs.json_object or None),
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


def answer_form(given: Mapping[str, Any] | None, field: str) -> Constraint | None:
    """Return the form that `field` asks for, in the words of OpenAI, Anthropic or llama.cpp."""
    match given:
        case None | {"type": "text"}:
            return None
        case {"type": "json_object" | "json_schema", "schema": dict(schema)} | {
            "type": "json_schema",
            "json_schema": {"schema": dict(schema)},
        }:
            return Constraint.json_schema(schema)
        case {"type": "json_object"} if given.get("schema") is None:
            return JSON_OBJECT
    raise RequestError(
        f'{field} is malformed; give {{"type": "json_schema", "schema": {{...}}}}', param=field
    )


def _lark(text: str) -> Constraint:
    """Return the form of a grammar, which other servers take in several languages."""
    if re.search(r"^[ \t]*[\w-]+[ \t]*::=", text, re.MULTILINE):
        raise ConfigError(
            "the grammar is in EBNF or GBNF; give a Lark grammar as llguidance has it"
        )
    return Constraint.grammar(text)


def with_other_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with akunu's values for those that mean the same elsewhere."""
    return {
        name: _OTHER_VALUES[name][1]
        if name in _OTHER_VALUES and value == _OTHER_VALUES[name][0]
        else value
        for name, value in given.items()
    }


def config_with(
    defaults: GenerationConfig, given: Mapping[str, Any], spelling: Mapping[str, str]
) -> GenerationConfig:
    """Return the defaults with the fields of a request; None stands for a field left out.

    So does an empty text for a stop text: forms of clients send what was not filled in. `spelling`
    has the client's names of options.

    Raises RequestError that names the field.
    """
    options = {name: value for name, value in given.items() if value is not None}
    if "stop" in options:
        options["stop"] = tuple(filter(None, options["stop"]))
    try:
        return defaults.with_values(options)
    except ConfigError as error:
        option, space, rest = error.message.partition(" ")
        name = spelling.get(option, option) if option in options else option
        param = name if option in options else ""
        raise RequestError(name + space + rest, param=param) from None


def declared_fields(wire: WireFormat, defaults: GenerationConfig) -> list[dict[str, Any]]:
    """Return the options of a format for a client's form: names, ranges and words."""
    return [
        {
            "name": one.name,
            "kind": type(one.kind).__name__.lower(),
            "default": defaults.value_of(one),
            "words": one.words,
            **asdict(cast("Any", one.kind)),
        }
        for one in _options(wire)
        if one.words  # the others are for programs
    ]


def refuse(fields: Mapping[str, str], given: Mapping[str, Any], *, within: str = "") -> None:
    """Refuse fields that akunu lacks and that would change the meaning of a request.

    `fields` has what to do instead, by field; `given` the values, of which null, false, 0 and empty
    ones, and those that turn a sampler off, are as good as a field left out. They stand in
    `within`. Raises RequestError.
    """
    for name, advice in fields.items():
        if given.get(name) and given[name] != _NEUTRAL.get(name):
            field = within + name
            raise RequestError(f"{field} is not supported; {advice}", param=field)


def _id(token: str) -> int:
    if not token.isdecimal() or len(token) > 9:
        raise RequestError(
            f"logit_bias has the key {token!r:.60}; give ids of tokens", param="logit_bias"
        )
    return int(token)
