"""Many replies of akunu-tiny under random forms: they fit, and drafting changes none.

Slow, in parts: `-k "schemas and 3"` runs the third of twelve. tests/fast_blas has some of SmolLM2.
"""

import re

import pytest
from constrained_replies import ASK, check_schemas, replies
from random_forms import expression, grammar, seeded

from akunu_py import Engine
from akunu_py.errors import ConstraintError
from akunu_py.model_store.default_model import toy_model_path

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tiny():
    with Engine.load(toy_model_path()) as engine:
        yield engine


@pytest.mark.parametrize("part", range(1, 13))
def test_schemas(tiny, part):
    """Of 252 schemas, 84 at each temperature, with four drafters each: 1,008 replies."""
    seeds = range((part - 1) * 21, part * 21)
    assert check_schemas(tiny, seeds) >= 0.8 * len(seeds)


@pytest.mark.parametrize("part", range(1, 5))
def test_expressions(tiny, part):
    """Of 200 expressions, as Python reads them."""
    ended = 0
    for seed in range((part - 1) * 50, part * 50):
        form = expression(seeded("regex", seed))
        text = replies(tiny, seed, ("none", "auto"), max_tokens=60, regex=form)
        if text is not None:
            assert re.fullmatch(form, text), (form, text)
            ended += 1
    assert ended >= 45


@pytest.mark.parametrize("part", range(1, 3))
def test_grammars(tiny, part):
    """Of 50 grammars: 40 by the expression of their language, 10 of brackets within brackets."""
    ended = 0
    for seed in range((part - 1) * 25, part * 25):
        if seed % 5 == 4:
            opens, closes = "([{<«"[seed // 5 % 5], ")]}>»"[seed // 5 % 5]
            form = f'start: pair\npair: "{opens}" (pair | /[a-z]/){{0,2}} "{closes}"'
        else:
            form, language = grammar(seeded("grammar", seed))
        text = replies(tiny, seed, ("none", "ngram"), max_tokens=80, grammar=form)
        if text is None:
            continue
        ended += 1
        if seed % 5 == 4:
            inside = re.sub(f"[^{re.escape(opens + closes)}]", "", text)
            while inside != (inside := inside.replace(opens + closes, "")):
                pass
            assert not inside, (form, text)
        else:
            assert re.fullmatch(language, text), (form, text)
    assert ended >= 20


def test_a_form_that_is_empty_is_refused(tiny):
    with pytest.raises(ConstraintError):
        tiny.chat(ASK, json_schema={"allOf": [{"type": "string"}, {"type": "integer"}]})
