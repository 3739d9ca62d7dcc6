"""Log-probabilities after several continuations: those of each text alone, whatever came before.

Mutants that these tests kill, by hand: a common beginning one token too long; the rows of another
path kept; nothing kept; caches not restored between chains, or after the last pass; a log-sum over
all columns of a draft model that shares fewer; ids beyond these fed as they are.
"""

import interrupts
import mlx.core as mx
import numpy as np
import pytest
from family_models import build_family, variant_of
from interrupts import GREEDY, interrupted
from mlx_lm.models.cache import KVCache
from models.fresh_draws import expected
from tiny_models import tiny

from akunu_lab.beam import rows as beam_rows
from akunu_lab.beam.rows import BeamRows
from akunu_lab.beam.search import beam_search
from akunu_py.api import LentModel
from akunu_py.models.cache import make_caches
from akunu_py.models.session import Session
from akunu_py.system.errors import ConfigError, ContractError

SIZE = 97
PROMPT = [5, 17, 3, 80, 41]


def rows_of(model, prompt=PROMPT, *, size=SIZE, shared=SIZE, kv_bits=None, **options):
    lent = LentModel(model, context=600, shared=shared, kv_bits=kv_bits)
    return BeamRows(lent, prompt, vocabulary_size=size, **options)


def alone(model, text, kv_bits=None, common=SIZE):
    logits = model(mx.array([text]), cache=make_caches(model, kv_bits))[0, -1, :common].astype(
        mx.float32
    )
    return np.array(logits - mx.logsumexp(logits))


def asked_for(seed):
    """Sets of continuations as a search asks for them, and now and then of another search."""
    rng = np.random.default_rng(seed)
    beam = [()]
    for call in range(8):
        if call == 5:
            beam = [(9, 9), (9, 4)]
        asked = list(beam)
        for text in beam[: rng.integers(0, 3)]:
            ahead = [(*text, int(token)) for token in rng.choice(SIZE, 2, replace=False)]
            asked += [*ahead, (*ahead[0], int(rng.integers(SIZE)))]
        yield asked
        if call == 3:
            yield asked
        # Often all go on from one, so that the common beginning grows.
        going_on = asked[-1:] if call % 2 else beam
        beam = sorted(
            {(*text, int(token)) for text in going_on for token in rng.integers(SIZE, size=2)}
        )


def check_rows(model, prompt, kv_bits=None):
    """Return the rows after comparing every one with that of its text alone."""
    rows = rows_of(model, prompt, kv_bits=kv_bits)
    fed_as_trees = set()
    for asked in asked_for(len(prompt)):
        found = rows.log_probabilities(asked)
        for text, row in zip(asked, found, strict=True):
            np.testing.assert_allclose(row, alone(model, [*prompt, *text], kv_bits), atol=2e-4)
        if len(asked) > 1:
            fed_as_trees.add(rows.trees)
    assert len(rows.calls) == 9
    return fed_as_trees


@pytest.mark.slow
@pytest.mark.parametrize("length", [1, 15])
@pytest.mark.parametrize(
    "name",
    [
        "llama", "qwen3, 4-bit caches",
        "llama, all windows", "deepseek_v3",
    ],
)  # fmt: skip
def test_rows_of_a_tree_are_those_of_each_text_alone(name, length):
    kv_bits = variant_of(name).kv_bits
    assert check_rows(build_family(name), (PROMPT * 3)[:length], kv_bits) == {True}


@pytest.mark.slow
def test_rows_beyond_a_window():
    assert check_rows(build_family("gemma3"), PROMPT * 3) == {True}


@pytest.mark.slow
def test_a_prompt_of_several_chunks():
    model, prompt = tiny(), PROMPT * 104
    rows = rows_of(model, prompt)
    found = rows.log_probabilities([(4,), (5, 6)])
    np.testing.assert_allclose(found[0], alone(model, [*prompt, 4]), atol=2e-4)
    np.testing.assert_allclose(found[1], alone(model, [*prompt, 5, 6]), atol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mamba2", "llama4", "falcon_h1"])
def test_models_without_trees_are_fed_chains(name):
    model = build_family(name)
    assert check_rows(model, PROMPT) == {False}
    rows = rows_of(model)
    rows.log_probabilities([()])
    rows.log_probabilities([(1,), (2,), (1, 3)])
    rows.log_probabilities([(1,), (2,), (2, 3)])
    # A chain for each leaf. The prompt's last token is read again until trees are known not to go.
    assert [(call.continuations, call.rows, call.passes) for call in rows.calls] == [
        (1, 1, 1), (3, 4, 3), (3, 3, 2),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "gemma3", "mamba2"])
def test_searching_ahead_with_another_model_changes_nothing(name):
    model = build_family(name)
    options = {"width": 3, "max_tokens": 12, "end_ids": {7}}
    plain_rows = rows_of(model)
    plain = beam_search(plain_rows, **options)
    assert len(plain_rows.calls) == plain.passes == 12
    drafts = [(model, SIZE, 3), (model, SIZE, 5), (model, 70, 5), (tiny(seed=8), 90, 5)]
    for draft_model, common, draft_width in drafts:
        rows = rows_of(model)
        draft = rows_of(draft_model, shared=common)
        found = beam_search(rows, draft, draft_width=draft_width, num_draft_steps=3, **options)
        if draft_width == 3:
            # The same model in the same beams: every step it searches ahead is kept.
            assert found.passes == 3
        if name == "mamba2":
            # Recurrent layers go through a text in pieces with other sums.
            assert [one.tokens for one in found.hypotheses] == [
                one.tokens for one in plain.hypotheses
            ]
        else:
            assert found.hypotheses == plain.hypotheses


def test_a_beam_of_one_feeds_a_row_a_step():
    for model in (tiny(), build_family("mamba2"), build_family("gemma3")):
        rows = rows_of(model)
        beam_search(rows, width=1, max_tokens=20)
        assert [(call.rows, call.passes) for call in rows.calls] == [(1, 1)] * 20


def test_only_what_follows_the_common_beginning_is_fed_again():
    rows = rows_of(tiny())
    for asked in ([()], [(1,), (2,)], [(1, 3), (2, 3)], [(2, 3, 1), (2, 3, 4)], [(2, 3, 4, 5)]):
        rows.log_probabilities(asked)
    # A tree comes behind the last token of the common beginning. The last call but one: the row of
    # 2, from two passes ago, is there; the last one: that of 4 as well.
    assert [call.rows for call in rows.calls] == [1, 3, 5, 3, 1]


def test_a_recurrent_model_goes_back_to_what_hypotheses_shared():
    model = build_family("mamba2")
    rows = rows_of(model)
    calls = [
        ([(1, 2, 3), (1, 2, 4)], 5, 4), ([(1, 2, 3, 9, 6)], 3, 2), ([(1, 2, 3, 9, 6, 5)], 1, 1),
        # Back to (1, 2), where texts parted; then to before the last token.
        ([(1, 2, 8)], 1, 1), ([(1, 2, 8, 4, 4)], 2, 2), ([(1, 2, 8, 4, 5)], 1, 1),
    ]  # fmt: skip
    for asked, fed, passes in calls:
        found = rows.log_probabilities(asked)
        assert (rows.calls[-1].rows, rows.calls[-1].passes) == (fed, passes)
        for text, row in zip(asked, found, strict=True):
            np.testing.assert_allclose(row, alone(model, [*PROMPT, *text]), atol=2e-4)


def test_a_draft_model_that_shares_fewer_ids():
    model = tiny(seed=8)
    rows = rows_of(model, [5, 96, 3], size=120, shared=90)
    found = rows.log_probabilities([(95, 1), (2,)])
    assert found.shape == (2, 120)
    assert np.isneginf(found[:, 90:]).all()
    np.testing.assert_allclose(found[0, :90], alone(model, [5, 0, 3, 0, 1], common=90), atol=2e-4)
    np.testing.assert_allclose(found[1, :90], alone(model, [5, 0, 3, 2], common=90), atol=2e-4)


class StoppedError(Exception):
    pass


@pytest.mark.parametrize("name", ["llama", "mamba2"])
def test_a_check_that_raises_leaves_the_rows_right(name):
    model, calls = build_family(name), []

    def check():
        calls.append(1)
        if len(calls) == 4:
            raise StoppedError

    rows = rows_of(model, check=check)
    with pytest.raises(StoppedError):
        beam_search(rows, width=2, max_tokens=9)
    found = rows.log_probabilities([(4,), (5, 6)])
    np.testing.assert_allclose(found[0], alone(model, [*PROMPT, 4]), atol=2e-4)
    np.testing.assert_allclose(found[1], alone(model, [*PROMPT, 5, 6]), atol=2e-4)


def test_a_failed_pass_is_not_built_upon(monkeypatch):
    model = tiny()
    rows = rows_of(model)
    rows.log_probabilities([(4,), (5,)])
    with monkeypatch.context() as patch:
        patch.setattr(Session, "feed", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            rows.log_probabilities([(4, 1), (5, 1)])
    found = rows.log_probabilities([(4, 1, 2)])
    np.testing.assert_allclose(found[0], alone(model, [*PROMPT, 4, 1, 2]), atol=2e-4)


def test_progress_of_the_prompt():
    seen = []
    rows = rows_of(tiny(), progress=lambda done, total: seen.append((done, total)))
    rows.log_probabilities([()])
    assert seen[-1] == (4, 4)
    told = len(seen)
    rows.log_probabilities([(1,)])
    assert len(seen) == told


def test_what_is_refused():
    rows = rows_of(tiny())
    for asked in ([], [(SIZE,)], [(0,), (-1,)]):
        with pytest.raises(ContractError):
            rows.log_probabilities(asked)

    class Unknown(KVCache):
        pass

    model = tiny()
    model.make_cache = lambda: [Unknown() for _ in model.layers]
    with pytest.raises(ConfigError, match="cannot go back"):
        rows_of(model)


class Searching:
    """Rows for a beam search, and calls that are interrupted."""

    def __init__(self, name):
        self._model = build_family(name)
        self._made()

    def _made(self):
        lent = LentModel(self._model, context=60, shared=97)
        self._beams = BeamRows(lent, interrupts.PROMPT, vocabulary_size=97)
        self.rows = lent._session.rows

    def found(self, _):
        return int(self._beams.log_probabilities([(4, 1, 2)])[0].argmax())

    def expected(self, _):
        return expected(self._model, [*interrupts.PROMPT, 4, 1, 2], 1, GREEDY)[0]

    def asks(self):
        self._made()
        self._beams.log_probabilities([(4,), (5,), (6,)])
        return lambda: self._beams.log_probabilities([(5, 1), (4, 1)])


MOVING = {path for path in interrupts.MOVING if not path.endswith("recurrence.py")}
"""Without what computes states: it has most of the lines, and moves nothing between them."""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "mamba2"])
def test_an_interrupt_of_a_beam_search(name):
    files = MOVING | {beam_rows.__file__}
    assert interrupted(Searching(name), "asks", "line", files) > 400
