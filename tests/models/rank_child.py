"""A process that is one of several ranks; rank 0 prints a line of JSON about each model.

A model is the path of a GGUF file, or a family of `tiny_families`, with "/4" for as many heads of
keys as of queries. Rank 0 also holds the whole model, and compares.
"""

import json
import sys
from pathlib import Path

import mlx.core as mx
import numpy as np
import rank_families  # noqa: F401 - adds families
from family_models import Variant, build_family
from mlx.utils import tree_flatten
from tiny_models import VOCABULARY, adversary, generate, prompt_of

from akunu_py.drafting.plain import PlainDrafter
from akunu_py.models import rank_split
from akunu_py.models.load import LoadOptions, load_model
from akunu_py.models.ranks.link import Link
from akunu_py.models.ranks.passes import Follower
from akunu_py.models.ranks.start import passes_on_ranks
from akunu_py.models.session import Session
from akunu_py.values.types import GenerationConfig

CONFIGS = {"greedy": GenerationConfig(), "sampled": GenerationConfig(temperature=0.8)}
CONTEXT = 128
TOKENS = 8


def whole_model(name):
    if Path(name).exists():
        return load_model(name, LoadOptions(weights="quantized")).model
    return family(name)


def family(name):
    name, _, heads = name.partition("/")
    changes = (("num_key_value_heads", int(heads)),) if heads else ()
    # Some classes draw numbers before `build_family` has a seed.
    mx.random.seed(0)
    return build_family(Variant(name, changes=changes))


def part_of_model(name, group):
    if Path(name).exists():
        return load_model(name, LoadOptions(weights="quantized"), group=group).model
    model = family(name)
    rank_split.prepare(model, group, name).apply(model)
    mx.eval(model.parameters())
    return model


def num_bytes(model):
    return sum(array.nbytes for _, array in tree_flatten(model.parameters()))


def compared(link, name, model, make_passes):
    whole = whole_model(name)
    alone = Session(whole, context=CONTEXT)
    session = Session(model, context=CONTEXT, make_passes=make_passes)
    ids = [(1 + 7919 * number) % VOCABULARY for number in range(70)]
    logits, expected = session.logits(ids), alone.logits(ids)
    found = {
        "name": name, "share": num_bytes(model) / num_bytes(whole),
        "scale": float(np.abs(expected).max()), "distance": float(np.abs(logits - expected).max()),
        "rows_apart": int((np.abs(logits - expected).max(-1) > 1e-4 * np.abs(expected).max()).sum()),
        "same_text_as_alone": [], "differing_drafts": [],
    }  # fmt: skip
    prompt = prompt_of(24)
    for label, config in CONFIGS.items():
        plain = generate(session, prompt, config, PlainDrafter(), max_tokens=TOKENS)
        if plain == generate(alone, prompt, config, PlainDrafter(), max_tokens=TOKENS):
            found["same_text_as_alone"].append(label)
        for kind in ("half", "random"):
            drafter = adversary(kind, [*prompt, *plain], seed=1)
            if generate(session, prompt, config, drafter, max_tokens=TOKENS) != plain:
                found["differing_drafts"].append(f"{label} {kind}")
    # A prompt that goes on from half of the last one.
    again = [*prompt[:12], *prompt_of(12, seed=5)]
    mixed = generate(session, again, CONFIGS["greedy"], PlainDrafter(), max_tokens=10)
    session.reset()
    fresh = generate(session, again, CONFIGS["greedy"], PlainDrafter(), max_tokens=10)
    found["reuse"] = mixed == fresh
    session.wait()
    return found


def main(names):
    group = mx.distributed.init(strict=True)
    for name in names:
        link = Link(group)
        model = part_of_model(name, group)
        make_passes = passes_on_ranks(link, model)
        if link.rank == 0:
            print(json.dumps(compared(link, name, model, make_passes)), flush=True)
            link.stop()
        else:
            Follower(link, model).run()


if __name__ == "__main__":
    main(sys.argv[1:])
