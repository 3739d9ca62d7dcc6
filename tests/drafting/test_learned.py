"""What `auto` learned, on disk: it comes back, and a file that is not its own does no harm."""

import json
import logging
import os
import stat

import pytest

from akunu_py.drafting import AutoDrafter, AutoState, LearnedFile, ReplyMemory
from akunu_py.drafting.auto import learned as module
from akunu_py.drafting.auto.learned import Learned, delete_learned, start_weights
from akunu_py.errors import ConfigError

MODEL = {"model": "m", "architecture": "a", "parameters": "1"}
START = start_weights()
KNOWN = Learned(tuple(round(weight + 0.5, 4) for weight in START), 2.5)


def file_with(folder, **changes):
    """A file with some of its values replaced."""
    file = LearnedFile(MODEL, folder)
    file.save(KNOWN)
    record = json.loads(file.path.read_bytes()) | changes
    file.path.write_text(json.dumps(record))
    return LearnedFile(MODEL, folder)


def play(state, tokens=60):
    """A reply that often repeats its prompt."""
    text = [1, 2, 3, 4, 5, 6, 7] * 4
    drafter = AutoDrafter(state=state)
    drafter.observe(text)
    for place in range(tokens):
        drafter.propose(4)
        drafter.observe([text[place % 28] if place % 3 else 9])
    state.finish()


def test_what_is_saved_comes_back(tmp_path):
    folder = tmp_path / "learned"
    file = LearnedFile(MODEL, folder)
    assert file.load() is None
    file.save(KNOWN)
    assert LearnedFile(dict(reversed(MODEL.items())), folder).load() == KNOWN
    (path,) = folder.iterdir()
    assert path.stat().st_size < 16_000
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("change", list(MODEL))
def test_other_models_have_files_of_their_own(tmp_path, change):
    file = LearnedFile(MODEL, tmp_path)
    file.save(KNOWN)
    other = LearnedFile(MODEL | {change: "other"}, tmp_path)
    assert other.load() is None
    file.path.rename(other.path)
    assert other.load() is None


def test_a_file_for_other_start_weights_is_ignored(tmp_path, monkeypatch):
    file_with(tmp_path)
    monkeypatch.setattr(module, "start_weights", lambda: (*START[:-1], START[-1] + 0.1))
    other = LearnedFile(MODEL, tmp_path)
    assert other.load() is None
    file_with(tmp_path).path.rename(other.path)
    assert LearnedFile(MODEL, tmp_path).load() == KNOWN


WRONG_NUMBERS = (None, "1", True, [], float("nan"), float("inf"), -float("inf"), 20.1, 10**400)


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2}, {"format": None}, {"key": {}}, {"key": None}, {"weights": None},
        {"weights": list(START[:-1])}, {"weights": [*START, 0.0]}, {"weights": {}},
        {"pace": 0.99}, {"pace": 101},
        *({"weights": [wrong, *START[1:]]} for wrong in WRONG_NUMBERS),
        *({"pace": wrong} for wrong in WRONG_NUMBERS if wrong != 20.1),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_is_refused(tmp_path, changes):
    assert file_with(tmp_path).load() == KNOWN
    assert file_with(tmp_path, **changes).load() is None


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b"null", b"[]", b"[" * 100_000, b" " * 70_000 + b"{}"]
)
def test_a_damaged_file_is_ignored_and_replaced(tmp_path, content, caplog):
    file = file_with(tmp_path)
    file.path.write_bytes(content)
    with caplog.at_level(logging.DEBUG):
        assert file.load() is None
    assert "auto learns anew" in caplog.text
    file.save(KNOWN)
    assert LearnedFile(MODEL, tmp_path).load() == KNOWN


def test_a_place_that_cannot_be_written_or_read_is_no_error(tmp_path, caplog):
    blocked = tmp_path / "file"
    blocked.touch()
    file = LearnedFile(MODEL, blocked)
    with caplog.at_level(logging.DEBUG):
        assert file.load() is None
        file.save(KNOWN)
    assert "not kept" in caplog.text
    assert caplog.records[0].levelno == logging.DEBUG


def test_nothing_new_is_not_written(tmp_path):
    LearnedFile(MODEL, tmp_path).save(AutoState().learned)
    assert list(tmp_path.iterdir()) == []
    file = file_with(tmp_path)
    known = file.load()
    file.path.unlink()
    file.save(known)
    assert list(tmp_path.iterdir()) == []


def test_a_process_begins_with_the_lower_weights():
    weights = [weight + (0.5 if place % 2 else -0.5) for place, weight in enumerate(START)]
    state = AutoState(learned=Learned(tuple(weights), 2.5))
    expected = [weight - (0.0 if place % 2 else 0.5) for place, weight in enumerate(START)]
    assert state.calibration.weights == pytest.approx(expected)
    assert state.pace.tokens_per_cost == pytest.approx(2.5)
    assert AutoState().calibration.weights == list(START)


def test_what_is_learned_outlives_the_process(tmp_path):
    first = ReplyMemory(learned=LearnedFile(MODEL, tmp_path))
    play(first.state)
    first.close()
    second = ReplyMemory(learned=LearnedFile(MODEL, tmp_path))
    assert second.state.memory.texts() == []
    assert second.state.calibration.by_token == {}
    ended = first.state.calibration.weights
    assert any(one < other for one, other in zip(ended, START, strict=True))
    expected = [min(pair) for pair in zip(ended, START, strict=True)]
    assert second.state.calibration.weights == pytest.approx(expected, abs=1e-4)
    second.forget()
    assert list(tmp_path.iterdir()) == []
    second.close()
    assert list(tmp_path.iterdir()) == []


def test_the_state_of_replies_side_by_side_is_learned_from_too():
    state = AutoState()
    play(state.beside())
    assert state.learned.weights != START


@pytest.mark.skipif(os.name != "posix", reason="a folder in the place of the file")
def test_what_cannot_be_forgotten_is_an_error(tmp_path):
    file = LearnedFile(MODEL, tmp_path)
    kept = ReplyMemory(learned=file)
    file.path.mkdir()
    with pytest.raises(ConfigError, match="cannot be deleted"):
        kept.forget()


def test_deleting_what_was_learned_of_all_models(tmp_path, monkeypatch):
    monkeypatch.setenv("AKUNU_CACHE_DIR", str(tmp_path))
    assert delete_learned() == 0
    for name in ("one", "two"):
        LearnedFile(MODEL | {"model": name}).save(KNOWN)
    assert delete_learned() == 2
    assert LearnedFile(MODEL).load() is None
    assert list((tmp_path / "learned").iterdir()) == []
