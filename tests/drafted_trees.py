"""Drafts that are trees, at random."""

from hypothesis import strategies as st

from akunu_py.values.types import Draft


@st.composite
def trees(draw, most=9):
    size = draw(st.integers(1, most))
    parents = [draw(st.integers(-1, node - 1)) for node in range(size)]
    confidence = [draw(st.floats(0.01, 1.0)) for _ in range(size)]
    return Draft(tuple(range(size)), tuple(parents), "t", 0, tuple(confidence))


@st.composite
def bare_trees(draw, most=7, vocabulary=4):
    """Without confidence; equal tokens may stand below different ones."""
    nodes = []
    for _ in range(draw(st.integers(0, most))):
        parent = draw(st.integers(-1, len(nodes) - 1))
        node = (draw(st.integers(0, vocabulary - 1)), parent)
        if node not in nodes:
            nodes.append(node)
    return Draft(tuple(token for token, _ in nodes), tuple(parent for _, parent in nodes))
