"""Acceptance by hand on small p and q, and by counting where p is one-hot; the texts it is over."""

from dataclasses import replace

import numpy as np
import pytest
from alpha_toys import P, Q, Toy, measured, raw

from akunu_lab.alpha import run as run_module
from akunu_lab.alpha import texts as texts_module
from akunu_lab.alpha.measure import measure_setting
from akunu_lab.alpha.run import run_alpha
from akunu_lab.alpha.sources import (
    ContextSource,
    CorpusSource,
    DrafterSource,
    DraftModelSource,
    UniformSource,
    fitted_on_other_half,
    reply_logits,
)
from akunu_lab.alpha.texts import MeasuredText, generate_texts
from akunu_lab.counts.fitting import fit_counts
from akunu_lab.counts.ngram_model import NgramModel
from akunu_lab.study.store import ItemStore
from akunu_lab.theory import acceptance, coupled_acceptance, match_acceptance
from akunu_py import ConfigError
from akunu_py.drafting import LookupDrafter
from akunu_py.engine.engine import Engine

ROWS = [(0.2, 0.5, 0.3), (0.1, 0.1, 0.8), (0.6, 0.3, 0.1)]
ENDING = [(0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1), (0, 0, 0, 1)]
"""After 0 come 1 and 2, the end; after 3 only 3."""


def test_a_draft_model_by_hand():
    found = measured(DraftModelSource(Toy([Q]), Toy([P])), lenience=(1.0, 0.8))
    assert found.alpha.ratio == pytest.approx(0.75)
    assert found.coupled.ratio == pytest.approx(0.7)
    assert found.match.ratio == pytest.approx(0.3125)
    assert found.lenient[1.0].ratio == pytest.approx(0.75)
    assert found.lenient[0.8].ratio == pytest.approx(0.25 + 0.3125 + 0.25)
    assert found.known == 1


def test_both_go_through_the_temperature():
    p, q = (np.sqrt(row) / np.sqrt(row).sum() for row in (P, Q))
    found = measured(DraftModelSource(Toy([Q]), Toy([P])), temperature=2.0)
    assert found.alpha.ratio == pytest.approx(acceptance(p, q))
    assert found.coupled.ratio == pytest.approx(coupled_acceptance(p, q))
    assert found.match.ratio == pytest.approx(match_acceptance(p, q))


def test_nothing_known_is_uniform():
    found = measured(UniformSource(), lenience=(0.5,))
    assert found.alpha.ratio == pytest.approx(1 / 3 + 0.25 + 0.25)
    assert found.match.ratio == pytest.approx(1 / 3)
    assert found.lenient[0.5].ratio == pytest.approx(1)
    assert (found.known, found.coupled_known) == (0, None)
    # At temperature 0 one token of three is right, and that is no sum of minima any more.
    assert measured(UniformSource(), temperature=0.0).alpha.ratio == pytest.approx(1 / 3)


@pytest.mark.parametrize(("lenience", "accepted"), [(1.0, 0), (0.7, 0), (0.5, 1)])
def test_greedy_lenience_by_hand(lenience, accepted):
    """The draft's likeliest has 0.3 where the target's has 0.5."""
    draft = DraftModelSource(Toy([(0.1, 0.8, 0.1)]), Toy([P]))
    texts = [MeasuredText("a", (1,), (0, 0))]
    found = measured(
        draft, rows=[(0.5, 0.3, 0.2)], temperature=0.0, lenience=(lenience,), texts=texts
    )
    assert found.alpha.ratio == 0
    assert found.lenient[lenience].ratio == accepted


def test_one_hot_acceptance_counts_matches():
    """Where p and q are one-hot all kinds of acceptance are the share of right guesses."""
    generator = np.random.default_rng(5)
    text = MeasuredText("a", (0, 1, 2), tuple(int(token) for token in generator.integers(0, 3, 60)))
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
    assert found.alpha.ratio == pytest.approx((right + unknown / 3) / 60)
    assert found.coupled.ratio == pytest.approx(found.alpha.ratio)
    assert found.match.ratio == pytest.approx(found.alpha.ratio)
    assert found.known == pytest.approx(1 - unknown / 60)
    assert found.coupled_known == pytest.approx(right / (60 - unknown))


def test_a_certain_guess_is_accepted_with_p_of_it():
    """q one-hot, p not: min(p, q), the coupled and the independent draw all come to p(x)."""
    found = measured(
        DrafterSource("copy", lambda: LookupDrafter(num_draft_tokens=1), 3),
        texts=[MeasuredText("a", (1, 0, 1), (0, 1))],
    )  # fmt: skip
    expected = (0.5 + 0.25) / 2
    assert [found.alpha.ratio, found.coupled.ratio, found.match.ratio] == [pytest.approx(expected)] * 3  # fmt: skip


def test_corpora_are_the_other_half():
    """Two replies of one token each, in different halves: neither may know its own."""
    names = {}
    for index in range(20):
        text = MeasuredText(f"prompt {index}", (0,), (1 + index % 2,) * 4)
        names.setdefault(text.half, text)
    first = MeasuredText(names[0].session, (0,), (1,) * 4)
    second = MeasuredText(names[1].session, (0,), (2,) * 4)
    counts = fitted_on_other_half([first, second], 3)
    assert counts[first.half].tokens.tolist() == [2]
    assert counts[second.half].tokens.tolist() == [1]
    source = CorpusSource(1, counts)
    found = measured(source, temperature=0.0, texts=[first, second])
    assert (source.name, found.alpha.ratio) == ("unigram", 0)


def test_bigrams_by_hand():
    counts = fit_counts([[0, 1, 0, 1, 0, 2]], 3)
    source = CorpusSource(2, {0: counts, 1: counts})
    rows = list(source.rows(MeasuredText("a", (2, 0), (1, 0)), 0.0))
    assert [row.tolist() for row in rows] == [[0, 1, 0], [1, 0, 0]]


def test_counts_of_the_context_see_nothing_ahead():
    text = MeasuredText("a", (0, 1, 2, 0, 1), (2, 0, 0, 1, 2, 2))
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
    rows = list(DraftModelSource(draft, target).rows(MeasuredText("a", (0, 3), (1, 2, 3, 0)), 1.0))
    # Padding is never drawn, and what is left adds up to 1 over the target's ids.
    assert rows[0] == pytest.approx([0.5, 0.5, 0, 0])
    assert [row is None for row in rows] == [False, False, False, True]
    assert draft.fed == [[0, 0, 1, 0]]
    short = Toy([(0.25, 0.25, 0.5)], texts=["a", "b", ""], context=1)
    assert list(DraftModelSource(short, target).rows(MeasuredText("a", (0, 1, 0), (1,)), 1.0)) == [
        None
    ]
    with pytest.raises(ConfigError, match="another vocabulary"):
        DraftModelSource(Toy([P], texts=["a", "x", "c"]), target)


def test_texts_are_shared_out_evenly_and_end_where_they_must():
    engine = Toy([(0.9, 0.1, 0.0)])
    prompts = [raw("a", "0"), raw("b", "01"), raw("c", "1")]
    seen = []
    made = generate_texts(engine, prompts, temperature=0.0, num_tokens=11, progress=seen.append)
    assert [len(text.reply) for text in made] == [4, 4, 3]
    assert seen[-1] == 11
    assert made[1].prompt == (0, 1)


def test_rounds_of_a_reply_are_made_at_once():
    """What an ended reply leaves over goes to the others, and still a prompt is fed once."""
    engine = Toy(ENDING, end=2)
    prompts = [raw("a", "0"), raw("b", "3"), raw("c", "33")]
    made = generate_texts(engine, prompts, temperature=0.0, num_tokens=12)
    assert [text.reply for text in made] == [(1, 2), (3,) * 5, (3,) * 5]
    assert [size for size, _, _ in engine.asked] == [1, 1, 2]
    # What is made beyond the share is little, and no part of the text.
    assert [most for _, most, _ in engine.asked] == [4 + 8] * 3
    long = Toy([(1, 0)])
    generate_texts(long, [raw("a", "0"), raw("b", "00")], temperature=0.0, num_tokens=200)
    assert [most for _, most, _ in long.asked] == [100 + 25] * 2


@pytest.mark.parametrize("bound", [2**29, 60 * 3 * 4 - 1])
def test_logits_are_kept_where_they_take_little_memory(monkeypatch, bound):
    monkeypatch.setattr(texts_module, "_MOST_LOGITS_BYTES", bound)
    engine = Toy(ROWS, context=40)
    made = generate_texts(
        engine, [raw("a", "0"), raw("b", "0" * 30)], temperature=1.0, num_tokens=60
    )
    assert len(made) > 2
    for text in made:
        if bound < 60 * 3 * 4:
            assert text.logits is None
        else:
            expected = reply_logits(engine, [*text.prompt, *text.reply], len(text.prompt))
            np.testing.assert_array_equal(text.logits, expected)
    engine.fed.clear()
    setting = measure_setting(engine, made, [UniformSource()], temperature=1.0)
    assert len(engine.fed) == (len(made) if bound < 60 * 3 * 4 else 0)
    again = [replace(text, logits=None) for text in made]
    found = measure_setting(engine, again, [UniformSource()], temperature=1.0)
    assert setting.sources[0].alpha.ratio == pytest.approx(found.sources[0].alpha.ratio)


def test_greedy_replies_are_not_repeated_and_drawn_ones_get_the_next_seed():
    made = generate_texts(Toy(ENDING, end=2), [raw("a", "0")], temperature=0.0, num_tokens=9)
    assert [text.reply for text in made] == [(1, 2)]
    engine = Toy(ENDING, end=2)
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
    texts = [MeasuredText(name, (1,), reply_of[name]) for name in ("a", "b")]
    draft = DraftModelSource(Toy([(1, 0, 0)]), Toy([P]))
    found = measured(draft, temperature=0.0, texts=texts)
    assert found.alpha.ratio == 0.5
    assert (found.alpha.low, found.alpha.high, found.alpha.pairs) == (0, 1, 2)
    same = [MeasuredText("a", text.prompt, text.reply) for text in texts]
    found = measured(draft, temperature=0.0, texts=same)
    assert (found.alpha.low, found.alpha.high) == (0.5, 0.5)


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
    setting = measure_setting(tiny, made, [DraftModelSource(tiny, tiny)], temperature=temperature)
    found = setting.sources[0]
    assert setting.num_tokens == 30
    assert found.alpha.ratio == pytest.approx(1)
    assert found.coupled.ratio == pytest.approx(1)
    assert found.match.ratio == pytest.approx(1) if temperature == 0 else found.match.ratio < 1


def test_a_run_is_repeatable_and_says_what_it_was(tmp_path):
    prompts = [raw("a", "01"), raw("b", "12")]
    seen = []
    options = {"temperatures": (0.0, 1.0), "num_tokens": 20, "lenience": (0.5,), "seed": 4}
    report, again = (
        run_alpha(
            Toy(ROWS), prompts, draft=Toy([Q]), progress=lambda *done: seen.append(done), **options
        )
        for _ in range(2)
    )
    assert report.settings == again.settings
    assert seen[-1] == (80, 80)
    assert [done for done, _ in seen] == 2 * sorted(done for done, _ in seen[: len(seen) // 2])
    names = [source.name for source in report.settings[0].sources]
    assert names == [
        "uniform", "unigram", "bigram", "4-gram of the context", "copy from context",
        "drafter ngram", "draft model",
    ]  # fmt: skip
    cells = report.findings().deterministic["cells"]
    assert list(cells) == ["temperature 0", "temperature 1"]
    assert cells["temperature 1"]["num_tokens"] == 20
    assert cells["temperature 1"]["sources"]["draft model"]["lenient"]["0.5"]["ratio"] <= 1
    assert "other half" in report.corpus
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("0121")
    assert run_alpha(Toy(ROWS), prompts, corpus=corpus, **options).corpus == str(corpus)


def test_a_run_goes_on_behind_the_temperatures_that_are_finished(tmp_path, monkeypatch):
    prompts = [raw("a", "01"), raw("b", "12")]
    options = {"temperatures": (0.0, 1.0), "num_tokens": 20, "lenience": (0.1, 0.5)}
    whole = run_alpha(Toy(ROWS), prompts, **options)
    made = []
    measure = run_module.measure_setting

    def interrupted(*arguments, **keywords):
        made.append(keywords["temperature"])
        if len(made) == 2:
            raise KeyboardInterrupt
        return measure(*arguments, **keywords)

    monkeypatch.setattr(run_module, "measure_setting", interrupted)
    with ItemStore(tmp_path, {}) as store:
        cut = run_alpha(Toy(ROWS), prompts, store=store, **options)
    assert not cut.finished
    assert cut.settings == whole.settings[:1]
    with ItemStore(tmp_path, {}) as store:
        rest = run_alpha(Toy(ROWS), prompts, store=store, **options)
    assert made == [0.0, 1.0, 1.0]
    assert rest.finished
    assert rest.settings == whole.settings
