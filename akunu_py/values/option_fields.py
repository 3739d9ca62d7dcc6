"""Options as fields of a dataclass: default, range and help, declared together once.

The checks of a configuration, the flags of the command line, the chat's `/set` and the fields of
requests to the server follow from the declarations. `--help` imports this module, so it must stay
cheap.
"""

import dataclasses
import functools
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypedDict, TypeVar, Unpack, overload

from akunu_py.system.errors import ConfigError, ContractError

_T = TypeVar("_T")

WireFormat = Literal["completions", "messages", "responses", "ollama"]
"""A format of requests to the server; "completions" are OpenAI's of chats and of texts."""


class Kind(ABC, Generic[_T]):
    """The values that an option takes. Type checkers compare `_T` with the field's annotation."""

    @abstractmethod
    def check(self, name: str, value: Any) -> None:
        """Raise ConfigError for an invalid value; the message begins with `name`."""


@dataclass(frozen=True, slots=True)
class Number(Kind[float]):
    """A number from `least` to `most`, both finite."""

    least: float
    most: float
    wanted: str
    excluded: float | None = None
    """An end that is not part of the range; None if both are."""

    or_zero: bool = False
    """Whether 0 is also accepted."""

    def check(self, name: str, value: Any) -> None:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not self._has(value):
            raise ConfigError(f"{name} is {value!r}; give {self.wanted}")

    def _has(self, value: float) -> bool:
        # NaN compares as false with both ends.
        in_range = self.least <= value <= self.most and value != self.excluded
        return in_range or (self.or_zero and value == 0)


@dataclass(frozen=True, slots=True)
class Count(Kind[int]):
    """A whole number from `least` to `most`; `wanted` is the range in a message, after "give"."""

    least: int
    wanted: str
    most: int | None = None

    def check(self, name: str, value: Any) -> None:
        whole = isinstance(value, int) and not isinstance(value, bool)
        most = math.inf if self.most is None else self.most
        if not whole or not self.least <= value <= most:
            raise ConfigError(f"{name} is {value!r}; give {self.wanted}")


@dataclass(frozen=True, slots=True)
class Switch(Kind[bool]):
    """True or False."""

    def check(self, name: str, value: Any) -> None:
        if not isinstance(value, bool):
            raise ConfigError(f"{name} is {value!r}; give True or False")


@dataclass(frozen=True, slots=True)
class Choice(Kind[_T]):
    """One of a few names."""

    names: tuple[_T, ...]

    def check(self, name: str, value: Any) -> None:
        if value not in self.names:
            raise ConfigError(f"{name} is {value!r}; give {' or '.join(map(repr, self.names))}")


@dataclass(frozen=True, slots=True)
class Texts(Kind[tuple[str, ...]]):
    """Up to `most` texts of up to `longest` characters, none of them empty."""

    most: int
    longest: int

    def check(self, name: str, value: Any) -> None:
        if not isinstance(value, tuple | list) or not all(
            isinstance(text, str) and text for text in value
        ):
            raise ConfigError(f"{name} is {value!r:.60}; give a tuple of texts, none of them empty")
        if len(value) > self.most:
            raise ConfigError(f"{name} has {len(value):,} texts; give {self.most} or fewer")
        if (size := max(map(len, value), default=0)) > self.longest:
            raise ConfigError(
                f"{name} has a text of {size:,} characters; give {self.longest} or fewer"
            )


@dataclass(frozen=True, slots=True)
class Value(Kind[_T]):
    """A value of a class, or of several; `wanted` describes it in a message, after "give"."""

    of: Any
    wanted: str

    def check(self, name: str, value: Any) -> None:
        """Raise ConfigError unless it is an object of the class."""
        if not isinstance(value, self.of):
            raise ConfigError(f"{name} is {value!r}; give {self.wanted}")


@dataclass(frozen=True, slots=True)
class Functions(Kind[Any]):
    """A function of the caller's, or with `several` a list of them; for programs alone."""

    several: bool = False

    def check(self, name: str, value: Any) -> None:
        """Raise ConfigError for what cannot be called."""
        found = value if self.several and isinstance(value, tuple | list) else [value]
        if not all(map(callable, found)) or (self.several and found != value):
            wanted = "a list of functions" if self.several else "a function"
            raise ConfigError(f"{name} is {value!r:.60}; give {wanted} (docs/python.md)")


@dataclass(frozen=True, slots=True)
class NameOrMaker(Kind[Any]):
    """A name, an object that drafts, or a function that makes one."""

    def check(self, name: str, value: Any) -> None:
        """Raise ConfigError for what is none of these."""
        drafts = all(callable(getattr(value, one, None)) for one in ("observe", "propose"))
        if not isinstance(value, str) and not drafts and not callable(value):
            raise ConfigError(
                f"{name} is {value!r:.60}; give a drafter's name, 'none', or an object with "
                "observe and propose (docs/drafting.md)"
            )


@dataclass(frozen=True, slots=True)
class Biases(Kind[Mapping[int, float]]):
    """Numbers by token id."""

    def check(self, name: str, value: Any) -> None:
        if not isinstance(value, Mapping):
            raise ConfigError(f"{name} is {value!r}; give a dict of id and bias")
        for token, bias in value.items():
            _TOKEN_ID.check(f"a token id in {name}", token)
            _BIAS.check(f"the bias of token {token}", bias)


@dataclass(frozen=True, slots=True)
class Variables(Kind[Mapping[str, Any]]):
    """JSON values by name, except the names `taken`; together `most` characters of JSON."""

    taken: frozenset[str]
    most: int

    def check(self, name: str, value: Any) -> None:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise ConfigError(f"{name} is {value!r:.60}; give values by name")
        if taken := self.taken & value.keys():
            raise ConfigError(f"{name} has {min(taken)!r}, which is akunu's to say; leave it out")
        try:
            size, depth = len(json.dumps(dict(value))), _depth(value)
        except (TypeError, ValueError, RecursionError):
            raise ConfigError(f"{name} has a value that is not JSON's, or too deep") from None
        if size > self.most or depth > _DEEPEST:
            raise ConfigError(
                f"{name} has {size:,} characters in {depth} levels; give at most {self.most:,} in "
                f"{_DEEPEST}"
            )


def _depth(value: object) -> int:
    if not isinstance(value, Mapping | list | tuple):
        return 0
    parts = value.values() if isinstance(value, Mapping) else value
    return 1 + max(map(_depth, parts), default=0)


_TYPES: Mapping[type, Kind[Any]] = {bool: Switch(), Path: Value(str | Path, "the path of a file")}
_DEEPEST = 64
_TOKEN_ID = Count(0, "ids of the vocabulary")
_BIAS = Number(-1e9, 1e9, "a finite number")


@dataclass(frozen=True, slots=True)
class DeclaredOption:
    """A field of a dataclass that was declared with `option`."""

    name: str
    default: Any
    """Its default value; the checks treat None as "left out"."""

    kind: Kind[Any]
    """The values it takes."""

    help: str
    """Its effect, in one or two sentences, which call other options by their names."""

    metavar: str
    """The value's letter or word in `help`, such as N."""

    group: str
    """A common name of options with the same effect; may be empty."""

    heading: str
    """The group of options in which --help shows it; "" for those that matter first."""

    words: str
    """Its effect in a few words, for the list of `/set`; may be empty."""

    rare: bool
    """Whether it is shown only where all options are asked for."""

    setting: bool
    """Whether it has no flag: the environment, the settings file and `/set` set it."""

    also: tuple[str, ...]
    """Other names for it: one letter, or what other programs call it."""

    wire: tuple[WireFormat, ...]
    """Formats of requests with a field for it, of the same name unless `server.generation_fields`
    has another."""

    def is_changed(self, config: object) -> bool:
        """Return whether a configuration's value is not the default."""
        return bool(getattr(config, self.name) != self.default)


class _Shown(TypedDict, total=False):
    """Attributes of `DeclaredOption` that say how it is shown and called, and where."""

    metavar: str
    group: str
    heading: str
    words: str
    rare: bool
    setting: bool
    also: tuple[str, ...]
    wire: tuple[WireFormat, ...]


Kinds = Kind[_T] | tuple[_T, ...] | type[_T]
"""A kind; or a tuple of names for `Choice`, bool for `Switch`, Path for the path of a file."""


@overload
def option(
    default: None, kind: Kinds[_T], help: str = ..., **shown: Unpack[_Shown]
) -> _T | None: ...


@overload
def option(default: _T, kind: Kinds[_T], help: str = ..., **shown: Unpack[_Shown]) -> _T: ...


def option(
    default: Any,
    kind: Kinds[Any],
    help: str = "",  # noqa: A002 - as click calls it
    **shown: Unpack[_Shown],
) -> Any:
    """Declare an option as a field of a dataclass; parameters are attributes of `DeclaredOption`.

    If the default is None, None is also a valid value.
    """
    if isinstance(kind, tuple):
        kind = Choice(kind)
    elif not isinstance(kind, Kind):
        if kind not in _TYPES:
            raise ContractError(
                f"an option of {kind!r}; give a Number, a Count, names, bool or Path"
            )
        kind = _TYPES[kind]
    declared = {
        "default": default, "kind": kind, "help": help,
        "metavar": "", "group": "", "heading": "", "words": "", "rare": False,
        "setting": False, "also": (), "wire": (), **shown,
    }  # fmt: skip
    if isinstance(default, dict):
        return dataclasses.field(default_factory=default.copy, metadata=declared)
    return dataclasses.field(default=default, metadata=declared)


def options_of(config_class: type[Any]) -> tuple[DeclaredOption, ...]:
    """Return the options of a dataclass: its fields that are declared with `option`."""
    found: tuple[DeclaredOption, ...] = _options_of(config_class)  # type: ignore[arg-type]
    return found


@functools.cache
def _options_of(config_class: type[Any]) -> tuple[DeclaredOption, ...]:
    return tuple(
        DeclaredOption(name=field.name, **field.metadata)
        for field in dataclasses.fields(config_class)
        if field.metadata
    )


def find_option(options: Iterable[DeclaredOption], name: str) -> DeclaredOption | None:
    """Return the option with this name or another one of its names; hyphens are underscores."""
    name = name.replace("-", "_")
    found = (one for one in options if name in (one.name, *one.also))
    return next(found, None)


def check_options(config: Any) -> None:
    """Check each field separately; raise ConfigError naming the field and its range."""
    for declared in options_of(config.__class__):
        value = getattr(config, declared.name)
        if value is not None or declared.default is not None:
            declared.kind.check(declared.name, value)


def make_options(options_class: type[_T], given: Mapping[str, Any]) -> _T:
    """Return the options of a class with those of the values given that are its own.

    Raises ConfigError naming the option and its range.
    """
    own = [declared for declared in options_of(options_class) if declared.name in given]
    for declared in own:
        if given[declared.name] is not None or declared.default is not None:
            declared.kind.check(declared.name, given[declared.name])
    return options_class(**{declared.name: given[declared.name] for declared in own})
