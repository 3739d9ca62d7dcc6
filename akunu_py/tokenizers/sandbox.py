"""A jinja2 sandbox for templates out of model files: bounded in time, memory and reach.

jinja2's sandbox keeps templates away from Python's internals, but not from nesting loops for
hours or doubling a text forty times. Here every loop step, call, filter and operator passes a
check of the deadline, and every value that can grow is measured before or as it is made. What a
single operation can cost is bounded by that measure, so the deadline is met closely.

Only the filters and methods that chat templates use are there: each of the others would need a
bound of its own.
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
from jinja2.utils import Namespace

TIME_LIMIT_S = 5.0
_BASE_LIMIT = 1 << 20
_GROWTH = 8  # a template may repeat the messages this often
_MAX_DEPTH = 64
_MAX_BITS = 4096
_MAX_INDENT = 64
# Widths of four digits or computed ones, as `%` and as `str.format` write them. After "%(" any
# long number counts: the key inside may hold anything.
_WIDE_PERCENT = re.compile(r"%[^A-Za-z%(]*(?:\d{4}|\*)|%\([\s\S]*(?:\d{4}|\*)")
_WIDE_BRACES = re.compile(r"\{[^{}]*(?:\d{4}|\{)")

_FILTERS = frozenset(
    (
        "abs", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float",
        "format", "indent", "int", "items", "join", "last", "length", "list", "lower", "map",
        "max", "min", "reject", "rejectattr", "replace", "reverse", "round", "safe", "select",
        "selectattr", "sort", "string", "title", "trim", "unique", "upper",
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


class TemplateLimitError(jinja2.TemplateError):
    """A template exceeds its time or size."""


@dataclass(slots=True)
class _Budget:
    deadline: float
    size: int


_BUDGET: ContextVar[_Budget] = ContextVar("akunu_template_budget")


def _check_time() -> _Budget:
    budget = _BUDGET.get()
    if time.monotonic() > budget.deadline:
        raise TemplateLimitError(f"it takes longer than {TIME_LIMIT_S:g} seconds")
    return budget


def _weigh(value: object) -> int:
    """Return about how large a value would be written out; stop counting above the limit.

    Containers may share parts, so a small one can be endless when written; the walk counts each
    occurrence.
    """
    limit = _BUDGET.get().size
    if isinstance(value, str):
        return len(value)
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        raise TemplateLimitError(f"it makes a number of more than {_MAX_BITS} bits")
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


def _bound(size: int) -> None:
    if size > _BUDGET.get().size:
        raise TemplateLimitError("it makes a text or list that is far too long")


def _check_format(text: str, wide: re.Pattern[str]) -> None:
    # A width of a billion is one short text in a template and a gigabyte in memory.
    if wide.search(text):
        raise TemplateLimitError("it formats with a width that is too large or computed")


def _check_replace(text: str, old: object, new: object) -> None:
    _bound(len(text) + (text.count(str(old)) if old else len(text) + 1) * len(str(new)))


def _joined(separator: str, parts: Iterable[object]) -> list[str]:
    """Return the parts as texts, measured while they are gathered."""
    texts: list[str] = []
    total = 0
    for part in parts:
        _check_time()
        texts.append(str(part))
        total += len(texts[-1]) + len(separator)
        _bound(total)
    return texts


def _bounded_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a filter: check the time, its arguments where they make it costly, and its result."""
    # With some functions jinja2 passes its context or the like before the value.
    first = int(hasattr(function, "jinja_pass_arg"))

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        _check_time()
        value, rest = args[first], args[first + 1 :]
        numbers = [n for n in (*rest, *kwargs.values()) if isinstance(n, int)]
        if name in ("indent", "round") and any(abs(n) > _MAX_INDENT for n in numbers):
            raise TemplateLimitError(f"it uses {name} with a number above {_MAX_INDENT}")
        if name == "indent":
            widths = [len(t) for t in (*rest, *kwargs.values()) if isinstance(t, str)]
            text = str(value)
            _bound(len(text) + (text.count("\n") + 1) * max([_MAX_INDENT, *widths]))
        elif name == "format":
            _check_format(str(value), _WIDE_PERCENT)
        elif name == "replace":
            old, new = (*rest, kwargs.get("old", ""), kwargs.get("new", ""))[:2]
            _check_replace(str(value), old, new)
        elif name == "join" and not rest[1:] and "attribute" not in kwargs:
            separator = str(rest[0] if rest else kwargs.get("d", ""))
            args = (*args[:first], _joined(separator, value), *rest)
        result = function(*args, **kwargs)
        _bound(_weigh(result))
        return result

    return call


class _Namespace(Namespace):
    """jinja2's namespace without its text: namespaces in one another can make that endless."""

    def __repr__(self) -> str:
        return "<namespace>"


class _GenerationBlock(Extension):
    """Transformers' `{% generation %}` marks the assistant's text for training; it is text."""

    tags = {"generation"}  # noqa: RUF012 - as the base class declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Return what stands inside."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _BoundedCode(CodeGenerator):
    """Compiles loops, literals and concatenations so that they pass the environment's checks."""

    def visit_For(self, node: nodes.For, frame: Frame) -> None:  # noqa: N802 - jinja2's name
        """Compile a loop over what `steps` lets through."""
        steps = nodes.EnvironmentAttribute("steps", lineno=node.lineno)
        node.iter = nodes.Call(steps, [node.iter], [], None, None, lineno=node.lineno)
        super().visit_For(node, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        """Compile `a ~ b` to `join_parts`."""
        self.write("environment.join_parts((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def _measured(self, node: nodes.Expr, frame: Frame, visit: Callable[..., None]) -> None:
        # As the target of an assignment, (a, b) is no value.
        if getattr(node, "ctx", "load") != "load":
            visit(node, frame)
            return
        self.write("environment.measured(")
        visit(node, frame)
        self.write(")")

    def visit_List(self, node: nodes.List, frame: Frame) -> None:  # noqa: N802
        """Compile a list to its measured value."""
        self._measured(node, frame, super().visit_List)

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:  # noqa: N802
        """Compile a tuple to its measured value."""
        self._measured(node, frame, super().visit_Tuple)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:  # noqa: N802
        """Compile a dictionary to its measured value."""
        self._measured(node, frame, super().visit_Dict)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox, with the settings that Hugging Face's transformers renders templates with."""

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

    def add_filter(self, name: str, function: Callable[..., Any]) -> None:
        """Add a filter of one's own, measured like the others."""
        self.filters[name] = _bounded_filter(name, function)

    def compile_bounded(self, source: str) -> jinja2.Template:
        """Compile a template; its constant parts are computed here, within the limits."""
        with self._budget(len(source)):
            return self.from_string(source)

    def render_bounded(
        self, template: jinja2.Template, *, input_size: int, names: dict[str, Any]
    ) -> str:
        """Render a template; raises TemplateLimitError beyond its time or size.

        `input_size` is about the number of characters in `names`; the limits grow with it.
        """
        with self._budget(input_size):
            return self.concat(template.generate(names))

    @contextlib.contextmanager
    def _budget(self, input_size: int) -> Iterator[None]:
        size = _BASE_LIMIT + _GROWTH * input_size
        token = _BUDGET.set(_Budget(time.monotonic() + TIME_LIMIT_S, size))
        try:
            yield
        finally:
            _BUDGET.reset(token)

    def concat(self, pieces: Iterable[str]) -> str:
        """Join what a template, a macro or a block has written."""
        return "".join(_joined("", pieces))

    def steps(self, values: Iterable[Any]) -> Iterator[Any]:
        """Give out values as long as there is time."""
        for value in values:
            _check_time()
            yield value

    def join_parts(self, parts: Iterable[object]) -> str:
        """Return the parts of `a ~ b` in one."""
        return "".join(_joined("", parts))

    def measured(self, value: Any) -> Any:
        """Return a new value, refused where it is too large."""
        _bound(_weigh(value))
        return value

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Return the sandboxed `str.format`, refused where it computes a width."""
        wrapped = super().wrap_str_format(value)
        if wrapped is not None:
            _check_format(value.__self__, _WIDE_BRACES)
        return wrapped

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call a function, macro or method, within the limits."""
        _check_time()
        owner = getattr(obj, "__self__", None)
        if owner is self:  # `steps`, which is lazy
            return obj(*args)
        # A compiled function's owner is its module.
        if isinstance(owner, str | bytes | int | float | list | tuple | dict):
            kind = next((kind for kind in _METHODS if isinstance(owner, kind)), None)
            if kind is None or obj.__name__ not in _METHODS[kind]:
                raise SecurityError(f"the method {obj.__name__} is not available to templates")
            if isinstance(owner, str) and obj.__name__ == "replace" and len(args) >= 2:
                _check_replace(owner, args[0], args[1])
            elif obj.__name__ == "join" and len(args) == 1:
                args = (_joined(str(owner), _texts_only(args[0])),)
        result = super().call(context, obj, *args, **kwargs)
        _bound(_weigh(result))
        return result

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute an operator, after a look at what it would make."""
        _check_time()
        if operator == "%" and isinstance(left, str):
            _check_format(left, _WIDE_PERCENT)
        elif operator == "*":
            for one, other in ((left, right), (right, left)):
                if isinstance(other, int) and isinstance(one, str | list | tuple):
                    _bound(max(_weigh(one), 1) * other)
        elif (
            operator == "**"
            and isinstance(left, int)
            and isinstance(right, int)
            and left.bit_length() * abs(right) > _MAX_BITS
        ):
            raise TemplateLimitError(f"it makes a number of more than {_MAX_BITS} bits")
        result = super().call_binop(context, operator, left, right)
        _bound(_weigh(result))
        return result


def _texts_only(parts: Iterable[Any]) -> Iterator[str]:
    for part in parts:
        if not isinstance(part, str):
            raise TypeError(f"join takes texts, not {type(part).__name__}")
        yield part
