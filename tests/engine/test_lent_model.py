"""A lent model: what follows a text and a draft behind it is what the model says of each path alone.

Mutants that these tests kill, by hand: rows of another path kept; nothing kept; the draft of the last
pass not committed; the place where texts parted not marked.
"""

import mlx.core as mx
import numpy as np
import pytest
from family_models import build_family

from akunu_py.api import Draft, LentModel
from akunu_py.models.cache import make_caches

TEXT = [5, 17, 3, 80, 41]
TREE = Draft((1, 2, 3, 4, 6), (-1, -1, 0, 0, 2))


def alone(model, text):
    logits = model(mx.array([text]), cache=make_caches(model, None))[0, -1]
    return np.array(mx.softmax(logits.astype(mx.float32)))


def check(lent, text, draft):
    found = lent.distributions(draft)
    paths = {-1: text}
    for node, (token, parent) in enumerate(zip(draft.tokens, draft.parents, strict=True)):
        paths[node] = [*paths[parent], token]
    for row, path in zip(found, paths.values(), strict=True):
        np.testing.assert_allclose(row, alone(lent.model, path), atol=2e-5)


@pytest.mark.parametrize("name", ["llama", "gemma3", "mamba2"])
def test_a_draft_behind_a_text(name):
    """Chains, trees where they go, and texts that go on, part or begin anew; how much is read."""
    lent = LentModel(build_family(name), context=200, shared=97)
    assert lent.can_go_back
    chain = Draft.chain((1, 3, 6))
    assert lent.read(TEXT) == 4
    assert lent.takes_tree(chain)
    assert lent.takes_tree(TREE) == (name != "mamba2")
    draft = chain if name == "mamba2" else TREE
    check(lent, TEXT, draft)
    # Its path is held, so only a further token is read; nothing is read before a second draft.
    assert lent.read([*TEXT, 1, 3, 6, 9, 8]) == 1
    check(lent, [*TEXT, 1, 3, 6, 9, 8], draft)
    check(lent, [*TEXT, 1, 3, 6, 9, 8], Draft.empty())
    # Back to where the texts part, which was not marked; then it is.
    assert lent.read([*TEXT, 1, 3, 7, 7]) == (4 if name == "mamba2" else 1)
    check(lent, [*TEXT, 1, 3, 7, 7], chain)
    assert lent.read([*TEXT, 1, 3, 4, 4]) == 1
    check(lent, [*TEXT, 1, 3, 4, 4], chain)
    assert lent.read([9, 9]) == 1
    check(lent, [9, 9], draft)
