"""What a result says of rounding: whether rows of a pass have the bits of passes over one."""

import pytest

from akunu_py import Engine
from akunu_py.models.session import Session

PROMPT = "one two three one two three one two"


@pytest.fixture
def fresh_costs(tmp_path, monkeypatch):
    monkeypatch.setenv("AKUNU_CACHE_DIR", str(tmp_path))


def row_bits(path, **options):
    with Engine.load(path) as engine:
        return engine.generate(PROMPT, max_tokens=12, **options).row_bits


@pytest.mark.usefixtures("fresh_costs")
def test_what_is_found_is_remembered(tiny_gguf, monkeypatch):
    calls = []
    monkeypatch.setattr(Session, "rows_bit_equal", lambda self: bool(calls.append(1)))
    drafted = {"drafter": "ngram", "draft_budget": "always"}
    assert row_bits(tiny_gguf, drafter="none") == "equal"
    assert calls == []
    assert row_bits(tiny_gguf, **drafted) == "different"
    assert row_bits(tiny_gguf, **drafted) == "different"
    assert row_bits(tiny_gguf, drafter="none") == "equal"
    assert calls == [1]


@pytest.mark.usefixtures("fresh_costs")
def test_with_the_wheels_own_blas_they_are_equal(tiny_gguf):
    assert row_bits(tiny_gguf, drafter="ngram", draft_budget="always") == "equal"


@pytest.mark.usefixtures("fresh_costs")
def test_a_measurement_that_fails_costs_no_reply(tiny_gguf, monkeypatch):
    def fail(self):
        raise RuntimeError("[malloc] Unable to allocate 1 bytes.")

    monkeypatch.setattr(Session, "rows_bit_equal", fail)
    assert row_bits(tiny_gguf, drafter="ngram", draft_budget="always") == "unknown"
