"""akunu doctor on this machine: text, JSON, exit codes; the findings themselves are in tests/diagnosis."""

import contextlib
import dataclasses
import json
import re
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from akunu_runs import run as run_akunu
from click.testing import CliRunner
from pty_child import PtyChild

from akunu_py.cli.main import cli
from akunu_py.cpu.blas import Blas
from akunu_py.diagnosis import self_test
from akunu_py.diagnosis.advice import Finding
from akunu_py.system.errors import ModelFormatError
from akunu_py.values.decode_stats import DecodeStats


def run(*arguments, code=0):
    return run_akunu("doctor", *arguments, code=code)


def test_text_without_a_self_test():
    output = run("--no-self-test").output
    for words in ("system ", "backend ", "measured costs ", "not made"):
        assert words in output


def test_json_is_one_line_with_facts_and_findings():
    (line,) = run("--no-self-test", "--json").stdout.splitlines()
    record = json.loads(line)
    assert record["backend"] in ("metal", "cuda", "cpu")
    assert record["self_test"] is None
    assert {"akunu", "mlx", "mlx-lm", "python"} <= set(record["versions"])
    assert all(set(f) == {"severity", "text", "advice"} for f in record["findings"])


PAGE = Path(__file__).resolve().parents[2] / "docs" / "doctor.md"


def test_the_page_has_every_field():
    """And no other: names in code in the part on --json."""
    record = json.loads(run("--no-self-test", "--json").stdout)
    fields = {
        *record, *record["folders"][0], *(name.name for name in dataclasses.fields(Blas)), *(name.name for name in dataclasses.fields(Finding)), "error",
        *(name.name for name in dataclasses.fields(self_test.SelfTest)),
    }  # fmt: skip
    page = PAGE.read_text(encoding="utf-8").split("## --json")[1].split("\n## ")[0]
    assert set(re.findall(r"`(\w+)`", page)) == fields


class SlowEngine:
    """Takes so many seconds of a clock for each token."""

    def __init__(self, clock, seconds, row_bits="equal"):
        self._clock, self._seconds = clock, seconds
        self.row_bits = row_bits

    def load(self):
        self._clock.now += 10 * self._seconds
        return contextlib.nullcontext(self)

    def reset(self):
        pass

    def generate(self, _prompt, *, max_tokens, drafter, **_):
        self._clock.now += max_tokens * self._seconds
        # The draft of a slow machine is wrong on purpose.
        ids = tuple(range(max_tokens)) if drafter != "ngram" else (7,) * max_tokens
        return SimpleNamespace(
            token_ids=ids,
            decode_s=max_tokens * self._seconds,
            stats=DecodeStats(drafted=4, accepted=3),
            row_bits=self.row_bits if drafter == "ngram" else "equal",
        )


@pytest.mark.parametrize(
    ("seconds_a_token", "replies", "most"), [(1e-4, 6, 1), (0.01, 6, 10), (0.1, 1, 11), (1, 1, 45)]
)
def test_the_self_test_takes_ten_seconds_on_a_slow_machine_too(
    seconds_a_token, replies, most, monkeypatch
):
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(self_test, "Engine", SlowEngine(clock, seconds_a_token))
    result = self_test.run_self_test(clock=lambda: clock.now)
    assert result.replies >= replies
    assert result.seconds <= most
    assert result.different == result.replies


@pytest.mark.parametrize(
    ("row_bits", "severity", "code"), [("equal", "error", 1), ("different", "warning", 0)]
)
def test_drafting_that_changes_a_reply_is_told(monkeypatch, row_bits, severity, code):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(self_test, "Engine", SlowEngine(clock, 1e-3, row_bits))
    monkeypatch.setattr(self_test, "SECONDS", 1)
    result = CliRunner().invoke(cli, ["doctor"])
    text = f"{severity}: drafting changed 6 of 6 replies of the default model"
    assert text in result.output
    assert result.exit_code == code


def test_an_interrupt_in_the_self_test(monkeypatch):
    monkeypatch.setattr(self_test, "run_self_test", Mock(side_effect=KeyboardInterrupt))
    result = CliRunner().invoke(cli, ["doctor"])
    assert result.exit_code == 130
    assert result.stderr.endswith("Interrupted.\n")
    assert result.stdout == ""


def test_a_model_that_is_not_there_is_a_finding(monkeypatch, tmp_path):
    monkeypatch.setenv("AKUNU_MODEL", "/no/such/model")
    output = run("--no-self-test", code=1).output
    assert (
        "error: the default model, set in AKUNU_MODEL: there is no model named /no/such" in output
    )
    (tmp_path / "config.toml").write_text("")
    (tmp_path / "aliases.toml").write_text("[aliases")
    monkeypatch.setenv("AKUNU_CONFIG", str(tmp_path / "config.toml"))
    assert f"Correct or delete {tmp_path / 'aliases.toml'}" in run("--no-self-test", code=1).output


def test_a_variable_that_sets_nothing_is_a_finding(monkeypatch):
    monkeypatch.setenv("AKUNU_TEMPERTURE", "1")
    output = run("--no-self-test").output
    assert "warning: AKUNU_TEMPERTURE sets nothing. Did you mean AKUNU_TEMPERATURE?" in output


def test_folders_that_cannot_be_written(tmp_path, monkeypatch):
    """Permissions do not tell root; a file in the place of a folder and /proc do."""
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", Path("/proc/none") if Path("/proc/self").exists() else None):
        if place is not None:
            monkeypatch.setenv("AKUNU_CACHE_DIR", str(place))
            output = run("--no-self-test").output
            assert f"warning: {place} (measured costs) cannot be written" in output


@pytest.mark.slow
@pytest.mark.parametrize("columns", [60, 200])
def test_lines_fit_the_terminal(columns, tmp_path):
    with PtyChild("doctor", "--no-self-test", home=tmp_path, columns=columns) as child:
        assert child.wait() == 0
        lines = child.seen.replace("\r", "").split("\n")
    # A path has no place to be broken at.
    assert all(len(line) <= columns for line in lines if "/" not in line)
    assert any(line.startswith("versions ") for line in lines)


def test_a_model_that_does_not_run_ends_with_1(monkeypatch):
    fail = Mock(side_effect=ModelFormatError("the file is cut off"))
    monkeypatch.setattr(self_test, "run_self_test", fail)
    record = json.loads(run("--json", code=1).stdout)
    assert record["self_test"] == {"error": "ModelFormatError: the file is cut off"}
    assert record["findings"][0]["severity"] == "error"
    assert "error: the default model does not run" in run(code=1).output


def test_a_broken_settings_file_is_a_finding(tmp_path, monkeypatch):
    path = tmp_path / "config.toml"
    monkeypatch.setenv("AKUNU_CONFIG", str(path))
    for content, words in (("a =", "not TOML"), ("temprature = 1", "Did you mean temperature?")):
        path.write_text(content)
        output = run("--no-self-test", code=1).output
        assert "error: " in output
        assert words in output


@pytest.mark.slow
def test_the_self_test_with_the_default_model():
    result = self_test.run_self_test(seconds=0.0)
    assert (result.replies, result.different) == (1, 0)
    assert result.drafted >= result.accepted > 0
    assert result.plain_tokens_per_s > 0
    assert result.seconds > 0
