"""Plans of passes: rows of one text or of several, in order or as trees, in one way.

Mutants, made by hand, that these tests kill: positions of the first text for all; the mask of a
chain for a tree, and of one text for all; scores of latent attention without a mask; a window of
the text before; rows of a text taken from the end of the pass.
"""

import contextlib
import importlib
import inspect
import pkgutil
import random
import sys
from importlib.metadata import version

import mlx.core as mx
import mlx_lm.models
import pytest
from family_models import build_family, variant_of
from mlx import nn
from mlx_lm.models import glm4_moe_lite, mistral4
from mlx_lm.models.mla import MultiLinear
from rollback_matrix import SEED
from tiny_models import VOCABULARY, prompt_of
from tree_matrix import TAKEN

from akunu_py.cpu.blas import load_blas
from akunu_py.models.cache import make_caches
from akunu_py.models.cached_rows import CachedRows
from akunu_py.models.passes import seams
from akunu_py.models.passes.forward import MOST_ABSORBED, forward_of
from akunu_py.models.passes.plan import PassPlan, PassRows
from akunu_py.models.passes.trees import TreeRows
from akunu_py.models.passes.trials import TOLERANCE, distance
from akunu_py.system.errors import ModelFormatError

SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 96,
    "moe_intermediate_size": 32, "num_attention_heads": 4, "num_key_value_heads": 4,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "kv_lora_rank": 32, "q_lora_rank": 24,
    "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16, "rms_norm_eps": 1e-5,
    "max_position_embeddings": 16384, "n_shared_experts": 1, "routed_scaling_factor": 1.8,
    "norm_topk_prob": True, "topk_group": 1, "n_group": 1, "first_k_dense_replace": 1,
}  # fmt: skip
SCALED = {"rope_theta": 1e4, "llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 16,
          "factor": 1.0, "rope_type": "default"}  # fmt: skip
FURTHER = {
    "glm4_moe_lite": (glm4_moe_lite, {}), "mistral4": (mistral4, {"rope_parameters": SCALED}),
}  # fmt: skip
LATENT = ["deepseek_v3", "kimi_linear", "longcat_flash", *FURTHER, "kimi_k3", "bailing_moe_v3",
          "longcat_flash_ngram"]  # fmt: skip


TREE = TreeRows([-1, 0, 0, 1, 1, 2, 3, 3, 6])


def latent_model(name):
    if name not in FURTHER:
        return build_family(name)
    module, options = FURTHER[name]
    mx.random.seed(4)
    arguments = {"model_type": name, **SIZES, **options}
    model = module.Model(module.ModelArgs.from_dict(arguments))
    model.eval()
    mx.eval(model.parameters())
    return model


def same(found, expected):
    if load_blas().name == "MLX's own":
        return bool(mx.array_equal(found, expected))
    return distance(found, expected) < TOLERANCE


@pytest.mark.fast_every(3)
@pytest.mark.parametrize("lead", [3, 40, 500])
@pytest.mark.parametrize("name", LATENT)
def test_rows_of_latent_attention_have_the_bits_of_single_rows(name, lead):
    model = latent_model(name)
    alone, together = CachedRows(model), CachedRows(model)
    for rows in (alone, together):
        rows.prefill(prompt_of(lead))
    text = [5, 9, 3, 7, 11]
    single = [alone.feed(mx.array([token])) for token in text]
    assert same(together.feed(mx.array(text)), mx.concatenate(single, axis=1))


@pytest.mark.parametrize("name", [*LATENT[:5], "deepseek_v32"])
def test_few_rows_do_not_make_keys_of_what_is_held(name, monkeypatch):
    """Layers between the width of the cache and that of heads compute for the pass's rows alone."""
    rows = CachedRows(latent_model(name))
    rows.prefill(prompt_of(40))
    computed, sound = [], MultiLinear.__call__

    def counting(layer, x, transpose=True):
        computed.append(x.shape[0] * x.shape[-2])
        return sound(layer, x, transpose)

    monkeypatch.setattr(MultiLinear, "__call__", counting)
    rows.feed(mx.array([5, 9, 3, 7, 11]))
    assert set(computed) == {5}
    rows.feed(mx.array([1] * (MOST_ABSORBED + 1)))
    # The control: a prompt's pass does.
    assert max(computed) == 45 + MOST_ABSORBED + 1


@pytest.mark.fast_every(4)
@pytest.mark.parametrize("name", TAKEN)
def test_a_tree_in_company_gives_what_its_paths_give_alone(name):
    model, kv_bits = build_family(name), variant_of(name).kv_bits
    forward, rng = forward_of(model), random.Random(SEED)
    # Of unequal lengths, before windows and beyond them.
    lengths, leaf = (5, 40, 30), rng.choice(TREE.leaves())
    together, alone = ([make_caches(model, kv_bits) for _ in lengths] for _ in range(2))
    for caches, length in zip(together + alone, lengths * 2, strict=True):
        model(mx.array([prompt_of(length)]), cache=caches)
    rows = [mx.array([rng.randrange(VOCABULARY) for _ in range(n)]) for n in (3, len(TREE), 4)]
    texts = zip(rows, together, (None, TREE, None), strict=True)
    found = forward(PassPlan([PassRows(*text) for text in texts]))
    path = mx.array(TREE.path(leaf))
    rows[1], found[1] = rows[1][path], found[1][:, path]
    expected = [
        forward(PassPlan([PassRows(fed, caches)]))[0]
        for caches, fed in zip(alone, rows, strict=True)
    ]
    # Columns of siblings that a row does not see may change the order of its sums.
    assert distance(found[1], expected[1]) < TOLERANCE
    assert same(found[0], expected[0])
    assert same(found[2], expected[2])


def architectures():
    """The modules of mlx-lm that have a model; one of them needs a package that is not there."""
    for info in pkgutil.iter_modules(mlx_lm.models.__path__):
        with contextlib.suppress(SystemExit):
            module = importlib.import_module(f"mlx_lm.models.{info.name}")
            if hasattr(module, "Model"):
                yield info.name, module


def classes_of(module):
    return [
        kind for kind in vars(module).values()
        if inspect.isclass(kind) and kind.__module__ == module.__name__
        and issubclass(kind, nn.Module)
    ]  # fmt: skip


class Classes:
    """Stands for a model of some classes."""

    def __init__(self, kinds):
        self.kinds = kinds

    def modules(self):
        return [kind.__new__(kind) for kind in self.kinds]


def test_every_architecture_of_mlx_lm_has_its_seams():
    with_states = set()
    for name, module in architectures():
        seams.install(Classes(classes_of(module)))
        if "ArraysCache(" in inspect.getsource(module):
            with_states.add(name)
    stepping = {file for _, files, _ in seams.STEPS for file in files.split()}
    # Their layers keep windows of `nn.Conv1d` alone.
    assert with_states - stepping <= {"gear", "lfm2", "lfm2_moe"}
    assert stepping <= with_states | {"bailing_moe_v3"}


@pytest.mark.parametrize(
    ("name", "function"),
    [("llama", "scaled_dot_product_attention"), ("mamba2", "ssm_update"),
     ("qwen3_next", "gated_delta_update")],
)  # fmt: skip
def test_a_renamed_function_is_an_error_at_load(name, function, monkeypatch):
    model = build_family(name)
    module = sys.modules[type(model).__module__]
    monkeypatch.setattr(module, "renamed", getattr(module, function), raising=False)
    monkeypatch.delattr(module, function)
    with pytest.raises(ModelFormatError, match=rf"mlx-lm {version('mlx-lm')} has no {function} in"):
        CachedRows(model).feed(mx.array([1]))
