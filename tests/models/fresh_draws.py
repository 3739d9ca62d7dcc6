"""A draft model over its caches, and what a fresh model draws in its place."""

import mlx.core as mx
from tiny_models import VOCABULARY

from akunu_py.drafting.draft_model import DrawSettings
from akunu_py.models.cache import make_caches
from akunu_py.models.token_model import CachedTokenModel
from akunu_py.sampling.sampler import Sampler
from akunu_py.sampling.transforms import TransformChain
from akunu_py.values.types import GenerationConfig

CONFIGS = {
    "greedy": GenerationConfig(),
    "0.7": GenerationConfig(temperature=0.7),
    "1.3, penalties": GenerationConfig(
        temperature=1.3, top_p=0.95, repetition_penalty=1.3, frequency_penalty=0.4, penalty_window=9
    ),
}
SEED = 7


def made(model, *, context=600, common=VOCABULARY, target_size=VOCABULARY):
    return CachedTokenModel(model, context=context, common=common, target_size=target_size)


def begin(drafts, prompt, config, *, independent=False):
    list(drafts.beginning(prompt, DrawSettings(config, SEED, independent)))


def fresh_row(model, text, common=VOCABULARY):
    """Logits after a text, by a pass over it with caches of its own."""
    return model(mx.array([text]), cache=make_caches(model))[:, -1, :common]


def expected(model, text, count, config, common=VOCABULARY):
    """What the target's sampler chooses of a fresh model's logits, token by token."""
    chain = TransformChain.from_config(config, common)
    sampler = Sampler(chain, SEED, common)
    text, size = list(text), len(text)
    while len(text) < size + count:
        row = fresh_row(model, text, common)
        text.append(sampler.choose(row, len(text), text[-chain.window :]).item())
    return text[size:]
