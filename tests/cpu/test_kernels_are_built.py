"""Without kernels the tests beside this one are skipped; here a machine that should have them fails."""

import os
import subprocess
import sys

PROGRAM = "from akunu_py.cpu import load_kernels as load; k = load(); print(k.reason if k.path is None else '')"
CANNOT = ("they are for Linux", "there is no C++ compiler", "MLX is installed without the headers")


def test_kernels_are_built_where_there_is_a_compiler():
    # In the user's cache, where they are already.
    ours = {name: value for name, value in os.environ.items() if not name.startswith("AKUNU_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=ours, capture_output=True, text=True, check=True
    )
    reason = done.stdout.strip()
    assert not reason or reason.startswith(CANNOT)
