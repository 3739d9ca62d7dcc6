"""The script that measures how long programs take to start: its table, and what it runs."""

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "measure_start.py"


@pytest.fixture
def script():
    spec = importlib.util.spec_from_file_location("measure_start", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_ratio_has_its_interval(script):
    rounds = [{"akunu": 2.0, "mlx-lm": 2.0 * (1 + n % 3)} for n in range(9)]
    *_, ours, theirs = script.lines(rounds)
    assert ours == "| akunu | 2.00 | 2.00 | 2.00 |  |  |"
    name, *seconds, ratio, interval = theirs.strip("| ").split(" | ")
    assert (name, *seconds, ratio) == ("mlx-lm", "4.00", "2.00", "6.00", "2.00")
    low, high = map(float, interval.split("-"))
    assert 1 <= low < 2 < high <= 3


def test_few_rounds_give_no_ratio(script):
    assert script.lines([{"akunu": 1.0, "mlx-lm": 2.0}] * 4)[-1].endswith("|  | not enough items |")


def test_what_is_run(script, tmp_path, monkeypatch, capsys):
    found = {"xllamacpp"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name in found or None)
    commands = script.commands(Path("x.gguf"), tmp_path)
    assert list(commands) == ["akunu", "mlx-lm", "llama.cpp"]
    assert all("x.gguf" in commands[name] for name in ("akunu", "llama.cpp"))
    assert str(tmp_path) in commands["mlx-lm"]
    found.clear()
    assert "llama.cpp" not in script.commands(Path("x.gguf"), tmp_path)
    (line,) = capsys.readouterr().err.splitlines()
    assert "pip install xllamacpp" in line


def test_a_program_that_fails_ends_the_script_in_its_words(script):
    words = [sys.executable, "-c", "import sys; sys.exit('no such model')"]
    with pytest.raises(SystemExit, match="ended with 1: no such model"):
        script.seconds(words)
    assert script.seconds([sys.executable, "-c", ""]) > 0
