"""`akunu models list`, `path`, `pull`, `rm`, `alias`: over a cache as huggingface_hub lays it out."""

import json
import os
from pathlib import Path
from unittest.mock import Mock

import pytest
from akunu_runs import run as run_akunu
from gguf_files import write_tiny_llama
from hub_server import add_to_cache
from huggingface_hub.errors import HTTPError

from akunu_py.model_store.aliases import load_aliases
from akunu_py.model_store.known_models import KNOWN_MODELS

GGUF = {
    "m-Q4_0.gguf": b"four", "m-Q8_0-00001-of-00002.gguf": b"eight",
    "m-Q8_0-00002-of-00002.gguf": b"more", "config.json": b"{}",
}  # fmt: skip
MLX = {
    "config.json": b'{"model_type": "llama", "quantization": {"bits": 4, "group_size": 64}}',
    "tokenizer.json": b"{}", "model.safetensors": b"x" * 2000,
}  # fmt: skip


def run(*arguments, code=0, typed=None):
    return run_akunu("models", *arguments, code=code, input=typed)


def files_below(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def listed():
    """Models that `akunu models list` shows, but for akunu's own."""
    models = json.loads(run("list", "--json").stdout)
    return [model for model in models if model["place"] != "akunu"]


def test_list(hub_cache, tmp_path, monkeypatch):
    add_to_cache(hub_cache, "o/gguf", GGUF)
    add_to_cache(hub_cache, "o/mlx", MLX)
    add_to_cache(hub_cache, "o/part", {"x-Q2_K-00001-of-00002.gguf": b"1"})
    add_to_cache(hub_cache, "o/no-model", {"README.md": b""})
    add_to_cache(hub_cache, "o/two", {"a-Q4_0.gguf": b"1", "b-Q4_0.gguf": b"2"})
    folder = tmp_path / "mine"
    (folder / "deep" / "deeper" / "deepest" / "too deep").mkdir(parents=True)
    (folder / "deep" / "m.gguf").write_bytes(b"12345")
    (folder / "deep" / "deeper" / "deepest" / "too deep" / "no.gguf").write_bytes(b"")
    (folder / "circle").symlink_to(folder)
    os.mkfifo(folder / "pipe.gguf")
    (folder / "broken.gguf").symlink_to(folder / "nothing")
    monkeypatch.setenv("AKUNU_MODEL_FOLDERS", f"{folder}{os.pathsep}{tmp_path / 'absent'}")
    run("alias", "four", "hf:o/gguf:Q4_0")
    run("alias", "away", "hf:o/other")
    found = {model["name"]: model for model in listed()}
    assert list(found) == [
        "hf:o/gguf:Q4_0", "hf:o/gguf:Q8_0", "hf:o/mlx", "hf:o/part:Q2_K", "hf:o/two/a-Q4_0.gguf",
        "hf:o/two/b-Q4_0.gguf", "deep/m.gguf", "away", "four",
    ]  # fmt: skip
    assert found["hf:o/gguf:Q8_0"]["num_bytes"] == 9
    assert found["hf:o/mlx"]["quantization"] == "4 bit"
    assert found["hf:o/part:Q2_K"]["path"] is None
    assert found["deep/m.gguf"] == {
        "name": "deep/m.gguf", "place": "folder", "path": str(folder / "deep" / "m.gguf"),
        "num_bytes": 5, "quantization": "", "target": "",
    }  # fmt: skip
    # Every name is one that commands take.
    for name, model in found.items():
        if model["path"] is not None:
            assert run("path", name).stdout == f"{model['path']}\n"
    text = run("list").output
    assert "hf:o/part:Q2_K" in text
    assert text.count("incomplete") == 1
    assert "alias    away -> hf:o/other  (not on this machine)\n" in text
    # Names end the line, so that long ones move nothing.
    assert text.startswith("   size  weights  name\n")
    assert "    5 B           deep/m.gguf\n" in text


def test_names_of_files_stay_on_their_line(hub_cache, tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a\x1b[2J\nb.gguf").write_bytes(b"1")
    monkeypatch.setenv("AKUNU_MODEL_FOLDERS", str(tmp_path / "mine"))
    assert run("list").output.endswith("1 B           'a\\x1b[2J\\nb.gguf'\n")


def test_pull(hub, tmp_path):
    hub.add("o/r", GGUF)
    run("alias", "mine", "hf:o/r:Q8_0")
    assert run("pull", "mine").stdout.strip().endswith("m-Q8_0-00001-of-00002.gguf")
    assert files_below(tmp_path / "hub")[-1] == "main"
    assert hub.fetched == ["m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf"]
    (tmp_path / "x.gguf").touch()
    assert "nothing to fetch" in run("pull", tmp_path / "x.gguf", code=2).output
    assert "is not a model on the hub" in run("pull", "hf:../../x", code=2).output
    assert "there is no model named ../../gone" in run("pull", "../../gone", code=2).output
    assert "hf:o/r" in run("pull", "o/r", code=2).output


def test_show_of_what_is_not_here(hub, hub_cache, machine_memory, monkeypatch):
    """The hub is asked, and nothing is fetched."""
    hub.add("o/r", GGUF)
    machine_memory(8)
    output = run("show", "hf:o/r").output
    assert output.startswith("o/r is on the hub, not on this machine\n")
    assert "      4 B  hf:o/r:Q4_0\n" in output
    assert "      9 B  hf:o/r:Q8_0 in 2 files  (larger than this machine's memory)\n" in output
    (model,) = json.loads(run("show", "hf:o/r:q4_0", "--json").stdout)["models"]
    assert model == {"name": "hf:o/r:Q4_0", "file_bytes": 4, "files": 1, "fits": True}
    hub.add("o/two", {"a-Q4_0.gguf": b"1", "b-Q4_0.gguf": b"2"})
    output = run("show", "o/two/b-Q4_0.gguf").output
    assert "  hf:o/two/b-Q4_0.gguf\n" in output
    assert "a-Q4_0" not in output
    assert "o/r has no Q2_K on the hub" in run("show", "hf:o/r:Q2_K", code=2).output
    assert "or it is private" in run("show", "hf:o/gone", code=2).output
    assert hub.fetched == []
    assert not hub_cache.exists()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "akunu models pull hf:o/r" in run("show", "hf:o/r", code=2).output


def test_pull_offline(hub_cache, monkeypatch):
    """huggingface_hub is the real one here."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE forbids" in run("pull", "hf:o/r", code=2).output
    snapshot = add_to_cache(hub_cache, "o/r", MLX)
    assert run("pull", "hf:o/r").stdout == f"{snapshot}\n"


def test_rm_asks(hub_cache):
    add_to_cache(hub_cache, "o/mlx", MLX)
    before = files_below(hub_cache)
    asked = run("rm", "hf:o/mlx", code=1, typed="n\n")
    assert "Delete hf:o/mlx from the hub's cache: 2.1 kB" in asked.output
    assert "model.safetensors" in asked.output
    # Without anybody to answer nothing is deleted either.
    run("rm", "hf:o/mlx", code=1, typed="")
    assert files_below(hub_cache) == before
    assert "deleted hf:o/mlx, 2.1 kB" in run("rm", "hf:o/mlx", typed="y\n").output
    assert not (hub_cache / "models--o--mlx").exists()


def test_rm_of_a_quantization_leaves_the_others(hub_cache):
    # Equal files are one blob, which stays as long as one of them does.
    add_to_cache(hub_cache, "o/r", GGUF | {"copy-Q2_K.gguf": b"more"})
    output = run("rm", "-y", "hf:o/r:q8_0").output
    assert "deleted hf:o/r:q8_0, 5 B (4 B more stay, which other files share)" in output
    assert [model["name"] for model in listed()] == ["hf:o/r:Q2_K", "hf:o/r:Q4_0"]
    blobs = {path.read_bytes() for path in (hub_cache / "models--o--r" / "blobs").iterdir()}
    assert blobs == {b"four", b"more", b"{}"}
    run("rm", "-y", "hf:o/r:Q2_K")
    blobs = {path.read_bytes() for path in (hub_cache / "models--o--r" / "blobs").iterdir()}
    assert blobs == {b"four", b"{}"}
    # The last one takes along what is left of the repository.
    run("rm", "-y", "o/r/m-Q4_0.gguf")
    assert not (hub_cache / "models--o--r").exists()


@pytest.mark.parametrize("name", ["a/r", "b/r", "c/r"])
def test_rm_of_a_repository_with_the_commits_of_another(hub_cache, name):
    """As a copy of it that was pushed under another name has."""
    names = ["a/r", "b/r", "c/r"]
    for each in names:
        add_to_cache(hub_cache, each, GGUF)
    run("rm", "-y", f"hf:{name}")
    left = [model["name"] for model in listed()]
    assert left == [
        f"hf:{each}:{kind}" for each in names if each != name for kind in ("Q4_0", "Q8_0")
    ]


def test_rm_of_a_users_own_files(hub_cache, tmp_path):
    add_to_cache(hub_cache, "o/r", GGUF)
    own = tmp_path / "m.gguf"
    own.write_bytes(b"mine")
    run("alias", "mine", own)
    snapshot = hub_cache / "models--o--r" / "snapshots"
    for name in (own, "mine", tmp_path, snapshot):
        assert (
            "deletes only models that it fetched"
            in run("rm", "--yes", "--file", name, code=2).output
        )
    assert own.read_bytes() == b"mine"
    # Nothing is deleted where one of the names is wrong.
    run("rm", "--yes", "--file", "hf:o/r", "mine", code=2)
    run("rm", "--yes", "mine", "hf:o/absent", code=2)
    assert set(load_aliases()) == {"mine"}
    run("rm", "--yes", "hf:o/r", "hf:o/absent", code=2)
    assert (snapshot.parent / "blobs").exists()
    assert "o/r has no Q2_K in the hub's cache" in run("rm", "-y", "hf:o/r:Q2_K", code=2).output
    run("rm", "--yes", "hf:o/r:Q4_0", "hf:o/r:Q2_K", code=2)
    assert (snapshot.parent / "blobs").exists()
    assert len(listed()) == 3
    run("rm", "--yes", "hf:o/r:Q4_0", "hf:o/r:Q4_0")
    assert len(listed()) == 2


def test_rm_tells_of_aliases_that_dangle(hub_cache):
    add_to_cache(hub_cache, "o/r", GGUF)
    run("alias", "four", "hf:o/r:Q4_0")
    run("alias", "eight", "hf:o/r:Q8_0")
    run("alias", "other", "hf:o/other:Q4_0")
    output = run("rm", "-y", "hf:o/r:Q4_0").output
    assert "The alias four stands for hf:o/r:Q4_0" in output
    assert "eight" not in output
    output = run("rm", "-y", "hf:o/r").output
    assert "The alias eight" in output
    assert "other" not in output
    assert set(load_aliases()) == {"four", "eight", "other"}


def test_rm_of_an_alias_leaves_its_model(hub_cache, tmp_path):
    add_to_cache(hub_cache, "o/r", GGUF)
    own = tmp_path / "m.gguf"
    own.write_bytes(b"mine")
    for name, target in (
        ("four", "hf:o/r:Q4_0"), ("all", "hf:o/r"), ("mine", own), ("away", "hf:o/other"),
        ("smollm2", own), ("toy", "akunu-tiny"), ("default", "smollm2"),
    ):  # fmt: skip
        run("alias", name, target)
    before, models = files_below(hub_cache), [one for one in listed() if one["place"] == "hub"]
    own_target = run("alias", "mine").stdout.strip()
    said = run("rm", "four", "mine", "mine").output
    assert said == (
        f"deleted the alias four; hf:o/r:Q4_0 stays\ndeleted the alias mine; {own_target} stays\n"
    )
    run("rm", "--yes", "all", "away", "smollm2", "toy", "default")
    assert load_aliases() == {}
    assert files_below(hub_cache) == before
    assert listed() == models
    assert own.exists()
    assert "there is no model named four" in run("rm", "four", code=2).output


def test_rm_with_its_file_takes_the_model_of_an_alias_too(hub_cache):
    add_to_cache(hub_cache, "o/r", GGUF)
    for name in ("four", "same", "left"):
        run("alias", name, "hf:o/r:Q4_0")
    run("rm", "--file", "four", code=1, typed="n\n")
    assert len(load_aliases()) == 3
    said = run("rm", "--file", "four", "same", "hf:o/r:q4_0", "hf:o/r:Q4_0", typed="y\n").output
    assert said.count("Delete hf:o/r:Q4_0 from the hub's cache") == 1
    assert said.count("deleted hf:o/r:Q4_0") == 1
    assert said.count("stays") == 0
    assert "The alias left stands for" in said
    assert "The alias four" not in said
    assert set(load_aliases()) == {"left"}
    assert [model["name"] for model in listed() if model["place"] == "hub"] == ["hf:o/r:Q8_0"]


def test_a_blob_outside_the_repository_is_not_deleted(hub_cache, tmp_path):
    """A snapshot may have been tampered with: a link in it leads to a file of the user."""
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    snapshot = add_to_cache(hub_cache, "o/r", GGUF)
    (snapshot / "x-Q2_K.gguf").symlink_to(precious)
    run("rm", "-y", "hf:o/r:Q2_K")
    assert precious.read_text() == "mine"
    (snapshot / "x-Q2_K.gguf").symlink_to(precious)
    run("rm", "-y", "hf:o/r")
    assert precious.read_text() == "mine"


def test_alias(hub_cache, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_tiny_llama(tmp_path / "m.gguf")
    run("alias", "mine", "./m.gguf")
    run("alias", "far", "o/r/m.gguf")
    assert run("alias").stdout == f"far  hf:o/r/m.gguf\nmine  {tmp_path / 'm.gguf'}\n"
    assert run("alias", "mine").stdout == f"{tmp_path / 'm.gguf'}\n"
    assert "there is no alias named x" in run("alias", "x", code=2).output
    assert "there is no model named gone.gguf" in run("alias", "x", "gone.gguf", code=2).output
    assert "cannot be an alias" in run("alias", "a/b", "./m.gguf", code=2).output
    # The alias goes before a file of its name, ./ before the alias.
    write_tiny_llama(tmp_path / "far")
    assert "pull hf:o/r/m.gguf" in run("path", "far", code=2).output
    assert run("path", "./far").stdout == "far\n"
    run("alias", "--delete", "mine")
    assert run("alias").stdout == "far  hf:o/r/m.gguf\n"
    run("alias", "--delete", "mine", code=2)
    run("alias", "--delete", code=2)
    run("alias", "--delete", "far", "x", code=2)
    assert set(load_aliases()) == {"far"}


def test_aliases_that_cannot_be_written(hub_cache, monkeypatch):
    monkeypatch.setattr(Path, "replace", Mock(side_effect=PermissionError(13, "Permission denied")))
    output = run("alias", "x", "hf:o/r", code=2).output
    assert "aliases.toml cannot be written: Permission denied" in output


def test_search_finds_short_names_and_models_of_the_hub(hub, hub_cache):
    hub.answers["/api/models"] = json.dumps([
        {"id": "o/Qwen3-x-GGUF", "downloads": 1234}, {"id": "p/odd\n", "downloads": 1},
    ]).encode()  # fmt: skip
    lines = run("search", "qwen3", "4B").stdout.splitlines()
    assert lines == [
        "qwen3:4b            2.5 GB  Apache-2.0", "  hf:Qwen/Qwen3-4B-GGUF:Q4_K_M",
        "qwen3:14b           9.0 GB  Apache-2.0", "  hf:Qwen/Qwen3-14B-GGUF:Q4_K_M",
        "qwen3.5:4b                  Apache-2.0", "  hf:unsloth/Qwen3.5-4B-GGUF:Q4_K_M",
        "qwen3-embedding:4b          Apache-2.0", "  hf:Qwen/Qwen3-Embedding-4B-GGUF:Q4_K_M",
        "on the Hugging Face hub (akunu models show NAME lists its files):",
        "  hf:o/Qwen3-x-GGUF  1,234 downloads",
    ]  # fmt: skip
    # Without words the hub is not asked.
    asked = len(hub.asked)
    assert len(run("search").stdout.splitlines()) == 2 * len(KNOWN_MODELS)
    assert len(hub.asked) == asked
    hub.answers["/api/models"] = b"[]"
    assert "no model is called 'none such'" in run("search", "none", "such", code=2).stderr


@pytest.mark.parametrize("offline", [True, False])
def test_search_without_a_network_says_so_and_has_the_short_names(hub_cache, monkeypatch, offline):
    def unreachable(*_arguments, **_options):
        assert not offline
        raise HTTPError("[Errno -2] Name or service not known")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", offline)
    monkeypatch.setattr("huggingface_hub.HfApi.list_models", unreachable)
    why = (
        "HF_HUB_OFFLINE forbids asking the hub; unset it"
        if offline
        else "the hub cannot be asked: Name or service not known; check the network"
    )
    found = run("search", "gemma")
    assert found.stdout.count("hf:unsloth/gemma") == 5
    assert f"Warning: {why}" in found.stderr
    assert f"Error: {why}" in run("search", "none", code=2 if offline else 1).stderr


def test_a_short_name_is_told_before_it_is_fetched(hub, hub_cache, monkeypatch):
    hub.add("Qwen/Qwen3-4B-GGUF", {"Qwen3-4B-Q4_K_M.gguf": b"four", "Qwen3-4B-Q8_0.gguf": b"8"})
    text = "qwen3:4b is hf:Qwen/Qwen3-4B-GGUF:Q4_K_M (2.5 GB, Apache-2.0) on the Hugging Face hub."
    done = run("pull", "Qwen3:4b")
    assert text in done.stderr
    head = "hf:RedHatAI/Qwen3-4B-speculator.dflash2"
    offer = f"A head drafts for it: {head} (Apache-2.0). akunu models pull qwen3:4b --head fetches"
    assert offer in done.stderr
    hub.add(head.removeprefix("hf:"), {"config.json": b"{}", "model.safetensors": b"x"})
    both = run("pull", "qwen3:4b", "--head").stdout.splitlines()
    assert both[0] == done.stdout.rstrip()
    assert (Path(both[1]) / "model.safetensors").read_bytes() == b"x"
    assert run("path", head).stdout.rstrip() == both[1]
    for name in ("smollm2", "gemma3:1b", "hf:o/r"):
        assert (
            f"no head is known for {name}; leave --head"
            in run("pull", name, "--head", code=2).stderr
        )
    assert done.stdout.endswith("Qwen3-4B-Q4_K_M.gguf\n")
    # What is here needs no words, and an alias comes first.
    assert run("path", "qwen3:4b").stdout == done.stdout
    run("alias", "qwen3:4b", "hf:o/r:Q8_0")
    assert "hf:o/r:Q8_0 is not in the hub's cache" in run("path", "qwen3:4b", code=2).stderr
