"""DFlash heads: what they compute, what they draft, how they are read, and what is refused.

Mutants, made by hand, that these tests kill (each was tried): the states of a row too few or too
many; the block a place early; its rows kept in the cache; attention that cannot look ahead in the
block; the row of the last token among the guesses; layers whose inputs are those that the config
names; a further pass charged for each token; a block that ignores what was copied in front of it.
"""

import mlx.core as mx
import numpy as np
import pytest
from checked_drafts import CheckedDrafter
from dflash_heads import BLOCK, LAYERS, MASK, dflash_config, random_dflash
from eagle_heads import LLAMA3, llama3, write_eagle
from family_models import build_family
from markov_heads import reply
from prediction_heads import loaded_from, parameters_of, rms, rotated, silu, softmax

from akunu_py import GenerationConfig
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


def in_numpy(weights, embedding, states, known, *, scaled=False):
    """The logits of a block behind all states: float64, all rows at once, without a cache."""
    weights = {name: np.array(array, np.float64) for name, array in weights.items()}
    frequencies = 5000.0 ** (-np.arange(8) / 8)
    if scaled:
        frequencies = llama3(frequencies)
    features = rms(states @ weights["fc.weight"].T, weights["hidden_norm.weight"], 1e-5)
    x = embedding[[*known, *[MASK] * (BLOCK - len(known))]]
    rows = len(features)
    for number in range(2):
        layer = {
            name.removeprefix(f"layers.{number}."): array
            for name, array in weights.items()
            if name.startswith(f"layers.{number}.")
        }

        def projected(name, x, layer=layer):
            found = x @ layer[f"self_attn.{name}.weight"].T
            return found + layer.get(f"self_attn.{name}.bias", 0.0)

        # Features and block side by side: each row of the block sees all of them.
        inner = np.concatenate([features, rms(x, layer["input_layernorm.weight"], 1e-5)])
        q, k, v = (projected(f"{name}_proj", inner).reshape(rows + BLOCK, -1, 16) for name in "qkv")
        angles = np.arange(rows + BLOCK)[:, None, None] * frequencies
        q = rotated(rms(q, layer["self_attn.q_norm.weight"], 1e-5), angles)[rows:]
        k = rotated(rms(k, layer["self_attn.k_norm.weight"], 1e-5), angles)
        # Two heads of queries share one of keys.
        k, v = k.repeat(2, axis=1), v.repeat(2, axis=1)
        scores = np.einsum("ihd,jhd->hij", q, k) / 4.0
        attended = np.einsum("hij,jhd->ihd", softmax(scores), v).reshape(BLOCK, -1)
        x = x + projected("o_proj", attended)
        inner = rms(x, layer["post_attention_layernorm.weight"], 1e-5)
        gate, up = (inner @ layer[f"mlp.{name}_proj.weight"].T for name in ("gate", "up"))
        x = x + (silu(gate) * up) @ layer["mlp.down_proj.weight"].T
    return rms(x, weights["norm.weight"], 1e-5)[len(known) :]


def outputs(head, known=(4,)):
    """Logits of a block behind states that are taken in in two parts."""
    states, cache = states_of(head), head.make_cache()
    head.read(states[:, :4], cache)
    tokens = mx.array([[*[0] * (ROWS - 5), *known]])
    found = head.logits(head(states[:, 4:], tokens, cache))
    assert [one.offset for one in cache] == [ROWS] * 2
    return np.array(found[0])


@pytest.mark.parametrize("known", [(4,), (4, 9, 2)])
@pytest.mark.parametrize(
    ("options", "nested"), [({}, False), ({**SCALED, "bias": True}, False), ({}, True)]
)
def test_the_numbers_of_a_head_from_a_folder(target, tmp_path, options, nested, known):
    head = random_dflash(target, **options)
    config = dflash_config(head)
    if nested:
        # As newer checkpoints have it.
        config["dflash_config"]["block_size"] = config.pop("block_size")
        config["rope_parameters"] = {"rope_type": "default", "rope_theta": config.pop("rope_theta")}
    folder = write_eagle(tmp_path, dict(parameters_of(head)), config)
    embedding = np.array(target.model.embed_tokens.weight, np.float64)
    normed = in_numpy(
        parameters_of(head), embedding, np.array(states_of(head)[0], np.float64), known,
        scaled="rope" in options,
    )  # fmt: skip
    logits = normed @ np.array(target.lm_head.weight, np.float64).T
    assert logits.shape == (BLOCK - len(known), 97)
    loaded = loaded_from(tmp_path / "model", target)
    for place in (folder, folder / "model.safetensors"):
        found = load_head(loaded, place)
        np.testing.assert_allclose(outputs(found, known), logits, atol=1e-4)
        assert found.takes == LAYERS


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
        tokens = mx.array([[*self.text[1:], *self._before]])
        states = self._draft_head(tap.states, tokens, self._draft_head.make_cache())
        return mx.argmax(self._draft_head.logits(states)[0], axis=-1).tolist()

    def draft(self, limit):
        return self.extend(Draft.chain(self._before, "text", 3), limit)

    def checked(self, draft, limit):
        passes = self._model.num_passes
        # All of its tokens, of one pass.
        assert list(draft.tokens) == self.expected()[:limit], self.text
        assert len(draft) == min(limit, BLOCK - 1 - len(self._before))
        assert self.draft(limit).tokens == draft.tokens
        assert self._model.num_passes == passes + 1
        return self.spoiled(draft.tokens, 97)


@pytest.mark.parametrize("before", [(), (7, 11)])
@pytest.mark.parametrize(
    "name",
    ["llama", "qwen3_next", *(pytest.param(n, marks=pytest.mark.slow) for n in ("gpt_oss", "qwen3_moe"))],
)  # fmt: skip
def test_every_block_is_guessed_from_the_states_of_the_whole_text(name, before):
    """After rejections, behind steps in flight, over several replies and in passes of a prompt."""
    target = build_family(name)
    head = random_dflash(target)
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


@pytest.mark.parametrize("config", [GenerationConfig(), GenerationConfig(temperature=0.8)])
def test_rejection_sampling_has_the_rows_of_the_block(target, head, config):
    drafter, states = begun(target, head, config, rejection=True)
    draft = drafter.propose(4)
    found = drafter.draft_probabilities()
    assert found.shape == (4, 97)
    logits = head.logits(head(states, mx.array([[3, 8]]), head.make_cache()))[0, :4]
    if config.temperature:
        expected = mx.softmax(logits / config.temperature, axis=-1)
        np.testing.assert_allclose(found, np.array(expected), atol=1e-5)
    else:
        assert found.argmax(-1).tolist() == mx.argmax(logits, axis=-1).tolist()
        assert list(draft.tokens) == found.argmax(-1).tolist()
