"""Where drafted tokens come from, in a user's words: texts that are copied, or guesses."""

from collections.abc import Callable

from akunu_py.values.types import DecodeStats

_COPIED = {
    "prompt": "the prompt",
    "reply": "this reply",
    "memory": "earlier replies",
    "lookup": "the text so far",
}
"""What sources that are texts are to a user; the first three are those of `auto`."""
_GUESSED = {
    "ngram": "n-gram counts",
    "ngram-window": "n-gram counts",
    "unigram": "n-gram counts",
    "bigram": "n-gram counts",
    "counts": "n-gram counts",
    "corpus": "counts of a corpus",
    "recycling": "the model's own candidates",
    "candidate": "the model's own candidates",
    "draft-model": "the draft model",
    "mtp": "the prediction head",
    "grammar": "the form asked for",
}
_WORDS = _COPIED | _GUESSED

NameOf = Callable[[str, int], str]
"""What a user calls the source of a draft, by its name and the place in the prompt, -1 for none."""


def name_of(source: str, _place: int = -1) -> str:
    """Return a user's word for a source; a plug-in's own without control characters."""
    words = " and ".join(dict.fromkeys(_WORDS.get(name, name) for name in source.split("+")))
    return "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in words
    )


def is_copied(source: str) -> bool:
    """Return whether a source is a text that tokens are copied from."""
    return all(name in _COPIED for name in source.split("+"))


def free_tokens(stats: DecodeStats) -> str:
    """Return how many tokens of a reply came from drafts, "" for none.

    The model checked each of them, but none needed a pass of its own.
    """
    copied = sum(one.accepted for one in stats.sources if is_copied(one.source))
    guessed = sum(one.accepted for one in stats.sources) - copied
    kinds = [f"{copied} copied"] * bool(copied) + [f"{guessed} guessed ahead"] * bool(guessed)
    if not kinds:
        return ""
    count, first = kinds[0].split(" ", 1)
    verb = "was" if count == "1" else "were"
    said = f"{count} of {stats.output_tokens} tokens {verb} {first}"
    return ", ".join([said, *kinds[1:]])
