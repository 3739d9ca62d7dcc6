"""The shipped prompts: what they must be for rates over them to mean something."""

import ast
import json
import re
import tomllib
from collections import Counter
from difflib import SequenceMatcher
from itertools import combinations
from pathlib import Path
from statistics import median

import pytest

from akunu_py.bench.workloads import CATEGORIES, Prompt, first_of_each, order_of
from akunu_py.gguf import GGUFFile
from akunu_py.tokenizers import from_gguf

PROMPTS = Prompt.load()
FENCE = re.compile(r"```(\w+)\n(.*?)\n```", re.DOTALL)
CODE = {"completion", "edit", "boilerplate", "config", "session"}
TABBED = {"go"}  # the one of these languages that is indented with tabs


def of_category(category):
    return [prompt for prompt in PROMPTS if prompt.category == category]


def fenced(prompt):
    ((language, code),) = FENCE.findall(prompt.last_user_text)
    return language, code


def instruction(prompt):
    return FENCE.sub("", prompt.last_user_text).strip()


def test_every_category_has_its_prompts_and_no_id_occurs_twice():
    counts = Counter(prompt.category for prompt in PROMPTS)
    assert tuple(counts) == CATEGORIES
    assert min(counts.values()) >= 20
    assert len({prompt.id for prompt in PROMPTS}) == len(PROMPTS)
    assert {prompt.kind for prompt in PROMPTS} == {"raw", "chat"}
    for prompt in PROMPTS:
        assert prompt.id.startswith(prompt.category + "/")


@pytest.mark.parametrize("category", CATEGORIES)
def test_prompts_are_plain_text(category):
    for prompt in of_category(category):
        texts = [prompt.text, prompt.reference, *(m["content"] for m in prompt.messages)]
        assert all(text.isascii() for text in texts), prompt.id
        assert ("\t" in "".join(texts)) <= (prompt.language in TABBED), prompt.id
        assert len(prompt.last_user_text) >= (120 if prompt.language and not prompt.turn else 15)
        assert bool(prompt.language) or category not in CODE, prompt.id
        if prompt.kind == "chat" and category in CODE:
            assert instruction(prompt), prompt.id
            fences = FENCE.findall("".join(texts))
            assert {language for language, _ in fences} == {prompt.language}, prompt.id


@pytest.fixture(scope="module")
def tokenizer(default_model):
    with GGUFFile.open(default_model) as file:
        return from_gguf(file.metadata)


def num_tokens(tokenizer, prompt):
    if prompt.kind == "chat":
        return len(tokenizer.encode_chat(prompt.messages))
    return len(tokenizer.encode(prompt.text))


@pytest.mark.parametrize("category", CATEGORIES)
def test_prompts_fit_the_default_model_with_a_reply_of_256_tokens(tokenizer, category):
    for prompt in of_category(category):
        assert num_tokens(tokenizer, prompt) + 256 <= 2048, prompt.id


def test_the_docs_have_the_numbers_of_items_and_their_sizes(tokenizer):
    page = (Path(__file__).parents[2] / "docs/measuring.md").read_text()
    section = page.partition("## Workloads")[2].partition("\n## ")[0]
    for category in CATEGORIES:
        sizes = [num_tokens(tokenizer, prompt) for prompt in of_category(category)]
        assert f"| {category} | {len(sizes)} | {round(median(sizes))} |" in section


def test_no_two_prompts_are_nearly_the_same():
    """By the share of word triples; turns of a session are alike by design, so one of each."""
    firsts = [prompt for prompt in PROMPTS if not prompt.turn]
    assert len(firsts) < len(PROMPTS)
    triples = {}
    for prompt in firsts:
        words = re.findall(r"\w+", prompt.last_user_text)
        triples[prompt.id] = set(zip(words, words[1:], words[2:], strict=False))
    for (one, left), (other, right) in combinations(triples.items(), 2):
        share = len(left & right) / min(len(left), len(right))
        # Two prompts may be about one given text.
        assert share < (0.95 if {one, other} in SAME_PASSAGE else 0.3), (one, other)


SAME_PASSAGE = (
    {"prose/summary-lighthouse", "prose/simple-lighthouse"},
    {"prose/minutes-actions", "prose/minutes-mail"},
)


def test_languages_vary():
    languages = Counter(prompt.language for prompt in PROMPTS if not prompt.turn)
    code = {"python", "javascript", "typescript", "go", "rust", "sql", "bash", "c"}
    assert code | {"json", "toml", "yaml"} <= set(languages)
    assert min(languages[name] for name in code) >= 2
    for category in ("completion", "edit", "boilerplate"):
        found = Counter(prompt.language for prompt in of_category(category))
        assert found.most_common(1)[0][0] == "python"
        assert len(found) >= 8
    sessions = Counter(prompt.language for prompt in of_category("session") if not prompt.turn)
    assert len(sessions) >= 7


SHORT_EDITS = [p for p in of_category("edit") if not p.id.startswith("edit/file-")]
FILE_EDITS = [p for p in of_category("edit") if p.id.startswith("edit/file-")]


@pytest.mark.parametrize("prompt", SHORT_EDITS, ids=lambda prompt: prompt.id)
def test_short_edits_can_be_carried_out(prompt):
    language, code = fenced(prompt)
    assert language == "python"
    assert 6 <= code.count("\n") + 1 <= 25
    (function,) = ast.parse(code).body
    assert isinstance(function, ast.FunctionDef)
    words = instruction(prompt)
    documented = ast.get_docstring(function) is not None
    if words == "Remove the docstring.":
        assert documented
    elif words.startswith("Add the docstring"):
        assert not documented
    elif words.startswith("Rename"):
        old, new = re.findall("`(.*?)`", words)
        assert re.search(rf"\b{old}\b", code)
        assert not re.search(rf"\b{new}\b", code)
    elif words.startswith("Add type hints"):
        hinted = re.findall(r"`(\w+)` is", words)
        assert hinted == [argument.arg for argument in function.args.args]
    elif words.startswith("Change"):
        assert re.search(rf"\b{words.split()[1]}\b", code)
    elif words.startswith("Add a parameter"):
        assert "verbose" not in code
    else:
        assert words == "Repeat this code."


def test_file_edits_are_whole_files():
    assert len(FILE_EDITS) >= 12
    sizes = [fenced(prompt)[1].count("\n") + 1 for prompt in FILE_EDITS]
    assert all(20 <= size <= 80 for size in sizes)
    assert max(sizes) > 60


@pytest.mark.parametrize("prompt", of_category("edit"), ids=lambda prompt: prompt.id)
def test_references_of_edits_are_the_file_with_a_change(prompt):
    if "Repeat this code." in prompt.last_user_text:
        assert not prompt.reference
        return
    language, before = fenced(prompt)
    after = prompt.reference
    assert after != before
    assert "```" not in after
    old, new = before.split("\n"), after.split("\n")
    kept = sum(
        block.size
        for block in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    )
    assert kept >= 0.6 * len(old)
    if language == "python":
        ast.parse(before)
        ast.parse(after)


def test_sessions_edit_one_file_turn_by_turn():
    sessions = {}
    for prompt in of_category("session"):
        sessions.setdefault(prompt.session, []).append(prompt)
    assert len(sessions) >= 10
    for name, turns in sessions.items():
        assert [prompt.id for prompt in turns] == [f"{name}/{n}" for n in range(len(turns))]
        assert 3 <= len(turns) <= 5
        ((_, code),) = FENCE.findall(turns[0].last_user_text)
        for number, prompt in enumerate(turns):
            assert prompt.turn == number
            assert sum(message["role"] == "assistant" for message in prompt.messages) == number
            if number:
                assert prompt.messages[-2]["content"] == turns[number - 1].reference
            ((_, after),) = FENCE.findall(prompt.reference)
            assert after != code
            kept = set(code.split("\n")) & set(after.split("\n"))
            assert len(kept) >= 0.5 * len(set(code.split("\n")))
            if prompt.language == "python":
                ast.parse(after)
            code = after


@pytest.mark.parametrize(
    "prompt", [p for p in of_category("config") if p.kind == "chat"], ids=lambda prompt: prompt.id
)
def test_configuration_to_edit_is_well_formed(prompt):
    language, code = fenced(prompt)
    assert language in {"json", "toml", "yaml"}
    if language == "json":
        assert json.loads(code)
    elif language == "toml":
        assert tomllib.loads(code)
    for word in re.findall(r"(?:Change|Replace|Rename) [`\"]?([\w.]+)", instruction(prompt)):
        assert word.rstrip(".") in code


def test_configuration_covers_its_languages():
    languages = Counter(prompt.language for prompt in of_category("config"))
    assert all(languages[name] >= 4 for name in ("json", "toml", "yaml"))
    for prompt in of_category("config"):
        assert prompt.id.startswith(f"config/{prompt.language}-")


def test_a_limit_takes_the_first_of_each_category():
    few = Prompt.load(limit=2)
    assert [prompt.category for prompt in few] == [c for c in CATEGORIES for _ in range(2)]
    assert list(few) == first_of_each(PROMPTS, 2)
    assert first_of_each(PROMPTS, None) == list(PROMPTS)


def test_free_categories_come_behind_the_shipped_ones():
    assert order_of(["mine", "prose", "a", "edit", "mine"]) == ("edit", "prose", "mine", "a")
    assert order_of(reversed(CATEGORIES)) == CATEGORIES


def test_a_prompt_alone_is_a_session_of_its_own():
    prompt = Prompt("a", "edit", "raw", "text")
    assert (prompt.session, prompt.turn) == ("a", 0)


def test_what_a_model_without_a_template_gets():
    messages = ({"role": "system", "content": "s"}, {"role": "user", "content": "u"})
    assert Prompt("a", "edit", "chat", messages=messages).last_user_text == "u"
    assert Prompt("a", "edit", "raw", "text").last_user_text == "text"
