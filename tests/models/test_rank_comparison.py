"""The comparison of ranks with the whole model, once for a model and its ranks."""

from unittest.mock import Mock

import pytest

from akunu_py.models import measured_file
from akunu_py.models.load import LoadOptions
from akunu_py.models.ranks import comparison
from akunu_py.models.ranks.comparison import RanksDisagreeError, compare_once
from akunu_py.system.errors import MemoryLimitError


class Ranks:
    size = 3

    def __init__(self, *hosts):
        self._hosts = hosts

    def name(self, rank):
        return f"rank {rank} ({self._hosts[rank - 1]})"


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Start ranks over a file of these bytes; return whether they were compared."""
    monkeypatch.setenv("AKUNU_CACHE_DIR", str(tmp_path / "cache"))
    compared = []

    def started(*hosts, data=b"GGUF", error=None, options=None, kv_bits=None):
        def compare(session, path, options, *, context, kv_bits):
            compared.append(path)
            if error is not None:
                raise error

        monkeypatch.setattr(comparison, "compare_with_one", compare)
        path = tmp_path / "model.gguf"
        path.write_bytes(data)
        before = len(compared)
        limits = {"context": 64, "kv_bits": kv_bits}
        compare_once(Ranks(*hosts), None, path, options or LoadOptions(), **limits)
        return len(compared) > before

    return started


def test_it_is_done_once(start):
    assert start("a", "b")
    assert not start("a", "b")


@pytest.mark.parametrize(
    "change", [{"data": b"GGUf"}, {"kv_bits": 8}, {"options": LoadOptions(weights="quantized")}]
)
def test_what_is_computed_otherwise_is_compared_anew(start, change):
    start("a", "b")
    assert start("a", "b", **change)
    assert not start("a", "b", **change)


def test_other_machines_and_connections_are_compared_anew(start, monkeypatch):
    start("a", "b")
    assert start("a", "c")
    assert start("c", "b")
    monkeypatch.setenv("MLX_JACCL_COORDINATOR", "10.0.0.1:5000")
    assert start("a", "b")


def test_other_versions_are_compared_anew(start, monkeypatch):
    start("a", "b")
    monkeypatch.setattr(comparison, "versions", lambda: {"version of mlx": "9.0"})
    assert start("a", "b")
    assert not start("a", "b")


def test_ranks_that_disagree_are_compared_at_each_start(start):
    for _ in range(2):
        with pytest.raises(RanksDisagreeError):
            start("a", "b", error=RanksDisagreeError("other numbers"))
    assert start("a", "b")


def test_what_does_not_fit_is_not_compared_and_tried_again(start):
    assert start("a", "b", error=MemoryLimitError("too large"))
    assert start("a", "b")
    assert not start("a", "b")


def test_a_folder_that_cannot_be_written_compares_each_time(start, tmp_path):
    (tmp_path / "cache").write_text("a file")
    assert start("a", "b")
    assert start("a", "b")


def test_without_a_home_folder_they_are_compared_each_time(start, monkeypatch):
    no_home = Mock(side_effect=RuntimeError("Could not determine home directory."))
    monkeypatch.setattr(measured_file, "cache_folder", no_home)
    assert start("a", "b")
    assert start("a", "b")
