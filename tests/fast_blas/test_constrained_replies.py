"""Replies of the default model under random schemas: they fit, and drafting changes none."""

import pytest
from constrained_replies import check
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


@pytest.mark.parametrize("seed", [1000, 1001, 1002])
def test_schemas_with_a_real_model(real, seed):
    """Passes are aligned, so that rows have equal bits with any BLAS."""
    check(real, "schemas", [seed], max_tokens=80)
