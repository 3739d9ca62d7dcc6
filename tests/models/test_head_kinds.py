"""What holds for heads of every kind, and what is refused in their files.

A further kind is a row of KINDS, with tests of what its config alone can have.
"""

import dataclasses
import json
import re
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import Mock

import mlx.core as mx
import numpy as np
import pytest
from assistants import (
    CLUSTERS,
    KEYS,
    checkpoint,
    config_of,
    gguf_tensors,
    kept_rows,
    random_assistant,
    tiny_gemma,
    write_gguf,
)
from dflash_heads import (
    BLOCK,
    dflash2_config,
    dflash_config,
    dspark_config,
    random_dflash,
    random_dflash2,
    random_dspark,
    random_medusa,
    tensors_of,
    write_dflash,
    write_parallel,
)
from eagle_heads import eagle_config, eagle_tensors, nested_config, random_eagle, write_eagle
from family_models import Variant, build_family
from gguf_drafters import gguf_of_eagle, write_drafter
from mlx import nn
from model_folders import write_family_folder
from prediction_heads import (
    QWEN,
    loaded_from,
    named,
    parameters_of,
    random_head,
    tiny_target,
    write,
)
from tiny_architectures.builder import build

from akunu_py import ConfigError, Engine, ModelFormatError, UnsupportedArchitectureError
from akunu_py.models.expansion import dense_weight
from akunu_py.models.heads import load_head
from akunu_py.models.load import load_model


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of head in a safetensors file, perhaps with a config."""

    head: Callable[[nn.Module], nn.Module]
    config: Callable[[nn.Module], dict[str, Any]]
    tensors: Callable[[nn.Module], dict[str, mx.array]] = tensors_of
    target: Callable[[], nn.Module] = lambda: build_family("llama")
    matrix: str = "fc.weight"
    """A matrix of the head as wide as what it takes, by its name in files and its own path."""

    norm: str = "norm.weight"
    """A norm, likewise."""

    path: Callable[[str], str] = lambda name: name
    """The path of a tensor that messages show."""

    no_target: str = "the model is a tiny model; akunu runs such heads of"
    """What is said about a model of another family."""

    file: str = "model.safetensors"
    damage: Sequence[tuple[Callable[..., object], str]] = ()
    unknown: Sequence[tuple[Callable[..., object], str]] = ()
    """Forms of a head that are not run, and their names in the message."""


Damage = tuple[Callable[..., object], str]
"""What is done to tensors and config, and what is said about it."""


def stated(name, value):
    """State a number in a config; dots in its name lead into objects."""

    def change(_, config):
        *parts, last = name.split(".")
        for part in parts:
            config[part] = config.get(part) or {}
            config = config[part]
        config[last] = value

    return change


def bad(name, value, wanted) -> Damage:
    return stated(name, value), re.escape(f"json has {str(value)!r} for {name}, not {wanted}")


def store(name, array):
    return lambda arrays, _: arrays.update({name: array})


def without(name):
    return lambda arrays, _: arrays.pop(name)


WHOLE = "a whole number from"
LAYER = [
    bad("hidden_size", 96, "64, as the model has; use a head of this model, or download it again"),
    bad("hidden_act", "gelu", "silu"),
    bad("num_key_value_heads", 4, "a divisor of 6"),
    bad("num_attention_heads", "six", WHOLE),
    bad("rope_scaling.rope_type", "longrope", "one of default, linear, llama3, yarn"),
    bad("rope_theta", -1, "a number between 0 and 1e"),
    bad("rms_norm_eps", "small", "a number between"),
    bad("attention_bias", "no", "true or false"),
    (stated("rope_scaling", {"type": "llama3", "factor": "four"}), "safetensors cannot be loaded"),
    (stated("rope_scaling", {"type": "linear", "factor": 0}), "factor is 0, not a number from"),
]
"""Damage in the arguments of a layer, which the configs of several kinds have."""

OTHER_LAYERS = "eagle_aux_hidden_state_layer_ids"
THREE = "three of the model's 4 layers, in ascending order"
EAGLE = [
    (without("lm_head.weight"), "lacks the tensors of lm_head.weight"),
    (store("layers.1.x.weight", mx.zeros(2)), "do not have: layers.1.x.weight"),
    (store("lm_head.weight", mx.zeros((41, 64))), r"lm_head.weight in the shape \(41, 64\)"),
    # A whole output head, tokens twice or beyond the last, and a table of tokens.
    (without("d2t"), r"lm_head.weight in the shape \(40, 64\)"),
    (store("d2t", -mx.arange(40)), "tensor 'd2t' in .*safetensors does not name different tok"),
    (store("d2t", mx.full((40,), 58, dtype=mx.int64)), "of the 97 of this model"),
    (store("d2t", mx.zeros((4, 10), dtype=mx.int64)), "not name different"),
    bad("target_hidden_size", 96, "64, as the model has"),
    bad("num_hidden_layers", 2, "1, the layer of an EAGLE-3 head"),
    bad("norm_before_residual", "no", "true or false"),
    bad(f"eagle_config.{OTHER_LAYERS}", [2, 18, 33], THREE),
    # Four layers are too few for those that a config need not name.
    bad(f"eagle_config.{OTHER_LAYERS}", None, THREE),
    bad(OTHER_LAYERS, [0, 2], THREE),
    bad(OTHER_LAYERS, [0, 2, 2], THREE),
    # Outputs of layers, of which the last is none's input.
    bad(OTHER_LAYERS, [1, 2, 3], THREE),
    bad(OTHER_LAYERS, [-1, 0, 2], THREE),
    bad(OTHER_LAYERS, "all", THREE),
]
EAGLE_UNKNOWN = [
    (stated("norm_before_fc", True), "norm_before_fc"),
    (stated("eagle_config.norm_output", True), "eagle_config.norm_output"),
    # They would have to be read otherwise, and drafts would be wrong without a word.
    (stated("use_sliding_window", True), "use_sliding_window without layer_types"),
    (stated("parallel_drafting", True), "parallel_drafting"),
    (stated("target_layer_ids", [0, 1, 3]), "target_layer_ids"),
    (stated("eagle_config.use_aux_hidden_state", False), "eagle_config.use_aux_hidden_state false"),
    (without("fc.weight"), "no tensor fc.weight"),
]

FORMS = [
    (stated(name, value), name)
    for name, value in (
        ("rope_is_neox_style", False), ("partial_rotary_factor", 0.5), ("offset_rms_norm", True),
        ("rope_parameters.partial_rotary_factor", 0.25), ("attention_value_scale", 0.7),
        ("log_snr_conditioning", True),
    )
]  # fmt: skip
"""Entries of any head's layers that change what they compute."""

WINDOWS = [
    (stated("layer_types", ["sliding_attention"]), "not full_attention or sliding_attention for e"),
    bad("layer_types", "full", "full_attention or sliding_attention for each of"),
    bad("layer_types", ["chunked"] * 2, "full_attention or sliding_attention for each of"),
    bad("layer_types", [[1]] * 2, "full_attention or sliding_attention for each of"),
    (
        stated("layer_types", ["sliding_attention"] * 2),
        "'None' for sliding_window, not a whole num",
    ),
]

IDS = "dflash_config.target_layer_ids"
ASCENDING = "layers of the model's 4 before the last, in ascending order"
DFLASH = [
    (store("layers.2.x.weight", mx.zeros(2)), "do not have: layers.2.x.weight"),
    bad("num_target_layers", 36, "4, as the model has"),
    bad("num_hidden_layers", 0, WHOLE),
    bad("num_hidden_layers", 4096, "a whole number from 1 to 256"),
    bad("block_size", 1, "a whole number from 2 to 65"),
    bad("block_size", 66, "a whole number from 2 to 65"),
    (stated("block_size", None), "'None' for dflash_config.block_size, not a whole number from"),
    bad("dflash_config.mask_token_id", 97, "a whole number from 0 to 96"),
    bad("dflash_config.mask_token_id", None, WHOLE),
    *(bad(IDS, layers, ASCENDING) for layers in ([], [0, 3], [-2, 2], [1, 1], "all", None)),
    (stated("dflash_config", None), f"'None' for {IDS}, not layers"),
    *(bad(name, value, wanted) for name, value, wanted in (
        ("is_causal", 1, "true or false"), ("dflash_config.causal", "no", "true or false"),
        ("sample_from_anchor", "yes", "true or false"),
        ("dflash_config.input_embedding_scale", 0, "a number between"),
        ("dflash_config.output_multiplier", float("inf"), "a number between"),
        ("dflash_config.final_logit_softcapping", -1, "a number between"),
        ("dflash_config.use_swa", 1, "true or false"),
    )),
    (stated("dflash_config.use_swa", True), "'None' for dflash_config.swa_window_size"),
    *WINDOWS,
]  # fmt: skip
DFLASH_UNKNOWN = [
    *FORMS,
    (stated("dflash_config.attention_value_scale", 0.7), "dflash_config.attention_value_scale"),
    # DFlash 2 and DSpark, without their tensors.
    (stated("markov_rank", 256), "markov_rank"),
    (stated("dflash_config.enable_confidence_head", True), "dflash_config.enable_confidence_head"),
    (stated("dflash_config.conv_kernel_size", 2), "dflash_config.conv_kernel_size"),
    (stated("dflash_config.selector_rank", 256), "dflash_config.selector_rank"),
]

NESTED = "dflash_config."
PREDECESSOR, PROJECTION = (
    "candidate_selector.predecessor_codebook",
    "layers.0.attention_conv.kernel_projection.weight",
)
DFLASH2 = [
    (without(PREDECESSOR), "lacks the tensors of candidate_selector.predecessor_codebook"),
    (without(PROJECTION), "lacks the tensors of layers.0.attention_conv.kernel_projection.weight"),
    (
        store(PREDECESSOR, mx.zeros((96, 12))),
        r"predecessor_codebook.weight in the shape \(96, 12\)",
    ),
    # Without its convolutions, or its choice, in the config.
    (stated(f"{NESTED}conv_kernel_size", 0), "do not have: layers.0.attention_conv.base_kernel"),
    (stated(f"{NESTED}selector_rank", 0), "do not have: candidate_selector.hidden_projection"),
    (stated(f"{NESTED}conv_kernel_size", 2), r"base_kernel in the shape \(2, 3, 64\)"),
    bad(f"{NESTED}conv_group_size", 24, "a divisor of 64"),
    bad(f"{NESTED}conv_group_size", 0, WHOLE),
    bad(f"{NESTED}conv_kernel_size", 65, "a whole number from 0 to 64"),
    bad(f"{NESTED}selector_top_k", 98, "a whole number from 1 to 97"),
    bad(f"{NESTED}selector_top_k", None, WHOLE),
    bad(f"{NESTED}selector_rank", "12", WHOLE),
]
W1, CONFIDENCE = "markov_head.markov_w1.weight", "confidence_head.proj.weight"
DSPARK = [
    (without("markov_head.markov_w2.weight"), "lacks the tensors of markov_head.markov_w2"),
    (without(CONFIDENCE), "lacks the tensors of confidence_head.proj.weight"),
    (without("confidence_head.proj.bias"), "lacks the tensors of confidence_head.proj.bias"),
    (store(W1, mx.zeros((40, 12))), r"markov_w1.weight in the shape \(40, 12\)"),
    (store(CONFIDENCE, mx.zeros((1, 70))), r"proj.weight in the shape \(1, 70\)"),
    (stated("enable_confidence_head", False), "do not have: confidence_head.proj.bias"),
    (stated("markov_head_type", "vanilla"), "do not have: markov_head.joint_proj.bias"),
    (stated("markov_head_type", "gated"), "lacks the tensors of markov_head.gate_proj"),
    (stated("markov_rank", 0), "do not have: markov_head"),
    (stated("markov_rank", 16), "markov_w1.weight in the shape"),
    (store("d2t", mx.full((40,), 58, dtype=mx.int64)), "of the 97 of this model"),
    (without("d2t"), r"weight in the shape \(40, \d+\)"),
    bad("markov_head_type", "rwkv", "vanilla, gated or rnn"),
    bad("markov_rank", -1, WHOLE),
    bad("enable_confidence_head", 1, "true or false"),
    bad("target_layer_ids", [0, 3], ASCENDING),
]

TEXT, EMBEDDING = "text_config.", "model.embed_tokens.weight"
ORDERING = "masked_embedding.token_ordering"
TYPES = "one of sliding_attention and full_attention for each of 3 layers"
ASSISTANT = [
    (store("model.layers.0.self_attn.k_proj.weight", mx.zeros(2)), "have: layers.0.self_attn.k_pr"),
    # An output head in place of the embedding.
    (lambda arrays, _: arrays.update({"lm_head.weight": arrays.pop(EMBEDDING)}), "of embed_tokens"),
    (without(ORDERING), "lacks the tensors of masked_emb"),
    (store(ORDERING, mx.zeros(96, dtype=mx.int64)), "does not name each of 96 tokens once; the fi"),
    (store(ORDERING, mx.zeros(96)), "does not name each of 96 tokens"),
    bad(f"{TEXT}hidden_size", 0, WHOLE),
    bad(f"{TEXT}intermediate_size", "48", WHOLE),
    bad(f"{TEXT}num_attention_heads", True, WHOLE),
    bad(f"{TEXT}num_hidden_layers", 10**6, WHOLE),
    *(bad(f"{TEXT}layer_types", kinds, TYPES)
      for kinds in (["full_attention"], ["x"] * 3, "abc", [[1]] * 3)),
    bad(f"{TEXT}rms_norm_eps", 2, "a number between 0 and 1"),
    bad(f"{TEXT}rms_norm_eps", float("nan"), "a number between 0 and 1"),
    bad(f"{TEXT}vocab_size", 97, "96, as the model has"),
    bad("num_centroids", 7, "a divisor of 96"),
    bad("num_centroids", 10**9, "a whole number from 1 to 96"),
    bad("centroid_intermediate_top_k", CLUSTERS + 1, f"a whole number from 1 to {CLUSTERS}"),
    bad("use_ordered_embeddings", 1, "true or false"),
    (stated("text_config", None), "'None' for text_config.hidden_size, not a whole"),
    (stated(f"{TEXT}num_attention_heads", 3), "it has 3 heads, and the model 2 with keys in"),
    (stated(f"{TEXT}head_dim", 8), "layers of sliding_attention are 8 wide, and the model's"),
    (stated(f"{TEXT}global_head_dim", 512), "full_attention are 512 wide, and the model's"),
]  # fmt: skip

KINDS = {
    "multi-token prediction": Kind(
        target=lambda: tiny_target("qwen3_5"),
        head=random_head,
        tensors=lambda head: named(parameters_of(head), QWEN, "mtp."),
        config=lambda _: {"model_type": "qwen3_5"},
        matrix="mtp.fc.weight",
        norm="mtp.norm.weight",
        path=lambda name: name.removeprefix("mtp.").replace("fc.", "eh_proj."),
        no_target="of a tiny model; it runs those of qwen",
        file="mtp.safetensors",
    ),
    "EAGLE-3": Kind(
        head=lambda target: random_eagle(target, vocabulary=40),
        tensors=eagle_tensors,
        config=eagle_config,
        damage=LAYER + EAGLE,
        unknown=[*EAGLE_UNKNOWN, *FORMS],
    ),
    "DFlash": Kind(
        head=random_dflash, config=dflash_config, damage=LAYER + DFLASH, unknown=DFLASH_UNKNOWN
    ),
    "DFlash 2": Kind(
        head=random_dflash2,
        config=dflash2_config,
        damage=DFLASH2,
        unknown=[(stated("markov_rank", 256), "markov_rank")],
    ),
    "DSpark": Kind(
        head=lambda target: random_dspark(target, vocabulary=40),
        config=dspark_config,
        damage=DSPARK,
        unknown=[(stated("selector_rank", 256), "selector_rank")],
    ),
    "assistant": Kind(
        target=tiny_gemma,
        head=lambda target: random_assistant(target, clusters=True),
        tensors=checkpoint,
        config=config_of,
        matrix="pre_projection.weight",
        norm="model.layers.0.self_attn.q_norm.weight",
        path=lambda name: name.removeprefix("model."),
        no_target="is an assistant for Gemma 4, and the model is a tiny model",
        damage=ASSISTANT,
    ),
}
each_kind = pytest.mark.parametrize("name", KINDS)


@pytest.fixture(scope="module")
def made():
    """A target and a head of each kind."""
    targets = {name: kind.target() for name, kind in KINDS.items()}
    return {name: (targets[name], kind.head(targets[name])) for name, kind in KINDS.items()}


def write_head(kind, head, folder, change=lambda *_: None):
    """Write a head into a folder; return where it is loaded from."""
    arrays, config = kind.tensors(head), kind.config(head)
    change(arrays, config)
    (folder / "config.json").write_text(json.dumps(config))
    path = write(folder / kind.file, arrays)
    return folder if kind.file == "model.safetensors" else path


def load(target, place, **options):
    return load_head(loaded_from(place.parent / "model", target, **options), place)


def files_damage(kind):
    """Damage in the tensors of a head of any kind, and what is said about it."""
    matrix, norm = kind.matrix, kind.norm
    shown, shown_norm = re.escape(kind.path(matrix)), re.escape(kind.path(norm))
    unknown = norm.replace("weight", "x")
    shown_unknown = re.escape(kind.path(unknown))
    shape = r"the shape \(2, 3\) where this model asks for \(\d+, \d+\)"
    yield without(norm), rf"lacks the tensors of {shown_norm}; it is incomplete, or made for anoth"
    yield store(unknown, mx.zeros(3)), f"has tensors that .* do not have: {shown_unknown}; it is"
    yield store(norm.replace("weight", "scales"), mx.zeros(3)), "do not have: .*norm.scales; it is"
    yield store(matrix, mx.zeros((2, 3))), f"has {shown} in {shape}; use the head of this model"
    yield (
        lambda arrays, _: arrays.update({norm: arrays[norm].astype(mx.int32)}),
        f"has {shown_norm} in the type mlx.core.int32, which a head cannot have there",
    )
    yield (
        lambda arrays, _: arrays.update({norm: arrays[norm] * mx.nan}),
        rf"tensor '{norm}' in .*{kind.file} has infinite numbers or NaN",
    )
    yield (
        store(matrix.replace("weight", "scales"), mx.zeros((64, 0))),
        "prediction head in .* cannot be loaded: ZeroDiv",
    )


@each_kind
def test_damaged_tensors_are_refused(made, tmp_path, name):
    target, head = made[name]
    for change, message in files_damage(KINDS[name]):
        place = write_head(KINDS[name], head, tmp_path, change)
        with pytest.raises(ModelFormatError, match=message):
            load(target, place)


@each_kind
def test_frequencies_follow_from_the_arguments(made, tmp_path, name):
    target, head = made[name]
    frequencies = KINDS[name].norm.replace("norm.weight", "rotary_emb.inv_freq")
    place = write_head(KINDS[name], head, tmp_path, store(frequencies, mx.zeros(8)))
    np.testing.assert_array_equal(outputs(target, load(target, place)), outputs(target, head))


@each_kind
def test_a_projection_is_part_of_every_head(made, tmp_path, name):
    """Also where its absence means another kind, or no head at all."""
    target, head = made[name]
    place = write_head(KINDS[name], head, tmp_path, without(KINDS[name].matrix))
    missing = f"lacks the tensors of {KINDS[name].path(KINDS[name].matrix)}|no tensor fc|no predict"
    with pytest.raises((ModelFormatError, ConfigError), match=missing):
        load(target, place)


OTHERWISE = r"model.safetensors is an? {} head of a kind that .*: it has {}; use another"


@pytest.mark.parametrize(
    ("name", "change", "error", "message"),
    [
        *(
            (name, change, ModelFormatError, words)
            for name, kind in KINDS.items()
            for change, words in kind.damage
        ),
        *(
            (name, change, UnsupportedArchitectureError, OTHERWISE.format(name, words))
            for name, kind in KINDS.items()
            for change, words in kind.unknown
        ),
    ],
)
def test_what_a_kind_does_not_run_is_refused(made, tmp_path, name, change, error, message):
    """Damage, and what is computed in another way."""
    target, head = made[name]
    place = write_head(KINDS[name], head, tmp_path, change)
    with pytest.raises(error, match=message):
        load(target, place)


@each_kind
def test_a_head_of_another_family(made, tmp_path, name):
    place = write_head(KINDS[name], made[name][1], tmp_path)
    other = nn.Sequential() if name == "multi-token prediction" else tiny_target("mimo")
    with pytest.raises(UnsupportedArchitectureError, match=KINDS[name].no_target):
        load(other, place)


@pytest.mark.parametrize("name", ["EAGLE-3", "DFlash", "DFlash 2", "DSpark"])
def test_a_head_without_its_config(made, tmp_path, name):
    target, head = made[name]
    path = write(tmp_path / "alone.safetensors", KINDS[name].tensors(head))
    message = rf"is an? {name} head, and there is no .*config\.json; put the"
    with pytest.raises(ModelFormatError, match=message):
        load(target, path)


@each_kind
def test_a_file_that_is_cut_short_or_may_not_be_read(made, tmp_path, monkeypatch, name):
    target, head = made[name]
    place = write_head(KINDS[name], head, tmp_path)
    path = tmp_path / KINDS[name].file
    whole = path.read_bytes()
    path.write_bytes(b"\x10\x00\x00")
    cut = rf"{path.name} is truncated, damaged or not a"
    with pytest.raises(ModelFormatError, match=cut):
        load(target, place)
    path.write_bytes(whole)
    refuse = Mock(side_effect=PermissionError(13, "Permission denied"))
    monkeypatch.setattr("akunu_py.models.weight_files.open_to_read", refuse)
    with pytest.raises(ModelFormatError, match=rf"{path.name} cannot be read: Permission denied"):
        load(target, place)


def outputs(target, head):
    """Logits of a head behind a few states of its target, drawn at random."""
    tokens = [number * 7 % 96 for number in range(6)]
    if hasattr(head, "sources"):
        states, kept = kept_rows(target, head, tokens[:-1])
        found = head(states[:, -1:], mx.array([tokens[-1:]]), kept, len(tokens) - 1)
    else:
        # EAGLE-3 joins the states of three layers, each as wide as its own.
        width = head.width * len(head.takes) if "midlayer" in head else head.width
        states = mx.random.normal((1, 6, width), key=mx.random.key(5))
        found = head(states, mx.array([tokens]), head.make_cache())
    return np.array(head.logits(found))


@each_kind
@pytest.mark.parametrize("bits", [4, 8])
def test_a_quantized_head_stays_so_and_is_expanded_where_the_target_is(made, tmp_path, name, bits):
    kind, (target, _) = KINDS[name], made[name]
    head = kind.head(target)
    nn.quantize(
        head, group_size=32, bits=bits, class_predicate=lambda _, part: (
            hasattr(part, "to_quantized") and part.weight.shape[-1] % 32 == 0
        ),
    )  # fmt: skip
    place = write_head(kind, head, tmp_path)
    layer = kind.path(kind.matrix).removesuffix(".weight")
    found = load(target, place, weights="quantized")
    assert isinstance(found[layer], nn.QuantizedLinear)
    assert (found[layer].bits, found[layer].group_size) == (bits, 32)
    np.testing.assert_array_equal(outputs(target, found), outputs(target, head))
    found = load(target, place, weights="dense")
    assert type(found[layer]) is nn.Linear
    np.testing.assert_allclose(outputs(target, found), outputs(target, head), atol=1e-3)


@each_kind
def test_a_dense_head_beside_a_quantized_model_gets_eight_bits(made, tmp_path, name):
    kind, (target, head) = KINDS[name], made[name]
    found = load(target, write_head(kind, head, tmp_path), weights="quantized")
    layers, matrices = dict(found.named_modules()), 0
    for path, layer in head.named_modules():
        if "weight" not in layer or layer.weight.ndim < 2:
            continue
        dense, new = np.array(layer.weight), layers[path]
        if dense.shape[-1] % 64:
            np.testing.assert_array_equal(np.array(new.weight), dense)
            continue
        groups = dense.reshape(-1, 64)
        step = (groups.max(axis=1) - groups.min(axis=1)) / 255
        # MLX moves the steps of a group so that 0 is among them.
        error = np.abs(np.array(dense_weight(new)).reshape(-1, 64) - groups).max(axis=1)
        assert (error <= step).all()
        assert (new.bits, new.group_size) == (8, 64)
        matrices += 1
    assert matrices > 2
    logits, ours = outputs(target, head), outputs(target, found)
    guessed = np.isfinite(logits)
    np.testing.assert_array_equal(np.isfinite(ours), guessed)
    off = np.linalg.norm(ours[guessed] - logits[guessed])
    assert 0 < off < 0.1 * np.linalg.norm(logits[guessed])


@each_kind
def test_a_head_computes_in_the_type_of_its_target(made, tmp_path, name):
    kind = KINDS[name]
    target = kind.target()
    target.set_dtype(mx.bfloat16)
    found = load(target, write_head(kind, made[name][1], tmp_path))
    kinds = {array.dtype for array in parameters_of(found).values()} - {mx.int32}
    assert kinds == {mx.bfloat16}


def eagle_beside(target, folder):
    head = random_eagle(target, vocabulary=100)
    return write_eagle(folder, eagle_tensors(head), nested_config(head))


def eagle_file_beside(target, folder):
    made = gguf_of_eagle(random_eagle(target, vocabulary=100))
    return write_drafter(folder / "head.gguf", *made)


def dflash_beside(target, folder):
    return write_dflash(folder, random_dflash(target, mask=256), vocab_size=257)


def dflash2_beside(target, folder):
    head = random_dflash2(target, mask=256)
    return write_dflash(folder, head, dflash2_config, vocab_size=257, sliding_window=4)


def dspark_beside(target, folder):
    head = random_dspark(target, mask=256, vocabulary=100)
    return write_dflash(folder, head, dspark_config, vocab_size=257)


def medusa_beside(target, folder):
    return write_parallel(folder, random_medusa(target, vocabulary=100))


def look_ahead_beside(_, folder):
    return write(folder / "a.safetensors", {"look_ahead": mx.random.normal((BLOCK - 1, 64))})


@pytest.mark.parametrize(
    ("write_beside", "drafted"),
    [(eagle_beside, 4), (eagle_file_beside, 4), (dflash_beside, BLOCK - 1), (dflash2_beside, BLOCK - 1),
     (dspark_beside, BLOCK), (medusa_beside, BLOCK - 1), (look_ahead_beside, BLOCK)],
)  # fmt: skip
def test_an_engine_drafts_with_it(tmp_path, write_beside, drafted):
    """And the reply is the same, whatever the random head guesses."""
    path = write_family_folder(tmp_path / "model", "qwen3")
    target = build_family(Variant("qwen3", changes=(("vocab_size", 257),)))
    (tmp_path / "head").mkdir()
    ask = {"max_tokens": 30}
    with Engine.load(path, heads=write_beside(target, tmp_path / "head")) as engine:
        for options in ({}, {"temperature": 0.9, "seed": 3}, {"repetition_penalty": 1.2}):
            plain = engine.generate("One, two", drafter="none", **ask, **options)
            for drafter in ("mtp", "auto"):
                found = engine.generate(
                    "One, two", drafter=drafter, draft_budget="always", **ask, **options
                )
                assert found.token_ids == plain.token_ids
                assert {one.source: one.drafted for one in found.stats.sources}["mtp"] > 5
        # By default a head that guesses blocks drafts a whole one, less the row of the last token.
        found = engine.generate("One, two", drafter="mtp", draft_budget="always", **ask)
        assert len(found.stats.drafted_per_position) == drafted


def give(name, array):
    return store(name, np.float32(array))


def key(name, value=None):
    """Set a key, or take it out."""
    return lambda _, keys: keys.pop(name) if value is None else keys.update({name: value})


GGUF_DAMAGE = {
    "qwen35": [
        (without("blk.4.nextn.eh_proj.weight"),
         "a.gguf cannot be loaded: the tensor 'blk.4.nextn.eh_proj.weight' is missing"),
        (without("blk.4.attn_q.weight"),
         "1 tensors are missing: blk.4.attn_q.weight; the file is incomplete"),
        (give("blk.4.nextn.eh_proj.weight", np.zeros((64, 64))),
         r"tensor 'blk.4.nextn.eh_proj.weight' has the shape \(64, 64\) where .* \(64, 128\)"),
        (give("blk.4.nextn.x.weight", np.zeros(8)),
         "has a tensor 'blk.4.nextn.x.weight' that akunu does not know there"),
        (give("blk.4.x.weight", np.zeros(8)),
         "has a tensor 'blk.4.x.weight' that akunu does not know there"),
        (give("blk.4.nextn.enorm.weight", np.full(64, np.nan)),
         "tensor 'blk.4.nextn.enorm.weight' makes enorm.weight infinite or NaN"),
    ],
    "assistant": [
        (without("nextn.pre_projection.weight"),
         "a.gguf cannot be loaded: 1 tensors are missing: nextn.pre_projection.weight; the file"),
        (give("blk.0.attn_k.weight", np.zeros((32, 32))),
         "has a tensor 'blk.0.attn_k.weight' that akunu does not know there"),
        (give("blk.1.attn_norm.weight", np.ones(16)),
         r"tensor 'blk.1.attn_norm.weight' has the shape \(16,\) where"),
        (key("embedding_length_out", 96),
         "made for a model of 96 wide, and this one has 64; use the assistant of this model"),
        (give("token_embd.weight", np.ones((50, 32))),
         "made for a model of 50 tokens, and this one has 96; use the assistant of this model"),
        (key("embedding_length_out"), "has no gemma4-assistant.embe"),
        (key("attention.head_count", 3),
         "it has 3 heads, and the model 2 with keys in layers of sliding_attention; use the"),
        (key("attention.sliding_window_pattern"), "layers.*|attn_q.*shape"),
        (key("attention.scale", 0.5),
         "sets gemma4-assistant.attention.scale, which akunu cannot apply to"),
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def qwen(tmp_path_factory):
    return load_model(build("qwen35").write(tmp_path_factory.mktemp("qwen") / "qwen.gguf"))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [(name, *case) for name, cases in GGUF_DAMAGE.items() for case in cases],
)
def test_a_damaged_gguf_file_is_refused(made, qwen, tmp_path, name, change, message):
    path = tmp_path / "a.gguf"
    if name == "assistant":
        target, head = made["assistant"]
        tensors, keys = gguf_tensors(head), dict(KEYS)
        change(tensors, keys)
        write_gguf(path, tensors, keys)
        loaded = loaded_from(tmp_path / "model", target)
    else:
        model, loaded = build(name), qwen
        change(model.tensors, model.metadata)
        model.write(path)
    with pytest.raises(ModelFormatError, match=message):
        load_head(loaded, path)


def test_an_assistant_of_another_family_in_a_gguf_file(made, tmp_path):
    path = write_gguf(tmp_path / "a.gguf", gguf_tensors(made["assistant"][1]))
    with pytest.raises(UnsupportedArchitectureError, match=KINDS["assistant"].no_target):
        load(tiny_target("mimo"), path)
