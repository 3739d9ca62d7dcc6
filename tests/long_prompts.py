"""Prompts far longer than any context, and what is tokenized of them."""

from akunu_py.tokenizers.gguf_tokenizer import GGUFTokenizer

MEGABYTES = {
    "one letter": "x" * 2**20,
    "words": "hello world, the function " * 40_000,
    "digits": "1234567890" * 100_000,
    "spaces": " " * 2**20,
    "letters of three bytes": "\u4f60\u597d" * 2**19,
}


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
