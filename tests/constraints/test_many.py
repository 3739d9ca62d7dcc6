"""Many replies of real models under random forms: they fit, and drafting changes none.

Slow, in parts: `-k "schemas and 3"` runs the third of twelve. akunu-tiny has most of the replies, SmolLM2 a few.
"""

import json
import re

import jsonschema
import pytest
from forms import expression, grammar, schema, seeded
from shared_files import REAL_MODEL

from akunu_py import Engine
from akunu_py.errors import ConstraintError
from akunu_py.model_store.default_model import toy_model_path

pytestmark = pytest.mark.slow

TEMPERATURES = (0.0, 0.8, 1.5)
DRAFTERS = ("none", "auto", "ngram", "tree")
ASK = [
    {
        "role": "user",
        "content": "Extract the record: Bob, aged 12, likes red and 青, see 12-10 and a/b.",
    }
]


@pytest.fixture(scope="module")
def tiny():
    with Engine.load(toy_model_path()) as engine:
        yield engine


@pytest.fixture(scope="module")
def real():
    if not REAL_MODEL.is_file():
        pytest.skip(f"{REAL_MODEL.name} is not in the data folder")
    with Engine.load(REAL_MODEL, reproducible=True) as engine:
        yield engine


def replies(engine, seed, drafters=DRAFTERS, max_tokens=160, **form):
    """The reply, which must be the same with each drafter; None if it does not end in time."""
    made = [
        engine.chat(
            ASK, temperature=TEMPERATURES[seed % 3], seed=seed, drafter=drafter, draft_budget="always",
            max_tokens=max_tokens, **form,
        )
        for drafter in drafters
    ]  # fmt: skip
    assert len({reply.token_ids for reply in made}) == 1, form
    assert len({reply.constraint_met for reply in made}) == 1
    ended = made[0].finish_reason == "stop"
    assert made[0].constraint_met or not ended
    return made[0].text if ended else None


def check_schemas(engine, seeds):
    ended = 0
    for seed in seeds:
        form = schema(seeded("schema", seed))
        text = replies(engine, seed, json_schema=form)
        if text is not None:
            jsonschema.validate(json.loads(text), form)
            ended += 1
    return ended


@pytest.mark.parametrize("part", range(1, 13))
def test_schemas(tiny, part):
    """Of 252 schemas, 84 at each temperature, with four drafters each: 1,008 replies."""
    seeds = range((part - 1) * 21, part * 21)
    assert check_schemas(tiny, seeds) >= 0.8 * len(seeds)


@pytest.mark.parametrize("part", range(1, 4))
def test_schemas_with_a_real_model(real, part):
    """Of 9 schemas: 36 replies. Passes are aligned, so that rows have equal bits with any BLAS."""
    seeds = range(1000 + (part - 1) * 3, 1000 + part * 3)
    assert check_schemas(real, seeds) >= 0.5 * len(seeds)


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
