"""Heads that guess only some of the target's tokens: their logits, their files, and their drafts."""

import mlx.core as mx
import numpy as np
import pytest
from markov_heads import SIZE, markov_target, matched_head, reply, text_from, token_model
from mlx import nn
from mlx_lm.models import llama
from prediction_heads import (
    MIMO,
    QWEN,
    TARGETS,
    VOCABULARY,
    loaded_from,
    named,
    parameters_of,
    random_head,
    tiny_target,
    write,
)
from tiny_models import prompt_of

from akunu_py.drafting import PlainDrafter
from akunu_py.drafting.prediction_head import PredictionHeadDrafter
from akunu_py.models.heads import load_head
from akunu_py.models.heads.families import set_draft_vocabulary
from akunu_py.models.session import Session
from akunu_py.system.errors import ModelFormatError
from akunu_py.values.types import GenerationConfig

IDS = np.array([0, 3, 4, 9, 50, 95, 96])
OFFSETS = mx.array(IDS - np.arange(len(IDS)), dtype=mx.int64)


def masked(logits):
    """Logits with -inf for all tokens that are not guessed."""
    kept = np.full(logits.shape, -np.inf, dtype=np.float32)
    kept[..., IDS] = np.array(logits)[..., IDS]
    return kept


def tied_llama():
    arguments = {**TARGETS["llama"][1], "model_type": "llama", "tie_word_embeddings": True}
    mx.random.seed(3)
    target = llama.Model(llama.ModelArgs.from_dict(arguments))
    target.eval()
    return target


FORMS = {
    "dense": lambda target: target,
    "8 bits": lambda target: nn.quantize(target, group_size=32, bits=8),
    "mxfp4": lambda target: nn.quantize(target, group_size=32, bits=4, mode="mxfp4"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["mimo", "qwen3_5", "tied llama"])
def test_logits_are_those_of_the_whole_head_for_some_tokens(tmp_path, name, form):
    """Rows of the target's output head, or of its embedding, stay in their form."""
    target = tied_llama() if name == "tied llama" else tiny_target(name)
    FORMS[form](target)
    head = random_head(target)
    names, prefix = (MIMO, "model.mtp_layers.0.") if name == "mimo" else (QWEN, "mtp.")
    arrays = named(parameters_of(head), names, prefix)
    path = write(tmp_path / "head.safetensors", {**arrays, f"{prefix}d2t": OFFSETS})
    weights = "dense" if form == "dense" else "quantized"
    found = load_head(loaded_from(tmp_path / "model", target, weights=weights), path)
    states = mx.random.normal((1, 2, head.width), key=mx.random.key(0))
    expected = masked(head.logits(states))
    np.testing.assert_allclose(np.array(found.logits(states)), expected, atol=1e-5)
    rows = found.lm_head.rows.parameters()
    assert ("scales" in rows) == (form != "dense")
    assert {array.shape[0] for array in rows.values()} == {len(IDS)}
    # The target keeps all of its own.
    assert np.isfinite(np.array(head.logits(states))).all()


@pytest.mark.parametrize("bits", [None, 8])
@pytest.mark.parametrize("kind", [mx.int64, mx.int32, mx.uint16])
def test_rows_of_the_heads_own(tmp_path, kind, bits):
    """Whether or not the target has an output head."""
    for target in (tied_llama(), tiny_target("llama")):
        head = random_head(target)
        own = nn.Linear(64, len(IDS), bias=False)
        if bits:
            own = nn.QuantizedLinear.from_linear(own, 32, bits)
        arrays = named(parameters_of(head), QWEN, "mtp.") | {"mtp.d2t": OFFSETS.astype(kind)}
        arrays |= {f"mtp.lm_head.{name}": array for name, array in parameters_of(own).items()}
        path = write(tmp_path / "head.safetensors", arrays)
        weights = "quantized" if bits else "dense"
        found = load_head(loaded_from(tmp_path / "model", target, weights=weights), path)
        states = mx.random.normal((1, 2, 64), key=mx.random.key(0))
        logits = np.array(found.logits(states))
        np.testing.assert_allclose(logits[..., IDS], np.array(own(states)), atol=1e-5)
        assert np.isneginf(np.delete(logits, IDS, axis=-1)).all()


def test_half_precision(tmp_path):
    target = tiny_target("llama")
    target.set_dtype(mx.float16)
    arrays = named(parameters_of(random_head(target)), QWEN, "mtp.") | {"mtp.d2t": OFFSETS}
    path = write(tmp_path / "head.safetensors", arrays)
    head = load_head(loaded_from(tmp_path / "model", target), path)
    logits = head.logits(mx.ones((1, 1, 64), dtype=mx.float16))
    assert logits.dtype == mx.float16
    assert np.isneginf(np.array(logits)).sum() == VOCABULARY - len(IDS)


DAMAGE = {
    "floats": mx.array([0.0, 2.0]),
    "two dimensions": OFFSETS[None],
    "a number alone": mx.array(3),
    "none": mx.zeros((0,), dtype=mx.int64),
    "a negative id": mx.array([-1, 0]),
    "a token twice": mx.array([0, 2, 1]),
    "a descending order": mx.array([5, 3]),
    "beyond the vocabulary": mx.array([0, VOCABULARY - 1]),
    "beyond the last token": mx.array([0, 2**63 - 1]),
    "more tokens than there are": mx.zeros((VOCABULARY + 1,), dtype=mx.int64),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_offsets_are_refused(tmp_path, damage):
    target = tiny_target("llama")
    arrays = named(parameters_of(random_head(target)), QWEN, "mtp.")
    path = write(tmp_path / "mtp.safetensors", {**arrays, "mtp.d2t": DAMAGE[damage]})
    message = r"tensor 'mtp.d2t' in .*mtp.safetensors does not name different tokens of the 97"
    with pytest.raises(ModelFormatError, match=message):
        load_head(loaded_from(tmp_path, target), path)


@pytest.mark.parametrize("reads", ["token", "state"])
def test_every_guess_is_right_where_the_tokens_are_known(reads):
    """Of the 64 tokens of a cycle the head guesses the first 40 that follow the prompt."""
    target = markov_target()
    head = matched_head(target, reads=reads)
    prompt = text_from(3, 21)
    following = text_from(prompt[-1], 41)[1:]
    set_draft_vocabulary(head, target, mx.array(sorted(following)))
    session = Session(target, context=600)
    found, steps = reply(session, PredictionHeadDrafter(token_model(head)), prompt)
    assert found == following
    assert [step.num_accepted_tokens for step in steps] == [4] * 8
    # Of what comes then, it guesses nothing.
    found, steps = reply(
        session, PredictionHeadDrafter(token_model(head)), [*prompt, *following], max_tokens=20
    )
    assert found == text_from(following[-1], 21)[1:]
    assert sum(step.num_accepted_tokens for step in steps) == 0
    assert sum(step.num_draft_tokens for step in steps) > 20


@pytest.mark.fast_every(3)
@pytest.mark.parametrize("settings", [{}, {"repetition_penalty": 1.1, "logit_bias": {5: 3.0}}])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_no_token_is_changed(temperature, settings):
    target = tiny_target("llama")
    config = GenerationConfig(temperature=temperature, **settings)
    head = random_head(target)
    set_draft_vocabulary(head, target, mx.array(IDS))
    drafter = PredictionHeadDrafter(token_model(head, size=VOCABULARY))
    drafted, propose = [], drafter.propose
    drafter.propose = lambda limit: (drafted.append(propose(limit)), drafted[-1])[1]
    session = Session(target, context=600)
    plain, _ = reply(session, PlainDrafter(), prompt_of(30), config)
    found, steps = reply(session, drafter, prompt_of(30), config)
    assert found == plain
    assert not set(found) <= set(IDS.tolist())
    tokens = [token for draft in drafted for token in draft.tokens]
    assert len(set(tokens)) > 1
    assert set(tokens) <= set(IDS.tolist())
    assert len(tokens) >= sum(step.num_draft_tokens for step in steps) > 40


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_rows_of_independent_draws_are_zero_elsewhere(temperature):
    target = markov_target(sharpness=0.4)
    head = matched_head(target, reads="token")
    set_draft_vocabulary(head, target, mx.array([1, 5, 9]))
    model = token_model(head)
    drafter = PredictionHeadDrafter(model, rejection=True)
    config = GenerationConfig(temperature=temperature)
    reply(Session(target, context=600), drafter, text_from(3, 21), config, max_tokens=5)
    rows = model.probabilities()
    assert len(rows) > 0
    assert rows.shape[1] == SIZE
    assert np.abs(rows.sum(axis=1) - 1).max() < 1e-12
    assert not np.delete(rows, [1, 5, 9], axis=1).any()
