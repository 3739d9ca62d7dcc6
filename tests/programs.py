"""Python in processes of its own, as tests run it."""

import os
import subprocess
import sys


def python(*words, code=0, variables=None, **options):
    """Run Python with these words, variables beside those of here, and nothing to read.

    Another exit code than `code` fails the test, unless it is None.
    """
    if variables:
        options["env"] = {**os.environ, **variables}
    if "input" not in options:
        options["stdin"] = subprocess.DEVNULL
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, capture_output=True, check=False, **{"text": True, **options})
    assert code is None or done.returncode == code, done.stdout + done.stderr
    return done
