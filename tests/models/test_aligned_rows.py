"""Rows at fixed places: no bit of a row depends on what was drafted, whatever kernels do with shapes."""

import mlx.core as mx
import numpy as np
import pytest
from family_models import build_family
from mlx import nn
from tiny_models import VOCABULARY, adversary, begin, generate, prompt_of, tiny

from akunu_py import ConfigError, Engine
from akunu_py.drafting import NgramDrafter, PlainDrafter
from akunu_py.models.aligned_rows import BLOCK_ROWS, AlignedRows
from akunu_py.models.session import Session
from akunu_py.values.types import Draft, GenerationConfig

PROMPT = "def hello(world):\n    return world"
KINDS = ["llama", "llama, sliding", "llama4", "mamba2", "falcon_h1", "deepseek_v41"]


class ShapedKernels(nn.Module):
    """A model whose rows change with all that may choose a kernel or the order of its sums.

    That is the number of rows in a pass, a row's place among them, and how many keys there are. The
    change is large enough to choose other tokens. Passes of up to `alike` rows are left alone.
    """

    def __init__(self, inner, alike=0):
        super().__init__()
        self.inner = inner
        self.alike = alike
        self.sizes = []
        self._spread = mx.random.normal((VOCABULARY,), key=mx.random.key(4))

    @property
    def layers(self):
        return self.inner.layers

    def make_cache(self):
        from mlx_lm.models.cache import make_prompt_cache

        return make_prompt_cache(self.inner)

    def __call__(self, inputs, cache):
        rows = inputs.shape[1]
        self.sizes.append(rows)
        start = next((part.offset for part in cache if hasattr(part, "offset")), 0)
        logits = self.inner(inputs, cache=cache)
        if rows <= self.alike:
            return logits
        places = mx.arange(rows) * 31 + rows * 17 + (start + rows) * 7
        return logits + mx.sin(places)[None, :, None] * self._spread


@pytest.mark.fast_every(3)
@pytest.mark.parametrize(
    ("kind", "temperature"),
    [
        *zip(KINDS[:4], [0.0, 0.9, 0.0, 0.9], strict=True),
        *(pytest.param(kind, 0.9, marks=pytest.mark.slow) for kind in KINDS[4:]),
    ],
)
def test_no_draft_changes_a_token_where_kernels_go_by_shapes(kind, temperature):
    session = Session(ShapedKernels(build_family(kind)), context=400, reproducible=True)
    prompt, config = prompt_of(21), GenerationConfig(temperature=temperature)
    plain = generate(session, prompt, config, PlainDrafter(), max_tokens=36)
    for number, name in enumerate(("half", "wrong")):
        drafter = adversary(name, prompt + plain, number)
        assert generate(session, prompt, config, drafter, max_tokens=36) == plain
        session.reset()


def test_the_control_without_blocks_the_tokens_do_change():
    session = Session(ShapedKernels(tiny()), context=400)
    prompt, config = prompt_of(21), GenerationConfig()
    plain = generate(session, prompt, config, PlainDrafter())
    assert generate(session, prompt, config, adversary("half", prompt + plain, 1)) != plain


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llama", "llama, sliding", "mamba2"])
def test_nor_in_a_later_turn(kind):
    """Which rows of a reply were computed by its end depends on what was drafted last."""
    model = ShapedKernels(build_family(kind))
    config = GenerationConfig()
    texts = []
    for drafted in (False, True):
        session = Session(model, context=600, reproducible=True)
        text = prompt_of(13)
        for turn in range(6):
            truth = text + (texts[0] if drafted else [])[len(text) :]
            drafter = adversary("half", truth, turn) if drafted else PlainDrafter()
            text += generate(session, text, config, drafter, max_tokens=9 + turn)
            text += prompt_of(3 + turn, seed=turn)
        texts.append(text)
    assert texts[0] == texts[1]


def test_every_pass_of_decoding_has_one_number_of_rows():
    model = ShapedKernels(tiny())
    session = Session(model, context=200, reproducible=True)
    prompt = [1, 5, 9, 5, 9, 5, 9, 5]
    model.sizes.clear()
    for drafter in (PlainDrafter(), NgramDrafter(num_draft_tokens=7)):
        generate(session, prompt, GenerationConfig(), drafter, num_draft_tokens=7, max_tokens=30)
    assert set(model.sizes) == {BLOCK_ROWS}


def test_a_draft_ends_with_its_block():
    session = Session(tiny(), context=200, reproducible=True)
    for size in range(2, 20):
        prompt = prompt_of(60)[:size]
        begin(session, prompt, max_tokens=30)
        # The row of the prompt's last token is fed with the draft.
        assert session.max_draft_tokens() == BLOCK_ROWS - 1 - (size - 1) % BLOCK_ROWS
        session.choose(prompt[-1], Draft.empty())
        session.commit(())
        # A step is in flight now: its row, the next one, has been fed.
        assert session.max_draft_tokens() == BLOCK_ROWS - (size + 1) % BLOCK_ROWS


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_those_of_the_model(kind):
    """Blocks, their padding and going back change no number but by rounding."""
    model = build_family(kind)
    text = prompt_of(61, seed=5)
    rows = AlignedRows(model)
    rows.prefill(text[:19])
    found = []
    at = 19
    for wanted in (1, 4, 2, 5, 8, 3, 1, 7, 8):
        size = min(wanted, rows.room)
        wrong = prompt_of(rows.room - size, seed=at)
        logits = rows.feed(mx.array(text[at : at + size] + wrong))
        found.append(np.array(logits[0, :size]))
        rows.keep(text[at : at + size] + wrong, range(size))
        at += size
    plain = Session(model, context=400).logits(text[:at])[19:]
    np.testing.assert_allclose(np.concatenate(found), plain, atol=2e-4 * np.abs(plain).max())


def test_prefixes_are_kept_as_far_as_the_last_prompt_goes():
    model = ShapedKernels(tiny())
    rows = AlignedRows(model)
    text = prompt_of(50, seed=2)
    held = []
    held += rows.prefilling(text[:21])
    rows.feed(mx.array(text[21:23]))
    rows.tokens += text[21:23]
    held += rows.prefilling(text[:40])
    assert (held[0], held[2]) == (0, 16)
    held += rows.prefilling(text[:37])
    assert held[4] == 32
    held += rows.prefilling([*text[:5], 96, 1])
    assert rows.tokens == [*text[:5], 96, 1]
    # What is held gives the rows of a fresh start.
    logits = rows.feed(mx.array([3]))
    fresh = AlignedRows(model)
    fresh.prefill([*text[:5], 96, 1])
    assert mx.array_equal(logits, fresh.feed(mx.array([3])))


def test_after_an_interrupted_pass_everything_is_fed_again():
    rows = AlignedRows(tiny())
    rows.prefill(prompt_of(20))
    rows.settled = False
    rows.prefill(prompt_of(30))
    fresh = AlignedRows(tiny())
    fresh.prefill(prompt_of(30))
    assert mx.array_equal(rows.feed(mx.array([3])), fresh.feed(mx.array([3])))


@pytest.fixture(scope="module")
def reproducible(tiny_gguf):
    with Engine.load(tiny_gguf, reproducible=True) as engine:
        yield engine


@pytest.mark.slow
@pytest.mark.parametrize(("temperature", "penalty"), [(0.0, 1.0), (0.9, 1.3)])
def test_the_text_is_that_of_other_passes(tiny_gguf, reproducible, temperature, penalty):
    options = {
        "max_tokens": 32, "temperature": temperature, "seed": 4, "repetition_penalty": penalty,
    }  # fmt: skip
    with Engine.load(tiny_gguf) as engine:
        expected = engine.generate(PROMPT, drafter="none", **options).token_ids
    for drafter, budget in (("none", "auto"), ("ngram", "always"), ("ngram", "auto")):
        found = reproducible.generate(PROMPT, drafter=drafter, draft_budget=budget, **options)
        assert found.token_ids == expected
        assert found.row_bits == "equal"


def test_no_more_is_drafted_than_a_pass_has_rows(reproducible):
    result = reproducible.generate(
        PROMPT, num_draft_tokens=64, draft_budget="always", max_tokens=60
    )
    assert len(result.stats.drafted_per_position) <= BLOCK_ROWS - 1


def test_the_rows_of_the_padding_have_positions(tiny_gguf):
    with Engine.load(tiny_gguf, reproducible=True) as engine:
        assert engine.context % BLOCK_ROWS == 0
        assert len(engine.generate([5] * (engine.context - 3), max_tokens=9).token_ids) == 3
    with pytest.raises(ConfigError, match="this model allows 2 to"):
        Engine.load(tiny_gguf, reproducible=True, context=engine.context + 1)


def test_models_that_cannot_go_back_are_refused():
    class Unknown:
        pass

    class Odd(nn.Module):
        layers = ()

        def make_cache(self):
            return [Unknown()]

    with pytest.raises(ConfigError, match="leave reproducible out"):
        AlignedRows(Odd())
