"""Edits of one Python function whose result is known exactly, made with `ast` positions.

Each edit takes the dedented source of a single function and a random generator and returns an
instruction with the edited source, or None where it does not apply.
"""

import ast
import io
import random
import textwrap
import tokenize
from collections.abc import Callable
from dataclasses import dataclass

TYPE_NAMES = ("int", "str", "float", "bool", "list", "dict", "bytes", "object")
NEW_PARAMETERS = (
    ("verbose", "False"), ("strict", "True"), ("timeout", "None"), ("limit", "10"),
    ("prefix", "''"), ("encoding", "'utf-8'"), ("default", "None"), ("depth", "0"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Edit:
    """An instruction ("Rename `a` to `b`") and the code after it was followed."""

    kind: str
    instruction: str
    code: str


EditMaker = Callable[[str, list[str], random.Random], Edit | None]
Function = ast.FunctionDef | ast.AsyncFunctionDef


def parse_function(code: str) -> Function | None:
    """Return the only function of `code`, or None."""
    try:
        body = ast.parse(code).body
    except (SyntaxError, ValueError):
        return None
    if len(body) == 1 and isinstance(body[0], ast.FunctionDef | ast.AsyncFunctionDef):
        return body[0]
    return None


def replace_spans(code: str, spans: list[tuple[int, int, int, str]]) -> str:
    """Replace (line from 1, column, end column, text) spans; columns are of ASCII text."""
    lines = code.split("\n")
    for line, start, end, text in sorted(spans, reverse=True):
        row = lines[line - 1]
        lines[line - 1] = row[:start] + text + row[end:]
    return "\n".join(lines)


def docstring_node(function: Function) -> ast.Expr | None:
    """Return the docstring statement, or None."""
    first = function.body[0]
    if (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    ):
        return first
    return None


def without_docstring(code: str) -> str | None:
    """Return the code less its docstring, or None where there is none or nothing else."""
    function = parse_function(code)
    if function is None:
        return None
    node = docstring_node(function)
    if node is None or len(function.body) < 2 or function.lineno == node.lineno:
        return None
    lines = code.split("\n")
    end = node.end_lineno or node.lineno
    while end < len(lines) and not lines[end].strip():
        end += 1
    return "\n".join(lines[: node.lineno - 1] + lines[end:])


def first_sentence(docstring: str) -> str | None:
    """Return the docstring's first line where it reads as a sentence of its own."""
    line = textwrap.dedent(docstring).strip().split("\n")[0].strip()
    if 12 <= len(line) <= 90 and line[0].isupper() and '"' not in line and "\\" not in line:
        return line if line.endswith(".") else line + "."
    return None


def header_end(code: str) -> tuple[int, int] | None:
    """Return (line, column) just after the parameter list's closing parenthesis."""
    depth = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(code + "\n").readline):
            if token.string == "(":
                depth += 1
            elif token.string == ")":
                depth -= 1
                if depth == 0:
                    return token.end
            elif token.string == ":" and depth == 0:
                return None
    except (tokenize.TokenError, IndentationError):
        return None
    return None


def rename(code: str, names: list[str], rng: random.Random) -> Edit | None:
    """Rename the function, a parameter or a local variable."""
    function = parse_function(code)
    if function is None:
        return None
    spans: dict[str, list[tuple[int, int, int]]] = {}
    owned = {function.name}
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            owned.add(node.arg)
            spans.setdefault(node.arg, []).append(
                (node.lineno, node.col_offset, node.col_offset + len(node.arg))
            )
        elif isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store):
                owned.add(node.id)
            spans.setdefault(node.id, []).append(
                (node.lineno, node.col_offset, node.col_offset + len(node.id))
            )
        elif isinstance(node, ast.Global | ast.Nonlocal | ast.JoinedStr):
            return None
    row = code.split("\n")[function.lineno - 1]
    start = row.index("def ", function.col_offset) + 4
    spans.setdefault(function.name, []).append((function.lineno, start, start + len(function.name)))
    candidates = sorted(name for name in owned if name not in {"self", "cls", "_"})
    if not candidates:
        return None
    old, new = rng.choice(candidates), rng.choice(names)
    if new in spans or new == old:
        return None
    edited = replace_spans(code, [(*span, new) for span in spans[old]])
    instruction = rng.choice(
        (
            f"Rename `{old}` to `{new}`.",
            f"Rename {old} to {new}.",
            f"Change the name `{old}` to `{new}`.",
            f"Rename `{old}` to `{new}` in this function.",
        )
    )
    return Edit("rename", instruction, edited)


def remove_docstring(code: str, _names: list[str], rng: random.Random) -> Edit | None:
    """Take the docstring out."""
    edited = without_docstring(code)
    if edited is None:
        return None
    instruction = rng.choice(
        ("Remove the docstring.", "Delete the docstring.", "Drop the docstring.")
    )
    return Edit("remove_docstring", instruction, edited)


def insert_docstring(code: str, text: str) -> str | None:
    """Put a one-line docstring under the header."""
    function = parse_function(code)
    if function is None or function.body[0].lineno == function.lineno:
        return None
    first = function.body[0]
    lines = code.split("\n")
    # The header may span lines, and comments may stand before the first statement.
    end = header_end(code)
    if end is None:
        return None
    header_line = end[0]
    if not lines[header_line - 1].rstrip().endswith(":"):
        return None
    indent = " " * first.col_offset
    return "\n".join([*lines[:header_line], f'{indent}"""{text}"""', *lines[header_line:]])


def add_docstring(code: str, _names: list[str], rng: random.Random) -> Edit | None:
    """Put a stated docstring in; the text is the function's own where it had one."""
    function = parse_function(code)
    if function is None or docstring_node(function) is not None:
        return None
    words = function.name.strip("_").replace("_", " ")
    text = f"{words[:1].upper()}{words[1:]}."
    if len(text) < 6:
        return None
    edited = insert_docstring(code, text)
    if edited is None:
        return None
    instruction = rng.choice(
        (f'Add the docstring "{text}"', f'Give it the docstring "{text}"', "Add a docstring.")
    )
    return Edit("add_docstring", instruction, edited)


def add_type_hints(code: str, _names: list[str], rng: random.Random) -> Edit | None:
    """Annotate up to three parameters and the return value as the instruction says."""
    function = parse_function(code)
    end = header_end(code)
    if function is None or end is None or function.returns is not None:
        return None
    arguments = function.args
    positional = arguments.posonlyargs + arguments.args
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    row_of = code.split("\n")
    hints: list[str] = []
    spans: list[tuple[int, int, int, str]] = []
    for argument, default in zip(positional, defaults, strict=True):
        if argument.arg in {"self", "cls"} or argument.annotation is not None:
            continue
        if len(hints) == 3:
            break
        hint = type(default.value).__name__ if isinstance(default, ast.Constant) else ""
        if hint not in TYPE_NAMES:
            hint = rng.choice(TYPE_NAMES)
        stop = argument.end_col_offset or 0
        spans.append((argument.lineno, stop, stop, f": {hint}"))
        if default is not None:
            row = row_of[argument.lineno - 1]
            if row[stop : stop + 1] != "=" or row[stop + 1 : stop + 2] == " ":
                return None
            spans[-1] = (argument.lineno, stop, stop + 1, f": {hint} = ")
        hints.append(f"`{argument.arg}` is `{hint}`")
    returns = rng.choice((*TYPE_NAMES, "None"))
    if code.split("\n")[end[0] - 1][end[1] : end[1] + 1] != ":":
        return None
    spans.append((end[0], end[1], end[1], f" -> {returns}"))
    if not hints:
        return None
    instruction = f"Add type hints: {', '.join(hints)}, it returns `{returns}`."
    return Edit("type_hints", instruction, replace_spans(code, spans))


def change_constant(code: str, names: list[str], rng: random.Random) -> Edit | None:
    """Change one number or one short string, all its occurrences."""
    function = parse_function(code)
    if function is None:
        return None
    found: dict[str, list[tuple[int, int, int]]] = {}
    lines = code.split("\n")
    for node in ast.walk(function):
        if isinstance(node, ast.JoinedStr):
            return None
        if not isinstance(node, ast.Constant) or isinstance(node.value, bool):
            continue
        if not isinstance(node.value, int | str) or node.lineno != node.end_lineno:
            continue
        end = node.end_col_offset or 0
        text = lines[node.lineno - 1][node.col_offset : end]
        if 0 < len(text) <= 16 and not text.startswith('"""'):
            found.setdefault(text, []).append((node.lineno, node.col_offset, end))
    if not found:
        return None
    old = rng.choice(sorted(found))
    new = str(rng.randrange(2, 200)) if old[0].isdigit() else f"{old[0]}{rng.choice(names)}{old[0]}"
    if old[0] not in "'\"0123456789" or new == old:
        return None
    edited = replace_spans(code, [(*span, new) for span in found[old]])
    instruction = rng.choice(
        (f"Change {old} to {new}.", f"Replace {old} by {new}.", f"Use {new} instead of {old}.")
    )
    return Edit("change_constant", instruction, edited)


def add_parameter(code: str, _names: list[str], rng: random.Random) -> Edit | None:
    """Append a parameter with a default."""
    function = parse_function(code)
    end = header_end(code)
    if function is None or end is None:
        return None
    arguments = function.args
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
        return None
    name, default = rng.choice(NEW_PARAMETERS)
    taken = {argument.arg for argument in arguments.posonlyargs + arguments.args}
    if name in taken or code.split("\n")[end[0] - 1][: end[1]].rstrip(")").rstrip().endswith(","):
        return None
    text = f", {name}={default}" if taken else f"{name}={default}"
    edited = replace_spans(code, [(end[0], end[1] - 1, end[1] - 1, text)])
    instruction = rng.choice(
        (
            f"Add a parameter `{name}` with the default {default}.",
            f"Add the parameter `{name}={default}` at the end.",
        )
    )
    return Edit("add_parameter", instruction, edited)


def repeat(code: str, _names: list[str], rng: random.Random) -> Edit | None:
    """Say it again, unchanged."""
    return Edit(
        "repeat",
        rng.choice(("Repeat this code.", "Show the code again.", "Print it again, unchanged.")),
        code,
    )


EDITS: tuple[EditMaker, ...] = (
    rename, rename, remove_docstring, add_docstring, add_type_hints, change_constant, add_parameter, repeat,
)  # fmt: skip
