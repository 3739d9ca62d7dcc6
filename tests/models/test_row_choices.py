"""The tokens that penalties look at before a row.

Mutants, made by hand, that these tests kill: the text not cut to the window; a window of one token
more or less; the rows of the pass left out.
"""

import pytest

from akunu_py.models.row_choices import RowChoices
from akunu_py.sampling.sampler import Sampler
from akunu_py.sampling.transforms import TransformChain
from akunu_py.values.types import GenerationConfig

VOCABULARY = 97


def choices(**options):
    chain = TransformChain.from_config(GenerationConfig(**options), VOCABULARY)
    return RowChoices(Sampler(chain, 7, VOCABULARY), VOCABULARY)


@pytest.mark.parametrize("window", [1, 3, 4, 20])
@pytest.mark.parametrize("fed", range(6))
@pytest.mark.parametrize("path", range(1, 6))
def test_penalties_look_at_the_last_tokens_of_the_text(window, fed, path):
    text = list(range(fed + path))
    found = choices(penalty_window=window, presence_penalty=1.0).recent(text[:fed], text[fed:])
    assert list(found) == text[-window:]


def test_without_penalties_no_token_is_looked_at():
    assert choices(penalty_window=3).recent([1, 2], [3]) == ()
