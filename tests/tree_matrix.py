"""What a model says with adversarial trees, and what it says without drafts."""

import random
from dataclasses import dataclass

import mlx.core as mx
from family_models import NAMES, variant_of
from rollback_matrix import LONG_WINDOW, SEED
from tiny_models import VOCABULARY, generate, prompt_of

from akunu_py.models.cache import make_caches
from akunu_py.models.passes.tree_trials import Trees
from akunu_py.models.passes.trees import TreeRows
from akunu_py.models.rollback.caches import RollbackCaches
from akunu_py.values.types import Draft, GenerationConfig

FALL_BACK = [
    name
    for name in NAMES
    if variant_of(name).family in {
        "llama4", "mamba", "mamba2", "rwkv7", "qwen3_next", "qwen3_5", "olmo_hybrid",
        "kimi_linear", "lfm2", "lfm2_moe", "jamba", "plamo2", "granitemoehybrid", "nemotron_h",
        "nemotron_h, experts", "bailing_moe_linear", "longcat_flash_ngram", "falcon_h1",
        "recurrent_gemma", "baichuan_m1", "gear", "minimax_m3", "deepseek_v41", "kimi_k3",
        "bailing_hybrid", "bailing_moe_v3",
    } or getattr(variant_of(name).kv_bits, "start", 0)
]  # fmt: skip
"""Families for which trees are verified as chains: with states, with chunks, with blocks, with
caches in two parts."""
TAKEN = [name for name in NAMES if name not in FALL_BACK and name != LONG_WINDOW]


class TreeAdversary:
    """Trees of 3 to 12 nodes of random shape, each node right with the probability `right`.

    A right node on a right path is the true text. In between there are chains, and steps without a
    draft. `given` are the trees proposed.
    """

    def __init__(self, truth, seed, *, right=0.75):
        self.truth = truth
        self.rng = random.Random(seed)
        self.right = right
        self.seen = 0
        self.given = []

    def observe(self, tokens):
        self.seen += len(tokens)

    def propose(self, limit):
        rng = self.rng
        kind = rng.random()
        size = min(limit, rng.randrange(3, 13))
        if kind < 0.15 or size < 3:
            return Draft.empty("adversary")
        nodes, depths = {}, [-1]
        while len(nodes) < size:
            parent = len(nodes) - 1 if kind < 0.25 else rng.randrange(-1, len(nodes))
            place = self.seen + depths[parent + 1] + 1
            true = self.truth[place] if place < len(self.truth) else 0
            token = true if rng.random() < self.right else rng.randrange(VOCABULARY)
            if (parent, token) not in nodes:
                nodes[parent, token] = len(nodes)
                depths.append(depths[parent + 1] + 1)
        parents, tokens = zip(*nodes, strict=True)
        draft = Draft(tokens, parents, "adversary")
        if not draft.is_chain:
            self.given.append(draft)
        return draft


class Watched:
    """Counts a session's passes over trees, and nodes of them that were accepted."""

    def __init__(self, session):
        self.passes = self.accepted = 0
        feed, commit = session.feed, session.commit

        def feeding(rows):
            self.passes += rows.tree is not None
            return feed(rows)

        def committing(accepted):
            self.accepted += len(accepted)
            commit(accepted)

        session.feed, session.commit = feeding, committing


@dataclass
class TreeCell:
    """`difference` is the first token that is another than without drafts, or None."""

    difference: int | None
    trees: int
    passes: int
    accepted: int
    refusal: str


def tree_cell(family, temperature, prompt_size, num_tokens):
    """Decode with adversarial trees and without drafts, by mlx-lm's own loop."""
    family.num_tokens = num_tokens
    config = GenerationConfig(temperature=temperature)
    prompt = prompt_of(prompt_size)
    plain = family.plain(prompt, config)
    watched = Watched(family.session)
    drafter = TreeAdversary(prompt + plain, prompt_size)
    found = generate(
        family.session, prompt, config, drafter, max_tokens=num_tokens, num_draft_tokens=12,
        seed=SEED,
    )  # fmt: skip
    pairs = zip(found, plain, strict=True)
    difference = next((index for index, (ours, theirs) in enumerate(pairs) if ours != theirs), None)
    trees = family.session._trees
    return TreeCell(
        difference, len(drafter.given), watched.passes, watched.accepted,
        "" if trees is None else trees.refusal,
    )  # fmt: skip


def largest_differences(model, kv_bits=None):
    """Largest difference of a tree's logits, of a row's largest, and the number of rows compared.

    From those of chains, and from those of single rows: six random trees of 4 to 13 rows, behind 5
    and 40 tokens, before a window and beyond it.
    """
    forward = Trees(model, 600).forward
    rng = random.Random(SEED)
    from_chains, from_rows = [], []
    for length in (5, 40):
        caches = make_caches(model, kv_bits)
        rollback = RollbackCaches(caches)
        fed(model, caches, prompt_of(length))
        saved = rollback.save()
        for _ in range(3):
            size = rng.randrange(4, 14)
            rows = TreeRows([-1, *(rng.randrange(row) for row in range(1, size))])
            tokens = [rng.randrange(VOCABULARY) for _ in range(size)]
            tree = forward(tokens, rows, caches)[0]
            mx.eval(tree)
            rollback.restore(saved)
            for leaf in rows.leaves():
                path = rows.path(leaf)
                own = tree[mx.array(path)]
                from_chains += apart(own, fed(model, caches, [tokens[row] for row in path]))
                rollback.restore(saved)
                alone = mx.concatenate([fed(model, caches, [tokens[row]]) for row in path])
                from_rows += apart(own, alone)
                rollback.restore(saved)
    return max(from_chains), max(from_rows), len(from_rows)


def fed(model, caches, tokens):
    return model(mx.array(tokens)[None], cache=caches)[0]


def apart(found, expected):
    return (mx.abs(found - expected).max(axis=-1) / mx.abs(expected).max(axis=-1)).tolist()
