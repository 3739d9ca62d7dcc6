"""`akunu tune`: costs measured at once, what they mean, and that they are remembered."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from akunu_py import ContextOverflowError, Engine
from akunu_py.bench.environment import Environment
from akunu_py.bench.measured_model import Model
from akunu_py.bench.tuning import Tuning, race_anew, run_tuning
from akunu_py.cli.main import cli
from akunu_py.cli.tune import _text
from akunu_py.models.metal import choice
from akunu_py.models.pass_times import PassTimes


def tuning(costs, *, reproducible=False):
    times = PassTimes(128, (0.02,) * 5, {rows: (0.02 * cost,) * 3 for rows, cost in costs.items()})
    model = Model("m.gguf", "m", "llama", 10, "dense", 100)
    return Tuning(times, model, Environment.current(), reproducible)


def test_costs_are_relative_to_a_plain_step():
    times = PassTimes(9, (0.02, 0.5, 0.02), {1: (0.02, 0.021, 0.9), 5: (0.06, 0.03, 0.03)})
    assert times.unit_s == 0.02
    assert times.costs == pytest.approx({1: 1.05, 5: 1.5})


def test_from_which_confidence_a_draft_pays():
    found = tuning({1: 1.0, 2: 1.5, 3: 1.75, 5: 6.0, 9: 1.0, 10: 0.9})
    assert found.least_confidence(1) == pytest.approx(0.5)
    assert found.least_confidence(2) == pytest.approx(0.5)  # 0.5 + 0.25
    assert found.least_confidence(4) is None
    assert found.least_confidence(8) == pytest.approx(0.0, abs=1e-6)
    assert found.least_confidence(3) is None  # not measured
    assert found.least_confidence(0) is None
    assert found.least_confidence_up_to(4) == pytest.approx(0.5)
    assert tuning({1: 1.0, 2: 2.0}).least_confidence_up_to(4) is None
    assert tuning({1: 1.0, 2: 2.0}).least_confidence_beyond(4) is None
    assert found.match_for(0.2) == 1
    assert found.match_for(0.55) == 5
    assert found.match_for(0.85) == 17
    assert found.match_for(0.99) is None


def test_on_metal_the_products_of_few_rows_are_shown():
    found = tuning({1: 1.0, 5: 2.0})
    assert "Products of few rows" not in _text(found)
    found = replace(
        found, products=(("8 x 32, 4 bits: MLX's product", "rows 1: MLX 1.00"), ("b", ""))
    )
    assert "\n  8 x 32, 4 bits: MLX's product: rows 1: MLX 1.00\n  b\n" in _text(found)


def test_on_metal_tuning_repeats_the_race(monkeypatch, tmp_path):
    monkeypatch.setenv("AKUNU_CACHE_DIR", str(tmp_path))
    raced = choice._file().path
    raced.parent.mkdir()
    raced.touch()
    race_anew()
    assert raced.exists()
    monkeypatch.setattr("akunu_py.bench.tuning.may_choose_products", lambda: True)
    race_anew()
    assert not raced.exists()


def costs_of(engine):
    return engine._memories.costs.state.costs


@pytest.mark.slow
def test_a_real_measurement_is_remembered(tiny_gguf, tmp_path, monkeypatch):
    monkeypatch.setenv("AKUNU_CACHE_DIR", str(tmp_path))
    # The times of a tiny model on a busy machine say little.
    monkeypatch.setattr("akunu_py.models.pass_times._NOISE", 1e9)
    seen = []
    with Engine.load(tiny_gguf) as engine:
        before = engine.generate([5, 6, 7], max_tokens=8).token_ids
        found = run_tuning(
            engine, context_tokens=20, repeats=3, progress=lambda *done: seen.append(done)
        )
        assert engine.generate([5, 6, 7], max_tokens=8).token_ids == before
        assert costs_of(engine).cost(20, 5) <= max(found.times.costs.values())
        with pytest.raises(ContextOverflowError, match="measure with fewer"):
            run_tuning(engine, context_tokens=engine.context - 20)
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert {len(taken) for taken in found.times.passes_s.values()} == {3}
    assert len(found.times.plain_s) == 12
    assert set(found.times.costs) >= {1, 2, 5, 9, 33}
    assert found.times.context == 20
    (path,) = (tmp_path / "costs").iterdir()
    kept = json.loads(path.read_text())["costs"]["0"]
    assert "1" not in kept
    assert float(kept["33"]) == pytest.approx(found.times.costs[33], abs=1e-4)
    with Engine.load(tiny_gguf) as engine:
        assert "33" in costs_of(engine).to_dict()["0"]
    with Engine.load(tiny_gguf, reproducible=True) as engine:
        assert not costs_of(engine).to_dict()


def test_the_command(tiny_gguf):
    runner = CliRunner()
    options = ["tune", str(tiny_gguf), "--context-tokens", "20", "--repeats", "3"]
    result = runner.invoke(cli, options)
    assert result.exit_code == 0
    assert "a step of plain decoding takes" in result.stdout
    assert "On this machine drafts of up to 4" in result.stdout
    assert "With --reproducible a plain step would cost" in result.stdout
    again = runner.invoke(cli, [*options, "--reproducible"]).stdout
    assert "a step of plain decoding takes" in again
    assert "With --reproducible" not in again
    assert runner.invoke(cli, [*options, "--context-tokens", "9999"]).exit_code != 0


@pytest.mark.parametrize(
    ("costs", "words"),
    [
        ({1: 1.0, 2: 1.2, 9: 3.0}, ["up to 4 tokens pay from a confidence of 20%", "mostly has"]),
        ({1: 1.0, 2: 2.2, 9: 30.0}, ["up to 4 tokens never pay", "Longer ones never pay"]),
        ({1: 1.0, 8: 2.5}, ["would cost 2.50 times"]),
    ],
)
def test_what_it_means_in_words(costs, words):
    from akunu_py.cli.tune import _text

    text = _text(tuning(costs))
    for word in words:
        assert word in text
