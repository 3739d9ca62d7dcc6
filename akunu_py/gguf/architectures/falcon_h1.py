"""Falcon H1: attention and a Mamba 2 mixer side by side in every layer."""

from collections.abc import Mapping

from akunu_py.gguf.architectures import decoder
from akunu_py.gguf.architectures.recurrent import (
    Projections,
    has_query_bias,
    mamba2_rules,
    read_state_space,
)
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import Rule, module, parameter, place
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import rope_base, rope_scaling

_LAYER = "model.layers.{}."


def read_falcon_h1(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of a Falcon H1 model.

    Converters have multiplied all of the family's multipliers into the weights, so that none is
    left to apply.
    """
    sizes = decoder.read_dimensions(keys, tensors)
    decoder.require_whole_heads(keys, sizes.head_dim)
    mixer = read_state_space(keys)
    normed = "blk.0.ssm_norm.weight" in tensors
    mlp_bias = decoder.has_biases(tensors, sizes.num_layers, decoder.FEED_FORWARD, "feed-forward")
    convolution = ("ssm_conv1d",)
    return ModelPlan(
        architecture=keys.architecture,
        model="variants.falcon_h1",
        arguments={
            "model_type": "falcon_h1",
            "hidden_size": sizes.hidden_size,
            "num_hidden_layers": sizes.num_layers,
            "intermediate_size": sizes.feed_forward_size,
            "num_attention_heads": sizes.num_heads,
            "num_key_value_heads": sizes.num_kv_heads,
            "head_dim": sizes.head_dim,
            "attention_bias": has_query_bias(tensors),
            "mlp_bias": mlp_bias,
            "mamba_conv_bias": decoder.has_biases(
                tensors, sizes.num_layers, convolution, "convolution"
            ),
            "mamba_d_conv": mixer.kernel,
            "mamba_d_head": mixer.head_dim,
            "mamba_d_ssm": mixer.inner_size,
            "mamba_d_state": mixer.state_size,
            "mamba_n_groups": mixer.groups,
            "mamba_n_heads": mixer.heads,
            "mamba_rms_norm": normed,
            # The class multiplies the logits of tied embeddings by the one over the other.
            "embedding_multiplier": 1.0,
            "lm_head_multiplier": 1.0,
            "rms_norm_eps": decoder.rms_eps(keys),
            "rope_theta": rope_base(keys),
            "rope_scaling": rope_scaling(keys, sizes.context_length),
            "vocab_size": sizes.vocabulary_size,
            "max_position_embeddings": sizes.context_length,
            "tie_word_embeddings": sizes.tied,
        },
        placements=place(
            [*_rules(sizes, tensors), *mamba2_rules(_LAYER + "mamba", norm=normed)],
            tensors,
            sizes.num_layers,
        ),
        num_layers=sizes.num_layers,
        context_length=sizes.context_length,
        vocabulary_size=sizes.vocabulary_size,
    )


def _rules(sizes: decoder.Dimensions, tensors: Mapping[str, TensorInfo]) -> list[Rule]:
    names = {
        "attn_norm": "input_layernorm",
        "attn_output": "self_attn.o_proj",
        "ffn_gate": "feed_forward.gate_proj",
        "ffn_up": "feed_forward.up_proj",
        "ffn_down": "feed_forward.down_proj",
    }
    rules = [
        module(decoder.EMBEDDING, "model.embed_tokens"),
        module("output_norm", "model.final_layernorm"),
        *Projections.of(sizes).rules(_LAYER + "self_attn", tensors, range(sizes.num_layers)),
        *(module(f"blk.{{}}.{source}", _LAYER + target) for source, target in names.items()),
    ]
    # Converters leave ".weight" off this one name.
    suffix = "" if "blk.0.ffn_norm" in tensors else ".weight"
    rules.append(parameter(f"blk.{{}}.ffn_norm{suffix}", _LAYER + "pre_ff_layernorm.weight"))
    if not sizes.tied:
        rules.append(module(decoder.OUTPUT, "lm_head"))
    return rules


READERS = {"falcon-h1": read_falcon_h1}
