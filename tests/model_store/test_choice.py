"""The models of `akunu serve --models`: folders and names become one-word names with paths."""

import pytest

from akunu_py.model_store.aliases import save_alias
from akunu_py.model_store.choice import choice_of_models, name_among
from akunu_py.system.errors import ConfigError
from akunu_py.system.settings import load_settings


@pytest.fixture(autouse=True)
def own_settings(tmp_path, monkeypatch):
    path = tmp_path / "settings" / "config.toml"
    path.parent.mkdir()
    path.touch()
    monkeypatch.setenv("AKUNU_CONFIG", str(path))


def choice(*given, left_out=None):
    left_out = [] if left_out is None else left_out
    return choice_of_models([str(one) for one in given], load_settings(), left_out.append)


def touched(path, *names):
    path.mkdir(parents=True, exist_ok=True)
    for name in names:
        (path / name).touch()
    return path


def test_folder_lists_gguf_files_and_mlx_folders(tmp_path):
    folder = touched(tmp_path / "all", "One Two.gguf", "notes.txt", "x-mmproj.gguf")
    touched(folder / "three-mlx", "config.json", "model.safetensors")
    touched(folder / "split", "s-00001-of-00002.gguf", "s-00002-of-00002.gguf")
    touched(folder / "unfinished", "u-00001-of-00002.gguf")
    left_out = []
    assert choice(folder, left_out=left_out) == {
        "One-Two": folder / "One Two.gguf",
        "s": folder / "split" / "s-00001-of-00002.gguf",
        "three-mlx": folder / "three-mlx",
    }
    assert left_out == [
        f"{folder / 'unfinished' / 'u-00001-of-00002.gguf'}: u-00002-of-00002.gguf is missing, or is not a file"
    ]


def test_equal_names_are_told_apart_and_the_same_file_is_there_once(tmp_path):
    one = touched(tmp_path / "one", "m.gguf", "only.gguf")
    other = touched(tmp_path / "other", "m.gguf")
    third = touched(tmp_path / "deep" / "one", "m.gguf")
    found = choice(one, other, third, one / "m.gguf", f"{one / 'only.gguf'},{other / 'm.gguf'}")
    names = {name: path / "m.gguf" for name, path in (("one-m", one), ("other-m", other))}
    assert found == {**names, "only": one / "only.gguf", "one-m-2": third / "m.gguf"}
    # A name that is made does not take that of a file.
    touched(other, "one-m.gguf")
    assert choice(one, other, third)["one-m"] == other / "one-m.gguf"


def test_aliases_and_own_models_keep_their_names(tmp_path):
    folder = touched(tmp_path / "x", "long-file-name.gguf")
    save_alias("fast", str(folder / "long-file-name.gguf"))
    assert list(choice("fast, akunu-tiny")) == ["fast", "akunu-tiny"]


@pytest.mark.parametrize(
    ("there", "fetched", "name"),
    [
        ({}, "models--o--r/snapshots/1/m.gguf", "m"),
        ({"m": "models--o--r/snapshots/1/m.gguf"}, "models--o--r/snapshots/2/m.gguf", "m"),
        ({"m": "models--o--r/snapshots/1/a/m.gguf"}, "models--o--r/snapshots/1/m.gguf", "o-r-m"),
        ({"r": "models--o--r/snapshots/1"}, "models--o--r/snapshots/2", "r"),
        ({"r": "models--o--r/snapshots/1"}, "models--p--r/snapshots/1", "p-r-r"),
        ({"m": "m.gguf"}, "models--o--r/snapshots/1/m.gguf", "o-r-m"),
        ({"m": "m.gguf", "o-r-m": "x/o-r-m.gguf"}, "models--o--r/snapshots/1/m.gguf", "o-r-m-2"),
        ({"m": "x/m.gguf"}, "x/m.gguf", "m"),
    ],
)
def test_the_name_of_a_fetched_model(tmp_path, there, fetched, name):
    for place in (*there.values(), fetched):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        if not place.endswith(".gguf"):
            (tmp_path / place).mkdir(exist_ok=True)
    models = {known: tmp_path / place for known, place in there.items()}
    assert name_among(tmp_path / fetched, models) == name


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("nowhere.gguf", "there is no model named"),
        ("hf:owner/repository", "akunu models pull hf:owner/repository"),
        ("smollm2", "akunu models pull smollm2"),
        (".", "has no model that akunu reads"),
        ("", "names no model"),
        (" , ", "names no model"),
    ],
)
def test_refused(tmp_path, monkeypatch, given, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=message):
        choice(given)
