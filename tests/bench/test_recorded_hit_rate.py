"""The regression guard: tokens, passes and what is accepted, of the model that ships.

Where drafts or the model are changed on purpose, what the command prints as `deterministic` with
--json takes the place of those figures in tests/golden/bench/hit-rate.json.
"""

import json
import platform

import mlx.core as mx
import pytest
from click.testing import CliRunner
from shared_files import ROOT

from akunu_py.cli.main import cli

RECORDED = ROOT / "tests" / "golden" / "bench" / "hit-rate.json"
# Drafts that no clock decides, and weights that every machine has: the same counts in every run.
OPTIONS = (
    "--limit=2", "--max-tokens=48", "--drafter=ngram", "--draft-budget=always",
)  # fmt: skip


@pytest.mark.slow
def test_the_model_that_ships_does_what_it_did(default_model):
    here = (platform.system(), platform.machine(), mx.default_device() == mx.Device(mx.cpu))
    if here != ("Linux", "x86_64", True):
        pytest.skip("recorded on MLX's CPU backend under Linux on x86-64")
    words = ["bench", "hit-rate", str(default_model), *OPTIONS, "--json"]
    dense = {"AKUNU_WEIGHTS": "dense"}
    found = CliRunner().invoke(cli, words, env=dense, catch_exceptions=False)
    result, recorded = json.loads(found.stdout), json.loads(RECORDED.read_text())
    assert result["failures"] == []
    assert result["deterministic"] == recorded["deterministic"]
