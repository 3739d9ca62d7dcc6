"""Reproducible rows with OpenBLAS, whose kernels go by the number of rows and by their places."""

import random

import mlx.core as mx
import numpy as np
import pytest
from family_models import build_family
from fast_blas import needs_fast_blas
from tiny_families import FAMILIES, VOCABULARY
from toy_engine import PLAIN, toy_engine

from akunu_py.cpu import load_kernels
from akunu_py.cpu.blas import load_blas
from akunu_py.cpu.library import open_kernels
from akunu_py.models.aligned_rows import AlignedRows
from akunu_py.models.cached_rows import CachedRows
from akunu_py.models.session import Session

pytestmark = needs_fast_blas


@pytest.fixture(autouse=True)
def _without_kernels():
    """With them OpenBLAS has nothing to do, and rows are equal without reproducible passes."""
    kernels = load_kernels()
    if kernels.path is None:
        yield
        return
    library = open_kernels(kernels.path)
    library.akunu_enable(0)
    yield
    library.akunu_enable(1)


START, END = 21, 90


def test_openblas_is_there():
    assert not load_blas().own, load_blas().reason


def logits(new_rows, model, tokens, rng=None):
    """Logits after each token from START on, one by one, or with `rng` among others, some wrong."""
    rows = new_rows(model)
    rows.prefill(tokens[:START])
    found = []
    while (at := len(rows.tokens)) < END:
        count = min(rng.randrange(1, 8) if rng else 1, rows.room, END - at)
        wrong = rng.randrange(min(rows.room - count, 5) + 1) if rng else 0
        fed = tokens[at : at + count] + [rng.randrange(VOCABULARY) for _ in range(wrong)]
        pass_logits = rows.passes.run(rows.planned(mx.array(fed))).astype(mx.float32)
        found.append(np.array(pass_logits[0, :count]))
        rows.keep(fed, range(count))
    return np.concatenate(found)


FAST = ("llama", "phi3", "gemma3", "qwen3_moe", "llama4", "mamba2", "lfm2", "falcon_h1")


@pytest.mark.fast_every(2)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in FAMILIES],
)
def test_no_bit_of_a_row_depends_on_what_is_fed_with_it(name):
    model, rng = build_family(name), random.Random(name)
    tokens = [rng.randrange(VOCABULARY) for _ in range(END)]
    alone = logits(AlignedRows, model, tokens)
    among = logits(AlignedRows, model, tokens, rng)
    assert alone.tobytes() == among.tobytes()


def test_the_control_other_passes_do_differ():
    model, rng = build_family("llama"), random.Random(1)
    tokens = [rng.randrange(VOCABULARY) for _ in range(END)]
    alone = logits(CachedRows, model, tokens)
    among = logits(CachedRows, model, tokens, rng)
    assert alone.tobytes() != among.tobytes()
    np.testing.assert_allclose(alone, among, atol=1e-3)


def test_which_is_found_by_trying():
    model = build_family("llama, sliding")
    assert Session(model, context=200).bit_equal_to(9) == 0
    assert Session(model, context=200, reproducible=True).bit_equal_to(9) == 200


def test_a_reply_that_shared_passes_says_that_their_rows_differ(tmp_path, monkeypatch):
    monkeypatch.setenv("AKUNU_CACHE_DIR", str(tmp_path))
    options = {"drafter": "none", "max_tokens": 12, "logit_bias": PLAIN}
    with toy_engine(context=96) as engine:
        replies = engine.generate_many(["a cat", "z", "one, two"], streams=3, **options)
        assert [one.row_bits for _, one in replies] == ["different"] * 3
        assert engine.generate("a cat", **options).row_bits == "equal"
