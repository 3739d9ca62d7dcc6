"""How many replies are made at once: what is asked for or usual, as far as memory holds them."""

import pytest
from gguf_files import write_tiny_llama

from akunu_py import ConfigError, Engine, MemoryLimitError
from akunu_py.engine.reply_room import ReplyRoom
from akunu_py.models.load import LoadOptions
from akunu_py.models.memory_check import MemoryNeeds, PlannedModel
from akunu_py.models.requirements import requirements

CONTEXT = 1024


@pytest.fixture
def path(tmp_path):
    return write_tiny_llama(tmp_path / "m.gguf", context=CONTEXT)


@pytest.fixture
def room(path):
    """Makes a room that has memory for some replies of so many tokens, and a byte less or more."""
    found = requirements(path)

    def make(replies, more=0, tokens=CONTEXT, context=None):
        held = found.working_bytes(tokens, replies=max(1, replies)) + more
        held += replies * found.cache_bytes(tokens)
        needs = MemoryNeeds([PlannedModel(path, LoadOptions())], context=context)
        return ReplyRoom(needs, context, lambda: held)

    return make


@pytest.mark.parametrize(
    ("replies", "more", "usual"),
    [(0, 0, 1), (1, 0, 1), (4, -1, 3), (4, 0, 4), (8, 0, 8), (90, 0, 8)],
)
def test_the_usual_number_is_what_memory_holds(room, replies, more, usual):
    assert room(replies, more).usual() == usual
    assert room(replies, more).checked(None) == usual


def test_short_contexts_and_replies_take_less(room):
    assert room(3, tokens=256, context=256).usual() == 3
    assert room(3, tokens=256).usual() == 1
    assert room(3, tokens=256).usual(256) == 3


def test_more_than_memory_holds_is_refused(room):
    assert room(5).checked(5) == 5
    with pytest.raises(
        MemoryLimitError, match="streams is 6, and memory holds 5 replies of"
    ) as said:
        room(5).checked(6)
    assert "give 5 or fewer, kv_bits 8, or a shorter context" in str(said.value)
    # One is what every engine makes.
    assert room(0).checked(1) == 1
    with pytest.raises(MemoryLimitError, match=r"holds 1 reply of .*; give 1, kv_bits"):
        room(0).checked(2)


def test_a_room_that_asks_nothing_holds_any_number(tmp_path, caplog):
    assert ReplyRoom().checked(500) == 500
    assert ReplyRoom().usual() == 8
    caplog.set_level("INFO")
    lost = MemoryNeeds([PlannedModel(tmp_path / "gone.gguf", LoadOptions())])
    assert ReplyRoom(lost, None, lambda: 1).checked(30) == 30
    assert "is not checked: " in caplog.text


def test_an_engine_asks_the_memory_of_its_machine(path, monkeypatch):
    with Engine.load(path, context=64) as engine:
        assert dict(engine.generate_many([[1], [2]], streams=2, max_tokens=2)).keys() == {0, 1}
        monkeypatch.setattr("akunu_py.models.device.memory_limit", lambda: 0)
        with engine.sibling() as sibling, pytest.raises(ConfigError, match="holds 1 reply of 64"):
            sibling.generate_many([[1], [2]], streams=2)
        with pytest.raises(ConfigError, match="streams is 2"):
            engine.generate_many([[1], [2]], streams=2)
        assert dict(engine.generate_many([[1], [2]], max_tokens=2)).keys() == {0, 1}
