"""Look-ahead embeddings (PaSS): what they guess, and that nothing of them stays.

Mutants, made by hand, that these tests kill (each was tried): a row of the text too few or too
many; the vectors in another order, or one place early; the row of a vector in place of the last
token's; tokens of another drafter left out; more rows than are drawn from; the session's own caches
in place of copies; copies kept between draws; models with windows, or of other families.
"""

from functools import partial

import mlx.core as mx
import numpy as np
import pytest
from checked_drafts import CheckedDrafter
from family_models import build_family
from markov_heads import reply
from mlx.utils import tree_flatten
from prediction_heads import loaded_from, tiny_target, write

from akunu_py import GenerationConfig, ModelFormatError, UnsupportedArchitectureError
from akunu_py.drafting import PlainDrafter
from akunu_py.drafting.prediction_head import PredictionHeadDrafter, RowReader
from akunu_py.models.heads import load_head, make_head_model
from akunu_py.models.heads.families import decoder_of
from akunu_py.models.session import Session
from akunu_py.system.errors import ContractError
from akunu_py.values.types import Draft

COUNT = 3
PROMPT = [5, 3, 8, 13, 2, 77, 21]
SAMPLED = GenerationConfig(temperature=1.0)
PENALTIES = GenerationConfig(temperature=0.8, repetition_penalty=1.1, frequency_penalty=0.2)


def vectors(target, count=COUNT):
    width = decoder_of(target)[1].norm.weight.shape[0]
    return mx.random.normal((count, width), key=mx.random.key(2))


def load(target, folder, array):
    place = write(folder / "look_ahead.safetensors", {"look_ahead": array})
    return load_head(loaded_from(folder / "model", target), place)


def head_model(head):
    return make_head_model(head, context=600, vocabulary_size=97)


class Checked(CheckedDrafter):
    """Compares each draft with a pass over the whole text and the vectors, without a cache.

    Caches must be the same after a draft. Then it spoils drafts, so that rows are rejected.
    """

    def __init__(self, target, array, session, model, before):
        super().__init__(model, num_draft_tokens=8)
        self._target, self._array = target, array
        self._session, self._before = session, list(before)

    def held(self):
        return [np.array(array) for _, array in tree_flatten(
            [[cache.keys, cache.values, mx.array(cache.offset)] for cache in self._session.rows.caches]
        )]  # fmt: skip

    def draft(self, limit):
        held = self.held()
        draft = self.extend(Draft.chain(self._before, "text", 0), limit)
        for array, after in zip(held, self.held(), strict=True):
            np.testing.assert_array_equal(array, after)
        return draft

    def checked(self, draft, limit):
        known = [*self.text, *self._before]
        embedded = decoder_of(self._target)[1].embed_tokens(mx.array([known]))
        rows = mx.concatenate([embedded, self._array[None]], axis=1)
        logits = self._target(None, input_embeddings=rows)[0, len(known) - 1 :]
        assert list(draft.tokens) == mx.argmax(logits, axis=-1).tolist()[:limit]
        assert self._model.num_passes == self.drafts
        # No row that is not drawn from, and no array that the target writes into.
        assert not self._model._logits.size
        assert not self._model._caches
        return self.spoiled(draft.tokens, 97)


@pytest.mark.parametrize("before", [(), (7, 11)])
@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "qwen3_moe"])
def test_a_draft_is_that_of_a_pass_over_text_and_vectors(tmp_path, name, before):
    """After rejections, behind steps in flight and over several replies."""
    target = build_family(name)
    array = vectors(target)
    session, model = Session(target, context=600), head_model(load(target, tmp_path, array))
    assert model.at_once == COUNT + 1
    text = []
    for _ in range(2):
        drafter = Checked(target, array, session, model, before)
        model.num_passes = 0
        prompt = [*PROMPT, *text[:9], *text[:1]]
        text, stats = reply(session, drafter, prompt, num_draft_tokens=8)
        assert drafter.drafts > 8
        accepted = [step.num_accepted_tokens for step in stats if step.num_draft_tokens]
        assert before or {0, 1} <= set(accepted)
        plain, _ = reply(Session(target, context=600), PlainDrafter(), prompt)
        assert text == plain


@pytest.mark.parametrize(
    "config", [GenerationConfig(), SAMPLED, PENALTIES], ids=["greedy", "sampled", "penalties"]
)
@pytest.mark.parametrize("reproducible", [False, True])
def test_vectors_change_no_token_and_the_next_one_is_sure(tmp_path, config, reproducible):
    """Of two passes at least two tokens stay: the first drafted is the model's own choice."""
    target = build_family("llama")
    session = Session(target, context=60, reproducible=reproducible)
    drafter = PredictionHeadDrafter(head_model(load(target, tmp_path, vectors(target))))
    plain, _ = reply(session, PlainDrafter(), PROMPT, config)
    found, steps = reply(session, drafter, PROMPT, config)
    assert found == plain
    assert all(step.num_accepted_tokens for step in steps if step.num_draft_tokens)
    assert sum(step.num_draft_tokens for step in steps) > 40


def test_rejection_sampling_has_the_rows_of_the_pass(tmp_path):
    target = build_family("llama")
    array = vectors(target)
    model = head_model(load(target, tmp_path, array))
    config = GenerationConfig(temperature=0.8)
    drafter = PredictionHeadDrafter(model, rejection=True)
    session = Session(target, context=600)
    # Nothing is decoded.
    reply(session, drafter, PROMPT, config, max_tokens=0)
    assert len(drafter.propose(9)) == COUNT + 1
    embedded = decoder_of(target)[1].embed_tokens(mx.array([PROMPT]))
    rows = mx.concatenate([embedded, array[None]], axis=1)
    logits = target(None, input_embeddings=rows)[0, len(PROMPT) - 1 :]
    expected = mx.softmax(logits / 0.8, axis=-1)
    np.testing.assert_allclose(drafter.draft_probabilities(), np.array(expected), atol=1e-5)


def test_what_such_a_model_refuses(tmp_path):
    target = build_family("llama")
    model = head_model(load(target, tmp_path, vectors(target)))
    assert isinstance(model, RowReader)
    # Nobody has handed over rows.
    drafter = PredictionHeadDrafter(model)
    drafter.begin_reply(GenerationConfig(), 1)
    drafter.observe([1, 2, 3])
    assert not drafter.propose(4).tokens
    model.close()
    with pytest.raises(ContractError, match="the prediction head was closed"):
        _ = model.hidden


LLAMA = partial(build_family, "llama")


@pytest.mark.parametrize(
    ("make", "array", "error", "message"),
    [
        (LLAMA, mx.zeros((64, 64)), ModelFormatError, "has 64 vectors, not 1 to 63; give a file"),
        (LLAMA, mx.zeros((3, 32)), ModelFormatError, r"in the shape \(3, 32\) where this model as"),
        (LLAMA, mx.zeros((3,)), ModelFormatError, r"in the shape \(3,\) where this model asks for"),
        (LLAMA, mx.zeros((3, 64), mx.int32), ModelFormatError, "in the type mlx.core.int32, which"),
        (LLAMA, mx.full((3, 64), mx.nan), ModelFormatError, "has infinite numbers or NaN"),
        (
            partial(build_family, "llama, sliding"), mx.zeros((3, 64)),
            UnsupportedArchitectureError, "qwen3, qwen3_moe without sliding windows: leave the h",
        ),
        (
            partial(tiny_target, "mimo"), mx.zeros((3, 64)),
            UnsupportedArchitectureError, "has look-ahead embeddings, and the model is a tiny mod",
        ),
    ],
)  # fmt: skip
def test_files_that_are_refused(tmp_path, make, array, error, message):
    with pytest.raises(error, match=message):
        load(make(), tmp_path, array)
