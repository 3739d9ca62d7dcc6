"""Whether rows are bit-equal is found where it changes: by the passes, and by the text before them."""

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from family_models import NAMES, build_family, variant_of
from test_aligned_rows import ShapedKernels
from tiny_models import adversary, begin, generate, prompt_of, tiny

from akunu_py.drafting import PlainDrafter
from akunu_py.models.budget_memory import cost_key
from akunu_py.models.load import ModelDescription
from akunu_py.models.row_bits import MOST_ROWS
from akunu_py.models.session import Session
from akunu_py.values.types import Draft, GenerationConfig

MOST = MOST_ROWS[1]
LENGTHS = (1, 15, 17, 40, 255, 257, 310, 520)
"""Texts around windows of 16 and 300, steps of caches (256) and passes of a prompt (512)."""


def session_at(model, length, kv_bits=None):
    """A session that holds the rows of a text."""
    session = Session(model, context=700, kv_bits=kv_bits)
    session.rows.prefill(prompt_of(length))
    return session


@pytest.mark.parametrize(
    ("name", "length", "equal"),
    [
        ("llama", 310, True),
        ("llama", 0, True),
        ("deepseek_v3", 0, True),
        ("deepseek_v3", 40, True),
        # One row is written over the oldest of a window, so keys are summed in another order.
        ("llama, sliding", 5, False),
        ("llama, window of 300", 100, True),
        ("llama, window of 300", 310, False),
    ],
)
def test_rows_are_compared_behind_the_text_that_is_held(name, length, equal):
    found = session_at(build_family(name), length).bit_equal_to(MOST)
    assert found == (length + MOST if equal else 0)


def test_passes_up_to_the_largest_are_compared():
    for alike, expected in ((0, 0), (8, 0), (9, 9)):
        assert Session(ShapedKernels(tiny(), alike), context=100).bit_equal_to(9) == expected
    model = ShapedKernels(tiny())
    assert Session(model, context=100, reproducible=True).bit_equal_to(9) == 100
    # In a short context fewer rows are fed.
    model.sizes.clear()
    assert Session(model, context=6).bit_equal_to(9) == 0
    assert max(model.sizes) == 6
    assert Session(tiny(), context=6).bit_equal_to(9) == 6


@pytest.mark.parametrize("name", ["llama", "llama4", "mamba"])
@pytest.mark.parametrize("context", [200, 33])
def test_a_reply_goes_on_as_if_nothing_was_compared(name, context):
    """While a step is in flight; near the end of the context the text is not as long."""
    model = build_family(name)
    texts = []
    for compared in (False, True):
        session = Session(model, context=context)
        begin(session, prompt_of(20), max_tokens=12)
        text = prompt_of(20)
        for step in range(12):
            text += session.choose(text[-1], Draft.empty())
            session.commit(())
            if compared and step == 6:
                assert session.in_flight
                assert session.bit_equal_to(9) >= 28
        texts.append(text)
    assert texts[0] == texts[1]


def test_the_largest_pass_is_that_of_the_reply():
    session = Session(tiny(), context=200)
    truth = prompt_of(20) + generate(session, prompt_of(20), GenerationConfig(), PlainDrafter())
    assert session.largest_pass == 1
    session.reset()
    generate(session, prompt_of(20), GenerationConfig(), adversary("right", truth, 1))
    assert session.largest_pass in (8, 9)
    generate(session, prompt_of(20), GenerationConfig(), PlainDrafter())
    assert session.largest_pass == 1


def test_what_is_remembered_is_not_taken_for_other_windows():
    """Files of one name may hold models of one size."""
    description = ModelDescription(
        Path(), "m", "dense", architecture="llama", parameters=1, context=700, file_bytes=1
    )
    keys = [
        cost_key(description, build_family(name), kv_bits=None, block_rows=None)
        for name in ("llama", "llama, sliding", "llama, window of 300", "llama")
    ]
    assert len({key.pop("arguments") for key in keys}) == 3
    assert keys == [keys[0]] * 4


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_no_row_differs_where_equal_is_said(name):
    """Every size of a pass, at many lengths of the text up to the one said."""
    model, kv_bits = build_family(name), variant_of(name).kv_bits
    said = {length: session_at(model, length, kv_bits).bit_equal_to(MOST) for length in LENGTHS}
    differs = []
    for length in LENGTHS:
        if length + MOST > max(said.values()):
            break
        rows = session_at(model, length, kv_bits).rows
        tokens = mx.array(prompt_of(MOST, seed=length))

        def fed(size, rows=rows, tokens=tokens):
            copy = rows.copy(len(rows.tokens))
            passes = [
                np.array(copy.feed(tokens[start : start + size])[0].astype(mx.float32))
                for start in range(0, MOST - size + 1, size)
            ]
            return np.concatenate(passes).tobytes()

        alone = fed(1)
        if not all(alone.startswith(fed(size)) for size in (2, 3, 4, 5, 8, 9, 13, MOST)):
            differs.append(length)
    wrong = [
        (length, held) for length in differs for held in said.values() if length + MOST <= held
    ]
    assert not wrong
