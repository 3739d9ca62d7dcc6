"""What constrained replies cost and bring.

    python scripts/measure_constraints.py VOCABULARY.gguf   microseconds a token of mask and matcher
    python scripts/measure_constraints.py --replies MODEL   tokens a pass and speed of JSON extraction

The first follows texts as a reply does: forced tokens are asked for, a mask is made and the token is added. A reply
makes its masks while the pass runs; the rest is not hidden by it. Times are the thread's processor time.
The texts are records of people, and then random texts of random schemas, whose tokens are drawn from the
masks; no model writes such texts, and they are the worst case. The second has a model extract records as JSON, with drafts
(auto, and what must come next) and without, alternately; it wants a machine that does nothing else.
"""

import argparse
import json
import random
import statistics
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from random_forms import schema, seeded

from akunu_py import Engine
from akunu_py.constraints import MatcherVocabulary, make_matcher
from akunu_py.gguf import GGUFFile
from akunu_py.tokenizers import from_gguf
from akunu_py.values.constraint import Constraint

TEXTS = 60
MOST_TOKENS = 200
ROUNDS = 5

RECORD = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "city": {"type": "string", "maxLength": 40},
        "occupation": {"type": "string", "maxLength": 60},
        "contact_method": {"enum": ["telephone", "electronic mail", "letter"]},
    },
    "required": ["name", "age", "city", "occupation", "contact_method"],
    "additionalProperties": False,
}
NAMES = ("Maria", "Tom", "Aiko", "Josef", "Lindqvist", "Okonkwo", "García", "Huber", "Nguyen")
PEOPLE = (
    "Maria Gonzalez is 34 and lives in Seville, where she repairs violins. She answers letters only.",
    "Write to Tom Baker, 58, a lighthouse keeper in Plymouth, by electronic mail.",
    "Aiko Tanaka (27), a marine biologist from Osaka, prefers the telephone.",
    "The baker of Graz, Josef Huber, is 61; call him by telephone.",
)


def costs(path):
    with GGUFFile.open(path) as file:
        tokenizer = from_gguf(file.metadata)
    began = time.perf_counter()
    vocabulary = MatcherVocabulary(tokenizer, tokenizer.vocabulary_size)
    print(f"{vocabulary.size:,} tokens, handed over in {time.perf_counter() - began:.2f} s")
    rng = random.Random(1)
    print("Records of people")
    ids = {token: id_ for id_, token in enumerate(vocabulary.tokens) if token}
    walks = ((RECORD, partial(spelled, ids, Text(record(rng)))) for _ in range(TEXTS))
    follow(vocabulary, walks)
    print("Random texts of random schemas")
    follow(
        vocabulary, ((schema(seeded("cost", seed)), partial(drawn, rng)) for seed in range(TEXTS))
    )


def follow(vocabulary, walks):
    """Follow texts, given as schemas and functions that choose a token of a mask."""
    masks, others, compiled = [], [], []
    for form, choose in walks:
        began = time.thread_time()
        matcher = make_matcher(Constraint.json_schema(form), vocabulary)
        compiled.append(time.thread_time() - began)
        while not matcher.ended and matcher.num_tokens < MOST_TOKENS:
            began = time.thread_time()
            forced = matcher.forced()
            found = time.thread_time()
            mask = matcher.mask(())
            masks.append(time.thread_time() - found)
            token = choose(mask)
            if forced and token != forced[0]:
                raise SystemExit("a forced token was not the only one in its mask")
            added = time.thread_time()
            matcher.advance((token,))
            others.append(time.thread_time() - added + found - began)
    print(
        f"compiling: {statistics.mean(compiled) * 1e3:.1f} ms, at most {max(compiled) * 1e3:.1f} ms"
    )
    taken = sorted(mask + other for mask, other in zip(masks, others, strict=True))
    print(
        f"{len(taken):,} tokens: mean {statistics.mean(taken) * 1e6:.0f} us, of which {statistics.mean(others) * 1e6:.0f} "
        f"us are not masks; median {taken[len(taken) // 2] * 1e6:.0f} us, p99 {taken[int(len(taken) * 0.99)] * 1e6:.0f} "
        f"us, at most {taken[-1] * 1e6:.0f} us"
    )


class Text:
    """A text that is being spelled, in bytes."""

    def __init__(self, text):
        self.rest = text.encode()


def record(rng):
    """Return a record of a made-up person as the schema has it."""
    words = [
        "violin",
        "maker",
        "of",
        "the",
        "old",
        "town",
        "who",
        "repairs",
        "lighthouses",
        "and",
        "letters",
    ]
    person = {
        "name": f"{rng.choice(NAMES)} {rng.choice(NAMES)}",
        "age": rng.randrange(100),
        "city": rng.choice(["Plymouth", "Seville", "Graz", "Osaka", "São Paulo"]),
        "occupation": " ".join(rng.sample(words, 5)),
        "contact_method": rng.choice(RECORD["properties"]["contact_method"]["enum"]),
    }
    return json.dumps(person, ensure_ascii=False)


def spelled(ids, text, mask):
    """Return the longest token of the mask that the rest of the text begins with, or an end."""
    for size in range(min(32, len(text.rest)), 0, -1):
        id_ = ids.get(text.rest[:size])
        if id_ is not None and mask[id_ // 32] >> (id_ % 32) & 1:
            text.rest = text.rest[size:]
            return id_
    return int(np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))[0])


def drawn(rng, mask):
    return int(rng.choice(np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))))


def replies(model):
    ways = {"without drafts": {"drafter": "none"}, "with drafts": {}}
    rates = {way: [] for way in ways}
    passes = {way: [] for way in ways}
    with Engine.load(model) as engine:
        for turn in range(ROUNDS + 1):
            for person in PEOPLE:
                for way, options in ways.items():
                    ask = [
                        {"role": "user", "content": f"Extract the record of this person: {person}"}
                    ]
                    reply = engine.chat(ask, json_schema=RECORD, max_tokens=150, **options)
                    if turn:  # the first round warms up
                        rates[way].append(reply.decode_tokens_per_s)
                        passes[way].append(reply.stats.tokens_per_pass)
    for way in ways:
        print(
            f"{way}: {statistics.median(rates[way]):.1f} tokens/s, "
            f"{statistics.mean(passes[way]):.2f} tokens a pass, over {len(rates[way])} replies"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("path")
    parser.add_argument("--replies", action="store_true")
    given = parser.parse_args()
    (replies if given.replies else costs)(given.path)
