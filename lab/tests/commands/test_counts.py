"""`akunu counts`, `--counts`, the names in --help, and H and gamma in traces."""

import json
import os
import subprocess
import sys

import pytest
from akunu_runs import with_variables
from click.testing import CliRunner

from akunu_lab.counts import read_counts
from akunu_py.cli.main import cli

TEXT = "def hello(world):\n    return world\n\n" * 40


def run(*arguments, code=0):
    words, variables = with_variables(arguments)
    found = CliRunner().invoke(cli, words, env=variables)
    assert found.exit_code == code, found.output
    return found.output


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="module")
def fitted(corpus, tiny_gguf):
    path = corpus.with_name("corpus.counts")
    run("counts", "fit", corpus, "--output", path, "--tokenizer", tiny_gguf)
    return path


def test_fit_and_show(corpus, tiny_gguf, fitted, tmp_path):
    counts, vocabulary = read_counts(fitted)
    said = run("counts", "show", fitted)
    assert f"{counts.num_tokens:,}, {counts.tokens.size:,} different" in said
    assert f"{counts.pair_counts.sum():,}, {counts.pairs.size:,} different" in said
    assert vocabulary in said
    one = tmp_path / "one.counts"
    said = run("counts", "fit", corpus, "--output", one, "--order", 1, "--tokenizer", tiny_gguf)
    assert said == (
        f"wrote {one}: {counts.num_tokens:,} tokens, {counts.tokens.size:,} of them different\n"
    )
    assert "pairs" not in run("counts", "show", one)


def test_ids_are_counted_as_they_are(tiny_gguf, tmp_path):
    (tmp_path / "ids").write_text("5 6 5 6\n7")
    path = tmp_path / "ids.counts"
    run("counts", "fit", tmp_path / "ids", "--ids", "--output", path, "--tokenizer", tiny_gguf)
    counts, _ = read_counts(path)
    assert counts.tokens.tolist() == [5, 6, 7]
    assert counts.counts.tolist() == [2, 2, 1]
    (tmp_path / "ids").write_text("5 six")
    said = run(
        "counts", "fit", tmp_path / "ids", "--ids", "--output", tmp_path / "x", "--tokenizer",
        tiny_gguf, code=2,
    )  # fmt: skip
    assert "it contains 'six'" in said


def test_a_file_is_replaced_only_when_that_is_asked_for(corpus, tiny_gguf, fitted, tmp_path):
    path = tmp_path / "corpus.counts"
    path.write_text("mine")
    command = ["counts", "fit", corpus, "--output", path, "--tokenizer", tiny_gguf]
    assert "exists; give --force" in run(*command, code=2)
    assert path.read_text() == "mine"
    run(*command, "--force")
    assert path.read_bytes() == fitted.read_bytes()


def test_what_cannot_be_fitted(corpus, tiny_gguf, tmp_path):
    out = tmp_path / "out.counts"
    missing = tmp_path / "missing"
    assert "cannot be read" in run("counts", "fit", missing, "--output", out, code=2)
    assert "does not exist" in run("counts", "fit", corpus, "--output", missing / "x", code=2)
    said = run("counts", "fit", corpus, "--output", out, "--tokenizer", missing, code=2)
    assert f"there is no model named {missing}" in said.replace("\n", "")
    (tmp_path / "empty").write_text("")
    command = ["counts", "fit", tmp_path / "empty", "--output", out, "--tokenizer", tiny_gguf]
    assert "is empty" in run(*command, code=2)
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    command[2] = tmp_path / "latin"
    assert "not UTF-8" in run(*command, code=2)
    assert not out.exists()
    assert "holds no counts" in run("counts", "show", corpus, code=2)
    assert "cannot be read" in run("counts", "show", missing, code=2)


def test_a_reply_drafted_from_a_corpus(tiny_gguf, fitted):
    command = ["generate", tiny_gguf, "--raw", "-p", "def", "--max-tokens", 30, "--json"]
    # A line on stderr says that the replies ended at the limit.
    plain, drafted = (
        json.loads(run(*command, *drafter).splitlines()[0])
        for drafter in (
            ("--drafter", "none"),
            ("--drafter", "corpus", "--counts", fitted, "AKUNU_DRAFT_BUDGET=always"),
        )
    )
    assert drafted["token_ids"] == plain["token_ids"]
    assert drafted["stats"]["drafted"] > 20
    assert "akunu counts fit" in run(*command, "--drafter", "corpus", code=2)


def test_counts_of_another_vocabulary_are_refused(fitted):
    said = run("generate", "-p", "x", "--drafter", "corpus", "--counts", fitted, code=2)
    assert "another vocabulary" in said


def test_a_rule_that_a_drafter_cannot_have_is_refused_before_the_model_is_loaded(tmp_path):
    command = ["generate", tmp_path / "no model", "-p", "x", "--draft-length", "entropy"]
    said = " ".join(run(*command, "--drafter", "lookup", code=2).split())
    assert "the drafter 'lookup' has no --draft-length" in said
    said = run(
        *command, "--drafter", "counts", "--num-draft-tokens", 4, "--min-draft-tokens", 5, code=2
    )
    assert "--min-draft-tokens is 5" in said
    assert "no such" not in said


@pytest.mark.parametrize("drafter", ["draft-model", "bigram"])
def test_h_and_gamma_stand_in_the_trace(tiny_gguf, tmp_path, drafter):
    path = tmp_path / "trace.jsonl"
    run(
        "generate", tiny_gguf, "--raw", "-p", "def hello", "--max-tokens", 30,
        f"AKUNU_TRACE_FILE={path}", "--drafter", drafter, "--draft-model", tiny_gguf,
        "--draft-length", "entropy", "--min-draft-tokens", 2, "--draft-length-beta", 0.5,
        "--num-draft-tokens", 6, "AKUNU_DRAFT_BUDGET=always", "--temperature", 0.9, "--seed", 3,
        "AKUNU_LOGIT_BIAS=331=-1e6 335=-1e6",
    )  # fmt: skip
    steps = json.loads(path.read_text())["steps"]
    smoothed = None
    drafts = [step for step in steps if step["drafted"]]
    assert len(drafts) > 3
    for step in drafts:
        h = step["entropy"]
        smoothed = h if smoothed is None else 0.5 * smoothed + 0.5 * h
        assert step["gamma"] == round(6 - 4 * smoothed)


def test_a_full_disk_says_what_to_do(tmp_path):
    (tmp_path / "corpus").write_text("hello world\n" * 100)
    words = ("counts", "fit", tmp_path / "corpus", "--output", tmp_path / "counts")
    script = 'ulimit -f 0; exec 2>&1; "$@" | cat'
    done = subprocess.run(
        ["sh", "-c", script, "sh", sys.executable, "-m", "akunu_py", *map(str, words)],
        stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert b"Error: " in done.stdout
    assert b"cannot be written: File too large" in done.stdout
    assert not (tmp_path / "counts").exists()


def test_a_chat_without_counts_says_how_to_get_them(tiny_gguf):
    lines = "/draft corpus\n/set drafter corpus\nhello\n"
    result = CliRunner().invoke(cli, ["chat", str(tiny_gguf), "--max-tokens", "3"], input=lines)
    words = "'corpus' needs counts of a corpus: fit them with `akunu counts fit`"
    assert result.stderr.count(words) == 2
    assert result.stderr.count("tokens/s") == 1
