"""The scripts that put load on a server, in small: nothing is lost, and all ends as it should."""

import sys

import pytest
from programs import python
from shared_files import ROOT


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="it reads the server's figures from /proc")
def test_a_little_load(default_model):
    small = ["--minutes", "0.02", "--streams", "30", "--disconnects", "40"]
    parts = [f"--part={name}" for name in ("streams", "disconnects")]
    script = [ROOT / "scripts" / "load_server.py", default_model]
    done = python(*script, *parts, *small, "--ignore-growth")
    assert "everything holds" in done.stdout
    # More streams than places and queue: some had to come again.
    assert "503, sent again" in done.stdout


@pytest.mark.slow
def test_a_little_load_on_two_ranks():
    """A pipeline, whose recurrent states go back to checkpoints; then a rank is killed."""
    script = [ROOT / "scripts" / "load_ranks.py", "--family", "qwen3_next"]
    # How long a busy machine takes is not what is tested.
    small = ["--requests", "24", "--disconnects", "6", "--kill", "1", "--longest", "300"]
    done = python(*script, *small)
    assert "6 clients left, 18 answered" in done.stdout
    assert "everything holds" in done.stdout
