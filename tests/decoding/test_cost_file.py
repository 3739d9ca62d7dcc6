"""Costs on disk: they come back, and a file that is not theirs does no harm."""

import json
import os
import sys

import pytest

from akunu_py.models.budget_memory import RememberedCosts
from akunu_py.models.measured_file import MeasuredFile
from akunu_py.system.settings import cache_folder

KEY = {"model": "m", "device": "d", "mlx": "1"}
COSTS = {"0": {"3": 1.2, "5": 2.0}, "2": {"5": 4.5}}


def cost_file(key, folder):
    return MeasuredFile("costs", RememberedCosts, key, folder)


def holding(**content):
    return RememberedCosts(key=KEY, **content)


def test_what_is_saved_comes_back(tmp_path):
    file = cost_file(KEY, tmp_path)
    assert file.load() == holding()
    file.save(format=1, costs=COSTS)
    assert cost_file(dict(reversed(KEY.items())), tmp_path).load() == holding(
        costs={0: {3: 1.2, 5: 2.0}, 2: {5: 4.5}}
    )
    file.save(format=1, costs={"0": {"4": 1.5}}, bit_equal={17: 0, 33: 400})
    assert file.load() == holding(costs={0: {4: 1.5}}, bit_equal={17: 0, 33: 400})
    file.save(shared={"8": {"2": 1.1}})
    assert file.load() == holding(shared={8: {2: 1.1}})
    assert [path.name for path in file.path.parent.iterdir()] == [file.path.name]


@pytest.mark.parametrize("change", ["model", "device", "mlx"])
def test_others_have_files_of_their_own(tmp_path, change):
    file = cost_file(KEY, tmp_path)
    file.save(format=1, costs=COSTS)
    other = cost_file(KEY | {change: "other"}, tmp_path)
    assert not other.load().costs
    # Even under the same name: two keys may share a digest, and people copy files.
    file.path.rename(other.path)
    assert not other.load().costs


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"\xff\xfe", b"null", b"[]", b"[" * 100_000, b'{"a": 1}' * 20_000,
        b'{"format": 1}', b'{"format": 2, "key": {}, "costs": {}}',
    ],
)  # fmt: skip
def test_files_that_are_none(tmp_path, content):
    file = cost_file(KEY, tmp_path)
    file.path.parent.mkdir(parents=True)
    file.path.write_bytes(content)
    assert file.load() == holding()
    file.save(format=1, costs=COSTS)
    assert file.load().costs


@pytest.mark.parametrize(
    "costs",
    [
        None, [], 3, {"0": []}, {"x": {}}, {"-1": {}}, {"99": {}}, {"0": {"": 1.0}},
        {"0": {"999": 1.0}}, {"0": {"9" * 5000: 1.0}}, {"0": {"3": 0}},
        {"0": {"3": -1}}, {"0": {"3": "1"}}, {"0": {"3": None}},
        {"0": {"3": float("nan")}}, {"0": {"3": float("inf")}}, {"0": {"3": 10**400}},
    ],
)  # fmt: skip
def test_costs_that_are_none(tmp_path, costs):
    file = cost_file(KEY, tmp_path)
    file.path.parent.mkdir(parents=True)
    file.path.write_text(json.dumps({"format": 1, "key": KEY, "costs": costs}))
    assert file.load() == holding()
    if costs != {"99": {}}:
        record = {"format": 1, "key": KEY, "costs": COSTS, "shared": costs}
        file.path.write_text(json.dumps(record))
        assert file.load() == holding()


@pytest.mark.parametrize(
    "equal", [None, 1, "yes", [], {"17": None}, {"17": -1}, {"x": 4}, {"999": 4}]
)
def test_texts_in_which_rows_are_bit_equal_that_are_none(tmp_path, equal):
    file = cost_file(KEY, tmp_path)
    file.path.parent.mkdir(parents=True)
    record = {"format": 1, "key": KEY, "costs": COSTS, "bit_equal": equal}
    file.path.write_text(json.dumps(record))
    assert file.load() == holding()


def test_a_place_that_cannot_be_written_or_read(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    file = cost_file(KEY, blocked)
    file.save(format=1, costs=COSTS)
    assert file.load() == holding()
    file = cost_file(KEY, tmp_path)
    file.path.mkdir(parents=True)
    file.save(format=1, costs=COSTS)
    assert file.load() == holding()
    assert list(file.path.parent.iterdir()) == [file.path]


def test_the_folder_of_the_platform(monkeypatch, tmp_path):
    monkeypatch.setenv("AKUNU_CACHE_DIR", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("AKUNU_CACHE_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    if sys.platform == "darwin":
        assert cache_folder() == tmp_path / "Library" / "Caches" / "akunu"
    elif os.name == "posix":
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        assert cache_folder() == tmp_path / "xdg" / "akunu"
        monkeypatch.setenv("XDG_CACHE_HOME", "relative")
        assert cache_folder() == tmp_path / ".cache" / "akunu"
