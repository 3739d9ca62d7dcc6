"""Drafts that are trees, at random."""

from hypothesis import strategies as st

from akunu_py.values.types import Draft


@st.composite
def trees(draw, most=9):
    size = draw(st.integers(1, most))
    parents = [draw(st.integers(-1, node - 1)) for node in range(size)]
    confidence = [draw(st.floats(0.01, 1.0)) for _ in range(size)]
    return Draft(tuple(range(size)), tuple(parents), "t", 0, tuple(confidence))
