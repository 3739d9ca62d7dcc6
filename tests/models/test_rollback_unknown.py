"""A model whose caches are of a kind that nobody knows here, through the whole engine.

Nothing is drafted, nothing fails in the middle of a reply, and the text is that of known caches.
"""

from functools import partial

import pytest
from mlx_lm.models import llama
from mlx_lm.models.cache import KVCache

from akunu_py import ConfigError, Engine

PROMPTS = ("one two three one two three one two", "one two three one two three one two one", "four")
OPTIONS = ({}, {"temperature": 0.8, "seed": 5, "repetition_penalty": 1.2})


class Unknown:
    """Takes rows in and can do nothing else: no `trim`, no length."""

    def __init__(self):
        self._rows = KVCache()

    def update_and_fetch(self, keys, values):
        return self._rows.update_and_fetch(keys, values)

    @property
    def offset(self):
        return self._rows.offset

    @property
    def state(self):
        return self._rows.state

    def make_mask(self, *args, **options):
        return self._rows.make_mask(*args, **options)


def unknown_caches(model):
    return [Unknown() for _ in model.layers]


@pytest.fixture
def path(tiny_gguf, monkeypatch):
    """A file whose model makes unknown caches."""
    monkeypatch.setattr(llama.Model, "make_cache", unknown_caches)
    return tiny_gguf


@pytest.fixture(scope="module")
def known_replies(tiny_gguf):
    """What the model says with caches of known kinds; drafts are made there."""
    with Engine.load(tiny_gguf) as engine:
        drafted = engine.generate(PROMPTS[0], max_tokens=40, draft_budget="always").stats.drafted
        assert drafted > 10
        plain = partial(engine.generate, max_tokens=40, drafter="none")
        return [[plain(prompt, **options) for prompt in PROMPTS] for options in OPTIONS]


@pytest.mark.parametrize(
    "drafter",
    ["auto", *(pytest.param(n, marks=pytest.mark.slow) for n in ("ngram", "lookup", "recycling"))],
)
def test_every_drafter_leaves_the_text_alone(known_replies, path, drafter):
    with Engine.load(path) as engine:
        for options, replies in zip(OPTIONS, known_replies, strict=True):
            for prompt, expected in zip(PROMPTS, replies, strict=True):
                found = engine.generate(
                    prompt, max_tokens=40, drafter=drafter, draft_budget="always", **options
                )
                assert found.token_ids == expected.token_ids
                assert found.finish_reason == expected.finish_reason
                assert found.stats.drafted == 0


def test_reproducible_passes_are_refused(path):
    with pytest.raises(ConfigError, match="which reproducible passes need"):
        Engine.load(path, reproducible=True)


@pytest.mark.slow
def test_only_plain_steps_are_measured(path):
    """`akunu tune` feeds drafts of its own, which such caches cannot drop."""
    with Engine.load(path) as engine:
        assert list(engine.tune(PROMPTS[0], repeats=1).costs) == [1]
        assert engine.generate(PROMPTS[0], max_tokens=10, drafter="auto").stats.drafted == 0
