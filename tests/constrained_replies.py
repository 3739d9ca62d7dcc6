"""Replies under random forms: they fit, and drafting changes none."""

import json

import jsonschema
from random_forms import schema, seeded

TEMPERATURES = (0.0, 0.8, 1.5)
DRAFTERS = ("none", "auto", "ngram", "tree")
ASK = [
    {
        "role": "user",
        "content": "Extract the record: Bob, aged 12, likes red and 青, see 12-10 and a/b.",
    }
]


def replies(engine, seed, drafters=DRAFTERS, max_tokens=160, **form):
    """The reply, which must be the same with each drafter; None if it does not end in time."""
    made = [
        engine.chat(
            ASK, temperature=TEMPERATURES[seed % 3], seed=seed, drafter=drafter, draft_budget="always",
            max_tokens=max_tokens, **form,
        )
        for drafter in drafters
    ]  # fmt: skip
    assert len({reply.token_ids for reply in made}) == 1, form
    assert len({reply.constraint_met for reply in made}) == 1
    ended = made[0].finish_reason == "stop"
    assert made[0].constraint_met or not ended
    return made[0].text if ended else None


def check_schemas(engine, seeds):
    ended = 0
    for seed in seeds:
        form = schema(seeded("schema", seed))
        text = replies(engine, seed, json_schema=form)
        if text is not None:
            jsonschema.validate(json.loads(text), form)
            ended += 1
    return ended
