"""Guesses by n-grams that a draft model checks, several a pass."""

from drafting.scripted_token_model import begun

from akunu_lab.drafting.hierarchical import NUM_GUESSES, NgramGuesses
from akunu_lab.drafting.shaped import ShapedDrafter


def test_guesses_follow_what_was_drawn():
    guesses = NgramGuesses()
    guesses.observe([1, 2, 3, 4, 5, 6, 1, 2])
    assert guesses.guess([], 9) == (3, 4, 5, 6)[:NUM_GUESSES]
    assert guesses.guess([3, 4], 2) == (5, 6)
    assert guesses.guess([90], 9) == ()
    # What was drawn is looked up alone: the tables and their place in the text stay.
    assert guesses.guess([], 9) == (3, 4, 5, 6)[:NUM_GUESSES]
    guesses.observe([3])
    assert guesses.guess([], 1) == (4,)


def test_guesses_below_even_odds_are_not_made():
    guesses = NgramGuesses()
    guesses.observe([1, 2, 1, 3, 1, 4])
    # After 1 came 2, 3 and 4, once each; after 1, 2 came 1, and after 2, 1 came 3.
    assert guesses.guess([1], 4) == ()
    assert guesses.guess([1, 2], 2) == (1, 3)


def test_a_hierarchical_drafter_lets_its_guesses_be_checked():
    model, drafter = begun(ShapedDrafter, guesses=NgramGuesses())
    drafter.observe([5])
    drafter.propose(4)
    assert model.guess([], 1) == (6,)
    model, drafter = begun()
    drafter.propose(4)
    assert model.guess is None
