"""What a result says of rounding: whether rows of a pass have the bits of passes over one."""

from unittest.mock import Mock

import pytest
from engine_inside import memories_of

from akunu_py import Engine
from akunu_py.models.session import Session

PROMPT = "one two three one two three one two"
DRAFTED = {"drafter": "ngram", "draft_budget": "always"}


@pytest.fixture(autouse=True)
def fresh_costs(tmp_path, monkeypatch):
    monkeypatch.setenv("AKUNU_CACHE_DIR", str(tmp_path))


def row_bits(path, prompt=PROMPT, **options):
    with Engine.load(path) as engine:
        return engine.generate(prompt, max_tokens=12, **options).row_bits


def test_what_is_found_is_remembered(tiny_gguf, monkeypatch):
    calls = []

    def differs(self, most):
        calls.append(most)
        return 0

    monkeypatch.setattr(Session, "bit_equal_to", differs)
    assert row_bits(tiny_gguf, drafter="none") == "equal"
    assert calls == []
    assert row_bits(tiny_gguf, **DRAFTED) == "different"
    assert row_bits(tiny_gguf, **DRAFTED) == "different"
    assert row_bits(tiny_gguf, drafter="none") == "equal"
    assert len(calls) == 1


@pytest.mark.parametrize(("streams", "most"), [(1, None), (2, 9), (12, 17)])
def test_rows_of_other_replies_are_rows_of_a_pass(tiny_gguf, monkeypatch, streams, most):
    """Nothing is drafted: a pass has a row of each reply."""
    calls = []
    monkeypatch.setattr(Session, "bit_equal_to", lambda _, rows: calls.append(rows) or 0)
    with Engine.load(tiny_gguf) as engine:
        replies = engine.generate_many(
            [PROMPT] * streams, streams=streams, max_tokens=40, drafter="none"
        )
        found = [result.row_bits for _, result in replies]
    assert found == ["different" if most else "equal"] * streams
    assert calls == [most] * bool(most)


def test_nobody_measures_for_a_reader_who_does_not_look(tiny_gguf, monkeypatch):
    monkeypatch.setattr(Session, "bit_equal_to", lambda *_: pytest.fail("measured"))
    with Engine.load(tiny_gguf) as engine:
        engine.compares_rows = False
        with engine.sibling() as other:
            for each in (engine, other):
                drafted = each.generate(PROMPT, max_tokens=12, **DRAFTED)
                assert drafted.stats.drafted
                assert drafted.row_bits == "unknown"
                assert each.generate(PROMPT, max_tokens=2, drafter="none").row_bits == "equal"


def test_equal_is_said_of_texts_no_longer_than_measured(tiny_gguf, monkeypatch):
    """With the wheel's own BLAS all rows are equal. A text twice as long is measured again."""
    measured, real = [], Session.bit_equal_to

    def measure(self, most):
        measured.append(real(self, most))
        return measured[-1]

    monkeypatch.setattr(Session, "bit_equal_to", measure)
    assert row_bits(tiny_gguf, **DRAFTED) == "equal"
    (longest,) = measured
    with Engine.load(tiny_gguf) as engine:
        ids = engine.tokenizer.encode(PROMPT * 20)
    assert row_bits(tiny_gguf, ids[: longest - 20], **DRAFTED) == "equal"
    assert row_bits(tiny_gguf, ids[:longest], **DRAFTED) == "unknown"
    assert len(measured) == 1
    assert row_bits(tiny_gguf, ids[: 2 * longest], **DRAFTED) == "equal"
    assert measured[1] >= 2 * longest
    assert row_bits(tiny_gguf, ids[:longest], **DRAFTED) == "equal"


def test_equal_is_said_of_passes_no_larger_than_measured(tiny_gguf):
    asked = []

    def measure(most):
        asked.append(most)
        return 100

    with Engine.load(tiny_gguf) as engine:
        row_bits = memories_of(engine).costs.row_bits
        assert row_bits(50, 8, measure) == row_bits(100, 9, measure) == "equal"
        assert row_bits(50, 10, measure) == row_bits(100, 2, measure) == "equal"
        assert row_bits(101, 2, measure) == row_bits(50, 74, measure) == "unknown"
        assert asked == [9, 17]
        # Near the end of the context caches may be copied at a shorter length only.
        assert row_bits(200, 17, lambda most: 20) == "unknown"
        assert row_bits(100, 17, measure) == "equal"
        assert row_bits(50, 33, lambda most: 0) == row_bits(50, 2, measure) == "different"
        assert asked == [9, 17]


def test_a_measurement_that_fails_costs_no_reply(tiny_gguf, monkeypatch):
    fail = Mock(side_effect=RuntimeError("[malloc] Unable to allocate 1 bytes."))
    monkeypatch.setattr(Session, "bit_equal_to", fail)
    assert row_bits(tiny_gguf, **DRAFTED) == "unknown"


@pytest.mark.lab
def test_nothing_is_said_of_passes_over_trees(tiny_gguf, monkeypatch):
    """They have other kernels than chains."""
    monkeypatch.setattr(Session, "bit_equal_to", lambda *_: 1000)
    assert row_bits(tiny_gguf, **DRAFTED) == "equal"
    assert row_bits(tiny_gguf, **{**DRAFTED, "drafter": "tree"}) == "unknown"
