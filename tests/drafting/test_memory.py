"""The memory: bounded, whole on disk or not there, and never of another vocabulary."""

import logging
import os
import stat
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akunu_py.drafting import Memory, open_memory, vocabulary_fingerprint
from akunu_py.system.errors import ConfigError

VOCABULARY = vocabulary_fingerprint(["a", "b", "c"])


def on_disk(path, **options):
    return Memory(directory=path, vocabulary=VOCABULARY, vocabulary_size=100, **options)


@given(st.lists(st.lists(st.integers(0, 9), max_size=30), max_size=20), st.integers(2, 40))
def test_it_is_bounded_and_keeps_the_newest(texts, bound):
    kept = Memory(max_tokens=bound)
    for text in texts:
        kept.add(text)
        assert len(kept) <= bound
        if text:
            assert kept.texts()[-1] == text[-len(kept.texts()[-1]) :]
    # What is kept is a run of the texts to the last one, each whole or its end.
    expected = [text for text in texts if text][-len(kept.texts()) :] if kept.texts() else []
    for found, text in zip(kept.texts(), expected, strict=True):
        assert text[-len(found) :] == found


def test_the_index_of_a_reply_under_way_stays_when_old_texts_go():
    kept = Memory(max_tokens=20)
    kept.add([1, 2, 3])
    index = kept.index
    for _ in range(5):
        kept.add([4, 5, 6, 7, 8])
    assert index is not kept.index
    assert index.tokens[2:5] == [1, 2, 3]


def test_it_lives_in_memory_unless_asked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept = Memory()
    kept.add([1])
    kept.save()
    assert kept.path is None
    assert list(tmp_path.iterdir()) == []


@given(texts=st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=20), max_size=5))
def test_what_was_saved_is_there_again(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("memory") / "new" / "folder"
    kept = on_disk(path)
    for text in texts:
        kept.add(text)
    kept.save()
    again = on_disk(path)
    assert again.texts() == texts
    assert again.index.same_pair == kept.index.same_pair


def test_only_its_owner_can_read_it(tmp_path):
    kept = on_disk(tmp_path)
    kept.add([1, 2])
    kept.save()
    assert stat.S_IMODE(kept.path.stat().st_mode) == 0o600


def test_two_vocabularies_never_mix(tmp_path, caplog):
    kept = on_disk(tmp_path)
    kept.add([1, 2])
    kept.save()
    other = vocabulary_fingerprint(["a", "c", "b"])
    assert other != VOCABULARY
    assert Memory(directory=tmp_path, vocabulary=other).texts() == []
    # Not even under the other's name.
    kept.path.rename(tmp_path / f"memory-{other}.bin")
    with caplog.at_level(logging.WARNING):
        assert Memory(directory=tmp_path, vocabulary=other).texts() == []
    assert "another vocabulary" in caplog.text


def test_fingerprints_tell_where_tokens_end():
    assert vocabulary_fingerprint(["ab", "c"]) != vocabulary_fingerprint(["a", "bc"])
    assert vocabulary_fingerprint([b"a", "\ud800"]) == vocabulary_fingerprint(["a", "\ud800"])


@pytest.fixture
def saved(tmp_path):
    kept = on_disk(tmp_path)
    kept.add(list(range(50)))
    kept.add([7, 8])
    kept.save()
    return kept.path


def test_every_cut_and_every_flipped_byte_is_passed_over(saved, caplog):
    content = saved.read_bytes()
    whole = on_disk(saved.parent).texts()
    for size in range(len(content)):
        saved.write_bytes(content[:size])
        assert on_disk(saved.parent).texts() == []
    for place in range(len(content)):
        flipped = bytes([content[place] ^ 1])
        saved.write_bytes(content[:place] + flipped + content[place + 1 :])
        # A flipped byte between header fields may be white space; nothing else may pass.
        assert on_disk(saved.parent).texts() in ([], whole)
    assert "is ignored" in caplog.text


@pytest.mark.parametrize(
    "header",
    ["[]", "null", "{}", '{"vocabulary": 1}', '{"vocabulary": "V", "lengths": [-1], "sha256": ""}',
     '{"vocabulary": "V", "lengths": ["1"], "sha256": ""}', "[" * 100_000,
     '{"vocabulary": "V", "lengths": 3, "sha256": ""}', "\xff"],
)  # fmt: skip
def test_headers_of_all_kinds_are_passed_over(tmp_path, header, caplog):
    path = tmp_path / f"memory-{VOCABULARY}.bin"
    text = header.replace('"V"', f'"{VOCABULARY}"')
    path.write_bytes(b"akunu memory 1\n" + text.encode("latin-1") + b"\n1234")
    assert on_disk(tmp_path).texts() == []
    assert "is ignored" in caplog.text


@pytest.mark.parametrize("lengths", [[3, -1], [2, 0], [True, 1], [2.0], [1, 2], []])
def test_lengths_that_are_none_are_passed_over(tmp_path, lengths, caplog):
    kept = on_disk(tmp_path)
    kept.add([1, 2])
    kept.save()
    content = kept.path.read_bytes()
    kept.path.write_bytes(content.replace(b"[2]", str(lengths).lower().encode()))
    assert on_disk(tmp_path).texts() == []
    assert "is ignored" in caplog.text


def test_ids_beyond_the_vocabulary_are_passed_over(tmp_path, caplog):
    kept = Memory(directory=tmp_path, vocabulary=VOCABULARY)
    kept.add([1, 100])
    kept.save()
    assert on_disk(tmp_path).texts() == []
    assert "ids outside the vocabulary" in caplog.text
    assert Memory(directory=tmp_path, vocabulary=VOCABULARY).texts() == [[1, 100]]


def test_a_file_beyond_the_bound_is_passed_over_and_not_read_whole(saved, caplog):
    assert on_disk(saved.parent, max_tokens=20).texts() == []
    assert "is ignored" in caplog.text


def test_a_folder_in_its_place_is_passed_over(tmp_path, caplog):
    (tmp_path / f"memory-{VOCABULARY}.bin").mkdir()
    assert on_disk(tmp_path).texts() == []
    assert "is ignored" in caplog.text


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file(saved, monkeypatch, broken):
    before = saved.read_bytes()
    kept = on_disk(saved.parent)
    kept.add([1, 2, 3])
    monkeypatch.setattr(os, broken, Mock(side_effect=OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        kept.save()
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


@pytest.mark.parametrize(
    "options", [{"max_tokens": 1}, {"directory": "x"}, {"directory": "x", "vocabulary": "../y"}]
)
def test_options_out_of_range_are_named(options):
    with pytest.raises(ConfigError):
        Memory(**options)


@pytest.mark.parametrize("kind", ["a file", "below a file", "too long", "null"])
def test_a_path_that_no_folder_can_have_is_named(tmp_path, kind):
    file = tmp_path / "file"
    file.write_bytes(b"")
    places = {"a file": file, "below a file": file / "folder", "null": "a\0b"}
    folder = places.get(kind, tmp_path / ("a" * 5000))  # which is too long
    with pytest.raises(ConfigError, match=r"is a file|cannot be kept"):
        open_memory(folder, lambda: ["a", "b"], 2)
    assert open_memory(tmp_path / "new" / "one", lambda: ["a", "b"], 2).path is not None
