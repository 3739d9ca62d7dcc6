"""A random llama in the sizes of a unit test, and ways to decode with it."""

import random

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.models import llama
from toy_drafters import OracleDrafter

from akunu_py.decoding.loop import decode
from akunu_py.protocols import Drafter
from akunu_py.sampling.sampler import Sampler
from akunu_py.sampling.transforms import TransformChain
from akunu_py.values.types import GenerationConfig

VOCABULARY = 97
GREEDY = GenerationConfig()
ADVERSARIES = ("right", "half", "wrong", "random")


def tiny(seed=3, **options):
    """A random llama whose greedy text does not collapse into one token."""
    arguments = {
        "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 96,
        "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
        "vocab_size": VOCABULARY, "tie_word_embeddings": True, **options,
    }  # fmt: skip
    mx.random.seed(seed)
    model = llama.Model(llama.ModelArgs(**arguments))
    model.update(tree_map(lambda array: array * 3, model.parameters()))
    mx.eval(model.parameters())
    return model


def sampler_of(config=GREEDY, size=VOCABULARY, seed=7):
    return Sampler(TransformChain.from_config(config, size), seed, size)


def begin(session, prompt, config=GREEDY, max_tokens=60, *, seed=7, **options):
    """Begin a reply that is chosen as a configuration says; return how many rows were held."""
    sampler = sampler_of(config, session.vocabulary_size, seed)
    return session.begin(prompt, sampler, max_tokens, **options)


def generate(session, prompt, config, drafter, *, max_tokens=60, num_draft_tokens=8, seed=7):
    given, drafter = drafter, Drafter.of(drafter)
    states = None if drafter.hidden is None else drafter
    begin(session, prompt, config, max_tokens, seed=seed, states=states)
    drafter.begin_reply(config, seed)
    limits = {"num_draft_tokens": num_draft_tokens, "max_tokens": max_tokens}
    tokens, steps = decoded(session, drafter, prompt, **limits)
    if isinstance(given, Adversary) and max_tokens >= 20 and num_draft_tokens >= 8:
        # Otherwise it says nothing that the text is the plain one.
        assert any(step.num_draft_tokens for step in steps)
        if given.kind in ("right", "half"):
            assert any(step.num_accepted_tokens for step in steps)
    return tokens


def decoded(session, drafter, prompt, **options):
    """Decode a reply that has begun; return its tokens and what its steps counted."""
    drafter.observe(prompt)
    steps = list(decode(session, drafter, prompt[-1], **options))
    return [token for step in steps for token in step.token_ids], [step.stats for step in steps]


def prompt_of(size, seed=0):
    rng = random.Random(seed)
    # Repeats itself, so that the n-gram drafters have something to draft.
    phrase = [rng.randrange(VOCABULARY) for _ in range(max(1, size // 3))]
    return (phrase * 4)[:size]


class Adversary(OracleDrafter):
    """Drafts of changing length by a rule; `kind` is one of `ADVERSARIES`."""

    def __init__(self, rule, kind, rng):
        super().__init__(rule, 4)
        self.kind, self._rng = kind, rng

    def propose(self, limit):
        self.length = self._rng.randrange(9)
        return super().propose(limit)


def adversary(kind, truth, seed):
    """Right, half right, always wrong or random drafts of changing length."""
    rng = random.Random(seed)

    def rule(context):
        right = truth[len(context)] if len(context) < len(truth) else 0
        wrong = (right + 1) % VOCABULARY
        return {
            "right": right,
            "half": right if rng.random() < 0.6 else wrong,
            "wrong": wrong,
            "random": rng.randrange(VOCABULARY),
        }[kind]

    return Adversary(rule, kind, rng)
