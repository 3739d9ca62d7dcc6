"""Commands say which forms the weights of the IQ types have, and whether memory decided it."""

import json

import mlx.core as mx
import pytest
from akunu_runs import run
from random_block_models import write_model

from akunu_py.models import device
from akunu_py.models.load import LoadOptions
from akunu_py.models.memory_check import PROGRAM_BYTES
from akunu_py.models.requirements import requirements

REPLY = ("-p", "hello", "--max-tokens", "1", "AKUNU_WEIGHTS=quantized")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("models") / "iq4.gguf", "IQ4_XS")


@pytest.fixture
def scarce(model, monkeypatch):
    """Memory for fitted weights and not for exact ones."""
    needs = requirements(model, LoadOptions(weights="quantized"))
    limit = needs.total_bytes(128) + PROGRAM_BYTES - 1
    monkeypatch.setattr(device, "memory_limit", lambda: limit)
    monkeypatch.setattr(mx, "get_active_memory", lambda: 0)


NOTICE = "akunu: iq4.gguf: exact forms of the weights do not fit into memory; taking fitted ones\n"


def test_generate_says_that_memory_decided(model, scarce):
    assert NOTICE in run("generate", model, *REPLY).stderr
    assert NOTICE in run("generate", model, *REPLY, "--force").stderr
    assert "fitted" not in run("generate", model, *REPLY, "AKUNU_EXACT_WEIGHTS=false").stderr
    assert (
        "exact-weights false"
        in run("generate", model, *REPLY, "AKUNU_EXACT_WEIGHTS=true", code=2).stderr
    )
    assert (
        "fitted" not in run("generate", model, *REPLY, "AKUNU_EXACT_WEIGHTS=true", "--force").stderr
    )
    assert not run("--quiet", "generate", model, *REPLY).stderr


def test_show_counts_with_the_form_that_will_be_taken(hub_cache, model, monkeypatch):
    monkeypatch.setenv("AKUNU_WEIGHTS", "quantized")
    monkeypatch.setattr("akunu_py.models.expansion.has_kernels", lambda: True)
    needs = requirements(model, LoadOptions(weights="quantized"))

    def record(limit):
        monkeypatch.setattr(device, "memory_limit", lambda: limit)
        return json.loads(run("models", "show", model, "--context", "128", "--json").stdout)

    exact = needs.total_bytes(128) + PROGRAM_BYTES
    found = record(exact)["memory"][0]
    assert (found["fits"], found["fitted_weights"], found["total_bytes"]) == (True, False, exact)
    found = record(exact - 1)
    assert found["fitted_weights_bytes"] == needs.fitted_bytes < found["weights_bytes"]
    fitted = needs.total_bytes(128, fitted=True) + PROGRAM_BYTES
    first = found["memory"][0]
    assert (first["fits"], first["fitted_weights"], first["total_bytes"]) == (True, True, fitted)
    text = run("models", "show", model, "--context", "128").stdout
    assert "for quantized weights (" in text
    assert "fits with fitted weights" in text
    found = record(fitted - 1)["memory"][0]
    assert (found["fits"], found["fitted_weights"], found["total_bytes"]) == (False, True, fitted)


def test_convert_keeps_weights_exact_unless_told(model, tmp_path):
    kind = ("--compute-type", "float32")
    run("models", "convert", model, tmp_path / "exact", *kind)
    run("models", "convert", model, tmp_path / "fitted", *kind, "--fitted-weights")
    for name, types in (("exact", []), ("fitted", ["IQ4_XS"])):
        description = json.loads((tmp_path / name / "akunu.json").read_text())
        assert description["fitted_types"] == types
