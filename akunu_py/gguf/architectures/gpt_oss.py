"""gpt-oss."""

from collections.abc import Mapping

from akunu_py.gguf.architectures import decoder, experts, windows
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import module, parameter, place
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import rope_base, rope_scaling


def read_gpt_oss(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of a gpt-oss model for `mlx_lm.models.gpt_oss`.

    Converters split the interleaved rows of gate and up, as that class does for itself. The limit
    of 7 and the factor of 1.702 in the activation have no key: both programs have them fixed.
    """
    sizes = decoder.read_dimensions(keys, tensors, feed_forward=False)
    decoder.require_whole_heads(keys, sizes.head_dim)
    mixture = experts.read_mixture(keys)
    sliding = windows.windowed_layers(keys, sizes.num_layers, 2)
    base = rope_base(keys)
    if (swa_base := keys.number("rope.freq_base_swa", base, low=1, high=1e12)) != base:
        raise keys.unsupported("rope.freq_base_swa", swa_base, f"the base of all layers, {base}")
    rules = [
        *decoder.frame_rules(tied=False),
        module("blk.{}.attn_norm", "model.layers.{}.input_layernorm"),
        module("blk.{}.attn_q", "model.layers.{}.self_attn.q_proj"),
        module("blk.{}.attn_k", "model.layers.{}.self_attn.k_proj"),
        module("blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"),
        module("blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"),
        parameter("blk.{}.attn_sinks.weight", "model.layers.{}.self_attn.sinks"),
        module("blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"),
        module("blk.{}.ffn_gate_inp", "model.layers.{}.mlp.router"),
        *experts.expert_rules("model.layers.{}.mlp.experts", mixture, tensors),
    ]
    return ModelPlan(
        architecture=keys.architecture,
        model="gpt_oss",
        arguments={
            "model_type": "gpt_oss",
            "hidden_size": sizes.hidden_size,
            "num_hidden_layers": sizes.num_layers,
            "intermediate_size": mixture.feed_forward_size,
            "num_local_experts": mixture.count,
            "num_experts_per_tok": mixture.used,
            "num_attention_heads": sizes.num_heads,
            "num_key_value_heads": sizes.num_kv_heads,
            "head_dim": sizes.head_dim,
            "rms_norm_eps": decoder.rms_eps(keys),
            "vocab_size": sizes.vocabulary_size,
            "sliding_window": keys.integer("attention.sliding_window", high=decoder.MAX_CONTEXT),
            "layer_types": [
                "sliding_attention" if windowed else "full_attention" for windowed in sliding
            ],
            "rope_theta": base,
            "rope_scaling": rope_scaling(keys, sizes.context_length),
        },
        placements=place(rules, tensors, sizes.num_layers),
        num_layers=sizes.num_layers,
        context_length=sizes.context_length,
        vocabulary_size=sizes.vocabulary_size,
        wide_range=True,
    )


READERS = {"gpt-oss": read_gpt_oss}
