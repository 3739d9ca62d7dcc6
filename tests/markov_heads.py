"""Targets whose next token is known, and prediction heads that know it: every guess must be right.

All layers of a target add nothing, so a row's state is the embedding of its token alone: a unit
vector. The output head maps token t to SUCCESSOR[t], one cycle through the whole vocabulary.

The token head guesses from the pair's token alone, the state head from its state alone. A pair with
another row's state, or another token, is therefore a wrong guess.
"""

import copy
import importlib
import json
import random

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_map_with_path
from mlx_lm.models import llama, mimo
from model_folders import write_tokenizer
from prediction_heads import MIMO, TARGETS, named, parameters_of, write
from tiny_families import FAMILIES
from tiny_models import GREEDY, begin, decoded

from akunu_py.drafting.prediction_head import PredictionHeadDrafter
from akunu_py.models.heads.families import Family, family_of, make_head, single_layer
from akunu_py.models.heads.token_model import HeadTokenModel

SIZE = 64
"""Width of the state, and number of tokens."""

ORDER = random.Random(5).sample(range(SIZE), SIZE)
SUCCESSOR = {token: ORDER[(place + 1) % SIZE] for place, token in enumerate(ORDER)}
STEP = mx.array([[float(SUCCESSOR[t] == n) for t in range(SIZE)] for n in range(SIZE)])
"""Maps the unit vector of token t to that of its successor."""

MIMO_PREFIX = "model.mtp_layers.0."

_OUTPUTS = ("o_proj.weight", "out_proj.weight", "down_proj.weight")
"""What attention, recurrent layers and feed-forward layers add to the state."""


def markov_target(name="llama", sharpness=1.0):
    """A model of a family; a sampled token is the successor more often with more `sharpness`."""
    module_name, arguments = TARGETS.get(name) or FAMILIES[name]
    module = importlib.import_module(f"mlx_lm.models.{module_name}")
    arguments = copy.deepcopy({"model_type": module_name, **arguments, "vocab_size": SIZE})
    mx.random.seed(1)
    model = module.Model(module.ModelArgs.from_dict(arguments))

    def known(path, values):
        if path.endswith(("embed_tokens.weight", "embeddings.weight")):
            return mx.eye(SIZE)
        if path.endswith("lm_head.weight"):
            return sharpness * STEP
        return without_outputs(path, values)

    return filled(model, known)


def matched_head(target, *, reads):
    """A head that is right about a Markov target, by the "token" of a pair or its "state".

    Any Markov target takes a head that was made for another: they compute the same.
    """
    family = family_of(target) or Family()
    head = make_head(target, single_layer(target, family), family)
    none = mx.zeros((SIZE, SIZE))
    # MiMo's projection takes the state first.
    parts = {
        "embedding": mx.eye(SIZE) if reads == "token" else none,
        "state": STEP if reads == "state" else none,
    }
    order = ("embedding", "state") if family.embedding_first else ("state", "embedding")

    def known(path, values):
        if path == "eh_proj.weight":
            return mx.concatenate([parts[name] for name in order], axis=1)
        return without_outputs(path, values)

    return filled(head, known)


def without_outputs(path, values):
    """Weights of layers that add nothing, and of norms that scale nothing."""
    if path.endswith(_OUTPUTS):
        return mx.zeros_like(values)
    return mx.ones_like(values) if path.endswith("norm.weight") else values


def filled(model, known):
    """Return a model with the weights that `known` gives for their paths and present values."""
    model.update(tree_map_with_path(known, model.parameters()))
    model.eval()
    mx.eval(model.parameters())
    return model


def token_model(head, context=600, size=SIZE):
    return HeadTokenModel(head, context=context, vocabulary_size=size)


def text_from(token, size):
    """The greedy text of a Markov target."""
    text = [token]
    while len(text) < size:
        text.append(SUCCESSOR[text[-1]])
    return text


def reply(
    session, drafter, prompt, config=None, *, max_tokens=40, num_draft_tokens=4, seed=7, **options
):
    """Return tokens and the steps' counts of a reply that is drafted by `drafter`."""
    config = config or GREEDY
    heads = isinstance(drafter, PredictionHeadDrafter)
    begin(session, prompt, config, max_tokens, seed=seed, states=drafter if heads else None)
    if heads:
        drafter.begin_reply(config, seed)
    options |= {"num_draft_tokens": num_draft_tokens, "max_tokens": max_tokens}
    return decoded(session, drafter, prompt, **options)


def foreign_head(width, vocabulary, seed=4):
    """A random head with embedding and output of its own, for targets of any class."""
    frame = FAMILIES["llama"][1]
    arguments = {**frame, "model_type": "llama", "hidden_size": width, "vocab_size": vocabulary}
    target = llama.Model(llama.ModelArgs.from_dict(copy.deepcopy(arguments)))
    head = make_head(target, single_layer(target, Family()), Family())
    head.embed_tokens = nn.Embedding(vocabulary, width)
    head.lm_head = nn.Linear(width, vocabulary, bias=False)
    mx.random.seed(seed)
    return filled(head, lambda _path, values: mx.random.normal(values.shape))


def write_headed_folder(folder, *, with_head=True):
    """An MLX folder of MiMo whose next token depends on the last one alone, with a token head.

    The head lies among the weights, as in published checkpoints.
    """
    size = 300
    arguments = {**TARGETS["mimo"][1], "model_type": "mimo", "vocab_size": size}
    mx.random.seed(3)
    target = mimo.Model(mimo.ModelArgs.from_dict(arguments))
    filled(target, without_outputs)
    arrays = parameters_of(target)
    if with_head:
        arrays |= named(parameters_of(matched_head(target, reads="token")), MIMO, MIMO_PREFIX)
    write(folder / "model.safetensors", arrays)
    (folder / "config.json").write_text(json.dumps(arguments))
    write_tokenizer(folder)
    return folder
