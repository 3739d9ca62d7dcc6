"""What tests of whole replies share: endless ones, the law of drawn texts, and far too long prompts."""

from collections import Counter

from akunu_py.tokenizers.gguf_tokenizer import GGUFTokenizer

PROMPT = "def hello(world):\n    return world"
MEGABYTES = {
    "one letter": "x" * 2**20,
    "words": "hello world, the function " * 40_000,
    "digits": "1234567890" * 100_000,
    "spaces": " " * 2**20,
    "letters of three bytes": "\u4f60\u597d" * 2**19,
}
"""Prompts far longer than any context."""


def endless(engine, **options):
    """Options under which a reply does not end by itself."""
    never = dict.fromkeys(engine.tokenizer.end_ids, -1e6)
    return {"logit_bias": never, "draft_budget": "always", **options}


def details(engine, **options):
    """The reply to `PROMPT` and the details of its steps."""
    stream = engine.stream(PROMPT, **options)
    steps = [event.step.detail for event in stream if event.step is not None]
    return stream.result, steps


def above_the_mean(texts, law, length):
    """Return chi-squared of the first `length` tokens, in standard deviations above its mean.

    `law` has the probability of each text. Beginnings that are expected less than five times count
    as one.
    """
    expected = Counter()
    for text, p in law.items():
        expected[text[:length]] += len(texts) * p
    observed = Counter(text[:length] for text in texts)
    rare = [text for text, number in expected.items() if number < 5]
    cells = [(observed[text], number) for text, number in expected.items() if text not in rare]
    if rare:
        cells.append((sum(observed[text] for text in rare), sum(expected[text] for text in rare)))
    freedom = len(cells) - 1
    assert freedom >= 10, "so few cells see little"
    statistic = sum((found - number) ** 2 / number for found, number in cells)
    return (statistic - freedom) / (2 * freedom) ** 0.5


def watch_tokenizer(monkeypatch):
    """Return a list that gets the length of each text or conversation that is tokenized."""
    seen = []

    def watched(name, size):
        before = getattr(GGUFTokenizer, name)

        def encode(self, text, **options):
            seen.append(size(text))
            return before(self, text, **options)

        monkeypatch.setattr(GGUFTokenizer, name, encode)

    watched("encode", len)
    watched("encode_chat", lambda messages: sum(len(message.text) for message in messages))
    return seen
