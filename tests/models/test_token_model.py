"""The draft model over its caches: what it draws is what a fresh model draws, whatever came before.

Mutants of `CachedTokenModel`, made by hand, that these tests and those of test_token_model_limits.py
kill (each was tried): a row of a rejected token kept; the last committed token's row taken for known;
the row of an accepted token dropped without its being fed again; draws one position late; penalties
blind to drawn tokens; a guess kept that was wrong; a wrong guess's row kept; ids beyond the common
ones drawn.
"""

import random

import pytest
from family_models import build_family
from fresh_draws import CONFIGS, SEED, begin, expected, made
from tiny_models import VOCABULARY, prompt_of, tiny

from akunu_py.drafting.draft_model import DrawSettings
from akunu_py.models.cached_rows import PREFILL_CHUNK

KINDS = [
    "llama", "recurrent_gemma",
    *(
        pytest.param(kind, marks=pytest.mark.slow)
        for kind in ("llama, sliding", "llama4", "mamba2", "qwen3_next", "falcon_h1")
    ),
]  # fmt: skip
NAMES = ["greedy", pytest.param("0.7", marks=pytest.mark.slow), "1.3, penalties"]


@pytest.fixture(scope="module", params=KINDS)
def model(request):
    return build_family(request.param)


@pytest.fixture(scope="module")
def llama():
    return tiny()


@pytest.mark.fast_every(3)
@pytest.mark.parametrize("name", NAMES)
def test_draws_after_any_acceptance_are_those_of_a_fresh_model(model, name):
    """All, some or none of a draft committed, and more tokens than were drawn."""
    config, rng = CONFIGS[name], random.Random(3)
    drafts, text = made(model), prompt_of(21)
    begin(drafts, text, config)
    text = list(text)
    # Sizes of the draft, and how many of it are committed before another token is.
    for limit, taken in [(4, 4), (3, 0), (5, 2), (1, 1), (4, 3), (2, 2), (6, 1), (3, 3)]:
        drawn = [token.token for token in drafts.draw(limit)]
        assert drawn == expected(model, text, limit, config)
        output = [*drawn[:taken], rng.randrange(VOCABULARY)]
        if rng.random() < 0.3:
            output += [rng.randrange(VOCABULARY) for _ in range(3)]
        text += output
        drafts.extend(output)


def test_the_token_after_a_draft_may_be_the_one_whose_row_is_there(model):
    """A rule ends a draft whose last row was fed; then that very draft is cut short, and so on."""
    config = CONFIGS["greedy"]
    drafts, text = made(model), list(prompt_of(21))
    begin(drafts, text, config)
    for _ in range(2):
        drawn = [token.token for token in drafts.draw(6, lambda drawn: len(drawn) < 3)]
        assert drawn == expected(model, text, 3, config)
        # A reply's step may commit exactly what was drawn: its last token is the target's own.
        for part in (drawn[:2], drawn[2:]):
            text += part
            drafts.extend(part)
        assert [token.token for token in drafts.draw(2)] == expected(model, text, 2, config)


def test_what_cannot_be_dropped_is_fed_again_from_the_last_draft_on(model):
    drafts, prompt = made(model), prompt_of(40)
    begin(drafts, prompt, CONFIGS["greedy"])
    fed, feed = [], drafts._rows.feed
    drafts._rows.feed = lambda rows: (fed.append(rows.size), feed(rows))[1]
    for _ in range(3):
        drawn = [token.token for token in drafts.draw(4)]
        # The last token of the prompt, or two that were accepted and one that follows.
        assert fed[0] <= 3
        assert fed[1:] == [1, 1, 1]
        fed.clear()
        drafts.extend([*drawn[:2], 3])


@pytest.mark.parametrize("name", NAMES)
def test_draws_behind_tokens_that_are_not_committed(model, name):
    """Then all of them are committed, or some, or none."""
    config, text = CONFIGS[name], list(prompt_of(21))
    drafts = made(model)
    begin(drafts, text, config)
    afters, outputs = [(4, 5, 6), (8,), (1, 2, 3), ()], [(4, 5, 6, 7), (9,), (1, 2, 9), (3,)]
    for after, output in zip(afters, outputs, strict=True):
        guess = None if after else (lambda drawn, limit: ())
        drawn = [token.token for token in drafts.draw(3, None, guess, after=after)]
        assert drawn == expected(model, [*text, *after], 3, config)
        text += output
        drafts.extend(output)
    truth = expected(model, [*text, 7], 4, config)
    drawn = drafts.draw(4, None, lambda drawn, limit: truth[len(drawn) - 1 :][:limit], after=[7])
    assert [token.token for token in drawn] == truth


@pytest.mark.slow
def test_a_long_pause_is_caught_up_with_in_chunks(llama):
    drafts, prompt, config = made(llama, context=3000), prompt_of(10), CONFIGS["greedy"]
    begin(drafts, prompt, config)
    rng = random.Random(1)
    text = [rng.randrange(VOCABULARY) for _ in range(2 * PREFILL_CHUNK + 40)]
    drafts.extend(text)
    drawn = [token.token for token in drafts.draw(2)]
    assert drafts.num_passes == 4
    assert drawn == expected(llama, [*prompt, *text], 2, config)


def test_prompts_reuse_what_the_caches_hold(model):
    config = CONFIGS["greedy"]
    drafts, prompt = made(model), list(prompt_of(40))
    begin(drafts, prompt, config)
    drawn = [token.token for token in drafts.draw(5)]
    reply = [*drawn[:2], 5]
    drafts.extend(reply)
    # Before the first pass what is kept is all there is.
    longer = [*prompt, *reply, 1, 2, 3]
    for following, kept in [(longer, 39), ([*longer, 9, 9], 39), (prompt_of(30, 4), 0), ([3], 0)]:
        sampling = DrawSettings(config, SEED)
        held = [len(drafts._rows.tokens) for _ in drafts.beginning(following, sampling)]
        assert held[0] >= kept
        assert (held[0] > 0) == (kept > 0)
        found = [token.token for token in drafts.draw(3)]
        assert found == expected(model, following, 3, config)


class Guesses:
    """Guesses from the true continuation: right up to a place that changes, wrong from there."""

    def __init__(self, truth, seed=0):
        self.truth = truth
        self.rng = random.Random(seed)
        self.calls = self.wrong = 0

    def __call__(self, drawn, limit):
        self.calls += 1
        guessed = list(self.truth[len(drawn) :][: min(limit, 1 + self.rng.randrange(4))])
        if guessed and self.calls % 2:
            place = self.rng.randrange(len(guessed))
            guessed[place] = (guessed[place] + 1) % VOCABULARY
            self.wrong += 1
        # Ids that the draft model has not are not fed.
        return (*guessed, VOCABULARY + 4)[:limit]


@pytest.mark.fast_every(3)
@pytest.mark.parametrize("name", NAMES)
def test_guesses_change_nothing_that_is_drawn(model, name):
    config = CONFIGS[name]
    drafts, text = made(model), list(prompt_of(21))
    begin(drafts, text, config)
    for turn, taken in enumerate([8, 0, 3]):
        truth = expected(model, text, 8, config)
        guesses = Guesses(truth, turn)
        drawn = [token.token for token in drafts.draw(8, None, guesses)]
        assert drawn == truth
        assert (guesses.wrong > 0) == drafts._rows.rollback.drops_rows
        text += [*drawn[:taken], 3]
        drafts.extend([*drawn[:taken], 3])


def test_right_guesses_save_passes(llama):
    config, text = CONFIGS["0.7"], prompt_of(21)
    drafts, truth = made(llama), expected(llama, text, 9, config)
    begin(drafts, text, config)
    before = drafts.num_passes
    drawn = drafts.draw(9, None, lambda drawn, limit: truth[len(drawn) :][: min(limit, 2)])
    assert [token.token for token in drawn] == truth
    # Two guesses and a token of the model's own in each pass.
    assert drafts.num_passes == before + 3
