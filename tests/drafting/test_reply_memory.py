"""What outlives a reply: joined once, written down now and then, never at the price of a reply.

Mutants, made by hand, that these tests kill: a reply ended by a stream of before; one added twice;
each reply written; a warning for each failure; `forget` that leaves weights, pace, file or the reply
under way.
"""

import logging
import os

import pytest

from akunu_py.drafting import AutoDrafter, Memory, ReplyMemory, vocabulary_fingerprint
from akunu_py.drafting.auto.drafter import SAVE_EVERY_S
from akunu_py.system.errors import ConfigError


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def on_disk(folder):
    return Memory(directory=folder, vocabulary=vocabulary_fingerprint(["a", "b"]))


def reply(kept, *outputs):
    """Make a reply as the loop does; return what ends it."""
    end = kept.begin_reply()
    drafter = AutoDrafter(state=kept.state)
    drafter.observe([1, 2, 3])
    for output in outputs:
        drafter.propose(4)
        drafter.observe(output)
    return end


def test_a_reply_joins_once_and_without_its_prompt():
    kept = ReplyMemory()
    end = reply(kept, [4, 5], [6])
    assert kept.state.memory.texts() == []
    end()
    end()
    assert kept.state.memory.texts() == [[4, 5, 6]]
    reply(kept)()
    assert kept.state.memory.texts() == [[4, 5, 6]]


def test_a_reply_that_nobody_ended_joins_when_the_next_begins():
    kept = ReplyMemory()
    late = reply(kept, [4])
    end = reply(kept, [5])
    assert kept.state.memory.texts() == [[4]]
    late()
    assert kept.state.memory.texts() == [[4]]
    end()
    assert kept.state.memory.texts() == [[4], [5]]


def test_it_is_saved_every_few_seconds_and_at_the_end(tmp_path):
    clock = Clock()
    kept = ReplyMemory(on_disk(tmp_path), clock=clock)
    reply(kept, [4])()
    assert on_disk(tmp_path).texts() == [[4]]
    clock.now += SAVE_EVERY_S - 0.1
    reply(kept, [5])()
    kept.remember([6])
    assert on_disk(tmp_path).texts() == [[4]]
    clock.now += 0.1
    reply(kept, [7])()
    assert on_disk(tmp_path).texts() == [[4], [5], [6], [7]]
    reply(kept, [8])()
    kept.save()
    assert on_disk(tmp_path).texts()[-1] == [8]


def test_what_did_not_change_is_not_written(tmp_path):
    ReplyMemory(on_disk(tmp_path)).save()
    assert list(tmp_path.iterdir()) == []
    kept = ReplyMemory(on_disk(tmp_path))
    reply(kept, [4])()
    (file,) = tmp_path.iterdir()
    file.unlink()
    kept.save()
    reply(kept)()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="a folder in the place of the file")
def test_a_folder_that_cannot_be_written_is_one_warning(tmp_path, caplog):
    clock = Clock()
    memory = on_disk(tmp_path)
    memory.path.mkdir()  # nothing can replace it
    kept = ReplyMemory(memory, clock=clock)
    with caplog.at_level(logging.WARNING):
        for token in (4, 5):
            reply(kept, [token])()
            clock.now += 60
        kept.save()
    assert kept.state.memory.texts() == [[4], [5]]
    (record,) = caplog.records
    assert "cannot be written" in record.getMessage()
    with pytest.raises(ConfigError, match="stays as it was"):
        kept.forget()
    # It is tried again: a full disk may have room later.
    memory.path.rmdir()
    kept.remember([6])
    clock.now += 60
    kept.save()
    assert on_disk(tmp_path).texts() == [[6]]


def test_forgetting_leaves_nothing(tmp_path):
    kept = ReplyMemory(on_disk(tmp_path))
    end = reply(kept, [2], [3], [1, 2, 3])
    before = kept.state
    reply(kept, [2], [3], [1, 2, 3])
    end = reply(kept, [9])
    kept.forget()
    end()
    assert kept.state is not before
    fresh = ReplyMemory().state
    assert kept.state.calibration.weights == fresh.calibration.weights
    assert kept.state.calibration.by_token == {}
    assert kept.state.pace.tokens == fresh.pace.tokens
    assert kept.state.memory.texts() == []
    assert on_disk(tmp_path).texts() == []
    reply(kept, [7])()
    assert kept.state.memory.texts() == [[7]]
