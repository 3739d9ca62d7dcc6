"""A jinja2 sandbox for templates from model files, bounded in time, memory and reach.

jinja2's sandbox keeps templates away from Python's internals, but they can still nest loops for
hours or double a text forty times. Here every loop step, call, filter and operator checks the
deadline, and every value that can grow is measured before or while it is made. That also bounds the
cost of a single operation, so the deadline is met closely. Time is the thread's processor time, so
that a busy machine accepts the same templates as others. The limits of one rendering are in a
context variable, since they cannot be passed to functions that jinja2 calls.

Filters that would need a separate bound and that no chat template uses (`attr`, `pprint`, `random`,
`striptags`, `urlize`, `wordwrap`, `xmlattr`) are left out, and so are such methods.
"""

import contextlib
import functools
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, pass_environment

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


TIME_LIMIT_S = 5.0
_MAX_INDENT = 64
# Filters that take a width or a count -> the most that it may be.
_MAX_NUMBERS = {
    "indent": _MAX_INDENT, "round": _MAX_INDENT, "batch": 1000, "center": 1000, "slice": 1000,
}  # fmt: skip

_FILTERS = frozenset(
    (
        "abs", "batch", "capitalize", "center", "count", "d", "default", "dictsort", "e", "escape",
        "filesizeformat", "first", "float", "forceescape", "format", "groupby", "indent", "int",
        "items", "join", "last", "length", "list", "lower", "map", "max", "min", "reject",
        "rejectattr", "replace", "reverse", "round", "safe", "select", "selectattr", "slice",
        "sort", "string", "sum", "title", "trim", "truncate", "unique", "upper", "urlencode",
        "wordcount",
    )
)  # fmt: skip
_METHODS: dict[type, frozenset[str]] = {
    str: frozenset(
        (
            "capitalize", "casefold", "count", "endswith", "find", "format", "index", "isalnum",
            "isalpha", "isascii", "isdecimal", "isdigit", "islower", "isnumeric", "isspace",
            "istitle", "isupper", "join", "lower", "lstrip", "partition", "removeprefix",
            "removesuffix", "replace", "rfind", "rindex", "rpartition", "rsplit", "rstrip",
            "split", "splitlines", "startswith", "strip", "swapcase", "title", "upper",
        )
    ),
    dict: frozenset(("get", "items", "keys", "values")),
    list: frozenset(("count", "index")),
    tuple: frozenset(("count", "index")),
}  # fmt: skip


def _bounded_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a filter: check the time, costly arguments, and its result."""
    # To some functions jinja2 passes its context or the like before the value.
    first = int(hasattr(function, "jinja_pass_arg"))

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        check_time()
        value, rest = args[first], args[first + 1 :]
        numbers = [n for n in (*rest, *kwargs.values()) if isinstance(n, int)]
        most = _MAX_NUMBERS.get(name)
        if most is not None and any(abs(number) > most for number in numbers):
            raise TemplateLimitError(f"it uses {name} with a number above {most}")
        if name == "indent":
            widths = [len(t) for t in (*rest, *kwargs.values()) if isinstance(t, str)]
            text = str(value)
            check_size(len(text) + (text.count("\n") + 1) * max([_MAX_INDENT, *widths]))
        elif name == "format":
            check_format(str(value), WIDE_PERCENT, (*rest, *kwargs.values()))
        elif name == "replace":
            old, new = (*rest, kwargs.get("old", ""), kwargs.get("new", ""))[:2]
            check_replace(str(value), old, new)
        elif name == "join" and not rest[1:] and "attribute" not in kwargs:
            separator = str(rest[0] if rest else kwargs.get("d", ""))
            args = (*args[:first], collect(separator, value), *rest)
        return account(function(*args, **kwargs))

    return call


def _bounded_test(function: Any) -> Callable[..., Any]:
    """Wrap a test: `select` and similar filters run it for every item of a list."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        check_time()
        return function(*args, **kwargs)

    return call


@pass_environment
def _sum(
    environment: "BoundedEnvironment", values: Iterable[Any], attribute: Any = None, start: Any = 0
) -> Any:
    """Add up values and check each addition: sums of lists grow, and are copied at each step."""
    if attribute is not None:
        values = (environment.getitem(value, attribute) for value in values)
    total = start
    for value in values:
        check_time()
        total = account(total + value)
    return total


class _Namespace(Namespace):
    """jinja2's namespace with a constant text: nested namespaces could make it endless."""

    def __repr__(self) -> str:
        return "<namespace>"


class _GenerationBlock(Extension):
    """Transformers' `{% generation %}`, which marks the assistant's text for training."""

    tags = {"generation"}  # noqa: RUF012 - as the base class declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _BoundedCode(CodeGenerator):
    """Compiles loops, literals and concatenations so that they pass the environment's checks."""

    def visit_For(self, node: nodes.For, frame: Frame) -> None:
        """Compile a loop over the values that `steps` yields."""
        steps = nodes.EnvironmentAttribute("steps", lineno=node.lineno)
        node.iter = nodes.Call(steps, [node.iter], [], None, None, lineno=node.lineno)
        super().visit_For(node, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        """Compile `a ~ b` to `join_parts`."""
        self.write("environment.join_parts((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def _write_measured(self, node: nodes.Expr, frame: Frame, visit: Callable[..., None]) -> None:
        # As the target of an assignment, (a, b) is not a value.
        if getattr(node, "ctx", "load") != "load":
            visit(node, frame)
            return
        self.write("environment.measure(")
        visit(node, frame)
        self.write(")")

    def visit_List(self, node: nodes.List, frame: Frame) -> None:
        self._write_measured(node, frame, super().visit_List)

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:
        self._write_measured(node, frame, super().visit_Tuple)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        self._write_measured(node, frame, super().visit_Dict)

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        """Compile a slice, which copies, to its measured value."""
        if isinstance(node.arg, nodes.Slice):
            self._write_measured(node, frame, super().visit_Getitem)
        else:
            super().visit_Getitem(node, frame)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox, with the settings with which Hugging Face's transformers renders templates."""

    code_generator_class = _BoundedCode
    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "**", "%"))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_GenerationBlock, "jinja2.ext.loopcontrols"],
        )
        self.globals["namespace"] = _Namespace
        del self.globals["lipsum"]
        self.filters = {
            name: _bounded_filter(name, function)
            for name, function in self.filters.items()
            if name in _FILTERS
        }
        self.add_filter("sum", _sum)
        self.tests = {name: _bounded_test(test) for name, test in self.tests.items()}

    def add_filter(self, name: str, function: Callable[..., Any]) -> None:
        """Add a filter, measured like the others."""
        self.filters[name] = _bounded_filter(name, function)

    def compile_bounded(self, source: str) -> jinja2.Template:
        """Compile a template; its constant parts are computed now, within the limits."""
        with budget(TIME_LIMIT_S, len(source)):
            return self.from_string(source)

    def render_bounded(
        self, template: jinja2.Template, *, input_size: int, names: dict[str, Any]
    ) -> str:
        """Render a template; raise TemplateLimitError beyond its time or size.

        `input_size` is roughly the number of characters in `names`; the limits grow with it.
        """
        with budget(TIME_LIMIT_S, input_size):
            return self.concat(template.generate(names))

    def concat(self, pieces: Iterable[str]) -> str:
        text: str = account("".join(collect("", pieces)))
        return text

    def steps(self, values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            check_time()
            yield value

    def join_parts(self, parts: Iterable[object]) -> str:
        """Return the joined parts of `a ~ b`."""
        return self.concat(str(part) for part in parts)

    measure = staticmethod(account)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Return the sandboxed `str.format`, which refuses computed widths."""
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        text = value.__self__

        @functools.wraps(wrapped)
        def call(*args: Any, **kwargs: Any) -> str:
            check_format(text, WIDE_BRACES, (*args, *kwargs.values()))
            return wrapped(*args, **kwargs)

        return call

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call a function, macro or method, within the limits."""
        check_time()
        owner = getattr(obj, "__self__", None)
        if owner is self:  # `steps`, which is lazy
            return obj(*args)
        # A compiled function's owner is its module.
        if isinstance(owner, str | bytes | int | float | list | tuple | dict):
            kind = next((kind for kind in _METHODS if isinstance(owner, kind)), None)
            if kind is None or obj.__name__ not in _METHODS[kind]:
                raise SecurityError(f"the method {obj.__name__} is not available to templates")
            if isinstance(owner, str) and obj.__name__ == "replace" and len(args) >= 2:
                check_replace(owner, args[0], args[1])
            elif obj.__name__ == "join" and len(args) == 1:
                args = (collect(str(owner), _texts_only(args[0])),)
        return account(super().call(context, obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute an operator, after a check of the size of its result."""
        check_time()
        if operator == "%" and isinstance(left, str):
            check_format(left, WIDE_PERCENT, right)
        elif operator == "*":
            for one, other in ((left, right), (right, left)):
                if isinstance(other, int) and isinstance(one, str | list | tuple):
                    check_size(max(weigh(one), 1) * other)
        elif (
            operator == "**"
            and isinstance(left, int)
            and isinstance(right, int)
            and left.bit_length() * abs(right) > MAX_BITS
        ):
            raise TemplateLimitError(f"it makes a number of more than {MAX_BITS} bits")
        return account(super().call_binop(context, operator, left, right))


def _texts_only(parts: Iterable[Any]) -> Iterator[str]:
    for part in parts:
        if not isinstance(part, str):
            raise TypeError(f"join takes texts, not {type(part).__name__}")
        yield part
