"""akunu serve --models: whatever is no model is left out with a line, and the first good one answers."""

import errno
import json
import os
import types

import gguf
import numpy as np
import pytest
from click.testing import CliRunner
from gguf_files import write_tiny_llama
from model_folders import write_folder

from akunu_py.cli.main import cli
from akunu_py.server import running
from akunu_py.system.errors import MemoryLimitError, ModelFormatError

KINDS = (
    "empty", "cut", "cut in its header", "HTML", "LFS pointer", "unknown architecture",
    "dangling link", "circular link", "pipe", "missing part", "first part missing",
    "folder without weights", "folder with a tokenizer alone", "folder without a config",
    "folder with bad weights", "folder with a pipe", "folder with half its weights",
    "unknown vocabulary", "folder with a cut tokenizer",
)  # fmt: skip


@pytest.fixture
def serve(monkeypatch):
    """Starts a server that ends at once; returns its models, what it said, and its exit code."""
    found = []

    def server_of(app, **_):
        models = app.state.service.backend.models()
        found[:] = [model.id for model in models]
        call.contexts = [model.context for model in models]
        return types.SimpleNamespace(run=lambda sockets: None)

    monkeypatch.setattr(running, "server_of", server_of)

    def call(*arguments):
        found.clear()
        line = ["serve", *map(str, arguments), "--port", "0"]
        done = CliRunner().invoke(cli, line)
        assert isinstance(done.exception, SystemExit | None), done.exc_info
        return list(found), done.stderr.splitlines(), done.exit_code

    return call


def link(path, to):
    path.symlink_to(to)


def unknown_architecture(path):
    writer = gguf.GGUFWriter(str(path), "no-such-family")
    writer.add_tensor("a", np.zeros((32, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def folder(path, *names, config=None):
    path.mkdir()
    for name in names:
        (path / name).write_bytes(b"x")
    if config is not None:
        (path / "config.json").write_text(json.dumps(config))


def make_bad(kind, place, good):
    """Make a bad model of a kind in a folder; return the name under which it is told."""
    path = place / "a.gguf"
    match kind:
        case "empty":
            path.touch()
        case "cut":
            path.write_bytes(good.read_bytes()[:-1000])
        case "cut in its header":
            path.write_bytes(good.read_bytes()[:100])
        case "HTML":
            path.write_text("<!doctype html><html>")
        case "LFS pointer":
            path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 3\n")
        case "unknown architecture":
            unknown_architecture(path)
        case "unknown vocabulary":
            path.write_bytes(
                good.read_bytes().replace(b"tokenizer.ggml.model", b"tokenizer.ggml.other")
            )
        case "dangling link":
            link(path, place / "nowhere")
        case "circular link":
            link(path, path)
        case "pipe":
            os.mkfifo(path)
        case "missing part":
            path = place / "a-00001-of-00002.gguf"
            link(path, good)
        case "first part missing":
            path = place / "a-00001-of-00002.gguf"
            link(place / "a-00002-of-00002.gguf", good)
        case "folder without weights":
            path = place / "a"
            folder(path, config={"model_type": "llama"})
        case "folder with a tokenizer alone":
            path = place / "a"
            folder(path, "tokenizer_config.json", config={})
        case "folder without a config":
            path = place / "a"
            folder(path, "model.safetensors")
        case "folder with bad weights":
            path = place / "a"
            folder(path, "model.safetensors", config={"model_type": "llama"})
        case "folder with a pipe":
            path = place / "a"
            folder(path, config={"model_type": "llama"})
            os.mkfifo(path / "model.safetensors")
        case "folder with half its weights":
            path = place / "a"
            folder(path, "model-00001-of-00002.safetensors", config={"model_type": "llama"})
        case "folder with a cut tokenizer":
            path = place / "a"
            write_folder(path, good)
            os.truncate(path / "tokenizer.json", 999)
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_model_is_left_out_with_a_line(kind, serve, tmp_path, tiny_gguf):
    bad = make_bad(kind, tmp_path, tiny_gguf)
    said = serve("--models", tmp_path)[1:]
    assert said[1] == 2
    assert said[0][-2] == "Error: none of the models can be served:"
    assert str(bad) in said[0][-1]
    link(tmp_path / "good.gguf", tiny_gguf)
    link(tmp_path / "other.gguf", tiny_gguf.with_name("other.gguf"))
    tiny_gguf.with_name("other.gguf").write_bytes(tiny_gguf.read_bytes())
    models, lines, code = serve("--models", tmp_path)
    assert (models, code) == (["good", "other"], 0)
    assert len(lines) == 2
    assert lines[0].startswith("left out: ")
    assert str(bad) in lines[0]
    assert "good and 1 more at http" in lines[1]


def test_all_kinds_at_once_with_a_model_that_is_named(serve, tmp_path, tiny_gguf):
    for number, kind in enumerate(KINDS):
        (tmp_path / str(number)).mkdir()
        make_bad(kind, tmp_path / str(number), tiny_gguf)
    models, lines, code = serve(tiny_gguf, "--models", tmp_path)
    assert (models, code) == (["tiny"], 0)
    assert len(lines) == len(KINDS) + 1
    assert all(line.startswith("left out: ") for line in lines[:-1])
    assert serve("--quiet", tiny_gguf, "--models", tmp_path)[1] == []
    # Whoever is named has to be good.
    assert serve(tmp_path / "0" / "a.gguf", "--models", tmp_path)[2] == 1


@pytest.mark.parametrize("error", [ModelFormatError, MemoryLimitError])
def test_a_model_that_does_not_load_gives_its_place_to_the_next(
    error, serve, tmp_path, tiny_gguf, monkeypatch
):
    from akunu_py.cli import serve as module

    load = module.load_engine

    def load_engine(model, *arguments, **options):
        if model is not None and model.endswith("a.gguf"):
            raise error("it is too bad")
        return load(model, *arguments, **options)

    monkeypatch.setattr(module, "load_engine", load_engine)
    for name in ("a", "b"):
        (tmp_path / f"{name}.gguf").write_bytes(tiny_gguf.read_bytes())
    models, lines, _ = serve("--models", tmp_path)
    assert models == ["b"]
    assert lines[0] == f"left out: {tmp_path / 'a.gguf'}: it is too bad"
    assert serve("--models", tmp_path / "a.gguf")[2] == 2


def test_a_model_whose_chat_template_fails_still_continues_texts(serve, tmp_path):
    write_tiny_llama(tmp_path / "a.gguf", chat_template="{% for")
    assert serve("--models", tmp_path)[::2] == (["a"], 0)
    assert serve(tmp_path / "a.gguf")[::2] == (["a"], 0)


def test_a_context_holds_as_far_as_a_model_has_one(serve, tmp_path, tiny_gguf, default_model):
    link(tmp_path / "a.gguf", tiny_gguf)
    link(tmp_path / "b.gguf", default_model)
    models, lines, code = serve("--models", tmp_path, "--context", 1024)
    assert (models, len(lines), code) == (["a", "b"], 1, 0)
    assert serve.contexts == [256, 1024]
    # Whoever is named has to have it.
    assert "allows 2 to 256 tokens" in serve(tiny_gguf, "--context", 1024)[1][-1]


def test_a_folder_that_may_not_be_read(serve, tmp_path, tiny_gguf, monkeypatch):
    (tmp_path / "locked").mkdir()
    link(tmp_path / "good.gguf", tiny_gguf)
    scan = os.scandir

    def scandir(path):
        if os.fspath(path).endswith("locked"):
            raise PermissionError(errno.EACCES, "Permission denied", os.fspath(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)
    said = f"{tmp_path / 'locked'} cannot be read: Permission denied"
    models, lines, _ = serve("--models", tmp_path)
    assert (models, lines[0]) == (["good"], f"left out: {said}")
    assert serve("--models", tmp_path / "locked")[1][-1].strip() == said
