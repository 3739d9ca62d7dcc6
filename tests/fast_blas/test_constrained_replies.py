"""Replies of the default model under random schemas: they fit, and drafting changes none."""

import pytest
from constrained_replies import check_schemas
from fast_blas import needs_fast_blas
from shared_files import REAL_MODEL

from akunu_py import Engine

pytestmark = [needs_fast_blas, pytest.mark.slow]


@pytest.fixture(scope="module")
def real():
    if not REAL_MODEL.is_file():
        pytest.skip(f"{REAL_MODEL.name} is not in the data folder")
    with Engine.load(REAL_MODEL, reproducible=True) as engine:
        yield engine


@pytest.mark.parametrize("part", range(1, 4))
def test_schemas_with_a_real_model(real, part):
    """Of 9 schemas: 36 replies. Passes are aligned, so that rows have equal bits with any BLAS."""
    seeds = range(1000 + (part - 1) * 3, 1000 + part * 3)
    assert check_schemas(real, seeds) >= 0.5 * len(seeds)
