"""`akunu bench streams`: replies at once are those alone, and what is timed and compared."""

import pytest
from click.testing import CliRunner

from akunu_lab.commands.streams import streams
from akunu_lab.streams import batches, run_streams
from akunu_py import ConfigError, Engine
from akunu_py.bench.runner import Item
from akunu_py.values.types import GenerationConfig

PROMPT = tuple(range(5, 25))


def item(name, prompt=PROMPT):
    return Item(name, "edit", name, prompt)


@pytest.fixture(scope="module")
def engine(tiny_gguf):
    with Engine.load(tiny_gguf) as engine:
        engine.compares_rows = False
        yield engine


def test_replies_at_once_are_those_of_one_at_a_time(engine):
    prompts = [PROMPT[:size] for size in (20, 9, 14, 7, 12)]
    items = [item(str(place), prompt) for place, prompt in enumerate(prompts)]
    report = run_streams(
        engine, items, streams=(1, 2), drafters=["none", "ngram"], max_tokens=12, with_costs=False
    )
    # Two pairs of prompts, and one is left over.
    assert [run.item.id for run in report.runs] == ["0 and 1 more", "2 and 1 more"]
    assert tuple(report.against) == ("none x1", "ngram x1", "none x2", "ngram x2")
    config = GenerationConfig(max_tokens=12, drafter="none")
    alone = [engine.generate(prompt, config).token_ids for prompt in prompts]
    for run, (first, second) in zip(report.runs, (alone[:2], alone[2:4]), strict=True):
        for reply in run.replies.values():
            assert reply.token_ids == (*first, *second)
            assert reply.cpu_s > 0
        # Both end at the same length.
        assert run.replies["none x2"].num_first == 0
    findings = report.findings()
    for arm in findings.timing["arms"].values():
        assert arm["tokens_per_cpu_s"] > 0
    assert [row[:2] for row in findings.tables[1].rows] == [
        ("edits", "ngram x1"), ("edits", "ngram x2"),
    ]  # fmt: skip


def test_only_rounds_with_all_places_taken_are_timed(engine):
    """The third reply has the two places to itself."""
    items = [item(str(place), PROMPT[: 9 + place]) for place in range(3)]
    report = run_streams(
        engine, items, streams=(2, 3), drafters=["none"], max_tokens=12, with_costs=False
    )
    two, three = report.runs[0].replies.values()
    assert (len(two.token_ids), two.num_first) == (36, 12)
    assert (len(three.token_ids), three.num_first) == (36, 0)


def test_what_the_ratios_of_replies_at_once_compare(engine):
    report = run_streams(
        engine, [item("a"), item("b")], streams=(1, 2), drafters=["none", "ngram"], max_tokens=8,
        with_costs=False,
    )  # fmt: skip
    assert report.against["ngram x2"] == "ngram x1"
    assert report.beside["ngram x2"] == "none x2"


def test_prompts_of_a_kind_of_text_are_made_together():
    kinds = ("edit", "prose", "session", "novel", "other")
    items = [Item(f"{kind}{n}", kind, kind, (n,)) for kind in kinds for n in range(3)]
    made = [(one.category, one.prompt + one.beside[0]) for one in batches(items, 2)]
    assert made[:3] == [("edits", (0, 1)), ("edits", (2, 0)), ("edits", (1, 2))]
    assert [kind for kind, _ in made[3:]] == ["new text"] * 3 + ["other"]
    with pytest.raises(ConfigError, match="7 replies at once need as many prompts"):
        batches(items, 7)


def test_the_command(tiny_gguf):
    words = ["--streams", "1,2", "--limit", "2", "--max-tokens", "8", "--category", "novel"]
    result = CliRunner().invoke(streams, [str(tiny_gguf), *words, "--json"])
    assert result.exit_code == 0, result.output
    assert '"none x2"' in result.stdout
    result = CliRunner().invoke(streams, ["--streams", "2,none"])
    assert "'2,none' is not a list of numbers" in " ".join(result.output.split())
