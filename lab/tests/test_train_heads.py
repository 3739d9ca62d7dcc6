"""Training of prediction heads in small: what the trained head computes, learns and is saved as."""

import dataclasses
import sysconfig
import time
from itertools import islice
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from head_training import prompts, replies
from head_training.accepted import acceptances
from head_training.eagle import initial_eagle, states_between
from head_training.look_ahead import initial_look_ahead, look_ahead_states
from head_training.training import (
    Trainer,
    TrainingSettings,
    batch_of,
    draft_vocabulary,
    initial_head,
    write_side_car,
)
from head_training.unrolled import unrolled_states
from mlx.utils import tree_flatten
from prediction_heads import loaded_from
from shared_files import path_of
from tiny_models import VOCABULARY, tiny

from akunu_py import Engine, GenerationConfig
from akunu_py.models.heads import load_head
from akunu_py.models.heads.families import decoder_of
from akunu_py.models.load import LoadOptions, load_model

MOST_REPLY = 32
SETTINGS = TrainingSettings(depths=2, epochs=8, batch=120, rate=2e-3, vocabulary=512)
ENDS = frozenset({90})


@pytest.fixture(scope="module")
def path():
    return path_of("akunu-tiny")


@pytest.fixture(scope="module", autouse=True)
def few_sources():
    """Prompts of some files of the library only: to read them all takes seconds."""
    found = list(islice(prompts.source_files(Path(sysconfig.get_paths()["stdlib"])), 60))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prompts, "source_files", lambda _root: found)
        yield


@pytest.fixture(scope="module")
def loaded(path):
    return load_model(path, LoadOptions(weights="dense", compute_type="float32"))


@pytest.fixture(scope="module")
def folder(loaded, tmp_path_factory):
    """A held-out file and a training file of 10 short replies each."""
    folder = tmp_path_factory.mktemp("replies")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "_BATCH": 10, "_MOST_PROMPT": 120, "_MOST_REPLY": MOST_REPLY, "_FEWEST_ROWS": 1,
            "_HELD_OUT": 0,
        }.items():  # fmt: skip
            patch.setattr(replies, name, value)
        now = time.monotonic()
        assert replies.collect(loaded.model, loaded.tokenizer, folder, 1, now - 1) == 0
        assert not list(folder.iterdir())
        count = replies.collect(loaded.model, loaded.tokenizer, folder, 1, now + 1000)
        assert count > 100
        # All is there already.
        assert replies.collect(loaded.model, loaded.tokenizer, folder, 1, now - 1) == count
    assert sorted(path.name for path in folder.iterdir()) == [
        "held-out-00000.npz", "train-00001.npz",
    ]  # fmt: skip
    return folder


@pytest.mark.slow
def test_replies_are_the_models_own(loaded, folder):
    """With the states that the model has at each token; greedy ones token by token."""
    texts = [text for out in (True, False) for text in replies.read_replies(folder, held_out=out)]
    assert len(texts) == 20
    assert {text.temperature for text in texts} == set(replies.TEMPERATURES)
    _, decoder = decoder_of(loaded.model)
    for text in texts:
        states = decoder(mx.array([text.ids.tolist()]))
        np.testing.assert_allclose(text.states, np.array(states[0]), atol=0.05, rtol=0.01)
        assert text.prompt < len(text.ids) <= text.prompt + MOST_REPLY
        ends = [int(token) in loaded.tokenizer.end_ids for token in text.ids[text.prompt :]]
        assert not any(ends[:-1])
        if text.temperature == 0:
            logits = loaded.model(mx.array([text.ids[:-1].tolist()]))[0, text.prompt - 1 :]
            assert mx.argmax(logits, axis=-1).tolist() == text.ids[text.prompt :].tolist()


def test_no_source_of_prompts_is_on_both_sides():
    sides = [
        {prompt.text for prompt in islice(prompts.prompts(held_out=held_out), 300)}
        for held_out in (False, True)
    ]
    assert all(len(side) > 250 for side in sides)
    assert not sides[0] & sides[1]
    again = islice(prompts.prompts(held_out=False), 300)
    assert {prompt.text for prompt in again} == sides[0]


@pytest.fixture(scope="module")
def small():
    """A random llama, and texts with the states that it has there."""
    model, rng, texts = tiny(num_hidden_layers=3), np.random.default_rng(1), []
    for size in (40, 33, 52, 47, 38, 60):
        ids = rng.integers(VOCABULARY, size=size)
        states = decoder_of(model)[1](mx.array(ids)[None])[0]
        texts.append(replies.Text(ids.astype(np.int32), np.array(states), 6, 0.0))
    return model, texts


@pytest.mark.parametrize("kind", ["mtp", "eagle3"])
def test_a_head_computes_at_once_what_drafting_computes_step_by_step(small, kind):
    model, (text, *_) = small
    rows = decoder_of(model)[1].embed_tokens.weight
    head = initial_head(model) if kind == "mtp" else initial_eagle(model, rows)
    batch = batch_of([text], 3)
    ids = batch.ids[:, : len(text.ids)]
    taken = batch.states if kind == "mtp" else states_between(model, head.takes, ids)
    found = unrolled_states(head, taken, batch.ids[:, 1:], 3)
    for place in (0, 4, 20):
        cache = head.make_cache()
        state = head(taken[:, : place + 1], batch.ids[:, 1:][:, : place + 1], cache)[:, -1:]
        for depth in range(3):
            if depth:
                token = batch.ids[:, 1:][:, place + depth : place + depth + 1]
                state = head(state, token, cache)
            np.testing.assert_allclose(
                np.array(found[depth][:, place]), np.array(state[:, 0]), rtol=1e-3, atol=1e-3
            )


@pytest.mark.parametrize("traditional", [False, True])
def test_an_eagle_head_begins_with_the_attention_of_the_last_layer(traditional):
    """In the rotation of published heads, whichever the model has."""
    model = tiny(rope_traditional=traditional, num_hidden_layers=3)
    head = initial_eagle(model, decoder_of(model)[1].embed_tokens.weight)
    x = mx.random.normal((1, 9, head.width), key=mx.random.key(1))
    expected = model.layers[-1].self_attn(x, "causal")
    found = head.midlayer.self_attn(mx.concatenate([x, x], axis=-1), "causal")
    np.testing.assert_allclose(np.array(found), np.array(expected), rtol=1e-3, atol=1e-3)


def test_look_ahead_rows_at_once_are_those_of_a_draft_at_each_place(small):
    """Of two texts, the shorter one padded, in parts of a few groups."""
    model, texts = small
    head = initial_look_ahead(model, 3)
    head.look_ahead = head.look_ahead + mx.random.normal(
        head.look_ahead.shape, key=mx.random.key(1)
    )
    batch = batch_of(texts[:2], 3, first=1, every=5)
    ids = batch.ids[:, : batch.states.shape[1]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("head_training.look_ahead._GROUPS", 3)
        found = look_ahead_states(head, ids, batch.starts, 2)
    assert [len(one) for one in found] == [len(batch.starts)] * 2
    for row, start in enumerate(batch.starts.tolist()):
        text, place = divmod(start, ids.shape[1])
        known = ids[text : text + 1, : place + 1]
        states = head(known, known, head.make_cache(), 2)[0, 1:]
        np.testing.assert_allclose(
            np.array([one[row] for one in found]), np.array(states), rtol=1e-3, atol=1e-3
        )


def test_the_tokens_to_guess_are_the_ends_and_then_the_most_frequent_in_replies():
    ids = np.array([7, 7, 7, 30, 5, 30, 5, 5, 9], dtype=np.int32)
    texts = [replies.Text(ids, np.zeros((9, 1)), 3, 0.0)]
    for size, expected in {
        1: [40], 2: [5, 40], 3: [5, 30, 40], 4: [5, 9, 30, 40], 6: [0, 1, 5, 9, 30, 40],
    }.items():  # fmt: skip
        assert draft_vocabulary(texts, {40}, size, 50) == expected
    assert draft_vocabulary(texts, {40}, 99, 50) == list(range(50))


def test_training_lowers_the_loss_and_goes_on_where_it_stopped(small, tmp_path):
    model, texts = small
    whole = Trainer(model, ENDS, texts, SETTINGS, tmp_path / "whole.safetensors")
    losses = whole.train(time.monotonic() + 10**6)
    assert len(losses) == whole.num_steps > 10
    assert np.mean(losses[-4:]) < 0.8 * np.mean(losses[:4])

    parts = []
    checkpoint = tmp_path / "parts.safetensors"
    while len(parts) < whole.num_steps:
        part = Trainer(model, ENDS, texts, SETTINGS, checkpoint)
        assert part.step == len(parts)
        ticks = iter([*[0.0] * 17, *[9.0] * 100])
        parts += _train_some(part, ticks)
    assert parts == losses
    for (name, array), (_, other) in zip(
        tree_flatten(whole.head.parameters()), tree_flatten(part.head.parameters()), strict=True
    ):
        assert mx.array_equal(array, other), name
    with pytest.raises(SystemExit, match="was made with other settings or replies; give"):
        Trainer(model, ENDS, texts[1:], SETTINGS, checkpoint)


def _train_some(trainer, ticks):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("head_training.training.time.monotonic", lambda: next(ticks))
        return trainer.train(5.0)


def test_look_ahead_embeddings_learn_while_the_model_stays(small, tmp_path, monkeypatch):
    """They are written alone, and read as what was trained."""
    model, texts = small
    before = [mx.array(array) for _, array in tree_flatten(model.parameters())]
    settings = TrainingSettings(kind="pass", depths=2, epochs=25, rate=0.05)
    # Each step takes the same places.
    monkeypatch.setattr("head_training.training._LOOK_AHEAD_EVERY", 1)
    trainer = Trainer(model, ENDS, texts[:1], settings, tmp_path / "checkpoint.safetensors")
    losses = trainer.train(time.monotonic() + 10**6)
    assert losses[-1] < 0.9 * losses[0]
    for (name, array), held in zip(tree_flatten(model.parameters()), before, strict=True):
        assert mx.array_equal(array, held), name
    side_car = tmp_path / "pass.safetensors"
    write_side_car(trainer.head, trainer.ids, side_car, {})
    head = load_head(loaded_from(tmp_path / "model", model), side_car)
    np.testing.assert_allclose(head.look_ahead, trainer.head.look_ahead, atol=0.01)
    (acceptance,) = acceptances(model, head, texts, 3)
    assert len(acceptance.rates) == 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mtp", "medusa", "eagle3"])
def test_a_trained_head_drafts_and_changes_no_reply(loaded, path, folder, tmp_path, kind):
    texts = replies.read_replies(folder, held_out=False)
    ends, settings = loaded.tokenizer.end_ids, dataclasses.replace(SETTINGS, kind=kind)
    trainer = Trainer(loaded.model, ends, texts, settings, tmp_path / "checkpoint.safetensors")
    side_car = tmp_path / "head.safetensors"
    measured = []
    for seconds in (0, 10**6):
        trainer.train(time.monotonic() + seconds)
        write_side_car(trainer.head, trainer.ids, side_car, {})
        measured.append(acceptances(loaded.model, load_head(loaded, side_car), texts, 2))
    for untrained, trained in zip(*measured, strict=True):
        assert trained.rates[0][0] > untrained.rates[0][0] + 0.1
        (first, low, high), (second, _, _) = trained.rates
        assert low <= first <= high
        assert second <= first
    if kind == "mtp":
        further = Trainer(loaded.model, ends, texts, settings, tmp_path / "further.safetensors")
        further.begin_with(load_head(loaded, side_car))
        for (name, array), (_, trained) in zip(
            tree_flatten(further.head.parameters()),
            tree_flatten(trainer.head.parameters()),
            strict=True,
        ):
            assert mx.allclose(array, trained, rtol=1e-3, atol=1e-6), name
    config = GenerationConfig(max_tokens=40)
    prompt = texts[0].ids[: texts[0].prompt].tolist()
    with Engine.load(path, weights="dense") as plain:
        expected = plain.generate(prompt, config)
    with Engine.load(path, weights="dense", heads=side_car) as engine:
        reply = engine.generate(prompt, config, drafter="mtp", draft_budget="always")
        head = engine._drafters.models.head._open_head
    assert reply.token_ids == expected.token_ids
    assert reply.stats.accepted > 0
    assert head.takes == trainer.head.takes
    assert head.lm_head.ids.tolist() == trainer.ids
    assert len(trainer.ids) == SETTINGS.vocabulary < head.lm_head.vocabulary
