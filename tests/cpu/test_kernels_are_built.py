"""Without kernels the tests beside this one are skipped; here a machine that should have them fails."""

import os
import sys

import pytest
from programs import python

CANNOT = ("there is no C++ compiler", "MLX is installed without the headers")


@pytest.mark.skipif(sys.platform != "linux", reason="kernels are for Linux")
def test_kernels_are_built_where_there_is_a_compiler():
    # In the user's cache, where they are already.
    ours = {name: value for name, value in os.environ.items() if not name.startswith("AKUNU_")}
    done = python("-m", "akunu_py.cpu.build", code=None, env=ours)
    assert done.returncode == 0 or any(reason in done.stderr for reason in CANNOT), done.stderr
