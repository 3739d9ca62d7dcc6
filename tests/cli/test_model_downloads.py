"""`akunu` as a user runs it, in processes of its own, against a hub on this machine."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from akunu_runs import AKUNU
from gguf_files import split_file, write_tiny_llama
from hub_server import TOKEN, hub_server

LARGE = np.random.default_rng(0).bytes(24 * 2**20)


@pytest.fixture
def server():
    with hub_server() as hub:
        yield hub


@pytest.fixture
def environment(server, tmp_path):
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.toml").touch()
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("HF_", "AKUNU_"))
    }
    return kept | {
        "HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path / "hf"), "NO_PROXY": "127.0.0.1,localhost",
        "AKUNU_CONFIG": str(tmp_path / "config" / "config.toml"),
        "AKUNU_CACHE_DIR": str(tmp_path / "costs"), "HOME": str(tmp_path),
    }  # fmt: skip


@pytest.fixture
def akunu(environment):
    def run(*arguments, code=0, **variables):
        done = subprocess.run(
            [*AKUNU, *map(str, arguments)], env=environment | variables, capture_output=True,
            text=True, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout if code == 0 else done.stderr

    return run


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = write_tiny_llama(tmp_path_factory.mktemp("model") / "m.gguf", tied=False, seed=3)
    return path.read_bytes()


def listed(akunu):
    """Models that `akunu models list` shows, but for akunu's own."""
    models = json.loads(akunu("models", "list", "--json"))
    return [model for model in models if model["place"] != "akunu"]


@pytest.mark.slow
def test_a_gguf_model_from_pull_to_rm(server, akunu, model, tmp_path):
    server.add("o/r", {"m-Q4_0.gguf": model, "m-Q8_0.gguf": model[::-1], "README.md": b"#"})
    assert "hf:o/r:Q4_0" in akunu("models", "pull", "hf:o/r", code=2)
    assert "o/r has no Q2_K on the hub" in akunu("models", "pull", "hf:o/r:Q2_K", code=2)
    path = akunu("models", "pull", "hf:o/r:q4_0").strip()
    # HF_HOME holds.
    assert path.startswith(str(tmp_path / "hf" / "hub" / "models--o--r"))
    assert server.sent == {"m-Q4_0.gguf": len(model)}
    assert [m["name"] for m in listed(akunu)] == ["hf:o/r:Q4_0"]
    assert akunu("models", "path", "hf:o/r:Q4_0").strip() == path
    assert akunu("models", "path", "o/r/m-Q4_0.gguf").strip() == path
    akunu("models", "alias", "mine", "o/r/m-Q4_0.gguf")
    for name in ("hf:o/r:Q4_0", "mine"):
        assert json.loads(akunu("models", "show", name, "--json"))["path"] == path
    server.forget()
    text = akunu("generate", "mine", "-p", "hello", "--max-tokens", "8")
    # What is here runs without the hub being asked, and offline.
    assert (
        akunu("generate", "hf:o/r:Q4_0", "-p", "hello", "--max-tokens", "8", HF_HUB_OFFLINE="1")
        == text
    )
    assert server.asked == []
    assert "HF_HUB_OFFLINE forbids" in akunu(
        "generate", "hf:o/r:Q8_0", "-p", "x", HF_HUB_OFFLINE="1", code=2
    )
    akunu("models", "convert", "mine", tmp_path / "converted")
    assert akunu("generate", tmp_path / "converted", "-p", "hello", "--max-tokens", "8") == text
    assert "aborted" in akunu("models", "rm", "--file", "mine", code=1).casefold()
    akunu("models", "rm", "--file", "--yes", "mine")
    assert listed(akunu) == []
    assert not (tmp_path / "hf" / "hub" / "models--o--r").exists()


@pytest.mark.slow
def test_generate_fetches_a_split_model(server, akunu, model, tmp_path):
    (tmp_path / "whole.gguf").write_bytes(model)
    shards = {path.name: path.read_bytes() for path in split_file(tmp_path / "whole.gguf", 3)}
    server.add("o/r", {f"Q4_0/{name}": content for name, content in shards.items()})
    text = akunu("generate", "hf:o/r", "-p", "hello", "--max-tokens", "8")
    assert server.sent == {f"Q4_0/{name}": len(content) for name, content in shards.items()}
    (found,) = listed(akunu)
    assert found["name"] == "hf:o/r:Q4_0"
    assert found["num_bytes"] == sum(map(len, shards.values()))
    assert akunu("generate", "hf:o/r:Q4_0", "-p", "hello", "--max-tokens", "8") == text
    assert akunu("generate", tmp_path / "whole.gguf", "-p", "hello", "--max-tokens", "8") == text


@pytest.mark.slow
def test_generate_fetches_an_mlx_folder(server, akunu, model, tmp_path):
    (tmp_path / "m.gguf").write_bytes(model)
    akunu("models", "convert", tmp_path / "m.gguf", tmp_path / "folder")
    files = {path.name: path.read_bytes() for path in (tmp_path / "folder").iterdir()}
    server.add("o/mlx", files | {"run.py": b"raise SystemExit", "pytorch_model.bin": b"x"})
    text = akunu("generate", "hf:o/mlx", "-p", "hello", "--max-tokens", "8")
    assert set(server.sent) == set(files)
    assert text == akunu("generate", tmp_path / "m.gguf", "-p", "hello", "--max-tokens", "8")


@pytest.mark.slow
def test_an_interrupted_pull_is_taken_up(server, environment, akunu, tmp_path):
    """Ctrl-C ends it at once, nothing is taken for a model, and the rest is all that comes later."""
    server.add("o/r", {"m.gguf": LARGE})
    server.holds["m.gguf"] = half = len(LARGE) // 2
    child = subprocess.Popen(
        [*AKUNU, "models", "pull", "hf:o/r"], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert server.held.wait(300)
    (part,) = (tmp_path / "hf" / "hub" / "models--o--r" / "blobs").glob("*.incomplete")
    wait_for(lambda: part.stat().st_size >= 10 * 2**20)
    child.send_signal(signal.SIGINT)
    output, errors = child.communicate(timeout=300)
    assert child.returncode == 130
    assert output == ""
    assert "Traceback" not in errors
    server.release.set()
    kept = part.stat().st_size
    assert 10 * 2**20 <= kept <= half
    (found,) = listed(akunu)
    assert (found["name"], found["path"], found["num_bytes"]) == ("hf:o/r", None, kept)
    assert "pull hf:o/r" in akunu("models", "path", "hf:o/r", code=2)
    server.forget()
    path = akunu("models", "pull", "hf:o/r").strip()
    assert server.sent == {"m.gguf": len(LARGE) - kept}
    assert Path(path).read_bytes() == LARGE


@pytest.mark.slow
def test_a_pull_that_was_killed_is_taken_up(server, environment, akunu, tmp_path):
    server.add("o/r", {"m.gguf": LARGE})
    server.holds["m.gguf"] = len(LARGE) // 2
    child = subprocess.Popen(
        [*AKUNU, "models", "pull", "hf:o/r"], env=environment, stderr=subprocess.DEVNULL
    )
    assert server.held.wait(300)
    (part,) = (tmp_path / "hf" / "hub" / "models--o--r" / "blobs").glob("*.incomplete")
    wait_for(lambda: part.stat().st_size >= 10 * 2**20)
    child.kill()
    child.wait()
    server.release.set()
    kept = part.stat().st_size
    server.forget()
    akunu("models", "pull", "hf:o/r")
    assert server.sent == {"m.gguf": len(LARGE) - kept}
    akunu("models", "rm", "-y", "hf:o/r")


@pytest.mark.slow
def test_who_asks_and_whether(server, akunu, model):
    server.add("o/gated", {"m.gguf": model}, gated=True)
    assert "accept its terms" in akunu("generate", "hf:o/gated", "-p", "x", code=2)
    assert "HF_HUB_OFFLINE forbids" in akunu(
        "models", "pull", "hf:o/gated", HF_HUB_OFFLINE="1", code=2
    )
    assert akunu("models", "pull", "hf:o/gated", HF_TOKEN=TOKEN).endswith("m.gguf\n")
    assert akunu("models", "pull", "hf:o/gated", HF_HUB_OFFLINE="1").endswith("m.gguf\n")


def wait_for(condition, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
