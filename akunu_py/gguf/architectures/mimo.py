"""MiMo V2."""

from collections.abc import Mapping, Sequence

from akunu_py.gguf.architectures import blocks, decoder, experts, windows
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import Rule, module, parameter, place
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import rope_base, rope_scaling

_SINKS = "blk.{}.attn_sinks.weight"


def read_mimo2(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan for `mlx_lm.models.mimo_v2_flash`.

    Layers that see a window have heads of their own number, rotary frequencies of another base and
    sinks. Values are narrower than keys, and a part of each key rotates.
    """
    width = keys.integer("embedding_length")
    layers = decoder.read_num_layers(keys, tensors)
    vocabulary = decoder.read_vocabulary_size(keys, tensors, width)
    context = keys.integer("context_length", high=decoder.MAX_CONTEXT)
    windowed = keys.layer_flags(windows.PATTERN, layers)
    if len(set(windowed)) < 2:
        raise keys.unsupported(windows.PATTERN, windowed[0], "layers of both kinds")
    query = keys.layer_integers("attention.head_count", layers, low=1, high=1 << 16)
    key = keys.layer_integers("attention.head_count_kv", layers, low=1, high=1 << 16)
    heads = _of_both_kinds(keys, "attention.head_count", query, windowed)
    kv_heads = _of_both_kinds(keys, "attention.head_count_kv", key, windowed)
    for count, kv_count in zip(heads, kv_heads, strict=True):
        if count % kv_count:
            raise keys.error("attention.head_count_kv", kv_count, f"a divisor of {count}")
    head_dim = decoder.read_head_dim(keys, width, heads[0])
    value_dim = keys.integer("attention.value_length", head_dim, high=1 << 16)
    rotated = decoder.read_rotated(keys, head_dim)
    if (scaling := rope_scaling(keys, context)) is not None:
        raise keys.unsupported("rope.scaling.type", scaling["type"], "unscaled positions")
    sinks = [_SINKS.format(layer) in tensors for layer in range(layers)]
    of_full, of_windowed = _of_both_kinds(keys, "attention sinks", sinks, windowed)
    mixture = experts.read_mixture(keys)
    is_mixture = [f"blk.{layer}.ffn_gate_inp.weight" in tensors for layer in range(layers)]
    scale = keys.number("attention.value_scale", 1.0, low=0, high=1e3)
    target = blocks.FEED_FORWARD
    rules = [
        *decoder.frame_rules(tied=False),
        module("blk.{}.attn_norm", f"{blocks.LAYER}.input_layernorm"),
        *_attention_rules(tensors, query, key, head_dim, value_dim),
        parameter(_SINKS, f"{blocks.ATTENTION}.attention_sink_bias", required=False),
        module("blk.{}.ffn_norm", f"{blocks.LAYER}.post_attention_layernorm"),
        *(
            module(f"blk.{{}}.ffn_{part}", f"{target}.{part}_proj",
                   layers=lambda layer: not is_mixture[layer])
            for part in ("gate", "up", "down")
        ),
        *experts.router_rules(f"{target}.gate", layers=is_mixture.__getitem__),
        *experts.expert_rules(
            f"{target}.switch_mlp", mixture, tensors, layers=is_mixture.__getitem__
        ),
    ]  # fmt: skip
    return ModelPlan(
        architecture=keys.architecture,
        model="mimo_v2_flash",
        arguments={
            "model_type": "mimo_v2_flash",
            "vocab_size": vocabulary,
            "hidden_size": width,
            "num_hidden_layers": layers,
            "max_position_embeddings": context,
            "intermediate_size": keys.integer("feed_forward_length"),
            "moe_intermediate_size": mixture.feed_forward_size,
            "n_routed_experts": mixture.count,
            "num_experts_per_tok": mixture.used,
            "n_shared_experts": None,
            "moe_layer_freq": [int(routed) for routed in is_mixture],
            "topk_method": "noaux_tc",
            "scoring_func": "sigmoid",
            "norm_topk_prob": True,
            "routed_scaling_factor": 1.0,
            "n_group": 1,
            "topk_group": 1,
            "hybrid_layer_pattern": [int(narrow) for narrow in windowed],
            "sliding_window_size": keys.integer(windows.WINDOW, high=decoder.MAX_CONTEXT),
            "num_attention_heads": heads[0],
            "num_key_value_heads": kv_heads[0],
            "swa_num_attention_heads": heads[1],
            "swa_num_key_value_heads": kv_heads[1],
            "add_full_attention_sink_bias": bool(of_full),
            "add_swa_attention_sink_bias": bool(of_windowed),
            "head_dim": head_dim,
            "swa_head_dim": head_dim,
            "v_head_dim": value_dim,
            "swa_v_head_dim": value_dim,
            # Half a dimension more, against what division loses.
            "partial_rotary_factor": (rotated + 0.5) / head_dim,
            "attention_value_scale": scale,
            "layernorm_epsilon": decoder.rms_eps(keys),
            "rope_theta": rope_base(keys),
            "swa_rope_theta": keys.number("rope.freq_base_swa", 10000.0, low=1, high=1e12),
        },
        placements=place(
            rules,
            tensors,
            layers,
            ignored=decoder.extra_blocks(layers, keys.integer("block_count")),
        ),
        num_layers=layers,
        context_length=context,
        vocabulary_size=vocabulary,
        constants=experts.zero_router_biases(
            f"{target}.gate",
            mixture,
            tensors,
            [layer for layer in range(layers) if is_mixture[layer]],
        ),
    )


def _of_both_kinds(
    keys: Keys, key: str, values: Sequence[int], windowed: Sequence[bool]
) -> tuple[int, int]:
    """Return the value of the layers that see everything, and of the windowed ones."""
    kinds = [
        {value for value, narrow in zip(values, windowed, strict=True) if narrow == kind}
        for kind in (False, True)
    ]
    if any(len(found) != 1 for found in kinds):
        raise keys.unsupported(key, list(values)[:8], "equal layers of each kind")
    return kinds[0].pop(), kinds[1].pop()


def _attention_rules(
    tensors: Mapping[str, TensorInfo],
    query: Sequence[int],
    key: Sequence[int],
    head_dim: int,
    value_dim: int,
) -> list[Rule]:
    """Return the rules for q, k, v, apart or one after the other in one tensor, and the output."""
    rules = [module("blk.{}.attn_output", f"{blocks.ATTENTION}.o_proj")]
    if "blk.0.attn_qkv.weight" not in tensors:
        return rules + [
            module(f"blk.{{}}.attn_{part}", f"{blocks.ATTENTION}.{part}_proj") for part in "qkv"
        ]

    def ends(layer: int) -> tuple[int, int, int]:
        first = query[layer] * head_dim
        second = first + key[layer] * head_dim
        return first, second, second + key[layer] * value_dim

    rows = {
        "q": lambda layer: slice(0, ends(layer)[0]),
        "k": lambda layer: slice(ends(layer)[0], ends(layer)[1]),
        "v": lambda layer: slice(ends(layer)[1], ends(layer)[2]),
    }
    return rules + [
        module("blk.{}.attn_qkv", f"{blocks.ATTENTION}.{part}_proj", rows=take)
        for part, take in rows.items()
    ]


READERS = {"mimo2": read_mimo2}
