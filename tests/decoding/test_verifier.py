"""Rules of acceptance that other packages offer, chosen by their options."""

from dataclasses import dataclass

import pytest

from akunu_py.decoding.loop import decode, make_verifier
from akunu_py.system.errors import ConfigError
from akunu_py.values.generation_config import VerifierOptions
from akunu_py.values.option_fields import Count, Number, option
from akunu_py.values.types import GenerationConfig


@dataclass(frozen=True)
class Rule(VerifierOptions):
    patience: int = option(1, Count(1, "1 or more"))

    @property
    def exactness(self):
        return "stream" if self.patience == 1 else "none"

    def check(self, config):
        if self.patience > config.num_draft_tokens:
            raise ConfigError("patience is longer than a draft")

    def make(self, config, seed):
        return (self.patience, config, seed)


@dataclass(frozen=True)
class OtherRule(VerifierOptions):
    trust: float = option(1.0, Number(0, 1, "a number from 0 to 1"))


def configured(**options):
    return GenerationConfig(num_draft_tokens=4, draft_options=options)


def test_its_options_choose_a_rule(offer):
    offer(verifiers={"rule": Rule, "other": OtherRule, "gone": None})
    config = configured(patience=3)
    assert make_verifier(config, 7) == (3, config, 7)
    assert config.exactness == "none"
    assert configured(trust=0.5).verifier == OtherRule(0.5)
    assert make_verifier(configured(trust=0.5), 7).decode is decode
    assert configured(patience=2, depth=1).drafter_options == {"depth": 1}


def test_the_models_own_choice_asks_nobody(offer, monkeypatch):
    offer()
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: pytest.fail(group))
    assert make_verifier(GenerationConfig(), 3).decode is decode
    assert GenerationConfig().exactness == "stream"


@pytest.mark.parametrize(
    ("options", "fields", "message"),
    [
        ({"patience": 0}, {}, "patience is 0; give 1 or more"),
        ({"patience": 5}, {}, "patience is longer than a draft"),
        ({"patience": 2, "trust": 0.5}, {}, "patience and trust choose several rules"),
        ({"patience": 2}, {"logprobs": 1}, "logprobs is about the model's own choices.*patience"),
        ({"patience": 2}, {"sampler": print}, "sampler is about the model's own choices"),
    ],
)
def test_options_that_do_not_fit_are_refused_at_once(offer, options, fields, message):
    offer(verifiers={"rule": Rule, "other": OtherRule})
    with pytest.raises(ConfigError, match=message):
        GenerationConfig(num_draft_tokens=4, draft_options=options, **fields)
