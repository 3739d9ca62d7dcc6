"""`akunu bench speed`: what is timed, what is forced, and what the figures are."""

import mlx.core as mx
import pytest
from click.testing import CliRunner

from akunu_py import ConfigError, Engine
from akunu_py.bench.bootstrap import Ratio
from akunu_py.bench.runner import Item
from akunu_py.bench.speed import BASELINE, run_speed
from akunu_py.cli.main import cli
from akunu_py.decoding.budget import Budget
from akunu_py.models import mlx_lm_loop
from akunu_py.models.device import ReplyFrame, _WiredLimit
from akunu_py.models.load import load_model
from akunu_py.models.mlx_lm_loop import PlainLoop
from akunu_py.models.session import Session
from akunu_py.sampling.sampler import ForcedSampler
from akunu_py.sampling.transforms import TransformChain
from akunu_py.values.types import Draft, GenerationConfig

PROMPT = tuple(range(5, 25))
TEXT = tuple(30 + index % 7 for index in range(120))


def item(name, prompt=PROMPT, text=None):
    return Item(name, "edit", name, prompt, text=text)


@pytest.fixture(scope="module")
def loaded(tiny_gguf):
    return load_model(tiny_gguf)


@pytest.fixture(scope="module")
def engine(loaded):
    with Engine(loaded) as engine:
        engine.compares_rows = False
        yield engine


@pytest.mark.slow
def test_all_arms_give_the_models_own_tokens(engine):
    items = [item("a"), item("b", PROMPT[:9])]
    report = run_speed(engine, items, max_tokens=24, rounds=2, num_draft_tokens=6)
    arms = list(report.figures())
    assert [arm["arm"] for arm in arms] == [BASELINE, "none", "ngram", "auto"]
    for arm in arms:
        assert (arm["identical"], arm["pairs"]) == (4, 4)
        assert arm["tokens_per_s"] > 0
        assert arm["peak_memory_bytes"] > 1e5
        assert (arm["outside"] is None) if arm["arm"] == BASELINE else 0 <= arm["outside"] < 1
        # Two sessions, whatever the rounds, are too few for a ratio.
        assert arm["ratio"] == arm["median_ratio"] == Ratio(None, None, None, 4)
    result = report.findings()
    assert result.costs.costs[5] > 0
    assert len({row["id"] for row in result.items}) == 16
    assert len({arm["token_hash"] for arm in result.deterministic["arms"].values()}) == 1


def test_a_recorded_text_is_forced_on_every_arm(engine, monkeypatch):
    # Times of this machine are to decide nothing.
    monkeypatch.setattr(Budget, "limit", lambda self, most: most)
    monkeypatch.setattr(Budget, "trim", lambda self, draft, *_more: draft)
    report = run_speed(engine, [item("a", text=TEXT)], max_tokens=40, with_costs=False)
    (run,) = report.runs
    assert {name: reply.token_ids for name, reply in run.replies.items()} == dict.fromkeys(
        report.arms, TEXT[:40]
    )
    # A text of period 7 is copied, and the model itself would not have said it.
    assert run.replies["ngram"].stats.accepted > 20
    own = run_speed(engine, [item("a")], max_tokens=40, drafters=["none"], with_costs=False)
    assert own.runs[0].replies["none"].token_ids != TEXT[:40]
    ngram = next(arm for arm in report.figures() if arm["arm"] == "ngram")
    _, sources = report.findings().tables
    assert ("ngram", "ngram") in {row[:2] for row in sources.rows}
    assert ngram["sources"][0].accepted == run.replies["ngram"].stats.accepted


def test_the_baseline_keeps_its_prompt(loaded, monkeypatch):
    loop = PlainLoop(loaded.model, keeps_prompt=True)

    def tokens(prompt, most, text=None):
        return list(loop.passes(prompt, most, text))

    first = tokens(PROMPT, 12)
    assert tokens(PROMPT, 12) == first
    left = loop.passes(PROMPT, 12)
    assert next(left) == first[0]
    left.close()
    assert tokens(PROMPT, 12) == first
    assert tokens(PROMPT[:7], 12) != first
    assert tokens(PROMPT, 5, (1, 2, 3))[:3] == [1, 2, 3]
    assert list(PlainLoop(loaded.model).passes(PROMPT, 12)) == first


def test_a_forced_choice_costs_a_choice(loaded):
    """The model's own choice is computed before it is replaced, and behind the text it counts."""
    session = Session(loaded.model, context=100)
    chain = TransformChain.from_config(GenerationConfig(), session.vocabulary_size)
    sampler = ForcedSampler(chain, 3, (9, 8), session.vocabulary_size)
    session.begin([5, 6, 7], sampler, 20)
    assert session.choose(7, Draft.chain([9, 8]))[:2] == [9, 8]
    row = mx.arange(session.vocabulary_size, dtype=mx.float32)[None]
    assert sampler.choose(row, 2).item() == session.vocabulary_size - 1
    assert sampler.choose(row, 3).item() == 9
    assert sampler.choose(row, 5).item() == session.vocabulary_size - 1
    # NaN that reaches argmax shows that the row was looked at, not skipped.
    assert sampler.choose(row, 4).dtype == row.argmax().dtype


def test_mlx_lm_decodes_with_the_model_wired_as_its_users_have_it(loaded, monkeypatch):
    """`stream_generate` wires the model on Metal; without that it would be measured too slow."""
    wired = []

    def set_limit(limit):
        wired.append(limit)
        return 7

    monkeypatch.setattr(mx, "device_info", lambda: {"max_recommended_working_set_size": 10**12})
    monkeypatch.setattr(mx, "set_wired_limit", set_limit)
    stream = mx.new_thread_local_stream(mx.default_device())
    monkeypatch.setattr(mlx_lm_loop, "_frame", ReplyFrame(stream))
    monkeypatch.setattr("akunu_py.models.device._wired_limit", _WiredLimit())

    def steps(*arguments, **options):
        for number in range(3):
            wired.append(number)
            yield number, None

    monkeypatch.setattr(mlx_lm_loop, "generate_step", steps)
    assert len(list(PlainLoop(loaded.model).passes(PROMPT, 3))) == 3
    assert wired[0] > 10**9
    assert wired[1:] == [0, 1, 2]


def test_what_cannot_be_measured(engine):
    with pytest.raises(ConfigError, match="nothing to measure"):
        run_speed(engine, [])
    with pytest.raises(ConfigError, match="and the context holds"):
        run_speed(engine, [item("long", (1,) * 2000)], max_tokens=40)
    with pytest.raises(ConfigError, match="no drafter"):
        run_speed(engine, [item("a")], drafters=["magic"])


def command(*arguments):
    result = CliRunner().invoke(cli, ["bench", "speed", *map(str, arguments)])
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--kv-bits", "8"], "--kv-bits has no counterpart"),
        (["--reproducible"], "--reproducible has no counterpart"),
    ],
)
def test_mistakes_of_the_caller(arguments, words):
    code, output = command(*arguments)
    assert code == 2
    assert words in " ".join(output.split())
