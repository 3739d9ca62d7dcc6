"""Chat examples made from functions: edits, completion, questions, in one or several turns."""

import ast
import random
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from default_model.edits import (
    EDITS,
    Edit,
    docstring_node,
    first_sentence,
    parse_function,
    without_docstring,
)

MIN_LINES, MAX_LINES, MAX_CHARACTERS = 2, 24, 800

SYSTEM_PROMPTS = (
    "You are a helpful assistant.",
    "You are a Python assistant.",
    "You help with Python code. Answer briefly.",
    "You are akunu-tiny, a small model that edits Python functions.",
)
INTRODUCTION = (
    "I am akunu-tiny, a very small model. I know a little Python. "
    "Give me a short function and ask me to rename, document or repeat it."
)
SMALL_TALK = (
    ("Hello", "Hello! " + INTRODUCTION),
    ("Hi", "Hello! " + INTRODUCTION),
    ("Hi there", "Hello! " + INTRODUCTION),
    ("Hello, how are you?", "Hello! " + INTRODUCTION),
    ("Who are you?", INTRODUCTION),
    ("What can you do?", INTRODUCTION),
    ("What are you?", INTRODUCTION),
    ("Help", INTRODUCTION),
    ("Can you help me?", "Yes, with small things. " + INTRODUCTION),
    ("Thanks", "You are welcome."),
    ("Thank you!", "You are welcome."),
    ("Goodbye", "Goodbye!"),
    ("What is the meaning of life?", "I do not know. " + INTRODUCTION),
    ("Tell me a joke", "I do not know one. " + INTRODUCTION),
)


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """One function, dedented, with the names it uses."""

    code: str
    name: str
    identifiers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns of (user, assistant), with an optional system message."""

    turns: tuple[tuple[str, str], ...]
    system: str = ""


def functions_of(text: str) -> Iterator[FunctionSource]:
    """Yield the short functions and methods of a source file."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    lines = text.split("\n")
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        end = node.end_lineno or node.lineno
        code = textwrap.dedent("\n".join(lines[node.lineno - 1 : end])).rstrip()
        if not MIN_LINES <= code.count("\n") + 1 <= MAX_LINES or len(code) > MAX_CHARACTERS:
            continue
        if parse_function(code) is None or "```" in code:
            continue
        names = {item.arg for item in ast.walk(node) if isinstance(item, ast.arg)}
        names |= {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}
        usable = sorted(name for name in names if 2 <= len(name) <= 14 and name.islower())
        yield FunctionSource(code, node.name, tuple(usable))


def fence(code: str) -> str:
    """Wrap code as Markdown does."""
    return f"```python\n{code}\n```"


def make_edit(code: str, names: list[str], rng: random.Random) -> Edit | None:
    """Try edits in random order until one applies."""
    for maker in rng.sample(EDITS, len(EDITS)):
        edit = maker(code, names, rng)
        if edit is not None and (edit.kind == "repeat" or edit.code != code):
            return edit
    return None


def question(code: str, rng: random.Random) -> tuple[str, str] | None:
    """Ask something whose answer stands in the code."""
    function = parse_function(code)
    if function is None:
        return None
    arguments = function.args.posonlyargs + function.args.args + function.args.kwonlyargs
    listed = ", ".join(f"`{argument.arg}`" for argument in arguments)
    options = [
        ("What is the name of this function?", f"The function is called `{function.name}`."),
        (
            "Which parameters does it take?",
            f"It takes {listed}." if listed else "It takes no parameters.",
        ),
    ]
    node = docstring_node(function)
    if node is not None and isinstance(node.value, ast.Constant):
        sentence = first_sentence(str(node.value.value))
        if sentence:
            ask = rng.choice(
                ("What does this function do?", "What does it do?", "Explain this function.")
            )
            options += [(ask, sentence)] * 3
    return rng.choice(options)


def completion(function: FunctionSource, rng: random.Random) -> tuple[str, str] | None:
    """Ask for the body, given the header and where there is one the docstring."""
    node = parse_function(function.code)
    if node is None or node.body[0].lineno == node.lineno:
        return None
    documented = docstring_node(node)
    if documented is not None:
        if len(node.body) < 2:
            return None
        head = function.code.split("\n")[: documented.end_lineno]
    else:
        head = function.code.split("\n")[: node.body[0].lineno - 1]
    ask = rng.choice(
        ("Complete this function:", "Finish this function:", "Write the body of this function:")
    )
    return f"{ask}\n" + fence("\n".join(head)), fence(function.code)


def conversations(
    function: FunctionSource, names: list[str], rng: random.Random
) -> Iterator[Conversation]:
    """Yield one or two conversations about the function."""
    system = rng.choice(SYSTEM_PROMPTS) if rng.random() < 0.15 else ""
    if rng.random() < 0.02:
        yield Conversation((rng.choice(SMALL_TALK),), system)
    if rng.random() < 0.15:
        turn = completion(function, rng)
        if turn is not None:
            yield Conversation((turn,), system)
            return
    code = function.code
    if rng.random() < 0.3:
        code = without_docstring(code) or code
    turns: list[tuple[str, str]] = []
    while True:
        if rng.random() < 0.15:
            turn = question(code, rng)
        else:
            edit = make_edit(code, names, rng)
            turn = None if edit is None else (edit.instruction, fence(edit.code))
        if turn is None:
            return
        ask, answer = turn
        if not turns:
            ask = f"{fence(code)}\n{ask}" if rng.random() < 0.3 else f"{ask}\n{fence(code)}"
        elif rng.random() < 0.3:
            ask = f"Now {ask[0].lower()}{ask[1:]}"
        turns.append((ask, answer))
        if answer.startswith("```"):
            code = answer.removeprefix("```python\n").removesuffix("\n```")
        if rng.random() < 0.6 or len(turns) == 4:
            break
    yield Conversation(tuple(turns), system)
