"""akunu doctor on this machine: text, JSON, exit codes; the findings themselves are in tests/diagnosis."""

import json

import pytest
from click.testing import CliRunner

from akunu_py.cli.main import cli
from akunu_py.diagnosis import self_test
from akunu_py.errors import ModelFormatError


def run(*arguments, code=0):
    result = CliRunner().invoke(cli, ["doctor", *arguments])
    assert result.exit_code == code, result.output
    return result


def test_text_without_a_self_test():
    output = run("--no-self-test").output
    for words in ("system ", "backend ", "measured costs ", "not made"):
        assert words in output


def test_json_is_one_line_with_facts_and_findings():
    (line,) = run("--no-self-test", "--json").output.splitlines()
    record = json.loads(line)
    assert record["backend"] in ("metal", "cuda", "cpu")
    assert record["self_test"] is None
    assert {"akunu", "mlx", "mlx-lm", "python"} <= set(record["versions"])
    assert all(set(f) == {"severity", "text", "advice"} for f in record["findings"])


def test_a_model_that_does_not_run_ends_with_1(monkeypatch):
    def fail():
        raise ModelFormatError("the file is cut off")

    monkeypatch.setattr(self_test, "run_self_test", fail)
    record = json.loads(run("--json", code=1).output)
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
