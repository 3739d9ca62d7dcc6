"""/model where memory holds one model only."""

from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from akunu_py import MemoryLimitError, ModelFormatError
from akunu_py.cli.chat.model_change import change_model
from akunu_py.cli.main import cli
from akunu_py.engine.conversation import Conversation
from akunu_py.models import device, memory_check
from akunu_py.models.load import LoadOptions
from akunu_py.system.errors import ConfigError
from akunu_py.values.generation_config import GenerationConfig


class OneAtATime:
    """Loads models by name: the memory of this machine holds one."""

    def __init__(self):
        self.loaded = []

    def __call__(self, name):
        if name == "huge":
            raise MemoryLimitError("huge needs more", fits_alone=False)
        if any(not engine.closed for engine in self.loaded):
            raise MemoryLimitError("not beside", fits_alone=True)
        if name == "broken":
            raise ModelFormatError("broken is broken")
        if name == "slow":
            raise KeyboardInterrupt
        engine = SimpleNamespace(
            description=SimpleNamespace(name=name, path=f"/models/{name}"),
            tokenizer=SimpleNamespace(has_chat_template=name != "bare"),
            closed=False,
        )
        engine.close = lambda: setattr(engine, "closed", True)
        self.loaded.append(engine)
        return engine


@pytest.fixture
def load():
    return OneAtATime()


@pytest.fixture
def conversation(load):
    return Conversation(load("first"), GenerationConfig(), None)


def test_the_model_so_far_is_closed_first(load, conversation):
    notes = []
    change_model(conversation, load, "other", notes.append)
    assert conversation.engine.description.name == "other"
    assert [engine.closed for engine in load.loaded] == [True, False]
    assert notes == ["both do not fit into memory: first is closed first"]


@pytest.mark.parametrize(
    ("name", "error"),
    [("broken", ModelFormatError), ("bare", ConfigError), ("slow", KeyboardInterrupt)],
)
def test_it_is_loaded_again_where_the_other_one_cannot_be_had(load, conversation, name, error):
    notes = []
    with pytest.raises(error):
        change_model(conversation, load, name, notes.append)
    engine = conversation.engine
    assert engine.description.name == "/models/first"
    assert not engine.closed
    assert sum(not other.closed for other in load.loaded) == 1
    assert notes[-1] == "first is loaded again"


def test_a_model_that_never_fits_changes_nothing(load, conversation):
    before = conversation.engine
    notes = []
    with pytest.raises(MemoryLimitError, match="huge"):
        change_model(conversation, load, "huge", notes.append)
    assert conversation.engine is before
    assert not before.closed
    assert notes == []


def test_by_the_check_before_loading(roomy_gguf, monkeypatch):
    """The memory that the first model gives back is there for the second."""
    models = [memory_check.PlannedModel(roomy_gguf, LoadOptions())]
    monkeypatch.setattr(memory_check, "_NOTICED", 0)
    held = memory_check.mx.get_active_memory()
    alone = sum(part.num_bytes for part in memory_check.memory_parts(models))
    weights = memory_check.memory_parts(models)[0].num_bytes
    assert weights > 2_000
    monkeypatch.setattr(device, "memory_limit", lambda: alone + weights // 2)
    result = CliRunner().invoke(
        cli, ["chat", str(roomy_gguf), "--max-tokens", "4"], input=f"/model {roomy_gguf}\nhi\n"
    )
    assert result.exit_code == 0, result.output
    assert "is closed first" in result.stderr
    assert memory_check.mx.get_active_memory() <= held + weights
