"""Configs of MLX folders, as transformers 4 and 5 write them: applied, or refused by name."""

import copy
import importlib
import json
import math

import mlx.core as mx
import pytest
from config_forms import FORMS, THETA
from family_models import Variant, build_family
from model_folders import change_json, write_folder
from tiny_families import FAMILIES

from akunu_py.models.folder_arguments import applied_context, check_applied, with_older_names
from akunu_py.models.load import load_model
from akunu_py.system.errors import UnsupportedArchitectureError

IDS = mx.array([[(7 * i * i + 3 * i) % 97 for i in range(40)]])


def family_config(name, **changes):
    """A family's config as transformers 4 writes it, with another base than any class assumes."""
    module, arguments = FAMILIES[name]
    config = copy.deepcopy({"model_type": module, **arguments})
    text = config.get("text_config", config)
    # The classes of these take the newer form only.
    own = name in ("qwen3_5", "gemma4", "gemma4, experts")
    text.update({} if own else {"rope_theta": THETA}, **changes)
    return config


def model_of(config):
    """A model of a config as a folder's is made, and checked."""
    module = importlib.import_module(f"mlx_lm.models.{config['model_type']}")
    model = module.Model(module.ModelArgs.from_dict(with_older_names(copy.deepcopy(config))))
    check_applied(with_older_names(config), model)
    return model.eval()


def logits_of(config, weights):
    model = model_of(config)
    model.update(weights)
    return model(IDS)


@pytest.mark.parametrize("name", FORMS)
def test_the_forms_of_transformers_4_and_5_are_the_same_model(name):
    """mlx-lm's class of the older form knows the right logits."""
    older = family_config(name)
    newer = copy.deepcopy(older)
    text = newer.get("text_config", newer)
    left_out, written = FORMS[name]
    for entry in left_out:
        text.pop(entry, None)
    text.update(copy.deepcopy(written))
    changes = {key: value for key, value in older.items() if key != "model_type"}
    reference = build_family(Variant(name, changes=tuple(changes.items())))
    expected = reference(IDS)
    assert mx.array_equal(logits_of(older, reference.parameters()), expected)
    assert mx.array_equal(logits_of(newer, reference.parameters()), expected)
    assert applied_context(with_older_names(newer), model_of(newer)) == 2048


def test_a_folder_has_the_logits_of_both_forms(tmp_path, tiny_gguf):
    folder = write_folder(tmp_path / "model", tiny_gguf, rope_theta=THETA)
    expected = load_model(folder).model(IDS)
    rope = {"rope_theta": THETA, "rope_type": "default"}
    change_json(folder / "config.json", rope_theta=None, rope_parameters=rope)
    assert mx.array_equal(load_model(folder).model(IDS), expected)
    rope["rope_theta"] = 2 * THETA
    change_json(folder / "config.json", rope_parameters=rope)
    assert not mx.array_equal(load_model(folder).model(IDS), expected)


def frequencies(name, **changes):
    modules = model_of(family_config(name, **changes)).named_modules()
    rope = next(part for path, part in modules if path.endswith("rope"))
    return rope, getattr(rope, "_freqs", None)


def yarn(**entries):
    return {"rope_type": "yarn", "factor": 4.0, "rope_theta": THETA, **entries}


def test_what_transformers_assumes_of_yarn_is_given_to_mlx_lm():
    """It stretches from the trained context, and mlx-lm's class from 4096 tokens."""
    _, expected = frequencies("llama", rope_scaling=yarn(original_max_position_embeddings=2048))
    for entry in ("rope_scaling", "rope_parameters"):
        _, found = frequencies("llama", **{entry: yarn()})
        assert mx.array_equal(found, expected)
    plain = {"rope_theta": THETA, "rope_type": "default"}
    added = {"type": "yarn", "factor": 4.0}
    _, found = frequencies("llama", rope_parameters=plain, rope_scaling=added, rope_theta=None)
    assert mx.array_equal(found, expected)  # as model cards tell users to add it
    for wanted in (1.0, 1.25):
        rope, _ = frequencies("llama", rope_parameters=yarn(attention_factor=wanted))
        assert math.isclose(rope.mscale, wanted)


@pytest.mark.parametrize(
    ("name", "entry", "value"),
    [
        ("llama", "attn_logit_softcapping", 30.0), ("gemma3", "final_logit_softcapping", 30.0),
        ("llama", "clip_qkv", 8.0), ("llama", "hidden_act", "gelu"), ("llama", "logit_scale", 0.5),
        ("gemma3", "use_bidirectional_attention", True), ("llama", "is_causal", False),
        ("deepseek_v3", "rope_interleave", False), ("llama", "partial_rotary_factor", 0.5),
        ("gemma3", "layer_types", ["sliding_attention", "full_attention", "full_attention"]),
        ("qwen3_next", "layer_types", ["linear_attention", "full_attention", "full_attention"]),
        ("gemma4", "per_layer_config", {"1": {"head_dim": 32}}),
        ("qwen3_moe", "rope_parameters", yarn()), ("qwen3_moe", "rope_scaling", yarn()),
        ("cohere2", "rope_parameters", {"rope_type": "linear", "factor": 2.0}),
        ("lfm2", "rope_parameters", yarn()),
        ("llama", "rope_parameters", {"rope_type": "spiral"}), ("qwen3_5", "rope_theta", THETA),
        ("recurrent_gemma", "rope_parameters", {"rope_theta": THETA, "rope_type": "default"}),
        ("olmo3", "rope_parameters", {
            "full_attention": {"rope_theta": THETA}, "sliding_attention": {"rope_theta": 10.0},
        }),
    ],
)  # fmt: skip
def test_entries_that_a_class_leaves_out_are_refused_by_name(name, entry, value):
    pattern = "rope_parameters" if entry.startswith("rope_s") or entry == "rope_theta" else entry
    with pytest.raises(UnsupportedArchitectureError, match=f"config.json has {pattern}"):
        model_of(family_config(name, **{entry: value}))


def test_a_window_that_a_class_does_not_have_bounds_the_context():
    def context(name, **changes):
        config = family_config(name, **changes)
        return applied_context(with_older_names(config), model_of(config))

    assert context("llama", sliding_window=300) == 300
    assert context("gemma2", sliding_window=300) == 300
    assert context("phi3", sliding_window=4096) == 2048
    assert context("qwen2", sliding_window=300, use_sliding_window=False) == 2048
    assert context("qwen2", sliding_window=300, max_window_layers=4) == 2048
    assert context("llama, sliding") == context("gemma3") == context("cohere2") == 2048


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "qwen3_moe", "hidden_size": 64}, r"has no .*num_experts, .*decoder_sparse"),
        ({"model_type": "mistral3", "text_config": {"head_dim": 16}}, r"has no .*hidden_size, "),
    ],
)
def test_a_missing_entry_is_named(tmp_path, tiny_gguf, config, words):
    """Such as those of an architecture that transformers 5 writes in another form."""
    folder = write_folder(tmp_path / "model", tiny_gguf)
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedArchitectureError, match=words):
        load_model(folder)
