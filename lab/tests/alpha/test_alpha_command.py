"""`akunu bench alpha` as a user meets it, and the speeds it predicts."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from alpha_toys import P, Q, Toy, measured, raw
from bench.bench_fakes import FakeEngine, reply
from click.testing import CliRunner

from akunu_lab.alpha import run as run_module
from akunu_lab.alpha.report import AlphaReport, AlphaSetting, Prediction
from akunu_lab.alpha.run import with_predictions
from akunu_lab.alpha.sources import DrafterSource
from akunu_lab.alpha.speed import predict
from akunu_lab.alpha.texts import MeasuredText
from akunu_lab.study.study import Study
from akunu_py.bench.bootstrap import Ratio
from akunu_py.bench.result_file import BenchResult
from akunu_py.bench.workloads import Prompt
from akunu_py.cli.main import cli
from akunu_py.drafting import LookupDrafter
from akunu_py.model_store.known_models import default_model_path


@pytest.fixture
def loaded(monkeypatch):
    """Toy models in place of loaded ones; the list is what was asked for."""
    asked = []

    def load(_bench, model=None, **_changes):
        asked.append(_bench.model if model is None else model)
        toy = Toy([P] if len(asked) % 2 else [Q])
        if asked[-1] is None:
            toy.description.path = default_model_path()
        return toy

    def prompts(bench):
        return [raw("a", "01"), raw("b", "1")][: bench.limit], []

    monkeypatch.setattr(Study, "engine", load)
    monkeypatch.setattr(Study, "prompts", prompts)
    return asked


def run(*arguments):
    return CliRunner().invoke(cli, ["bench", "alpha", *arguments], terminal_width=120)


def test_the_tables(loaded):
    result = run("--tokens", "12", "--lenience", "0.8", "--temp", "1")
    assert result.exit_code == 0, result.output
    lines = {line.split()[0]: line.split() for line in result.stdout.splitlines() if line}
    assert "toy [bold], dense weights" in result.stdout
    assert "12 tokens of 2 replies" in result.stdout
    assert lines["draft"][2:] == ["100%", "0.750", "0.750-0.750", "0.700", "0.312", "0.812"]
    assert "not exact" in result.stdout
    assert all(len(line) < 100 for line in result.stdout.splitlines())
    assert loaded == [None, str(default_model_path().with_name("akunu-tiny-draft.gguf"))]


def test_json_and_other_models(loaded):
    result = run("big.gguf", "--draft-model", "small.gguf", "--tokens", "4", "--json")
    found = BenchResult.parse(result.stdout)
    cells = found.deterministic["cells"]
    assert list(cells) == ["temperature 0", "temperature 1"]
    assert loaded == ["big.gguf", "small.gguf"]
    assert "draft model" in cells["temperature 0"]["sources"]
    assert (found.arguments["num_tokens"], found.arguments["draft_model"]) == (4, "small.gguf")
    assert [table.name for table in found.tables] == ["temperature-0", "temperature-1"]


@pytest.mark.slow
def test_fewer_prompts_and_quick(loaded):
    # Both prompts are of one category.
    record = json.loads(run("big.gguf", "--tokens", "4", "--limit", "1", "--json").stdout)
    assert record["deterministic"]["cells"]["temperature 0"]["num_replies"] == 1
    record = json.loads(run("big.gguf", "--quick", "--json").stdout)
    assert (record["arguments"]["limit"], record["arguments"]["num_tokens"]) == (2, 350)
    words = ("--quick", "--limit", "1", "--tokens", "4")
    record = json.loads(run("big.gguf", *words, "--json").stdout)
    assert (record["arguments"]["limit"], record["arguments"]["num_tokens"]) == (1, 4)


def test_another_model_has_no_draft_model_by_itself(loaded):
    record = json.loads(run("big.gguf", "--tokens", "4", "--json").stdout)
    assert loaded == ["big.gguf"]
    assert record["draft_model"] is None
    assert len(record["deterministic"]["cells"]["temperature 0"]["sources"]) == 6


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--temperature", "-1"], "temperature is -1"),
        (["--tokens", "0"], "0 is too small; give"),
        (["--lenience", "0"], "lenience is 0.0"),
        (["--lenience", "1.5"], "lenience is 1.5"),
        (["--seed", "-1"], "seed is -1"),
        (["--gamma", "3"], "No such option"),
    ],
)
def test_wrong_options_are_explained_before_a_model_is_loaded(loaded, arguments, words):
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in result.output
    assert not loaded


def test_greedy_replies_that_do_not_reach_the_number_are_said(loaded, monkeypatch):
    monkeypatch.setattr(Prompt, "encode", lambda *_: [0] * 998)
    result = run("--tokens", "12", "--temp", "0")
    assert "fewer than 12" in result.stdout
    assert "temperature 0: 4 tokens of 2 replies" in result.stdout


@pytest.mark.parametrize(
    ("alpha", "gamma", "speed"), [(0.6, 2, 1.96), (0.8, 5, 3.69), (0.9, 10, 6.86)]
)
def test_predictions_are_theorem_3_8_where_rows_cost_nothing(alpha, gamma, speed):
    """Speeds of table 1 of arXiv:2211.17192."""
    tokens, factor = predict(alpha, 1.0, gamma, 0.0, 1.0)
    assert factor == tokens == pytest.approx(speed, abs=0.005)


def test_predictions_with_dear_rows_and_plain_steps_between():
    # 1 + 0.5 tokens for 1 * 0.25 + 1.75 plain steps, three passes of four; 1 for 1 in the fourth.
    tokens, factor = predict(0.5, 0.75, 1, 0.25, 1.75)
    assert tokens == pytest.approx(0.75 * 1.5 + 0.25)
    assert factor == pytest.approx(1.375 / 1.75)


def test_predicted_and_measured_side_by_side():
    drafted = {"steps": 10, "steps_with_draft": 8, "drafted": 32, "accepted": 12, "tested": 20, "output_tokens": 22, "propose_s": 1.6}  # fmt: skip
    engine = FakeEngine(lambda _: (reply(range(22), 4.4), reply(range(22), 2.2, **drafted)))
    engine.tune = lambda ids: SimpleNamespace(costs={1: 1.0, 4: 1.5, 6: 2.5})
    prompts = [raw(f"{category}{place}", "0", category) for category in ("edit", "config") for place in range(5)]  # fmt: skip
    figures = measured(
        DrafterSource("drafter ngram", lambda: LookupDrafter(num_draft_tokens=1), 3),
        texts=[MeasuredText("a", (1, 0, 1), (0, 1))],
    )
    setting = AlphaSetting(0.7, 2, 1, (figures,))
    report = AlphaReport("nothing", 8, 2, (setting, setting))
    seen = []
    made = with_predictions(report, engine, prompts, progress=lambda *done: seen.append(done))
    assert len(made.predictions) == 2
    assert seen[-1] == (24, 24)  # two temperatures, twice 3 prompts of two categories
    (found, _) = made.predictions
    assert (found.drafter, found.temperature, found.num_draft_tokens) == ("ngram", 0.7, 4)
    assert (found.acceptance, found.known) == (pytest.approx(0.375), 1)
    # Plain steps of 4.4 s / 21 tokens, which follow the first.
    assert found.draft_cost == pytest.approx(1.6 / 32 / (4.4 / 21))
    assert found.pass_cost == pytest.approx(2.0)
    tokens = 1 + 0.375 + 0.375**2 + 0.375**3 + 0.375**4
    assert found.predicted_tokens_per_pass == pytest.approx(tokens)
    cost = 4 * found.draft_cost
    assert found.theorem == pytest.approx(tokens / (cost + 1))
    assert found.predicted == pytest.approx(tokens / (cost + 2))
    assert (found.measured.ratio, found.measured.pairs) == (pytest.approx(2), 6)
    assert found.tokens_per_pass == 2.2
    assert engine.config.draft_budget == "always"
    assert (engine.config.temperature, engine.config.seed) == (0.7, 8)
    made = replace(made, settings=made.settings[:1])
    result = made.findings()
    assert result.timing["predictions"][0]["measured"] == {
        "ratio": 2, "low": 2, "high": 2, "pairs": 6,
    }  # fmt: skip
    assert "predictions" not in result.deterministic


def test_the_table_of_speeds(loaded, monkeypatch):
    prediction = Prediction(
        "draft-model", 0.7, 4, 0.5, 0.9, 0.01, 1.7, 1.8, 1.1, 1.85,
        Ratio(1.234, 1.1, 1.4, 9), 1.876,
    )  # fmt: skip
    wanted = []

    def predictions(report, engine, prompts, progress):
        wanted.append(len(prompts))
        return replace(report, predictions=(prediction,))

    monkeypatch.setattr(run_module, "with_predictions", predictions)
    result = run("--tokens", "4", "--speed")
    assert result.exit_code == 0, result.output
    assert "\N{HORIZONTAL ELLIPSIS}" not in result.stdout
    (cells,) = (line.split() for line in result.stdout.splitlines() if line.startswith("draft-m"))
    assert cells == ["draft-model", "0.7", "4", "90%", "0.500", "0.010", "1.70", "1.80", "1.10", "1.23", "1.10-1.40", "1.85", "1.88"]  # fmt: skip
    assert wanted == [2]
