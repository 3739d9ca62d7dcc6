"""Tests hold on to what rooms show: how many reach inside of them is counted, and may only fall."""

import ast

import pytest
from shared_files import ROOT

PATCHES = 30
"""Most replacements of something in akunu by its name as text: no tool finds it when it moves."""

PRIVATE = 400
"""Most names with an underscore that are taken of others. A parameter, a fake that is passed in or a
variable that users have does the same, and outlives a redesign."""

NAMED_TUPLES = {"_asdict", "_fields", "_make", "_replace"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in NAMED_TUPLES


def is_patch(node: ast.AST) -> bool:
    """Whether it is such as `monkeypatch.setattr("akunu_py.room.name", ...)`."""
    if not (isinstance(node, ast.Call) and node.args):
        return False
    called = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
    target = node.args[0]
    if isinstance(target, ast.JoinedStr):
        target = target.values[0]
    text = target.value if isinstance(target, ast.Constant) else None
    return called in {"patch", "setattr"} and isinstance(text, str) and text.startswith("akunu_py")


def privates(node: ast.AST) -> int:
    """Return how many private names it takes of others: an attribute, or names it imports."""
    if isinstance(node, ast.Attribute):
        own = isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}
        return is_private(node.attr) and not own
    if isinstance(node, ast.ImportFrom):
        return sum(is_private(name.name) for name in node.names)
    return 0


def counts(source: str) -> tuple[int, int]:
    nodes = list(ast.walk(ast.parse(source)))
    return sum(map(is_patch, nodes)), sum(map(privates, nodes))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('monkeypatch.setattr("akunu_py.room.name", 1)', (1, 0)),
        ('mock.patch(f"akunu_py.{name}")', (1, 0)),
        ('monkeypatch.setattr("os.getpid", print)', (0, 0)),
        ("from akunu_py.room import _one, two", (0, 1)),
        ("engine._session._rows = self._rows", (0, 2)),
        ("made.__class__, point._replace(x=1)", (0, 0)),
    ],
)
def test_what_counts(source, expected):
    assert counts(source) == expected


def test_few_tests_reach_inside():
    found = [counts(path.read_text("utf-8")) for path in (ROOT / "tests").rglob("*.py")]
    patches, private = map(sum, zip(*found, strict=True))
    assert patches <= PATCHES, "replace less by its name"
    assert private <= PRIVATE, "test what a room shows"
