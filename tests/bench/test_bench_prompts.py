"""The shipped prompts: what they must be for rates over them to mean something."""

import ast
import json
import re
import tomllib
from collections import Counter

import pytest

from akunu_py.bench.workloads import CATEGORIES, Prompt, load_prompts, parse_prompts
from akunu_py.errors import ConfigError, ContractError

PROMPTS = load_prompts()
FENCE = re.compile(r"```(\w+)\n(.*?)\n```", re.DOTALL)


def fenced(prompt):
    ((language, code),) = FENCE.findall(prompt.last_user_text)
    return language, code


def instruction(prompt):
    return FENCE.sub("", prompt.last_user_text).strip()


def test_every_category_has_its_prompts_and_no_id_occurs_twice():
    assert Counter(prompt.category for prompt in PROMPTS) == dict.fromkeys(CATEGORIES, 12)
    assert len({prompt.id for prompt in PROMPTS}) == len(PROMPTS)
    assert len({prompt.last_user_text for prompt in PROMPTS}) == len(PROMPTS)
    assert {prompt.kind for prompt in PROMPTS} == {"raw", "chat"}
    for prompt in PROMPTS:
        assert prompt.id.startswith(prompt.category + "/")


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: prompt.id)
def test_prompts_are_short_plain_text(prompt):
    assert 120 <= len(prompt.last_user_text) <= 1400
    assert prompt.last_user_text.isascii()
    assert "\t" not in prompt.last_user_text
    if prompt.kind == "chat":
        assert instruction(prompt)
        assert fenced(prompt)


@pytest.mark.parametrize("prompt", load_prompts(["edit"]), ids=lambda prompt: prompt.id)
def test_edits_can_be_carried_out(prompt):
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


@pytest.mark.parametrize(
    "prompt",
    [p for p in load_prompts(["config"]) if p.kind == "chat"],
    ids=lambda prompt: prompt.id,
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


def test_configuration_covers_three_languages():
    names = [prompt.id.removeprefix("config/") for prompt in load_prompts(["config"])]
    assert {name.partition("-")[0] for name in names} == {"json", "toml", "yaml"}


def test_categories_are_chosen_by_name():
    chosen = load_prompts(["config", "edit"])
    assert list(dict.fromkeys(prompt.category for prompt in chosen)) == ["edit", "config"]
    assert len(chosen) == 24
    with pytest.raises(ConfigError, match="no category 'poems'; choose from completion"):
        load_prompts(["edit", "poems"])


RAW = {"id": "a", "category": "edit", "kind": "raw", "prompt": "x"}
CHAT = {"id": "a", "category": "edit", "kind": "chat"}


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ([], "a prompt is a JSON object"),
        ({**RAW, "kind": "song"}, "kind is 'song'"),
        ({**RAW, "kind": ["raw"]}, "it is raw or chat"),
        ({**RAW, "category": "poems"}, "no known category"),
        ({**RAW, "id": 3}, "the id 3"),
        ({**RAW, "prompt": " \n"}, "needs a text"),
        ({**RAW, "prompt": 3}, "needs a text"),
        ({**RAW, "messages": []}, "has the fields category, id, kind, prompt"),
        (CHAT, "has the fields category, id, kind, messages"),
        ({**CHAT, "messages": []}, "needs messages"),
        ({**CHAT, "messages": "hello"}, "it is a list"),
        ({**CHAT, "messages": ["hello"]}, "has the message 'hello'"),
        ({**CHAT, "messages": [{"role": "god", "content": "x"}]}, "has a role of"),
        ({**CHAT, "messages": [{"role": "user", "content": ""}]}, "a content"),
        ({**CHAT, "messages": [{"role": "assistant", "content": "x"}]}, "end with the user"),
    ],
)
def test_malformed_prompts_are_named(record, words):
    text = json.dumps({**RAW, "id": "first"}) + "\n\n" + json.dumps(record)
    with pytest.raises(ContractError, match="mine, line 3: ") as caught:
        parse_prompts(text, "mine")
    assert words in str(caught.value)


def test_a_second_prompt_of_one_id_and_a_broken_line_are_refused():
    line = json.dumps(RAW)
    with pytest.raises(ContractError, match="line 2: the id a occurs twice"):
        parse_prompts(f"{line}\n{line}\n", "mine")
    with pytest.raises(ContractError, match="mine, line 2: "):
        parse_prompts(f"{line}\n{line[:-3]}", "mine")


def test_what_a_model_without_a_template_gets():
    messages = ({"role": "system", "content": "s"}, {"role": "user", "content": "u"})
    assert Prompt("a", "edit", "chat", messages=messages).last_user_text == "u"
    assert Prompt("a", "edit", "raw", "text").last_user_text == "text"
