"""Rules of acceptance that other packages offer."""

import pytest

from akunu_py.decoding import loop as verifier
from akunu_py.decoding.loop import decode
from akunu_py.system.errors import ConfigError
from akunu_py.values.types import GenerationConfig

REJECTION = GenerationConfig(temperature=0.8, draft_sampling="rejection")


@pytest.fixture
def offered(monkeypatch):
    """Offer these entry points alone; returns the names that were looked for."""
    looked_for = []

    def offer(*points):
        def entry_points(*, group, name):
            assert group == "akunu.verifiers"
            looked_for.append(name)
            return [point for point in points if point.name == name]

        monkeypatch.setattr(verifier, "entry_points", entry_points)
        verifier._plug_in.cache_clear()
        return looked_for

    yield offer
    verifier._plug_in.cache_clear()


class Point:
    def __init__(self, name, made=None):
        self.name = name
        self.made = made

    def load(self):
        if self.made is None:
            raise ModuleNotFoundError("removed since")
        return self.made


def test_a_plug_in_is_looked_for_once(offered):
    looked_for = offered(Point("rejection"), Point("rejection", lambda *given: given))
    for seed in (3, 4):
        assert verifier.make_verifier(REJECTION, seed) == (REJECTION, seed)
    assert looked_for == ["rejection"]


def test_the_models_own_choice_needs_none(offered):
    looked_for = offered()
    assert verifier.make_verifier(GenerationConfig(), 3).decode is decode
    assert looked_for == []


def test_a_rule_that_is_not_installed(offered):
    offered(Point("rejection"))
    with pytest.raises(ConfigError, match="no installed package offers the verifier 'rejection'"):
        verifier.make_verifier(REJECTION, 3)
