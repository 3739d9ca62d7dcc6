"""Replies under random forms: they fit, and drafting changes none."""

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jsonschema
from random_forms import expression, grammar, schema, seeded

TEMPERATURES = (0.0, 0.8, 1.5)
DRAFTERS = ("none", "auto", "ngram", "tree")
ASK = [
    {
        "role": "user",
        "content": "Extract the record: Bob, aged 12, likes red and 青, see 12-10 and a/b.",
    }
]


class Form(NamedTuple):
    """A form as an option of a reply, and whether a text has it by another program's judgement."""

    option: dict[str, Any]
    fits: Callable[[str], bool]


def replies(engine, seed, form, drafters=DRAFTERS, max_tokens=160):
    """The reply to the same question with each drafter."""
    return [
        engine.chat(
            ASK, temperature=TEMPERATURES[seed % 3], seed=seed, drafter=drafter, draft_budget="always",
            max_tokens=max_tokens, **form.option,
        )
        for drafter in drafters
    ]  # fmt: skip


def check(engine, kind, seeds, drafters=DRAFTERS, max_tokens=160):
    """Check a case a seed; return how many replies ended by themselves.

    Drafts must have been accepted: otherwise equal replies would say nothing of them.
    """
    ended = accepted = 0
    for seed in seeds:
        form = FORMS[kind](seed)
        plain, *drafted = replies(engine, seed, form, drafters, max_tokens)
        for reply in drafted:
            assert reply.token_ids == plain.token_ids, form
            assert reply.constraint_met == plain.constraint_met
            accepted += reply.stats.accepted
        if plain.finish_reason == "stop":
            assert plain.constraint_met
            assert form.fits(plain.text), (form, plain.text)
            ended += 1
    assert accepted
    return ended


def _schema(seed):
    form = schema(seeded("schema", seed))

    def fits(text):
        return jsonschema.Draft202012Validator(form).is_valid(json.loads(text))

    return Form({"json_schema": form}, fits)


def _expression(seed):
    form = expression(seeded("regex", seed))
    return Form({"regex": form}, lambda text: re.fullmatch(form, text) is not None)


def _grammar(seed):
    if seed % 5 == 4:
        return _brackets("([{<«"[seed // 5 % 5], ")]}>»"[seed // 5 % 5])
    form, language = grammar(seeded("grammar", seed))
    return Form({"grammar": form}, lambda text: re.fullmatch(language, text) is not None)


def _brackets(opens, closes):
    """Pairs of brackets within each other, which no expression can describe."""

    def fits(text):
        inside = re.sub(f"[^{re.escape(opens + closes)}]", "", text)
        while inside != (inside := inside.replace(opens + closes, "")):
            pass
        return not inside

    return Form(
        {"grammar": f'start: pair\npair: "{opens}" (pair | /[a-z]/){{0,2}} "{closes}"'}, fits
    )


FORMS: dict[str, Callable[[int], Form]] = {
    "schemas": _schema,
    "expressions": _expression,
    "grammars": _grammar,
}
