"""Drafters, logits processors and samplers of the caller's own."""

import mlx.core as mx
import pytest
from mlx_lm.sample_utils import make_logits_processors, make_sampler

from akunu_py import ConfigError, ContractError, Draft, Drafter

PROMPT = [9, 8, 7, 6, 5, 9, 8, 7, 6, 5, 9, 8, 7]


class Oracle(Drafter):
    """Drafts a text that it knows, wrong at every third token."""

    def __init__(self, text):
        self._text, self._done, self.begun = text, 0, 0

    def begin_reply(self, config, seed, check=None):
        self._done = -len(PROMPT)
        self.begun += 1

    def observe(self, tokens):
        self._done += len(tokens)

    def propose(self, limit):
        place = max(0, self._done)
        known = self._text[place : place + limit]
        return Draft.chain(t if (place + i) % 3 else (t + 1) % 100 for i, t in enumerate(known))


class Counting:
    """Changes logits by how often it was called, and keeps what it was shown."""

    def __init__(self):
        self.shown = []

    def __call__(self, tokens, logits):
        self.shown.append(tuple(tokens.tolist()))
        size = logits.shape[-1]
        return logits + 3 * mx.sin(mx.arange(size) * (1 + len(self.shown)))[None]


def ask(engine, drafter, **options):
    """The tokens of a reply and what a processor saw; drawn from the state of MLX's own noise."""
    processor = Counting()
    mx.random.seed(5)
    result = engine.generate(
        PROMPT, max_tokens=40, seed=3, drafter=drafter, draft_budget="always",
        logits_processors=[processor], **options,
    )  # fmt: skip
    return result, processor.shown


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.8, "repetition_penalty": 1.2},
        {"sampler": lambda row: mx.random.categorical(row)},
        {"sampler": make_sampler(temp=0.9, top_p=0.95), "stop": "the"},
        {"sampler": lambda row: int(row.argmax().item()), "logprobs": 2},
        {"regex": "[a-z ]{10,60}", "sampler": make_sampler(temp=1.5)},
    ],
    ids=["greedy", "penalty", "random", "mlx-lm and a stop", "argmax and logprobs", "regex"],
)
def test_drafts_change_neither_the_reply_nor_what_functions_are_shown(engine, options):
    plain, shown = ask(engine, "none", **options)
    for drafter in (Oracle(plain.token_ids), lambda: Oracle(plain.token_ids), "auto"):
        drafted, seen = ask(engine, drafter, **options)
        assert drafted.token_ids == plain.token_ids
        assert drafted.logprobs == plain.logprobs
        # Where a stop text ends the reply within a pass, positions behind it were asked for.
        assert seen[: len(shown)] == shown
        assert seen == shown or "stop" in options
        assert shown[0] == tuple(PROMPT)
        if drafter != "auto" and "regex" not in options:
            assert 0 < drafted.stats.accepted < drafted.stats.drafted


def test_an_end_that_is_held_back_is_not_offered_to_functions(engine):
    (end, *_) = engine.tokenizer.end_ids

    def ends_if_it_may(row):
        return end if row[0, end].item() > -mx.inf else int(row.argmax().item())

    plain, _ = ask(engine, "none", sampler=ends_if_it_may, min_tokens=20)
    drafted, _ = ask(engine, Oracle(plain.token_ids), sampler=ends_if_it_may, min_tokens=20)
    assert len(plain.token_ids) == len(drafted.token_ids) == 21
    assert drafted.token_ids == plain.token_ids
    assert drafted.stats.accepted > 0


def test_processors_of_mlx_lm_have_the_effect_of_akunus_options(engine):
    theirs = engine.generate(
        PROMPT, max_tokens=30,
        logits_processors=make_logits_processors({5: 4.0}, repetition_penalty=1.4),
    )  # fmt: skip
    own = engine.generate(PROMPT, max_tokens=30, logit_bias={5: 4.0}, repetition_penalty=1.4)
    assert theirs.token_ids == own.token_ids
    assert own.token_ids != engine.generate(PROMPT, max_tokens=30).token_ids


def test_an_object_serves_reply_after_reply_and_a_function_many_at_once(engine):
    text = engine.generate(PROMPT, max_tokens=12).token_ids
    drafter = Oracle(text)
    for _ in range(2):
        assert engine.generate(PROMPT, max_tokens=12, drafter=drafter).token_ids == text
    assert drafter.begun == 2
    with pytest.raises(ConfigError, match="serves one reply at a time"):
        engine.generate_many([PROMPT], drafter=drafter)
    many = engine.generate_many([PROMPT] * 3, max_tokens=12, drafter=lambda: Oracle(text))
    assert [result.token_ids for _, result in many] == [text] * 3


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"logits_processors": [lambda _t, row: row[0]]}, ContractError, "of the shape"),
        ({"sampler": lambda _: 10**6}, ContractError, "the sampler returned 1000000; return an id"),
        ({"sampler": lambda row: row}, ContractError, "the sampler returned"),
        ({"sampler": "top"}, ConfigError, "sampler is 'top'; give a function"),
        ({"logits_processors": print}, ConfigError, "give a list of functions"),
        ({"drafter": object()}, ConfigError, "an object with observe and propose"),
        ({"drafter": lambda: 5}, ContractError, "drafter is a int"),
        ({"sampler": print, "draft_sampling": "rejection"}, ConfigError, "model's own choices"),
        ({"temp": 1.0}, ConfigError, "did you mean temperature?"),
        ({"top_logprobs": 3}, ConfigError, "did you mean logprobs?"),
        ({"max_new_tokens": 3}, ConfigError, "did you mean max_tokens?"),
    ],
)
def test_what_is_refused_says_what_to_give(engine, options, error, words):
    with pytest.raises(error, match=words):
        engine.generate(PROMPT, max_tokens=4, **options)
    # And the engine goes on.
    assert engine.generate(PROMPT, max_tokens=4).token_ids


def test_one_stop_text_is_as_good_as_a_list(engine):
    text = engine.generate(PROMPT, max_tokens=20).text
    stop = text[len(text) // 2 :][:2]
    one = engine.generate(PROMPT, max_tokens=20, stop=stop)
    assert one.text == text[: text.index(stop)]
    assert one.token_ids == engine.generate(PROMPT, max_tokens=20, stop=[stop]).token_ids
