"""Plans of passes: rows of one text or of several, in one way; and what a session says of them.

Mutants, made by hand, that these tests kill: positions of the first text for all; the mask of a
chain for a tree, and of one text for all; scores of latent attention without a mask; a window of
the text before; rows of a text taken from the end of the pass.

Of what a session says of its passes: rows of all branches reported behind a step in flight; a
refused draft reported as a pass; a step in flight after a draft, or none after a plain step;
penalties taken for a session that pipelines.
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
from tiny_models import VOCABULARY, begin, generate, prompt_of, tiny
from tree_matrix import TAKEN

from akunu_py.cpu.blas import load_blas
from akunu_py.drafting import PlainDrafter
from akunu_py.models.cache import make_caches
from akunu_py.models.cached_rows import CachedRows
from akunu_py.models.passes import seams
from akunu_py.models.passes.forward import MOST_ABSORBED, forward_of
from akunu_py.models.passes.plan import PassPlan, PassRows
from akunu_py.models.passes.trees import TreeRows
from akunu_py.models.passes.trials import TOLERANCE, distance
from akunu_py.models.session import Session
from akunu_py.system.errors import ModelFormatError
from akunu_py.values.types import Draft, GenerationConfig, PassReport

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


PROMPT = prompt_of(12)
BRANCHES = ((1, 2, 3, 4), (-1, -1, 0, 1))


@pytest.fixture(scope="module")
def truth():
    return generate(Session(tiny(), context=200), PROMPT, GenerationConfig(), PlainDrafter())


def ran(session, last, draft=None, accepted=()):
    """Run a pass, commit what is accepted, and return what the session says of it."""
    session.choose(last, draft or Draft.empty())
    session.commit(accepted)
    return session.last_pass


def test_plain_steps_keep_one_in_flight(truth):
    session = Session(tiny(), context=200)
    begin(session, PROMPT)
    assert session.pipelined
    assert ran(session, PROMPT[-1]) == PassReport(1, in_flight=True)
    assert ran(session, truth[0]) == PassReport(0, was_in_flight=True, in_flight=True)
    assert session.in_flight


def test_the_step_in_flight_can_be_waited_for(truth, monkeypatch):
    """Afterwards its choice is known, and the reply goes on as before."""
    session = Session(tiny(), context=200)
    begin(session, PROMPT)
    ran(session, PROMPT[-1])
    waited, evaluate = [], mx.eval
    monkeypatch.setattr(mx, "eval", lambda *arrays: waited.extend(arrays) or evaluate(*arrays))
    session.wait_in_flight()
    assert [id(array) for array in waited] == [id(session._in_flight.to_read)]
    assert session.in_flight
    assert session.choose(truth[0], Draft.empty()) == [truth[1]]
    session.commit(())


def test_without_looking_ahead_no_step_is_queued(truth):
    session = Session(tiny(), context=200)
    begin(session, PROMPT)
    assert ran(session, PROMPT[-1]) == PassReport(1, in_flight=True)
    session.look_ahead = False
    assert session.choose(truth[0], Draft.empty()) == [truth[1]]
    session.commit(())
    assert session.last_pass == PassReport(0, was_in_flight=True)
    for place in (1, 2):
        assert session.choose(truth[place], Draft.empty()) == [truth[place + 1]]
        session.commit(())
        assert session.last_pass == PassReport(1)
    session.look_ahead = True
    assert ran(session, truth[3]) == PassReport(1, in_flight=True)
    session.look_ahead = False
    begin(session, PROMPT)
    assert ran(session, PROMPT[-1]) == PassReport(1, in_flight=True)


def test_the_last_token_has_no_pass_behind_it():
    session = Session(tiny(), context=200)
    begin(session, PROMPT, max_tokens=1)
    assert ran(session, PROMPT[-1]) == PassReport(1)


def test_a_draft_without_a_step_in_flight_has_the_last_tokens_row(truth):
    session = Session(tiny(), context=200)
    begin(session, PROMPT)
    draft = Draft.chain([truth[0], truth[1], truth[2] + 1])
    assert ran(session, PROMPT[-1], draft, (0, 1)) == PassReport(4)
    assert not session.in_flight
    ran(session, truth[2], Draft.chain([5]))
    assert session.largest_pass == 4


def test_a_draft_beside_a_step_in_flight(truth):
    """Wrong from its first token it costs no pass; else the pass has the rows of the draft."""
    session = Session(tiny(), context=200)
    begin(session, PROMPT)
    ran(session, PROMPT[-1])
    wrong = Draft.chain([truth[1] + 1, 5])
    assert ran(session, truth[0], wrong) == PassReport(0, was_in_flight=True, in_flight=True)
    right = Draft.chain(truth[2:5])
    assert ran(session, truth[1], right, (0, 1, 2)) == PassReport(3, was_in_flight=True)


@pytest.mark.parametrize(("root", "rows"), [(0, 2), (1, 2)])
def test_behind_a_step_in_flight_only_one_branch_of_a_tree_is_fed(truth, root, rows):
    session = Session(tiny(), context=200)
    begin(session, PROMPT)
    ran(session, PROMPT[-1])
    tokens = list(BRANCHES[0])
    tokens[root], tokens[1 - root] = truth[1], truth[1] + 1
    tree = Draft(tuple(tokens), BRANCHES[1])
    assert ran(session, truth[0], tree, (root,)) == PassReport(rows, was_in_flight=True)


def test_a_tree_alone_is_fed_whole(truth):
    session = Session(tiny(), context=200)
    begin(session, PROMPT)
    tree = Draft((truth[0], truth[0] + 1, 3, 4), BRANCHES[1])
    assert ran(session, PROMPT[-1], tree, (0,)) == PassReport(5)


def test_with_penalties_nothing_is_in_flight():
    session = Session(tiny(), context=200)
    begin(session, PROMPT, GenerationConfig(repetition_penalty=1.2))
    assert not session.pipelined
    assert ran(session, PROMPT[-1]) == PassReport(1)
    assert not session.in_flight


def test_distributions_are_passes_of_their_own():
    session = Session(tiny(), context=200)
    begin(session, PROMPT)
    session.distributions(PROMPT[-1], Draft.chain([1, 2]))
    session.commit(())
    assert session.last_pass == PassReport(3)
