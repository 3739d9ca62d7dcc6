"""Output identity on the model that ships, over the prompts that ship, and mlx-lm's greedy tokens."""

import mlx.core as mx
import pytest
from identity import assert_same_tokens
from mlx_lm.generate import generate_step

from akunu_py import Engine, GenerationConfig
from akunu_py.bench.workloads import CATEGORIES, Prompt

PENALTIES = {"repetition_penalty": 1.15, "presence_penalty": 0.2, "frequency_penalty": 0.1}
SETTINGS = {
    f"{temperature}{name}": (temperature, penalties)
    for name, penalties in (("", {}), (", penalties", PENALTIES))
    for temperature in (0.0, 0.7, 1.3)
}
# Categories of the fast tests; an edit has a test of its own.
IN_BRIEF = ("completion", "boilerplate", "prose")
# The last turn of a session has the ones before it in front.
ALL = Prompt.load()
PROMPTS = [
    prompt
    for prompt, after in zip(ALL, [*ALL[1:], None], strict=True)
    if after is None or after.session != prompt.session
]


@pytest.fixture(scope="module")
def engine(default_model):
    with Engine.load(default_model) as engine:
        yield engine


def ids_of(engine, prompt):
    if prompt.kind == "chat":
        return engine.tokenizer.encode_chat(prompt.messages)
    return engine.tokenizer.encode(prompt.text, parse_special=True)


def check(engine, prompt, temperature, penalties, drafters, max_tokens):
    """Compare with the plain reply. Prefill is the same whoever drafts; its rows serve all replies."""
    config = GenerationConfig(
        max_tokens=max_tokens, temperature=temperature, seed=2026, **penalties
    )
    ids = ids_of(engine, prompt)
    engine.reset()
    plain = engine.generate(ids, config, drafter="none")
    for drafter, budget in [*((name, "always") for name in drafters), (drafters[0], "auto")]:
        drafted = engine.generate(ids, config, drafter=drafter, draft_budget=budget)
        assert_same_tokens(
            drafted.token_ids, plain.token_ids, logits=engine.logits, prompt=ids, config=config,
            seed=2026, about=f"{prompt.id}, {drafter}, {budget}, {temperature}",
        )  # fmt: skip
        assert drafted.text == plain.text or drafted.token_ids != plain.token_ids


@pytest.mark.parametrize(
    ("category", "name"),
    [
        pytest.param(category, name, marks=() if category in IN_BRIEF else pytest.mark.slow)
        for category, name in zip(CATEGORIES, [*SETTINGS, "0.7, penalties"], strict=True)
    ],
)
def test_a_prompt_of_each_category(engine, category, name):
    """Every setting comes up; `test_every_fourth_prompt` has more prompts and drafters."""
    temperature, penalties = SETTINGS[name]
    chosen = min(
        (prompt for prompt in PROMPTS if prompt.category == category),
        key=lambda prompt: len(ids_of(engine, prompt)),
    )
    drafter = ("auto", "ngram")[list(SETTINGS).index(name) % 2]
    check(engine, chosen, temperature, penalties, [drafter], 16)


@pytest.mark.slow
@pytest.mark.parametrize("prompt", PROMPTS[::4], ids=lambda prompt: prompt.id)
def test_every_fourth_prompt(engine, prompt):
    """Each in one setting; each setting and each drafter with six prompts or more."""
    others = ["ngram", "ngram-window", "lookup", "recycling", "tree"]
    number = PROMPTS.index(prompt) // 4
    temperature, penalties = list(SETTINGS.values())[number % len(SETTINGS)]
    check(engine, prompt, temperature, penalties, ["auto", others[number % 5]], 24)


@pytest.mark.slow
@pytest.mark.parametrize("prompt", PROMPTS[1::8], ids=lambda prompt: prompt.id)
def test_greedy_is_mlx_lms_on_every_eighth_prompt(engine, prompt):
    ids = ids_of(engine, prompt)
    with engine.lend("a test") as lent:
        expected = [token for token, _ in generate_step(mx.array(ids), lent.model, max_tokens=64)]
    engine.reset()
    found = list(engine.generate(ids, max_tokens=64).token_ids)
    # generate_step knows no end of generation; akunu stops there.
    assert_same_tokens(
        found, expected[: len(found)], logits=engine.logits, prompt=ids,
        config=GenerationConfig(), seed=0, about=prompt.id,
    )  # fmt: skip
    assert len(found) == 64 or found[-1] in engine.tokenizer.end_ids


def test_the_shipped_model_drafts_on_an_edit(engine):
    """What the project is for, on the smallest scale: copying is accepted, the text is the same."""
    code = (
        "def read_all(paths, encoding):\n"
        "    contents = []\n"
        "    for path in paths:\n"
        "        with open(path, encoding=encoding) as stream:\n"
        "            contents.append(stream.read())\n"
        "    return contents"
    )
    message = {"role": "user", "content": f"Repeat this code.\n```python\n{code}\n```"}
    engine.forget()
    plain = engine.chat([message], max_tokens=120, drafter="none")
    for drafter in ("auto", "ngram"):
        drafted = engine.chat([message], max_tokens=120, draft_budget="always", drafter=drafter)
        assert drafted.text == plain.text
        assert drafted.stats.tokens_per_pass > 1.3
        assert drafted.stats.hit_rate > 0.3
