"""The sampling that a model recommends, where commands use it and show it."""

import json

import pytest
from akunu_runs import run
from gguf_files import write_tiny_llama
from model_folders import write_folder

from akunu_py.engine.engine import Engine

TOLD = ("--temperature", "30", "--top-k", "20", "--min-p", "1e-30")
ASKED = ("--raw", "-p", "hello world", "--max-tokens", "12", "--seed", "3", "--json")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("recommended") / "m.gguf"
    return write_tiny_llama(path, sampling={"temp": 30.0, "top_k": 20, "min_p": 1e-30})


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_gguf):
    path = write_folder(tmp_path_factory.mktemp("folder") / "mlx", tiny_gguf)
    entries = {"do_sample": True, "temperature": 30.0, "top_k": 20, "min_p": 1e-30, "top_p": "most"}
    (path / "generation_config.json").write_text(json.dumps(entries))
    return path


def tokens(*arguments):
    return json.loads(run("generate", *arguments, code=0).stdout)["token_ids"]


def test_every_kind_of_place_is_read(model, folder, tmp_path):
    run("models", "convert", model, tmp_path / "converted", code=0)
    for path in (model, folder, tmp_path / "converted"):
        shown = json.loads(run("models", "show", path, "--json", code=0).stdout)["sampling"]
        assert shown["values"] == {"temperature": 30.0, "top_k": 20, "min_p": 1e-30}
        with Engine.load(path) as engine:
            assert engine.description.recommended.values == shown["values"]
            assert engine.description.recommended.origin == shown["origin"]
    assert (
        "sampling       temperature 30, top_k 20, min_p 1e-30 (generation_config.json; "
        "not used: top_p 'most')"
    ) in run("models", "show", folder, code=0).output


def test_generate_uses_it_where_nothing_is_said(model, tmp_path, monkeypatch):
    same_weights = write_tiny_llama(tmp_path / "m.gguf")
    recommended = tokens(model, *ASKED)
    assert recommended == tokens(same_weights, *ASKED, *TOLD)
    greedy = tokens(same_weights, *ASKED)
    assert recommended != greedy == tokens(model, *ASKED, "--temperature", "0")
    prompts, output = tmp_path / "p.jsonl", tmp_path / "r.jsonl"
    prompts.write_text('{"prompt": "hello world"}\n')
    several = (model, "--raw", "--max-tokens", "12", "--seed", "3")
    run("generate", *several, "--prompts", prompts, "--output", output, code=0)
    text = json.loads(run("generate", model, *ASKED, code=0).stdout)["text"]
    assert json.loads(output.read_text())["text"] == text
    monkeypatch.setenv("AKUNU_TEMPERATURE", "0")
    assert tokens(model, *ASKED) == greedy


def test_the_chat_shows_where_values_come_from(model, folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    commands = [
        "/set temperature", "/set top-k 5", "/set top-k", "/set top-k default", "/set top-k",
        f"/model {folder}", "/set top-k", "/set min-p",
    ]  # fmt: skip
    told = run("chat", model, "--min-p", "0.2", input="\n".join(commands)).stderr
    origin = "general.sampling.* in the GGUF file"
    assert f"temperature 30 ({origin}): " in told
    assert "top_k 5 (/set): " in told
    assert f"top_k 20 ({origin}): " in told
    assert "top_k 20 (generation_config.json): " in told
    assert "min_p 0.2 (--min-p): " in told
