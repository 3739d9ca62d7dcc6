"""What constrained replies cost and bring.

    python scripts/measure_constraints.py VOCABULARY.gguf   microseconds a token of mask and matcher
    python scripts/measure_constraints.py --replies MODEL   tokens a pass and speed of JSON extraction

The first walks through random texts of random schemas as a reply does: each token is drawn from its mask,
forced tokens are asked for and the token is added. The second has a model extract records as JSON, with drafts
(auto, and what must come next) and without, alternately; it wants a machine that does nothing else.
"""

import argparse
import random
import statistics
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "constraints")]

from forms import schema, seeded

from akunu_py import Engine
from akunu_py.constraint import Constraint
from akunu_py.constraints import MatcherVocabulary, make_matcher
from akunu_py.gguf import GGUFFile
from akunu_py.tokenizers import from_gguf

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
    found, compiled = [], []
    for seed in range(TEXTS):
        form = Constraint.json_schema(schema(seeded("cost", seed)))
        began = time.perf_counter()
        matcher = make_matcher(form, vocabulary)
        compiled.append(time.perf_counter() - began)
        for _ in range(MOST_TOKENS):
            began = time.perf_counter()
            forced = matcher.forced()
            mask = matcher.mask(())
            taken = time.perf_counter() - began
            token = forced[0] if forced else drawn(mask, rng)
            began = time.perf_counter()
            matcher.advance((token,))
            found.append((taken + time.perf_counter() - began) * 1e6)
            if matcher.ended:
                break
    found.sort()
    print(
        f"compiling: {statistics.mean(compiled) * 1e3:.1f} ms, at most {max(compiled) * 1e3:.1f} ms"
    )
    print(
        f"{len(found):,} tokens: mean {statistics.mean(found):.0f} us, median {found[len(found) // 2]:.0f} us, "
        f"p99 {found[int(len(found) * 0.99)]:.0f} us, at most {found[-1]:.0f} us"
    )


def drawn(mask, rng):
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
