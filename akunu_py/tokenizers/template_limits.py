"""Limits of a template from a model file: time, and the size of its values.

Time is the thread's processor time, so that a busy machine accepts the same templates as others.
The limits of one rendering are in a context variable, since they cannot be passed to functions that
jinja2 calls.
"""

import contextlib
import re
import time
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import jinja2

_BASE_LIMIT = 1 << 20
_GROWTH = 8  # how often a template may repeat the messages
_CHURN = 64  # size of all values together, relative to the largest allowed value
_MAX_DEPTH = 64
MAX_BITS = 4096
_PARTS = 16  # of a text, between two looks at the clock, which take longer than most parts
# Widths of four digits and computed widths, in the notations of `%` and `str.format`. After the
# first "%(" any long number counts, since the key inside is arbitrary.
_WIDE = re.compile(r"\d{4}|\*")
WIDE_PERCENT = re.compile(r"%[^A-Za-z%(]*(?:\d{4}|\*)")
WIDE_BRACES = re.compile(r"\{[^{}]*(?:\d{4}|\{)")


class TemplateLimitError(jinja2.TemplateError):
    """A template exceeds its time or size."""


@dataclass(slots=True)
class _Budget:
    """What one rendering may still use.

    `size` bounds each value and the output, `left` all values together, since a template can keep
    them.
    """

    seconds: float
    deadline: float
    size: int
    left: int


_BUDGET: ContextVar[_Budget] = ContextVar("akunu_template_budget")


@contextlib.contextmanager
def budget(seconds: float, input_size: int) -> Iterator[None]:
    """Limit the code inside to some seconds, and to sizes that grow with `input_size`."""
    size = _BASE_LIMIT + _GROWTH * input_size
    token = _BUDGET.set(_Budget(seconds, time.thread_time() + seconds, size, size * _CHURN))
    try:
        yield
    finally:
        _BUDGET.reset(token)


def check_time() -> None:
    """Raise TemplateLimitError when the time is over."""
    allowed = _BUDGET.get()
    if time.thread_time() > allowed.deadline:
        raise TemplateLimitError(f"it takes longer than {allowed.seconds:g} seconds")


def weigh(value: object) -> int:
    """Return roughly the size of a value when written out; stop counting above the limit.

    Containers may share parts, so a small one can be endless when written. Each occurrence counts.
    """
    limit = _BUDGET.get().size
    if isinstance(value, str):
        return len(value)
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise TemplateLimitError(f"it makes a number of more than {MAX_BITS} bits")
    total = 0
    stack: list[tuple[object, int]] = [(value, 0)]
    while stack and total <= limit:
        item, depth = stack.pop()
        total += len(item) if isinstance(item, str) else 1
        if isinstance(item, list | tuple | set | frozenset):
            stack += [(part, depth + 1) for part in item]
        elif isinstance(item, dict):
            stack += [(part, depth + 1) for pair in item.items() for part in pair]
        if depth > _MAX_DEPTH:
            raise TemplateLimitError(f"it nests lists more than {_MAX_DEPTH} deep")
    return total


def check_size(size: int) -> None:
    """Raise TemplateLimitError for a size above the limit."""
    if size > _BUDGET.get().size:
        raise TemplateLimitError("it makes a text or list that is far too long")


def account(value: Any) -> Any:
    """Return a new value; raise TemplateLimitError if it, or all together, are too large."""
    size = weigh(value)
    check_size(size)
    allowed = _BUDGET.get()
    allowed.left -= size
    if allowed.left < 0:
        raise TemplateLimitError("it makes too many long texts and lists")
    return value


def check_format(text: str, wide: re.Pattern[str], values: object) -> None:
    """Raise TemplateLimitError for a format that would inflate `values`.

    `wide` is WIDE_PERCENT for the operator `%`, WIDE_BRACES for `str.format`.
    """
    # A width of a billion is short in a template and takes a gigabyte in memory; so does a long
    # value named ten thousand times.
    keyed = text.find("%(") if wide is WIDE_PERCENT else -1
    if wide.search(text) or (keyed >= 0 and _WIDE.search(text, keyed)):
        raise TemplateLimitError("it formats with a width that is too large or computed")
    check_size(len(text) + (text.count("%") + text.count("{")) * weigh(values))


def check_replace(text: str, old: object, new: object) -> None:
    """Raise TemplateLimitError for a replacement that makes a text too long."""
    check_size(len(text) + (text.count(str(old)) if old else len(text) + 1) * len(str(new)))


def collect(separator: str, parts: Iterable[object]) -> list[str]:
    """Return the parts as texts, measured while they are collected."""
    texts: list[str] = []
    total = 0
    for number, part in enumerate(parts):
        if number % _PARTS == 0:
            check_time()
        text = str(part)
        texts.append(text)
        total += len(text) + len(separator)
        check_size(total)
    return texts
