"""Drafters by name, plug-ins included."""

import pytest

from akunu_py.drafting import (
    AutoState,
    check_drafter,
    default_num_draft_tokens,
    drafter_names,
    make_drafter,
    registry,
)
from akunu_py.system.errors import ConfigError, ContractError
from akunu_py.testing import ScriptedDrafter
from akunu_py.values.types import GenerationConfig


def test_own_drafters_are_made_by_name():
    assert drafter_names("text", "candidates")[:5] == (
        "auto", "ngram", "ngram-window", "lookup", "none",
    )  # fmt: skip
    assert drafter_names()[:7] == (
        "auto", "ngram", "ngram-window", "lookup", "draft-model", "mtp", "none",
    )  # fmt: skip
    for name in ("auto", "ngram", "ngram-window", "lookup", "none"):
        drafter = make_drafter(name, num_draft_tokens=2)
        drafter.observe([1, 2, 1, 2, 1])
        drafted = len(drafter.propose(9))
        assert drafted <= 2
        # auto drafts where it pays.
        assert drafted == 2 or name in {"none", "auto"}


@pytest.mark.parametrize(
    ("name", "count"),
    [("auto", 48), ("ngram", 4), ("ngram-window", 4), ("lookup", 10), ("none", 0)],
)
def test_each_has_a_number_of_tokens_of_its_own(name, count):
    assert default_num_draft_tokens(name) == count
    drafter = make_drafter(name)
    own = getattr(drafter, "max_length" if name == "auto" else "num_draft_tokens", 0)
    assert own == count
    if name not in {"auto", "none"}:
        assert type(drafter)().num_draft_tokens == count  # the class says the same


def test_the_state_of_auto_is_passed_on_and_to_nobody_else():
    state = AutoState()
    assert make_drafter("auto", auto_state=state).state is state
    state.begin_reply()[0].append(7)
    make_drafter("ngram", auto_state=state)
    assert state.memory.texts() == []


def test_an_unknown_name_is_an_error_with_the_nearest_one():
    with pytest.raises(ConfigError, match=r"no drafter named 'ngrm'.*did you mean 'ngram'"):
        make_drafter("ngrm", num_draft_tokens=4)


class Offered:
    name, value = "mine", "somewhere:factory"

    def __init__(self, factory):
        self.load = lambda: factory


@pytest.fixture
def fresh():
    """Forget what was loaded of plug-ins, before and after."""
    registry.forget_plug_ins()
    yield
    registry.forget_plug_ins()


@pytest.mark.usefixtures("fresh")
def test_a_plug_in_is_found_and_checked(monkeypatch):
    points = [Offered(lambda setup: ScriptedDrafter([[setup.num_draft_tokens]]))]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    registry.forget_plug_ins()
    assert "mine" in drafter_names("text", "candidates")
    assert make_drafter("mine", num_draft_tokens=3).propose(1).tokens == (3,)
    assert make_drafter("mine", auto_state=AutoState()).propose(1).tokens == (4,)
    points[0] = Offered(lambda setup: object())
    registry.forget_plug_ins()
    with pytest.raises(ContractError, match="'mine' is a object; a drafter has the methods"):
        make_drafter("mine", num_draft_tokens=3)


def test_what_is_missing_is_said_with_how_to_get_it():
    for name in drafter_names("draft model"):
        with pytest.raises(ConfigError, match="draft_model when the model is loaded"):
            make_drafter(name)
    for name in drafter_names():
        check_drafter(name)
    with pytest.raises(ConfigError, match="did you mean 'lookup'"):
        check_drafter("lokup")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"draft_length": "long"}, "draft_length is 'long'"),
        ({"min_draft_tokens": 2}, "for draft_length 'entropy', but draft_length is 'budget'"),
        ({"draft_length_bound": 0.2, "draft_length": "entropy"}, "for draft_length 'lower-bound'"),
        ({"draft_length": "entropy", "min_draft_tokens": -1}, "min_draft_tokens is -1"),
        ({"draft_length": "entropy", "draft_length_beta": 1.0}, "draft_length_beta is 1"),
        ({"draft_length": "entropy", "draft_length_beta": -0.1}, "draft_length_beta is -0.1"),
        ({"draft_length": "lower-bound", "draft_length_bound": 1.1}, "draft_length_bound is 1.1"),
    ],
)
def test_lengths_out_of_range(options, message):
    with pytest.raises(ConfigError, match=message):
        GenerationConfig(**options)
