"""What a reply must look like: a JSON schema, a regular expression, a grammar or a few choices."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from akunu_py.system.errors import ConfigError

ConstraintKind = Literal["json_schema", "regex", "grammar", "choices", "tools"]

MOST_CHARACTERS = 2**17
"""Of a schema, an expression or a grammar; larger ones may take longer than two seconds."""

MOST_TOOL_CHARACTERS = 2**19
"""Of a grammar that akunu writes for tools. Its rules are simple: one so large takes a second."""

MOST_REFERENCES = 1000
"""Of $ref in a schema and of rules in a grammar.

llguidance follows references by recursion: chains of 3,000 end the process, of 1,000 do not.
"""

MOST_LEVELS = 64
"""Of values inside values in a schema."""

MOST_KEYS = 500
"""Of one object in a schema. llguidance's time grows with the square of an object's properties."""

MOST_GRAMMAR_KEYS = 4000
"""Of all schemas in a grammar together, for the same reason."""

MOST_CHOICES = 10_000


@dataclass(frozen=True, slots=True)
class Constraint:
    """The form that a reply must have. Make one by one of the class methods.

    A constraint is checked in two steps: size and depth here, and the rest when it is compiled for
    a model's vocabulary (`akunu_py.constraints`).

    Raises ConfigError for a source that is too long.
    """

    kind: ConstraintKind
    """What `source` is."""

    source: str
    """JSON schema as JSON, regular expression, Lark grammar, or choices as a JSON list. For tools a
    Lark grammar that akunu wrote, with few references for each tool."""

    trigger: str = ""
    """Text after which the constraint begins. Before it the reply is free, and may end. It may
    contain control tokens, such as <|tool_call|>. "": it begins at once."""

    optional: str = ""
    """The grammar of those replies among the allowed ones that the model must choose unasked: where
    it would go another way without a constraint, they are not allowed."""

    def __post_init__(self) -> None:
        most = MOST_TOOL_CHARACTERS if self.kind == "tools" else MOST_CHARACTERS
        if len(self.source) > most:
            raise ConfigError(f"{self.kind} has {len(self.source)} characters; give at most {most}")
        references = len(_REFERENCE.findall(self.source))
        if self.kind in {"json_schema", "grammar"} and references > MOST_REFERENCES:
            what = "$ref" if self.kind == "json_schema" else "rules"
            raise ConfigError(
                f"{self.kind} has {references} {what}; give at most {MOST_REFERENCES}"
            )
        if self.kind == "grammar" and (keys := self.source.count('":')) > MOST_GRAMMAR_KEYS:
            raise ConfigError(f"grammar has {keys} keys of JSON; give at most {MOST_GRAMMAR_KEYS}")

    @classmethod
    def json_schema(cls, schema: Mapping[str, Any] | bool | str, *, trigger: str = "") -> Self:
        """Make the constraint of a JSON schema, given as a value or as JSON; {} is any JSON.

        Raises ConfigError for a text that is not JSON, or a schema that is too large or too deep.
        """
        if isinstance(schema, str) and len(schema) > MOST_CHARACTERS:
            return cls("json_schema", schema)  # refuses it before it is parsed
        value = _parse(schema) if isinstance(schema, str) else schema
        if not isinstance(value, Mapping | bool):
            raise ConfigError(
                f"json_schema is a JSON {_json_type(value)}; give a schema, which is an object"
            )
        _check_shape(value)
        try:
            source = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"json_schema is not JSON: {error}") from None
        return cls("json_schema", source, trigger)

    @classmethod
    def regex(cls, expression: str, *, trigger: str = "") -> Self:
        """Make the constraint of a regular expression, which the whole reply matches."""
        return cls("regex", _text("regex", expression), trigger)

    @classmethod
    def grammar(cls, lark: str, *, trigger: str = "") -> Self:
        """Make the constraint of a Lark grammar in llguidance's dialect; it begins at `start`."""
        return cls("grammar", _text("grammar", lark), trigger)

    @classmethod
    def tools(cls, lark: str, *, optional: str = "") -> Self:
        """Make the constraint of a reply with tool calls, from a grammar that akunu wrote."""
        return cls("tools", lark, optional=optional)

    @classmethod
    def choices(cls, texts: Iterable[str], *, trigger: str = "") -> Self:
        """Make the constraint that a reply is one of a few texts.

        Raises ConfigError for no texts, empty ones, or more than 10,000.
        """
        given = [texts] if isinstance(texts, str) else list(texts)
        if not given or not all(isinstance(text, str) and text for text in given):
            raise ConfigError(f"choices is {given!r:.200}; give texts, none of them empty")
        if len(given) > MOST_CHOICES:
            raise ConfigError(f"choices has {len(given)} texts; give at most {MOST_CHOICES}")
        return cls("choices", json.dumps(list(dict.fromkeys(given)), ensure_ascii=False), trigger)


_REFERENCE = re.compile(r'"\$ref"|^[ \t]*[?!]?\w[^\n:"/]*:', re.MULTILINE)
"""A reference in a schema, or the beginning of a rule."""


def _parse(text: str) -> object:
    try:
        return json.loads(text)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise ConfigError(f"json_schema is not JSON: {error}") from None


def _check_shape(value: object) -> None:
    """Raise ConfigError for a value that is too deep or has too many keys, without recursion."""
    waiting: list[Iterator[object]] = [iter((value,))]
    while waiting:
        item = next(waiting[-1], _END)
        if item is _END:
            waiting.pop()
        elif isinstance(item, Mapping):
            if len(item) > MOST_KEYS:
                raise ConfigError(
                    f"json_schema has an object of {len(item)} keys; give at most {MOST_KEYS}"
                )
            waiting.append(iter(item.values()))
        elif isinstance(item, list | tuple):
            waiting.append(iter(item))
        if len(waiting) > MOST_LEVELS:
            raise _too_deep()


_END = object()


def _too_deep() -> ConfigError:
    return ConfigError(
        f"json_schema has more than {MOST_LEVELS} levels of values inside values; use $ref for "
        "parts that repeat"
    )


def _plain(value: object) -> object:
    """Return a mapping that is not a dict as one, for `json.dumps`."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} is not a JSON value")


def _json_type(value: object) -> str:
    return {"list": "list", "str": "text", "NoneType": "null"}.get(type(value).__name__, "number")


def _text(name: str, value: str) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{name} is {value!r:.200}; give a text that is not empty")
    return value
