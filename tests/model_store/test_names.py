"""Names of models: what they mean, what is fetched for them, and what wrong ones say."""

import os
import socket
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import python

from akunu_py.model_store import hub_cache as hub_cache_module
from akunu_py.model_store.aliases import aliases_path, delete_alias, load_aliases, save_alias
from akunu_py.model_store.known_models import default_model_path
from akunu_py.model_store.names import HubName, friendly_name, parse_hub_name, resolve_model
from akunu_py.system.errors import ConfigError, HubError
from akunu_py.system.settings import config_path, load_settings

REPOSITORY = {
    "m-Q4_K_M.gguf": b"four",
    "m-Q8_0-00001-of-00002.gguf": b"eight",
    "m-Q8_0-00002-of-00002.gguf": b"more",
    "README.md": b"",
    "weights.bin": b"x",
}
MLX = {
    "config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": b"weights",
    "run.py": b"", "pytorch_model.bin": b"", "model.pt": b"",
}  # fmt: skip


def resolve(name, **options):
    return resolve_model(name, load_settings(), **options)


def refusal(name, **options):
    with pytest.raises(ConfigError) as caught:
        resolve(name, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("hf:o/r", HubName("o/r")),
        ("hf:o/r:Q4_K_M", HubName("o/r", "Q4_K_M")),
        ("o/r/m.gguf", HubName("o/r", file="m.gguf")),
        ("hf:o/r/Q8_0/m.gguf", HubName("o/r", file="Q8_0/m.gguf")),
        ("o/r", None),
        ("/o/r/m.gguf", None),
        ("./o/m.gguf", None),
        ("../../m.gguf", None),
        ("o/r/../m.gguf", None),
        ("o/r/model.bin", None),
        ("https://huggingface.co/o/r", HubName("o/r")),
        ("http://www.huggingface.co/o/r/", HubName("o/r")),
        ("huggingface.co/o/r", HubName("o/r")),
        ("https://HF.co/o/r:Q4_K_M", HubName("o/r", "Q4_K_M")),
        ("hf.co/o/r/m.gguf", HubName("o/r", file="m.gguf")),
        # As a path, in which double slashes are one.
        ("https:/huggingface.co/o/r", HubName("o/r")),
        ("https://huggingface.co/o/r.git", HubName("o/r")),
        ("hf://o/r", HubName("o/r")),
        ("hf://o/r/m.gguf", HubName("o/r", file="m.gguf")),
        ("https://huggingface.co/o/r/tree/main", HubName("o/r")),
        ("https://huggingface.co/o/r/tree/main/Q8_0", HubName("o/r")),
        ("https://huggingface.co/o/r/blob/main/README.md#use", HubName("o/r")),
        ("https://huggingface.co/o/r/discussions/7", HubName("o/r")),
        ("https://huggingface.co/o/r?library=gguf", HubName("o/r")),
        ("https://huggingface.co/o/r/blob/main/m.gguf", HubName("o/r", file="m.gguf")),
        (
            "https://huggingface.co/o/r/resolve/main/Q8%5F0/m.gguf?download=true",
            HubName("o/r", file="Q8_0/m.gguf"),
        ),
        ("https://huggingface.co/o/r?show_file_info=Q8%2Fm.gguf", HubName("o/r", file="Q8/m.gguf")),
        ("https://example.org/o/r/m.gguf", None),
        ("https://nothuggingface.co/o/r", None),
    ],
)
def test_names_of_the_hub(name, meant):
    assert parse_hub_name(name) == meant
    if meant and name.startswith("hf:") and not name.startswith("hf:/"):
        assert str(meant) == name


@pytest.mark.parametrize(
    "name",
    [
        "hf:", "hf:o", "hf:../../x", "hf:o/..", "hf:o/r:", "hf:o/r/../../x.gguf", "hf:o/r/x.bin",
        "hf:o/r//x.gguf", "hf.co", "https://hf.co/api/models/o/r", "hf:o/r:Q4/..", "hf:o/r--x", "hf:o/r\n", "hf:o/r:\x1b[2J",
        f"hf:o/{'r' * 200}", "https://huggingface.co/", "https://huggingface.co/gpt2",
        "https://huggingface.co/datasets/o/r", "huggingface.co/spaces/o/r", "hf.co/../..",
        "https://huggingface.co/o/r/resolve/main/../../x.gguf", "hf.co/models?search=qwen",
    ],
)  # fmt: skip
def test_malformed_names_of_the_hub(name, hub_cache):
    assert "is not a model on the hub" in refusal(name)


@given(st.sampled_from(["", "https://huggingface.co/", "hf.co/o/r/"]), st.text(max_size=30))
def test_any_text_has_a_meaning_or_a_message(beginning, text):
    try:
        found = parse_hub_name(beginning + text)
    except ConfigError:
        assert beginning or text.startswith("hf:")
    else:
        assert found is None or ".." not in found.repository


def test_without_a_name_the_settings_model_or_the_shipped_one(hub_cache, tmp_path, monkeypatch):
    assert resolve(None) == default_model_path()
    (tmp_path / "m.gguf").touch()
    monkeypatch.setenv("AKUNU_MODEL", str(tmp_path / "m.gguf"))
    assert resolve(None) == tmp_path / "m.gguf"


def test_paths_and_folders_of_the_user(hub_cache, tmp_path, monkeypatch):
    folder = tmp_path / "models"
    (folder / "mlx").mkdir(parents=True)
    (folder / "m.gguf").touch()
    assert resolve(str(folder / "mlx")) == folder / "mlx"
    assert "there is no model named mlx" in refusal("mlx")
    monkeypatch.setenv("AKUNU_MODEL_FOLDERS", str(folder))
    assert resolve("mlx") == folder / "mlx"
    assert resolve("m") == resolve("m.gguf") == folder / "m.gguf"
    assert "there is no model named ../models/m" in refusal("../models/m")


def test_a_quantization_is_fetched_with_all_its_parts_and_nothing_else(hub):
    hub.add("o/r", REPOSITORY)
    path = resolve("hf:o/r:q8_0")
    assert hub.fetched == ["m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf"]
    assert path.read_bytes() == b"eight"
    # A second time the hub is not asked: an error there would be seen.
    hub.statuses["o/r"] = 500
    assert resolve("hf:o/r:Q8_0") == path
    assert resolve("o/r/m-Q8_0-00002-of-00002.gguf") == path
    assert resolve("hf:o/r") == path
    with pytest.raises(HubError, match="o/r cannot be fetched"):
        resolve("hf:o/r:Q4_K_M")


def test_an_mlx_model_is_fetched_without_code_and_pickles(hub):
    hub.add("o/mlx", MLX)
    folder = resolve("hf:o/mlx")
    assert sorted(path.name for path in folder.iterdir()) == [
        "config.json", "model.safetensors", "tokenizer.json",
    ]  # fmt: skip


def test_ambiguous_and_missing_quantizations_list_what_there_is(hub):
    hub.add("o/r", REPOSITORY | {"n-Q4_K_M.gguf": b"other"})
    text = refusal("hf:o/r")
    assert "o/r has 3 models" in text
    assert "hf:o/r:Q8_0" in text
    assert "hf:o/r/m-Q4_K_M.gguf" in text
    assert "2 models of o/r are called q4_k_m" in refusal("hf:o/r:q4_k_m")
    assert "o/r has no Q2_K on the hub" in refusal("hf:o/r:Q2_K")
    assert "hf:o/r:Q8_0" in refusal("hf:o/r:Q2_K")
    assert resolve("o/r/n-Q4_K_M.gguf").read_bytes() == b"other"
    assert hub.fetched == ["n-Q4_K_M.gguf"]


def test_a_missing_part_is_named(hub):
    hub.add(
        "o/r", {name: content for name, content in REPOSITORY.items() if "00002-of" not in name}
    )
    assert "m-Q8_0-00002-of-00002.gguf" in refusal("hf:o/r:Q8_0")
    assert hub.fetched == []


def test_a_repository_without_a_model(hub):
    hub.add("o/r", {"README.md": b"", "pytorch_model.bin": b"", "run.py": b""})
    assert "no model that akunu reads" in refusal("hf:o/r")


def test_the_librarys_own_offline_error(hub_cache, monkeypatch):
    """Here huggingface_hub is the real one: its client refuses to ask."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    text = refusal("hf:o/r:Q4_0")
    assert "HF_HUB_OFFLINE forbids" in text
    assert "o/r" in text


def test_no_network(hub_cache, tmp_path):
    """The real library in a process of its own, asked to go where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        code = (
            "from akunu_py.model_store.names import HubName, fetch; fetch(HubName('o/r', 'Q4_0'))"
        )
        environment = os.environ | {
            "HF_ENDPOINT": f"http://127.0.0.1:{taken.getsockname()[1]}",
            "HF_HUB_CACHE": str(hub_cache),
            "NO_PROXY": "127.0.0.1",
        }
        result = python("-c", code, code=None, env=environment)
    last = result.stderr.splitlines()[-1]
    assert last.startswith("akunu_py.system.errors.HubError: o/r cannot be fetched: "), (
        result.stderr
    )


def test_a_damaged_cache(hub_cache):
    hub_cache.parent.mkdir(exist_ok=True)
    assert hub_cache_module.cached_repositories() == []
    (hub_cache / "models--o--r" / "snapshots").mkdir(parents=True)
    (hub_cache / "models--o--r" / "refs").write_text("a file where a folder should be")
    (hub_cache / "stray").write_text("")
    assert hub_cache_module.cached_repositories() == []
    assert hub_cache_module.cached_repository("o/r") is None


def test_links_that_lead_nowhere(hub_cache, tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "gone").symlink_to(tmp_path / "nothing")
    for name in ("loop", "gone"):
        assert "is a broken or circular link" in refusal(str(tmp_path / name))
    text = refusal(str(tmp_path / "loop" / "m.gguf"))
    assert "there is no model" in text or "cannot be opened" in text
    assert "cannot be" in refusal("x\0y") or "there is no model" in refusal("x\0y")
    assert "is empty" in refusal("")
    assert "cannot be" in refusal("~nobody-of-that-name/m.gguf")
    assert refusal("o/r").count("hf:o/r") == 1


def test_a_path_that_may_not_be_looked_at(hub_cache, monkeypatch):
    stat = Mock(side_effect=PermissionError(13, "Permission denied"))
    monkeypatch.setattr("pathlib.Path.exists", stat)
    assert "m.gguf cannot be opened: Permission denied" in refusal("m.gguf")


def test_aliases(hub, tmp_path):
    (tmp_path / "m.gguf").touch()
    save_alias("mine", str(tmp_path / "m.gguf"))
    save_alias("émigré".replace("é", "e"), "hf:o/r:Q4_K_M")
    assert resolve("mine") == tmp_path / "m.gguf"
    hub.add("o/r", REPOSITORY)
    assert resolve("emigre").read_bytes() == b"four"
    assert refusal("mines").endswith(" Did you mean mine?")
    (tmp_path / "m.gguf").unlink()
    assert "the alias mine stands for" in refusal("mine")
    delete_alias("mine")
    assert load_aliases() == {"emigre": "hf:o/r:Q4_K_M"}
    with pytest.raises(ConfigError, match="no alias named mine"):
        delete_alias("mine")


def test_an_alias_does_not_lead_to_another(hub_cache):
    save_alias("a", "b")
    save_alias("b", "a")
    assert "the alias a stands for b: there is no model named b" in refusal("a")


@pytest.mark.parametrize("target", ['a"b\\c', "日本/😀.gguf", "'x'", "a = 1 # no"])
def test_targets_survive_the_file(hub_cache, target):
    save_alias("x.y", target)
    assert load_aliases() == {"x.y": target}


@pytest.mark.parametrize(
    ("name", "target", "message"),
    [
        *((name, "x", "cannot be an alias") for name in (
            "", "a/b", "..", "-x", "hf:x", "m.gguf", "M.GGUF", "a b", "a\n", "x" * 65,
        )),
        *(("x", target, "cannot stand for") for target in (
            "", "a\nb", "\x1b[2J", "\udc80", "x" * 5000,
        )),
    ],
)  # fmt: skip
def test_aliases_that_are_refused(hub_cache, name, target, message):
    with pytest.raises(ConfigError, match=message):
        save_alias(name, target)
    assert not aliases_path().exists()


@pytest.mark.parametrize(
    "content",
    [b"[aliases", b"\xff", b"x = 1\n", b"aliases = 1", b'[aliases]\n"a/b" = "x"', b"[aliases]\na = 1",
     b'[aliases]\na = "\\u001b[2J"', b"#" * 2**21],
)  # fmt: skip
def test_a_malformed_alias_file_is_told_and_kept(hub_cache, content):
    aliases_path().write_bytes(content)
    for action in (load_aliases, lambda: save_alias("x", "y"), lambda: resolve("x")):
        with pytest.raises(ConfigError, match=r"aliases\.toml"):
            action()
    assert aliases_path().read_bytes() == content


def test_alias_files_that_are_no_files(hub_cache):
    os.mkfifo(aliases_path())
    with pytest.raises(ConfigError, match="not a regular file"):
        load_aliases()


def test_aliases_without_settings(hub_cache, monkeypatch):
    """A file beside the null device, here one of this test's own, is neither read nor written."""
    save_alias("left", "behind")
    monkeypatch.setattr(os, "devnull", str(config_path()))
    assert load_aliases() == {}
    content = aliases_path().read_bytes()
    with pytest.raises(ConfigError, match="switched off"):
        save_alias("x", "y")
    assert aliases_path().read_bytes() == content


def test_odd_entries_of_the_cache_hide_no_others(hub_cache):
    blobs = hub_cache / "models--org--model" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / "a.incomplete").write_bytes(b"half")
    # Another process finished it meanwhile, or it never was one.
    (blobs / "b.incomplete").symlink_to(blobs / "nowhere")
    (found,) = hub_cache_module.cached_repositories()
    assert (found.name, found.unfinished_bytes) == ("org/model", 4)
    refs = hub_cache / "models--org--model" / "refs"
    refs.mkdir()
    os.mkfifo(refs / "main")
    with pytest.raises(ConfigError, match="refs/main is not a file"):
        hub_cache_module.cached_repositories()


@pytest.mark.parametrize(
    ("name", "shown"),
    [(b"\xff.gguf", "\ufffd"), (b"a\nb.gguf", "a b"), (b"a\x1b[2J.gguf", "a\ufffd[2J")],
)
def test_friendly_names_are_a_line_of_unicode(tmp_path, name, shown):
    path = tmp_path / os.fsdecode(name)
    path.touch()
    assert friendly_name(path) == shown
