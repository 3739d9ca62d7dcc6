"""Drafters by name, plug-ins included, and drafters of any class."""

from dataclasses import dataclass

import pytest
from toy_drafters import ScriptedDrafter

from akunu_py.drafting import (
    AutoDrafter,
    AutoState,
    DrafterKind,
    NgramDrafter,
    check_drafter,
    default_num_draft_tokens,
    make_drafter,
    registry,
)
from akunu_py.protocols import Drafter
from akunu_py.system.errors import ConfigError, ContractError
from akunu_py.values.generation_config import VerifierOptions
from akunu_py.values.option_fields import Count, option
from akunu_py.values.types import Draft, GenerationConfig


def test_own_drafters_are_made_by_name():
    assert DrafterKind.names("text", "candidates")[:5] == (
        "auto", "ngram", "ngram-window", "lookup", "none",
    )  # fmt: skip
    assert DrafterKind.names()[:7] == (
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


@dataclass(frozen=True)
class Deep:
    depth: int = option(2, Count(1, "1 to 9", most=9), "Draft at this depth.", metavar="N")


def test_a_plug_in_is_found_and_checked(offer):
    offer(drafters={"mine": lambda setup: ScriptedDrafter([[setup.num_draft_tokens]])})
    assert "mine" in DrafterKind.names("text", "candidates")
    assert make_drafter("mine", num_draft_tokens=3).propose(1).tokens == (3,)
    assert make_drafter("mine", auto_state=AutoState()).propose(1).tokens == (4,)
    offer(drafters={"mine": lambda setup: object()})
    with pytest.raises(ContractError, match="'mine' is a object; a drafter has the methods"):
        make_drafter("mine", num_draft_tokens=3)


def test_a_drafter_has_options_of_its_own(offer):
    kind = DrafterKind(lambda setup: ScriptedDrafter([[setup.options.depth]]), options=Deep)
    offer(drafters={"mine": kind, "ngram": kind})
    for options, depth in (({}, 2), ({"depth": 7}, 7)):
        config = GenerationConfig(draft_options=options)
        check_drafter("mine", config=config)
        assert make_drafter("mine", config=config).propose(1).tokens == (depth,)
    # akunu's own drafter makes room for one of its name that alone has the option.
    assert make_drafter("ngram", config=config).propose(1).tokens == (7,)
    assert isinstance(make_drafter("ngram"), NgramDrafter)
    assert registry.draft_options()["depth"].metavar == "N"
    for name, options, message in (
        ("mine", {"depth": 0}, "^depth is 0; give 1 to 9"),
        ("mine", {"depht": 1}, "^depht is no option of a drafter or verifier.*mean 'depth'"),
        ("auto", {"depth": 3}, "the drafter 'auto' has no depth; leave it out, or choose from ngram, mine"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            check_drafter(name, config=GenerationConfig(draft_options=options))


def test_options_of_draws_choose_the_drafter_that_draws(offer):
    offer(drafters={"draft-model": DrafterKind(lambda setup: ScriptedDrafter([]), options=Deep)})
    deep, odd = ({"depth": 3}, {"height": 3})
    for options, model, name in (
        ({}, "a model", "auto"), (deep, "a model", "draft-model"), (deep, None, "auto"), (odd, "a model", "auto"),
    ):  # fmt: skip
        assert registry.drafter_name(GenerationConfig(draft_options=options), model) == name


@dataclass(frozen=True)
class Rule(VerifierOptions, Deep):
    pass


BROKEN = AttributeError("module 'mine' has no attribute 'make'")
"""What a package of another version raises: its entry point names what is gone."""


@dataclass(frozen=True)
class Own:
    seed: int = option(2, Count(1, "1 or more"))


@dataclass(frozen=True)
class OwnRule(VerifierOptions, Own):
    pass


@pytest.mark.parametrize(
    ("group", "offered", "reason"),
    [
        ("drafters", BROKEN, "has no attribute 'make'"),
        ("verifiers", BROKEN, "has no attribute 'make'"),
        ("drafters", 7, "it is neither a DrafterKind nor a function"),
        ("verifiers", lambda config, seed: None, "it is no subclass of VerifierOptions"),
        (
            "drafters",
            DrafterKind(print, options=Own),
            "its option seed has the name of one of akunu's",
        ),
        ("verifiers", OwnRule, "its option seed has the name of one of akunu's"),
    ],
)
def test_a_plug_in_that_cannot_be_used_stops_nothing_else(offer, caplog, group, offered, reason):
    ours = DrafterKind(print, options=Deep) if group == "drafters" else Rule
    offer(**{group: {"mine": offered, "ours": ours}})
    for _ in range(2):
        assert "depth" in registry.draft_options()
        check_drafter("auto")
        GenerationConfig(draft_options={"depth": 3}).drafter_options  # noqa: B018
    (said,) = caplog.messages
    assert said.startswith("the plug-in mine (")
    assert reason in said
    if group == "drafters":
        with pytest.raises(ConfigError, match="no drafter named 'mine'"):
            make_drafter("mine")


def test_what_is_missing_is_said_with_how_to_get_it():
    for name in DrafterKind.names("draft model"):
        with pytest.raises(ConfigError, match="draft_model when the model is loaded"):
            make_drafter(name)
    for name in DrafterKind.names("text", "candidates", "draft model", "prediction head"):
        check_drafter(name)
    with pytest.raises(ConfigError, match="did you mean 'lookup'"):
        check_drafter("lokup")


class Least:
    """What every drafter must have, and nothing else."""

    def __init__(self):
        self.seen = []

    def observe(self, tokens):
        self.seen += tokens

    def propose(self, limit):
        return Draft.chain([7, 8, 9][:limit])


class More(Least):
    extend = None  # as good as absent
    hidden = "raw"

    def observe_candidates(self, rows):
        self.rows = rows

    def draft_probabilities(self):
        return "q"


def test_an_object_gets_the_methods_that_it_lacks():
    given = Least()
    drafter = Drafter.of(given)
    assert list(drafter.reading([1, 2])) == []
    drafter.observe([3])
    assert given.seen == [1, 2, 3]
    assert drafter.propose(2).tokens == (7, 8)
    assert drafter.extend(Draft.empty(), 1).tokens == (7,)
    assert not drafter.extend(Draft.chain([1]), 5).tokens
    assert drafter.num_sure() == 0
    assert drafter.draft_probabilities() is None
    assert drafter.hidden is None
    assert (drafter.reads_candidates, drafter.uses_curve, drafter.draws) == (False, False, False)


def test_what_a_verifier_of_a_plug_in_asks_is_asked_of_the_object():
    class Counts(Least):
        def draw_counts(self):
            return (2, 1)

    drafter = Drafter.of(Counts())
    assert drafter.draw_counts() == (2, 1)
    assert not hasattr(drafter, "draw_order")


def test_what_an_object_has_is_known_by_its_methods():
    given = More()
    drafter = Drafter.of(given)
    assert drafter.reads_candidates
    assert drafter.draws
    assert not drafter.uses_curve
    assert drafter.hidden == "raw"
    drafter.observe_candidates("rows")
    assert given.rows == "rows"
    assert drafter.draft_probabilities() == "q"
    assert drafter.extend(Draft.empty(), 3).tokens == (7, 8, 9)


def test_so_is_what_a_class_has():
    class Deriving(Drafter):
        def observe_candidates(self, rows):
            pass

    class Further(Deriving):
        pass

    assert Further.reads_candidates
    assert not Further.draws
    assert AutoDrafter.uses_curve
    assert not Drafter.uses_curve
    drafter = Further()
    assert Drafter.of(drafter) is drafter


def test_what_is_no_drafter_is_refused():
    with pytest.raises(ContractError, match="it is a object; a drafter has the methods observe"):
        Drafter.of(object())
