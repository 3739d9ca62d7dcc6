"""Replies that do not end by themselves, and the details of their steps."""

PROMPT = "def hello(world):\n    return world"


def endless(engine, **options):
    """Options under which a reply does not end by itself."""
    never = dict.fromkeys(engine.tokenizer.end_ids, -1e6)
    return {"logit_bias": never, "draft_budget": "always", **options}


def details(engine, **options):
    """The reply to `PROMPT` and the details of its steps."""
    stream = engine.stream(PROMPT, **options)
    steps = [event.step.detail for event in stream if event.step is not None]
    return stream.result, steps
