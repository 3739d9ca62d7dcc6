"""DFlash heads: what they compute, what they draft, how they are read, and what is refused.

Mutants, made by hand, that these tests kill (each was tried): the states of a row too few or too
many; the block a place early; its rows kept in the cache; attention that cannot look ahead in the
block; the row of the last token among the guesses; layers whose inputs are those that the config
names; a further pass charged for each token; a block that ignores what was copied in front of it.
Heads of Medusa and of blockwise parallel decoding are here, too. Their mutants: a place's guess by
the layer of the next one; a state before the last; a residual left out; an output head of another
place.
"""

import dataclasses

import mlx.core as mx
import numpy as np
import pytest
from block_numbers import Numbers
from checked_drafts import CheckedDrafter
from dflash_heads import (
    BLOCK,
    LAYERS,
    MASK,
    SIZES,
    dflash2_config,
    dflash_config,
    dspark_config,
    parallel_tensors,
    random_blockwise,
    random_dflash,
    random_dflash2,
    random_dspark,
    random_medusa,
    tensors_of,
    write_parallel,
)
from eagle_heads import LLAMA3, write_eagle
from family_models import build_family
from markov_heads import reply
from prediction_heads import loaded_from, tiny_target, write

from akunu_py import GenerationConfig, ModelFormatError, UnsupportedArchitectureError
from akunu_py.drafting.prediction_head import PredictionHeadDrafter
from akunu_py.models.heads import load_head, make_head_model
from akunu_py.models.hidden_states import StateTap
from akunu_py.models.session import Session
from akunu_py.values.types import Draft

ROWS = 7
SCALED = {"rope": LLAMA3}


@pytest.fixture(scope="module")
def target():
    return build_family("llama")


@pytest.fixture(scope="module")
def head(target):
    return random_dflash(target)


def states_of(head):
    return mx.random.normal((1, ROWS, head.width), key=mx.random.key(5))


def paths(head, known=(4,)):
    """Logits and chances of a walk over a block behind states that are taken in in two parts.

    It follows fixed tokens, whatever is likely.
    """
    states, cache = states_of(head), head.make_cache()
    head.read(states[:, :4], cache)
    tokens = mx.array([[*[0] * (ROWS - 5), *known]])
    rows = head(states[:, 4:], tokens, cache)
    assert [one.offset for one in cache] == [ROWS] * 2
    step, logits, chances = head.walk(rows), [], []
    for token in before(rows.shape[1], known):
        found, chance = step(mx.array([token]))
        logits.append(np.array(found[0, 0]))
        chances.append(None if chance is None else chance.item())
    return np.stack(logits), chances


def before(count, known):
    return [known[-1], *(7 * place % 97 for place in range(1, count))]


WINDOWED = {"windows": (5, 5), "causal": (False, False)}
HEADS = {
    "DFlash": (random_dflash, {}, dflash_config),
    "DFlash, scaled, with biases": (random_dflash, {**SCALED, "bias": True}, dflash_config),
    # Rows of the text that are farther than the window from some rows of the block alone.
    "DFlash, with windows": (random_dflash, WINDOWED, dflash_config),
    "DFlash, of DeepSpec": (random_dflash, {"last_guesses": True}, dflash_config),
    "DFlash 2": (random_dflash2, {}, dflash2_config),
    "DSpark, vanilla": (random_dspark, {"markov": "vanilla"}, dspark_config),
    "DSpark, gated": (random_dspark, {"markov": "gated", "confidence": False}, dspark_config),
    "DSpark, rnn": (random_dspark, {}, dspark_config),
    "DSpark, of some tokens": (random_dspark, {"vocabulary": 40}, dspark_config),
}


def stated(name, config, head):
    """A config, with what it leaves open."""
    if name == "DFlash, with windows":
        return {**config(head), "is_causal": False}
    if name == "DFlash, of DeepSpec":
        found = config(head)
        return {**found, **found.pop("dflash_config"), "dflash_config": None}
    if name == "DFlash 2":
        return {**config(head), "sliding_window": 4}
    return config(head)


@pytest.mark.parametrize("known", [(4,), (4, 9, 2)])
@pytest.mark.parametrize("name", HEADS)
def test_the_numbers_of_a_head_from_a_folder(target, tmp_path, name, known):
    make, options, config = HEADS[name]
    head = make(target, **options)
    folder = write_eagle(tmp_path, tensors_of(head), stated(name, config, head))
    numbers = Numbers(
        tensors_of(head), head.form, np.array(target.model.embed_tokens.weight, np.float64),
        np.array(target.lm_head.weight, np.float64), scaled="rope" in options,
        group=SIZES["group"], candidates=SIZES["candidates"],
    )  # fmt: skip
    rows = numbers.rows(np.array(states_of(head)[0], np.float64), known)
    assert len(rows) == BLOCK - len(known) + head.form.last_guesses
    expected = numbers.path(rows, before(len(rows), known))
    loaded = loaded_from(tmp_path / "model", target)
    for place in (folder, folder / "model.safetensors"):
        found = load_head(loaded, place)
        assert type(found) is type(head)
        assert (found.takes, found.form) == (LAYERS, head.form)
        logits, chances = paths(found, known)
        np.testing.assert_allclose(logits, np.stack([row for row, _ in expected]), atol=1e-4)
        assert chances == pytest.approx([chance for _, chance in expected], abs=1e-5)
        assert (chances[0] is None) == ("confidence_head" not in head)


CONFIGS = {
    "the authors', newer": (
        lambda config: (
            config["dflash_config"].update(block_size=config.pop("block_size")),
            config.update(rope_parameters={"rope_theta": config.pop("rope_theta")}),
        ),
        {},
    ),
    "windows": (lambda config: config.update(sliding_window=9, layer_types=["sliding_attention", "full_attention"]),
                {"windows": (9, None), "causal": (True, False)}),
    "windows that look ahead": (
        lambda config: config.update(sliding_window=9, layer_types=["sliding_attention"] * 2, is_causal=False),
        {"windows": (9, 9), "causal": (False, False)},
    ),
    "of MiMo": (
        lambda config: config["dflash_config"].update(use_swa=True, swa_window_size=9),
        {"windows": (9, 9), "causal": (False, False)},
    ),
    "no windows, looking back": (
        lambda config: config["dflash_config"].update(causal=True),
        {"windows": (None, None), "causal": (True, True)},
    ),
    "NVIDIA's": (lambda config: config.update(dflash_query_causal=True), {"causal": (True, True)}),
    "an unused window": (lambda config: config.update(use_sliding_window=True, sliding_window=9), {}),
    "anchored": (lambda config: config.update(sample_from_anchor=True), {"last_guesses": True}),
    "SpecForge's": (
        lambda config: config["dflash_config"].update(projector_type="dspark"), {"last_guesses": True},
    ),
    "scaled": (
        lambda config: config["dflash_config"].update(
            input_embedding_scale=8.0, output_multiplier=0.5, final_logit_softcapping=20
        ),
        {"embedding_scale": 8.0, "multiplier": 0.5, "cap": 20},
    ),
    "speculators'": (
        lambda config: (
            config.update(
                transformer_layer_config=dict(config), mask_token_id=MASK, attention_bias=None,
                aux_hidden_state_layer_ids=list(LAYERS), hidden_size=None, dflash_config=None,
            ),
        ),
        {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_what_configs_say_of_a_block(target, head, tmp_path, name):
    change, expected = CONFIGS[name]
    config = dflash_config(head)
    change(config)
    write_eagle(tmp_path, tensors_of(head), config)
    found = load_head(loaded_from(tmp_path / "model", target), tmp_path)
    assert found.takes == LAYERS
    assert found.form == dataclasses.replace(head.form, **expected)


def head_model(head, context=600):
    return make_head_model(head, context=context, vocabulary_size=97)


class Checked(CheckedDrafter):
    """Compares each draft with a block behind states that are computed anew for the whole text.

    Then it spoils drafts, so that some or all of their tokens are rejected.
    """

    def __init__(self, target, head, model, before):
        super().__init__(model)
        self._target, self._draft_head, self._before = target, head, before

    def expected(self):
        tap = StateTap(self._target, self._draft_head.takes)
        with tap.listening():
            self._target(mx.array([self.text[:-1]]))
        known = [*self.text[1:], *self._before]
        states = self._draft_head(tap.states, mx.array([known]), self._draft_head.make_cache())
        step, found = self._draft_head.walk(states), known[-1:]
        for _ in range(states.shape[1]):
            found.append(mx.argmax(step(mx.array(found[-1:]))[0]).item())
        return found[1:]

    def draft(self, limit):
        return self.extend(Draft.chain(self._before, "text", 3), limit)

    def checked(self, draft, limit):
        passes = self._model.num_passes
        # All of its tokens, of one pass.
        assert list(draft.tokens) == self.expected()[:limit], self.text
        assert len(draft) == min(limit, self._draft_head.num_guessed - len(self._before))
        assert self.draft(limit).tokens == draft.tokens
        assert self._model.num_passes == passes + 1
        return self.spoiled(draft.tokens, 97)


@pytest.mark.parametrize("before", [(), (7, 11)])
@pytest.mark.parametrize("make", [random_dflash, random_dflash2, random_dspark, random_medusa])
@pytest.mark.parametrize(
    "name",
    ["llama", "qwen3_next", *(pytest.param(n, marks=pytest.mark.slow) for n in ("gpt_oss", "qwen3_moe"))],
)  # fmt: skip
def test_every_block_is_guessed_from_the_states_of_the_whole_text(name, make, before):
    """After rejections, behind steps in flight, over several replies and in passes of a prompt."""
    target = build_family(name)
    head = make(target)
    session, model = Session(target, context=600), head_model(head)
    drafter = Checked(target, head, model, before)
    prompt = [5, 3, 8, 13, 2, 77, 21]
    text, stats = reply(session, drafter, prompt, num_draft_tokens=8)
    assert drafter.drafts > 8
    assert sum(one.num_accepted_tokens for one in stats) < sum(
        one.num_draft_tokens for one in stats
    )
    # The same beginning, so that states stay.
    drafter = Checked(target, head, model, before)
    reply(session, drafter, [*prompt, *text[:9], 4, 4], num_draft_tokens=8)
    assert drafter.drafts > 8


def begun(target, head, config, **options):
    """A drafter that has read the prompt 5, 3, 8, and the states that it was given."""
    drafter = PredictionHeadDrafter(head_model(head), **options)
    drafter.begin_reply(config, 3)
    drafter.begin_states([5, 3, 8], 0)
    tap = StateTap(target, head.takes)
    with tap.listening():
        target(mx.array([[5, 3]]))
    drafter.observe_states(tap.states, 0, 2)
    drafter.observe([5, 3, 8])
    return drafter, tap.states


@pytest.mark.parametrize("before", [(), (7, 11), (7,) * (BLOCK - 1), (7,) * (BLOCK + 3)])
def test_a_draft_ends_where_the_block_ends(target, head, before):
    """However long a draft may be; what a constraint says must come takes places of the block."""
    drafter, _ = begun(target, head, GenerationConfig(), num_draft_tokens=64)
    assert len(drafter.extend(Draft.chain(before), 64)) == max(0, BLOCK - 1 - len(before))


def test_a_draft_ends_where_the_context_ends(target, head):
    drafter = PredictionHeadDrafter(head_model(head, 20))
    session = Session(target, context=20)
    text, _ = reply(session, drafter, list(range(12)), max_tokens=8, num_draft_tokens=8)
    assert len(text) == 8


@pytest.mark.parametrize("make", [random_dflash, random_dflash2, random_dspark, random_medusa])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_rejection_sampling_has_the_rows_of_the_block(target, make, temperature):
    """Each is q of a token given those drawn before it."""
    head, config = (make(target), GenerationConfig(temperature=temperature))
    drafter, states = begun(target, head, config, rejection=True)
    draft = drafter.propose(4)
    found = drafter.draft_probabilities()
    assert found.shape == (4, 97)
    step = head.walk(head(states, mx.array([[3, 8]]), head.make_cache()))
    for row, token in zip(found, [8, *draft.tokens], strict=False):
        logits = step(mx.array([token]))[0][0, 0]
        if temperature:
            expected = mx.softmax(logits / temperature, axis=-1)
            np.testing.assert_allclose(row, np.array(expected), atol=1e-5)
        else:
            assert row.argmax() == mx.argmax(logits).item()
    if not temperature:
        assert list(draft.tokens) == found.argmax(-1).tolist()


def test_confidence_is_what_the_head_says_of_a_token(target):
    """Where it says nothing it is the token's probability."""
    head = random_dspark(target, markov="gated")
    drafter, states = begun(target, head, GenerationConfig())
    draft = drafter.propose(BLOCK)
    step = head.walk(head(states, mx.array([[3, 8]]), head.make_cache()))
    chances = [step(mx.array([token]))[1].item() for token in [8, *draft.tokens[:-1]]]
    assert len(chances) == BLOCK
    assert draft.confidence == pytest.approx(chances, abs=1e-5)
    head = random_dspark(target, confidence=False)
    drafter, states = begun(target, head, GenerationConfig())
    draft = drafter.propose(1)
    step = head.walk(head(states, mx.array([[3, 8]]), head.make_cache()))
    likeliest = mx.softmax(step(mx.array([8]))[0][0, 0]).max().item()
    assert draft.confidence == pytest.approx([likeliest], abs=1e-5)


MAKES = {
    "Medusa": random_medusa,
    "Medusa, of some tokens": lambda target: random_medusa(target, vocabulary=40, num_layers=1),
    "blockwise": random_blockwise,
    "blockwise, of some tokens": lambda target: random_blockwise(target, vocabulary=40),
}


def load(target, folder):
    return load_head(loaded_from(folder / "model", target), folder)


def numbers(arrays, state, output):
    """The logits of every place, in float64, by the formulas of the papers."""
    arrays = {name: np.array(array, np.float64) for name, array in arrays.items()}
    ids = np.arange(len(output))
    if "d2t" in arrays:
        ids = np.arange(40) + arrays["d2t"].astype(int)
    for place in range(BLOCK - 1):
        x, layer = state, 0
        if f"blockwise.{place}.up.weight" in arrays:
            up, down, b, c = (
                arrays[f"blockwise.{place}.{part}.{kind}"]
                for kind in ("weight", "bias") for part in ("up", "down")
            )  # fmt: skip
            x = x + down @ np.maximum(up @ x + b, 0) + c
            rows = output[ids]
        else:
            while (name := f"{place}.{layer}.linear") + ".weight" in arrays:
                z = arrays[f"{name}.weight"] @ x + arrays[f"{name}.bias"]
                x, layer = x + z / (1 + np.exp(-z)), layer + 1
            rows = arrays[f"{place}.{layer}.weight"]
        logits = np.full(len(output), -np.inf)
        logits[ids] = rows @ x
        yield logits


@pytest.mark.parametrize("known", [1, 3])
@pytest.mark.parametrize("name", MAKES)
def test_the_numbers_of_parallel_heads_from_a_folder(target, tmp_path, name, known):
    made = MAKES[name](target)
    head = load(target, write_parallel(tmp_path, made))
    states = mx.random.normal((1, 4, head.width), key=mx.random.key(5))
    rows = head(states, mx.zeros((1, 3 + known), dtype=mx.int32), head.make_cache())
    assert rows.shape == (1, BLOCK - known, head.width)
    step = head.walk(rows)
    found = [np.array(step(mx.array([9]))[0][0, 0]) for _ in range(rows.shape[1])]
    output = np.array(target.lm_head.weight, np.float64)
    expected = list(numbers(parallel_tensors(made), np.array(states[0, -1], np.float64), output))
    np.testing.assert_allclose(found, expected[known - 1 :], atol=1e-4)


DAMAGE = [
    ("0.0.linear.bias", None, "lacks the tensors of places.0.layers.0.bias; it is incomplete"),
    ("1.2.weight", None, "lacks the tensors of lm_head.places.1.weight"),
    ("4.1.linear.weight", mx.zeros((2, 3)), r"in the shape \(2, 3\) where this model asks for"),
    ("2.1.linear.x", mx.zeros(3), "do not have: places.2.layers.1.x"),
    ("9.0.linear.weight", mx.zeros((64, 64)), "lacks the tensors of lm_head.places.5.weight"),
    ("0.2.weight", mx.full((97, 64), mx.nan), "'0.2.weight' in .* has infinite numbers or NaN"),
]


@pytest.mark.parametrize(("name", "array", "message"), DAMAGE)
def test_damaged_tensors_are_refused(target, tmp_path, name, array, message):
    arrays = {**parallel_tensors(random_medusa(target)), name: array}
    write(
        tmp_path / "medusa_lm_head.safetensors", {n: a for n, a in arrays.items() if a is not None}
    )
    with pytest.raises(ModelFormatError, match=message):
        load(target, tmp_path)


def test_a_head_of_another_model(target, tmp_path):
    write_parallel(tmp_path, random_medusa(target))
    with pytest.raises(UnsupportedArchitectureError, match="is a Medusa head, and the model is a"):
        load(tiny_target("mimo"), tmp_path)
