"""`akunu bench alpha`: acceptance by hand on small p and q, and by counting where p is one-hot."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from bench.bench_fakes import FakeEngine, reply
from click.testing import CliRunner

from akunu_py import ConfigError
from akunu_py.bench.alpha import run as run_module
from akunu_py.bench.alpha import texts as texts_module
from akunu_py.bench.alpha.measure import measure_setting
from akunu_py.bench.alpha.report import AlphaReport, Prediction, Setting
from akunu_py.bench.alpha.run import run_alpha, with_predictions
from akunu_py.bench.alpha.sources import (
    ContextSource,
    CorpusSource,
    DrafterSource,
    ModelSource,
    UniformSource,
    fitted_on_other_half,
    reply_logits,
)
from akunu_py.bench.alpha.speed import predict
from akunu_py.bench.alpha.texts import Text, generate_texts
from akunu_py.bench.environment import Environment
from akunu_py.bench.hit_rate import model_of
from akunu_py.bench.workloads import Prompt
from akunu_py.cli import bench_alpha as command
from akunu_py.cli.main import cli
from akunu_py.decoding.theory import acceptance, coupled_acceptance, match_acceptance
from akunu_py.drafting import LookupDrafter
from akunu_py.drafting.counts.fitting import fit_counts
from akunu_py.drafting.counts.ngram_model import NgramModel
from akunu_py.engine import Engine

P = (0.5, 0.25, 0.25)
Q = (0.25, 0.5, 0.25)


class Toy:
    """A model whose distribution depends on the last token alone; `rows[token]` is it."""

    def __init__(self, rows, *, context=1000, texts=None, end=None):
        self.rows = np.array(rows, dtype=np.float64)
        self.vocabulary_size = self.rows.shape[1]
        self.context = context
        self.end = end
        names = [f"t{index}" for index in range(self.vocabulary_size)]
        self.tokenizer = SimpleNamespace(
            has_chat_template=False,
            encode=lambda text, parse_special=False: [int(letter) for letter in text],
            token_texts=lambda: names if texts is None else texts,
        )
        self.description = SimpleNamespace(
            path=Path("toy.gguf"), name="toy [bold]", architecture="toy", parameters=1,
            weights="dense",
        )  # fmt: skip
        self.asked = []
        self.fed = []

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        pass

    def generate(self, prompt, config=None):
        """Greedy at 0; else tokens by their number, position and seed: any stream will do."""
        ids = list(prompt)
        self.asked.append((len(ids), config.max_tokens, config.seed))
        stopped = False
        while len(ids) - len(prompt) < config.max_tokens and not stopped:
            likeliest = int(self.rows[ids[-1] % len(self.rows)].argmax())
            drawn = (len(ids) * 7 + config.seed * 3) % self.vocabulary_size
            ids.append(likeliest if config.temperature == 0 else drawn)
            stopped = ids[-1] == self.end
        made = reply(ids[len(prompt) :], 1.0)
        return SimpleNamespace(
            token_ids=made.token_ids, finish_reason="stop" if stopped else "length"
        )

    def logits(self, token_ids):
        assert len(token_ids) <= self.context
        self.fed.append(list(token_ids))
        with np.errstate(divide="ignore"):
            return np.log(self.rows[np.array(token_ids) % len(self.rows)]).astype(np.float32)


def measured(source, *, rows=(P,), temperature=1.0, lenience=(), texts=None):
    texts = texts or [Text("a", (0, 1), (2, 0, 1))]
    setting = measure_setting(
        Toy(rows), texts, [source], temperature=temperature, lenience=lenience
    )
    return setting.sources[0]


def raw(name, text, category="edit"):
    return Prompt(name, category, "raw", text)


def test_a_draft_model_by_hand():
    found = measured(ModelSource(Toy([Q]), Toy([P])), lenience=(1.0, 0.8))
    assert found.alpha.value == pytest.approx(0.75)
    assert found.coupled.value == pytest.approx(0.7)
    assert found.match.value == pytest.approx(0.3125)
    assert found.lenient[1.0].value == pytest.approx(0.75)
    assert found.lenient[0.8].value == pytest.approx(0.25 + 0.3125 + 0.25)
    assert found.known == 1


def test_both_go_through_the_temperature():
    p, q = (np.sqrt(row) / np.sqrt(row).sum() for row in (P, Q))
    found = measured(ModelSource(Toy([Q]), Toy([P])), temperature=2.0)
    assert found.alpha.value == pytest.approx(acceptance(p, q))
    assert found.coupled.value == pytest.approx(coupled_acceptance(p, q))
    assert found.match.value == pytest.approx(match_acceptance(p, q))


def test_nothing_known_is_uniform():
    found = measured(UniformSource(), lenience=(0.5,))
    assert found.alpha.value == pytest.approx(1 / 3 + 0.25 + 0.25)
    assert found.match.value == pytest.approx(1 / 3)
    assert found.lenient[0.5].value == pytest.approx(1)
    assert (found.known, found.coupled_known) == (0, None)
    # At temperature 0 one token of three is right, and that is no sum of minima any more.
    assert measured(UniformSource(), temperature=0.0).alpha.value == pytest.approx(1 / 3)


@pytest.mark.parametrize(("lenience", "accepted"), [(1.0, 0), (0.7, 0), (0.5, 1)])
def test_greedy_lenience_by_hand(lenience, accepted):
    """The draft's likeliest has 0.3 where the target's has 0.5."""
    draft = ModelSource(Toy([(0.1, 0.8, 0.1)]), Toy([P]))
    texts = [Text("a", (1,), (0, 0))]
    found = measured(
        draft, rows=[(0.5, 0.3, 0.2)], temperature=0.0, lenience=(lenience,), texts=texts
    )
    assert found.alpha.value == 0
    assert found.lenient[lenience].value == accepted


def test_one_hot_acceptance_counts_matches():
    """Where p and q are one-hot all kinds of acceptance are the share of right guesses."""
    generator = np.random.default_rng(5)
    text = Text("a", (0, 1, 2), tuple(int(token) for token in generator.integers(0, 3, 60)))
    found = measured(
        DrafterSource("copy", lambda: LookupDrafter(num_draft_tokens=1), 3),
        temperature=0.0, texts=[text],
    )  # fmt: skip
    ids = [*text.prompt, *text.reply]
    right = unknown = 0
    for place in range(3, len(ids)):
        for length in (3, 2, 1):
            ends = [end for end in range(length, place) if ids[end - length : end] == ids[place - length : place]]  # fmt: skip
            if ends:
                right += ids[ends[-1]] == ids[place]
                break
        else:
            unknown += 1
    assert unknown > 0  # at first nothing was seen twice
    assert found.alpha.value == pytest.approx((right + unknown / 3) / 60)
    assert found.coupled.value == pytest.approx(found.alpha.value)
    assert found.match.value == pytest.approx(found.alpha.value)
    assert found.known == pytest.approx(1 - unknown / 60)
    assert found.coupled_known == pytest.approx(right / (60 - unknown))


def test_a_certain_guess_is_accepted_with_p_of_it():
    """q one-hot, p not: min(p, q), the coupled and the independent draw all come to p(x)."""
    found = measured(
        DrafterSource("copy", lambda: LookupDrafter(num_draft_tokens=1), 3),
        texts=[Text("a", (1, 0, 1), (0, 1))],
    )  # fmt: skip
    expected = (0.5 + 0.25) / 2
    assert [found.alpha.value, found.coupled.value, found.match.value] == [pytest.approx(expected)] * 3  # fmt: skip


def test_corpora_are_the_other_half():
    """Two replies of one token each, in different halves: neither may know its own."""
    names = {}
    for index in range(20):
        text = Text(f"prompt {index}", (0,), (1 + index % 2,) * 4)
        names.setdefault(text.half, text)
    first = Text(names[0].id, (0,), (1,) * 4)
    second = Text(names[1].id, (0,), (2,) * 4)
    counts = fitted_on_other_half([first, second], 3)
    assert counts[first.half].tokens.tolist() == [2]
    assert counts[second.half].tokens.tolist() == [1]
    source = CorpusSource(1, counts)
    found = measured(source, temperature=0.0, texts=[first, second])
    assert (source.name, found.alpha.value) == ("unigram", 0)


def test_bigrams_by_hand():
    counts = fit_counts([[0, 1, 0, 1, 0, 2]], 3)
    source = CorpusSource(2, {0: counts, 1: counts})
    rows = list(source.rows(Text("a", (2, 0), (1, 0)), 0.0))
    assert [row.tolist() for row in rows] == [[0, 1, 0], [1, 0, 0]]


def test_counts_of_the_context_see_nothing_ahead():
    text = Text("a", (0, 1, 2, 0, 1), (2, 0, 0, 1, 2, 2))
    rows = list(ContextSource(3).rows(text, 1.0))
    ids = [*text.prompt, *text.reply]
    for place, row in enumerate(rows, start=len(text.prompt)):
        model = NgramModel(3, order=4)
        model.observe(ids[:place])
        assert row == pytest.approx(model.distribution(ids[max(0, place - 3) : place]).dense())
    assert len(rows) == len(text.reply)


def test_a_draft_model_is_asked_within_its_vocabulary_and_context():
    target = Toy([(0.4, 0.3, 0.2, 0.1)], texts=["a", "b", "c", "d"])
    draft = Toy([(0.25, 0.25, 0.5)], texts=["a", "b", ""], context=4)
    rows = list(ModelSource(draft, target).rows(Text("a", (0, 3), (1, 2, 3, 0)), 1.0))
    # Padding is never drawn, and what is left adds up to 1 over the target's ids.
    assert rows[0] == pytest.approx([0.5, 0.5, 0, 0])
    assert [row is None for row in rows] == [False, False, False, True]
    assert draft.fed == [[0, 0, 1, 0]]
    short = Toy([(0.25, 0.25, 0.5)], texts=["a", "b", ""], context=1)
    assert list(ModelSource(short, target).rows(Text("a", (0, 1, 0), (1,)), 1.0)) == [None]
    with pytest.raises(ConfigError, match="another vocabulary"):
        ModelSource(Toy([P], texts=["a", "x", "c"]), target)


def test_texts_are_shared_out_evenly_and_end_where_they_must():
    engine = Toy([(0.9, 0.1, 0.0)])
    prompts = [raw("a", "0"), raw("b", "01"), raw("c", "1")]
    seen = []
    made = generate_texts(engine, prompts, temperature=0.0, num_tokens=11, progress=seen.append)
    assert [len(text.reply) for text in made] == [4, 4, 3]
    assert seen[-1] == 11
    assert made[1].prompt == (0, 1)


def test_what_an_ended_reply_leaves_over_goes_to_the_others():
    engine = Toy([(0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1), (0, 0, 0, 1)], end=2)
    made = generate_texts(engine, [raw("a", "0"), raw("b", "3")], temperature=0.0, num_tokens=10)
    assert [text.reply for text in made] == [(1, 2), (3,) * 8]


def test_greedy_replies_are_not_repeated_and_drawn_ones_get_the_next_seed():
    rows = [(0, 1, 0), (0, 0, 1), (0, 0, 1)]
    made = generate_texts(Toy(rows, end=2), [raw("a", "0")], temperature=0.0, num_tokens=9)
    assert [text.reply for text in made] == [(1, 2)]
    engine = Toy(rows, end=2)
    made = generate_texts(engine, [raw("a", "0")], temperature=1.0, num_tokens=9, seed=5)
    assert sum(len(text.reply) for text in made) == 9
    assert len(made) > 1
    assert next(seed for _, _, seed in engine.asked) == 5
    assert len({seed for _, _, seed in engine.asked}) == len(made)


def test_a_context_that_is_full_ends_a_reply():
    engine = Toy([(1, 0, 0)], context=6)
    made = generate_texts(engine, [raw("a", "000"), raw("b", "0")], temperature=0.0, num_tokens=99)
    assert [len(text.reply) for text in made] == [3, 5]


def test_intervals_resample_prompts():
    """Replies to one prompt stay together: with one prompt there is nothing to resample."""
    reply_of = {"a": (0,) * 4, "b": (1,) * 4}
    texts = [Text(name, (1,), reply_of[name]) for name in ("a", "b")]
    draft = ModelSource(Toy([(1, 0, 0)]), Toy([P]))
    found = measured(draft, temperature=0.0, texts=texts)
    assert found.alpha.value == 0.5
    assert found.alpha.interval == (0, 1)
    same = [Text("a", text.prompt, text.reply) for text in texts]
    assert measured(draft, temperature=0.0, texts=same).alpha.interval == (0.5, 0.5)


@pytest.fixture(scope="module")
def tiny(tiny_gguf):
    with Engine.load(tiny_gguf) as engine:
        yield engine


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_model_accepts_itself_and_texts_are_its_own(tiny, temperature, monkeypatch):
    """Row i is that of token i: shifted by one, p and q would still agree, but not with the text."""
    prompts = [raw("a", "def f(x):"), raw("b", "return")]
    # The random model has any token as its end; what is measured must not depend on that.
    made = generate_texts(tiny, prompts, temperature=temperature, num_tokens=30, seed=3)
    for text in made:
        at_once = tiny.generate(
            text.prompt, max_tokens=len(text.reply), temperature=temperature, seed=3, drafter="none"
        )
        assert at_once.token_ids == text.reply
        if temperature == 0:
            rows = reply_logits(tiny, [*text.prompt, *text.reply], len(text.prompt))
            assert rows.argmax(axis=-1).tolist() == list(text.reply)
    setting = measure_setting(tiny, made, [ModelSource(tiny, tiny)], temperature=temperature)
    found = setting.sources[0]
    assert setting.num_tokens == 30
    assert found.alpha.value == pytest.approx(1)
    assert found.coupled.value == pytest.approx(1)
    assert found.match.value == pytest.approx(1) if temperature == 0 else found.match.value < 1


def test_a_run_is_repeatable_and_says_what_it_was(tmp_path):
    prompts = [raw("a", "01"), raw("b", "12")]
    rows = [(0.2, 0.5, 0.3), (0.1, 0.1, 0.8), (0.6, 0.3, 0.1)]
    seen = []
    options = {"temperatures": (0.0, 1.0), "num_tokens": 20, "lenience": (0.5,), "seed": 4}
    report, again = (
        run_alpha(
            Toy(rows), prompts, draft=Toy([Q]), progress=lambda *done: seen.append(done), **options
        )
        for _ in range(2)
    )
    assert report.to_dict()["settings"] == again.to_dict()["settings"]
    assert seen[-1] == (80, 80)
    assert [done for done, _ in seen] == 2 * sorted(done for done, _ in seen[: len(seen) // 2])
    names = [source.name for source in report.settings[0].sources]
    assert names == [
        "uniform", "unigram", "bigram", "4-gram of the context", "copy from context",
        "drafter ngram", "draft model",
    ]  # fmt: skip
    record = json.loads(json.dumps(report.to_dict()))
    assert record["settings"][1]["num_tokens"] == 20
    assert record["settings"][1]["sources"][6]["lenient"]["0.5"]["value"] <= 1
    assert "other half" in record["corpus"]
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("0121")
    assert run_alpha(Toy(rows), prompts, corpus=corpus, **options).corpus == str(corpus)


@pytest.fixture
def loaded(monkeypatch):
    """Toy models in place of loaded ones; the list is what was asked for."""
    asked = []

    def load(model, loading):
        asked.append(model)
        return Toy([P] if len(asked) % 2 else [Q])

    monkeypatch.setattr(command, "load_engine", load)
    monkeypatch.setattr(command, "load_prompts", lambda categories: [raw("a", "01"), raw("b", "1")])
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
    assert loaded == [None, str(command._shipped_draft())]


def test_json_and_other_models(loaded):
    result = run("big.gguf", "--draft-model", "small.gguf", "--tokens", "4", "--json")
    record = json.loads(result.stdout)
    assert [setting["temperature"] for setting in record["settings"]] == [0, 1]
    assert loaded == ["big.gguf", "small.gguf"]
    assert "draft model" in [source["name"] for source in record["settings"][0]["sources"]]


def test_another_model_has_no_draft_model_by_itself(loaded):
    record = json.loads(run("big.gguf", "--tokens", "4", "--json").stdout)
    assert loaded == ["big.gguf"]
    assert record["draft_model"] is None
    assert len(record["settings"][0]["sources"]) == 6


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--temperature", "-1"], "temperature is -1"),
        (["--tokens", "0"], "0 is not in the range"),
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
    monkeypatch.setattr(texts_module, "encode_prompt", lambda engine, prompt: [0] * 998)
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
        texts=[Text("a", (1, 0, 1), (0, 1))],
    )
    setting = Setting(0.7, 2, 1, (figures,))
    report = AlphaReport(
        model_of(engine), None, Environment.current(), "nothing", 8, 2, (setting, setting)
    )
    seen = []
    made = with_predictions(report, engine, prompts, progress=lambda *done: seen.append(done))
    assert len(made.predictions) == 2
    assert seen[-1] == (24, 24)  # two temperatures, twice 3 prompts of two categories
    (found, _) = made.predictions
    assert (found.drafter, found.temperature, found.num_draft_tokens) == ("ngram", 0.7, 4)
    assert (found.acceptance, found.known) == (pytest.approx(0.375), 1)
    assert found.draft_cost == pytest.approx(1.6 / 32 / 0.2)
    assert found.pass_cost == pytest.approx(2.0)
    tokens = 1 + 0.375 + 0.375**2 + 0.375**3 + 0.375**4
    assert found.predicted_tokens_per_pass == pytest.approx(tokens)
    assert found.theorem == pytest.approx(tokens / (4 * 0.25 + 1))
    assert found.predicted == pytest.approx(tokens / (4 * 0.25 + 2))
    assert (found.measured, found.tokens_per_pass) == (2, 2.2)
    assert engine.config.draft_budget == "always"
    assert (engine.config.temperature, engine.config.seed) == (0.7, 8)
    assert json.loads(json.dumps(made.to_dict()))["predictions"][0]["measured"] == 2


def test_the_table_of_speeds(loaded, monkeypatch):
    prediction = Prediction(
        "draft-model", 0.7, 4, 0.5, 0.9, 0.01, 1.7, 1.8, 1.1, 1.85, 1.234, 1.876
    )
    wanted = []

    def predictions(report, engine, prompts, progress):
        wanted.append(len(prompts))
        return replace(report, predictions=(prediction,))

    monkeypatch.setattr(run_module, "with_predictions", predictions)
    result = run("--tokens", "4", "--speed")
    assert result.exit_code == 0, result.output
    assert "\N{HORIZONTAL ELLIPSIS}" not in result.stdout
    (cells,) = (line.split() for line in result.stdout.splitlines() if line.startswith("draft-m"))
    assert cells == ["draft-model", "0.7", "4", "90%", "0.500", "0.010", "1.70", "1.80", "1.10", "1.23", "1.85", "1.88"]  # fmt: skip
    assert wanted == [2]
