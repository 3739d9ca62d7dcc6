"""Which tests need a BLAS other than MLX's own."""

import os
import sys

import pytest

needs_fast_blas = pytest.mark.skipif(
    os.environ["AKUNU_BLAS"] == "mlx" or sys.platform != "linux",
    reason="for OpenBLAS on Linux: AKUNU_BLAS=auto",
)
