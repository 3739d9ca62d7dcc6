"""Finished items on disk: kept at once, found again, never mixed with another run's."""

import errno
import json

import pytest
from bench.fake_arms import FakeArm, item
from bench.result_values import result

from akunu_lab.replay.runner import ItemCounts
from akunu_lab.study.store import ItemStore, held_command
from akunu_py.api import ConfigError, Ratio, run_arms
from akunu_py.values.types import DecodeStats

RUN = {
    "command": "hit-rate",
    "arguments": {"max_tokens": 128, "categories": ("edit",)},
    "sha": "ab",
}


def test_items_outlive_the_run(tmp_path):
    folder = tmp_path / "new" / "folder"
    with ItemStore(folder, RUN) as store:
        assert store.get("a", dict) is None
        store.put("a", {"tokens": (1, 2)})
        # On disk before the next one, not when the store closes.
        assert len((folder / "items.jsonl").read_text().splitlines()) == 2
        store.put("b", {"x": None})
    with ItemStore(folder, RUN) as store:
        assert list(store) == ["a", "b"]
        assert store.get("a", dict) == {"tokens": [1, 2]}
        store.put("c", {})
    with ItemStore(folder, RUN) as store:
        assert len(store) == 3


def test_without_a_folder_items_live_as_long_as_the_store():
    store = ItemStore(None, RUN)
    store.put("a", {"tokens": (1,)})
    assert store.get("a", dict) == {"tokens": [1]}
    store.close()


@pytest.mark.parametrize("tail", [b'{"key": "c", "it', b"\0" * 50 + b"\n", b'{"key": "c"}\n'])
def test_a_last_line_that_was_cut_off_is_dropped(tmp_path, tail):
    with ItemStore(tmp_path, RUN) as store:
        store.put("a", {"n": 1})
        store.put("b", {"n": 2})
    path = tmp_path / "items.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    with ItemStore(tmp_path, RUN) as store:
        assert list(store) == ["a", "b"]
        assert path.read_bytes() == whole
        store.put("c", {"n": 3})
    with ItemStore(tmp_path, RUN) as store:
        assert store.get("c", dict) == {"n": 3}


def test_a_header_that_was_cut_off_is_written_again(tmp_path):
    (tmp_path / "items.jsonl").write_bytes(b'{"format": "aku')
    with ItemStore(tmp_path, RUN) as store:
        store.put("a", {})
    with ItemStore(tmp_path, RUN) as store:
        assert list(store) == ["a"]


def test_a_line_within_that_is_broken_is_an_error(tmp_path):
    with ItemStore(tmp_path, RUN) as store:
        store.put("a", {"n": 1})
        store.put("b", {"n": 2})
    path = tmp_path / "items.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + "oops\n" + lines[2])
    with pytest.raises(
        ConfigError, match=r"line 2 of .*items\.jsonl is not valid JSON.*delete the file"
    ):
        ItemStore(tmp_path, RUN)


def test_another_run_is_refused_and_its_items_stay(tmp_path):
    with ItemStore(tmp_path, RUN) as store:
        store.put("a", {})
    other = {**RUN, "arguments": {**RUN["arguments"], "max_tokens": 64}}
    with pytest.raises(ConfigError, match=r"run: max_tokens was 128 and is 64;") as caught:
        ItemStore(tmp_path, other)
    assert "give another folder" in str(caught.value)
    assert "categories" not in str(caught.value)
    with ItemStore(tmp_path, RUN) as store:
        assert len(store) == 1


def test_whose_a_folder_is(tmp_path):
    assert held_command(tmp_path / "none") is None
    assert held_command(tmp_path) is None
    result(command="speed").write(tmp_path / "result.json")
    assert held_command(tmp_path) == "speed"
    # An interrupted run has items alone.
    ItemStore(tmp_path, RUN).close()
    assert held_command(tmp_path) == "hit-rate"
    (tmp_path / "items.jsonl").write_bytes(b'{"format": "aku')
    assert held_command(tmp_path) == "speed"
    (tmp_path / "result.json").write_text("words")
    assert held_command(tmp_path) is None


@pytest.mark.parametrize("content", [b'{"format": "x", "fingerprint": {}}\n', b"[]\n", b"words\n"])
def test_a_file_of_something_else_is_left_alone(tmp_path, content):
    path = tmp_path / "items.jsonl"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"items\.jsonl"):
        ItemStore(tmp_path, RUN)
    assert path.read_bytes() == content


def test_a_folder_that_cannot_be_used(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file"):
        ItemStore(tmp_path / "file", RUN)


def test_what_is_no_json_is_refused(tmp_path):
    with ItemStore(tmp_path, RUN) as store:
        with pytest.raises(ConfigError, match="item a"):
            store.put("a", {"rate": float("nan")})
        assert len(store) == 0


def test_what_is_no_file_is_not_read(tmp_path):
    # /dev/zero or a pipe would be read without end.
    (tmp_path / "items.jsonl").mkdir()
    with pytest.raises(ConfigError, match=r"items\.jsonl is not a file"):
        ItemStore(tmp_path, RUN)


def test_a_full_disk_at_the_first_line(tmp_path, monkeypatch):
    def no_space(_descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", no_space)
    with pytest.raises(ConfigError, match=r"items\.jsonl: No space left"):
        ItemStore(tmp_path, RUN)
    assert (tmp_path / "items.jsonl").read_bytes() == b""


def test_a_disk_that_fills_up_keeps_what_was_written(tmp_path, monkeypatch):
    store = ItemStore(tmp_path, RUN)
    store.put("a", {"n": 1})
    before = (tmp_path / "items.jsonl").read_bytes()

    def no_space(_descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        # By then the line's bytes are in the file.
        patch.setattr("os.fsync", no_space)
        with pytest.raises(ConfigError, match=r"items\.jsonl: No space left.*goes on from them"):
            store.put("b", {"n": 2})
    assert (tmp_path / "items.jsonl").read_bytes() == before
    assert store.get("b", dict) is None
    store.put("b", {"n": 2})
    store.close()
    with ItemStore(tmp_path, RUN) as again:
        assert [json.dumps(again.get(key, dict)) for key in again] == ['{"n": 1}', '{"n": 2}']


def test_counts_of_the_engine_are_checked_as_rows(tmp_path):
    counts = ItemCounts(DecodeStats(steps=3, drafted_per_position=(2, 1)), 0.5, None, True)
    with ItemStore(tmp_path, {}) as store:
        store.put("a", counts)
        with pytest.raises(ConfigError, match=r"the item b: it holds -1"):
            store.put("b", ItemCounts(DecodeStats(steps=-1)))
    with ItemStore(tmp_path, {}) as store:
        assert store.get("a", ItemCounts) == counts
        with pytest.raises(ConfigError, match="the finished a: Object contains unknown field"):
            store.get("a", Ratio)
    path = tmp_path / "items.jsonl"
    path.write_text(path.read_text().replace('"steps":3', '"steps":-3') + '{"key":"b","item":1}\n')
    with pytest.raises(ConfigError, match=r"it holds -3, and its numbers are 0 or more"):
        ItemStore(tmp_path, {})


def test_a_finished_item_of_another_kind_is_named(tmp_path):
    with ItemStore(tmp_path, {}) as store:
        store.put("i1", {"id": "edit/one"})
        with pytest.raises(
            ConfigError, match="the finished i1: Object contains unknown field `id`"
        ):
            run_arms([FakeArm("a", [(3,)])], [item(1)], store=store)
