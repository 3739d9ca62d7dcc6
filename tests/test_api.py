"""The door for plug-ins: `akunu_py.api`, and its table in docs/plug-ins.md."""

import re
from pathlib import Path

import pytest
from programs import python

from akunu_py import api

PAGE = (Path(__file__).parents[1] / "docs" / "plug-ins.md").read_text()


def test_the_table_has_a_line_for_each_of_at_most_60_names():
    table = re.findall(r"^\| `(\w+)` \|", PAGE.partition("## Names")[2], re.MULTILINE)
    assert sorted(table) == sorted(api.__all__)
    assert len(table) == len(set(table)) <= 60


@pytest.mark.parametrize("name", api.__all__)
def test_each_name_is_there_with_a_docstring(name):
    found = getattr(api, name)
    assert type(found) is not type(re), "a module is more than one name"
    assert "\n" in found.__doc__ or len(found.__doc__) > 20
    # A dataclass without a docstring gets its signature as one.
    assert not found.__doc__.startswith(f"{name}(")


def test_no_name_is_imported_before_its_use():
    code = "import sys, akunu_py.api; print([m for m in sys.modules if m.startswith(('mlx', 'numpy', 'click'))])"
    assert python("-c", code).stdout == "[]\n"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Loop'"):
        _ = api.Loop
