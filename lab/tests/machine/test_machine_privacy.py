"""No path and no name is in the report, wherever it comes from."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine_reports import MAC, PROGRAMS

from akunu_lab.machine.facts import published
from akunu_lab.machine.privacy import Privacy, without_paths

JOE = Privacy(
    [Path("/Users/joe"), Path("/Users/joe/My Models"), Path("/")],
    ["joe", "Joes-MacBook-Pro.local", "Joes-MacBook-Pro", "", "j"],
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/Users/joe/My Models/a b.gguf cannot be read", "(path)/a b.gguf cannot be read"),
        ("/Users/joe/x.py: line 3", "(path)/x.py: line 3"),
        ("cannot open '/opt/x y'", "cannot open '(path) y'"),
        ("library not loaded: /usr/lib/libx.dylib (of ~/bin/y)", "library not loaded: (path) (of (path))"),
        ("path=/private/var/folders/x1/T, again", "path=(path), again"),
        ("the host Joes-MacBook-Pro.local of joe", "the host (name) of (name)"),
        ("JOE's model and joel's", "(name)'s model and joel's"),
        ("95 tokens/s, 3 / 4 and 22/22", "95 tokens/s, 3 / 4 and 22/22"),
        ("see https://github.com/ml-explore/mlx", "see https://github.com/ml-explore/mlx"),
        ("a/b.gguf and and/or", "a/b.gguf and and/or"),
        ("j is no name", "j is no name"),
        ("", ""),
    ],
)  # fmt: skip
def test_texts_are_cleaned(text, expected):
    assert JOE.clean(text) == expected


@given(
    st.lists(
        st.sampled_from(
            [
                "/Users/joe",
                "/",
                "~/",
                " ",
                "joe",
                "'",
                "x.gguf",
                "/private/tmp/y",
                ":",
                "(",
                "tokens/s",
            ]
        )
    ).map("".join)
)
def test_cleaning_leaves_no_home_and_comes_to_an_end(text):
    cleaned = JOE.clean(text)
    assert "/Users/joe" not in cleaned
    assert without_paths(cleaned) == cleaned


def test_of_this_user(tmp_path, monkeypatch):
    home = tmp_path / "anna berta"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr("getpass.getuser", lambda: "carla")
    monkeypatch.setattr("platform.node", lambda: "dora.example.org")
    monkeypatch.chdir(home)
    privacy = Privacy.of_this_user(Path("m.gguf"), tmp_path / "out put")
    said = f"{home}/m.gguf: carla, anna berta, dora, dora.example.org; {tmp_path}/out put/x"
    cleaned = privacy.clean(said)
    for word in (str(tmp_path), "carla", "anna", "berta", "dora", "example"):
        assert word not in cleaned


def test_a_user_without_name_or_home(monkeypatch):
    def fail(*_arguments):
        raise KeyError("uid not found")

    monkeypatch.setattr("getpass.getuser", fail)
    monkeypatch.setattr("platform.node", lambda: "")
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    assert Privacy.of_this_user().clean("joe was in /home/joe") == "joe was in (path)"


def test_facts_are_published_without_places():
    blas = {"name": "/Users/joe/libblas.so", "own": False, "reason": "joe"}
    # A kernel's release can be named by who built it.
    said = {**MAC, "system": "Linux 6.1-joe", "device": "of /Users/joe/mlx", "blas": blas}
    text = json.dumps(asdict(published(said, JOE, PROGRAMS)))
    assert "joe" not in text
    assert "/home/u" not in text
