"""Single mixtures of experts."""

from akunu_py.gguf.names import ATTENTION, FEED_FORWARD, LAYER, modules, parameter, within
from akunu_py.gguf.parts import attention, experts, layers, rope, windows
from akunu_py.gguf.parts.decoder import MAX_HEAD_DIM, MAX_HEADS, Decoder, read_head_dim
from akunu_py.gguf.parts.experts import Gating
from akunu_py.gguf.plan import ModelPlan


def afmoe(model: Decoder) -> ModelPlan:
    """Trinity, Arcee's mixtures, for `mlx_lm.models.afmoe`.

    The last of every four layers sees everything, without positions; the others see a window. The
    embedding is multiplied by the root of its width, without a key.
    """
    attention.require_whole_heads(model)
    windowed = windows.windowed_layers(model, 4)
    if (period := windows.period(model, windowed)) != 4:
        raise model.keys.unsupported(windows.PATTERN, period, "a period of four layers")
    mixture = experts.read_behind_dense(model)
    experts.require_one_group(model, mixture)
    norms = {
        "attn_norm": "input_layernorm",
        "post_attention_norm": "post_attention_layernorm",
        "ffn_norm": "pre_mlp_layernorm",
        "post_ffw_norm": "post_mlp_layernorm",
    }
    return model.plan(
        "afmoe",
        [
            *layers.llama(
                model,
                norms=norms,
                heads={"attn_gate": "gate_proj", **layers.HEAD_NORMS},
                feed_forward={},
            ),
            *experts.rules(model, mixture, routed="experts", shared=experts.shared_name(model)),
            *experts.router(mixture, "expert_bias", "router.gate.weight", required=True),
        ],
        {
            "layer_types": windows.layer_types(windowed),
            "sliding_window": windows.size(model),
            "rope_scaling": rope.scaling(model),
            **mixture.arguments,
            "num_shared_experts": experts.shared_count(model),
            "num_dense_layers": mixture.leading,
            "route_norm": experts.normalizes_weights(model),
            "route_scale": experts.weights_scale(model),
            "score_func": experts.scoring(model, Gating.SIGMOID),
            "mup_enabled": True,
        },
    )


def dots1(model: Decoder) -> ModelPlan:
    """dots.llm1 for `mlx_lm.models.dots1`, whose router uses a sigmoid."""
    attention.require_whole_heads(model)
    mixture = experts.read_behind_dense(model, rest=1)
    experts.require_sigmoid(model, mixture)
    return model.plan(
        "dots1",
        [
            *layers.llama(model, heads=layers.HEAD_NORMS, feed_forward={}),
            *experts.rules(model, mixture, routed="experts", shared="shared_experts"),
            *experts.router(mixture),
        ],
        {**experts.arguments(model, mixture, shared=1), "rope_scaling": rope.scaling(model)},
    )


def exaone_moe(model: Decoder) -> ModelPlan:
    """K-EXAONE for `mlx_lm.models.exaone_moe`, in which only windowed layers rotate."""
    attention.require_whole_heads(model)
    rope.require_one_base(model)
    windowed = windows.windowed_layers(model, 4)
    windows.require_both_kinds(model, windowed)
    mixture = experts.read_behind_dense(model)
    experts.require_sigmoid(model, mixture)
    experts.require_several(model, mixture.used, normed=experts.normalizes_weights(model))
    return model.plan(
        "exaone_moe",
        [
            *layers.llama(model, heads=layers.HEAD_NORMS, feed_forward={}),
            *experts.rules(model, mixture, shared=experts.shared_name(model)),
            *experts.router(mixture),
        ],
        {
            **experts.arguments(model, mixture),
            "is_moe_layer": [mixture.routed(layer) for layer in range(model.num_layers)],
            "layer_types": windows.layer_types(windowed),
            "sliding_window": windows.size(model),
            "rope_scaling": rope.scaling(model),
        },
        rotary=rope.factors(model),
    )


def minimax_m2(model: Decoder) -> ModelPlan:
    """MiniMax M2 for `mlx_lm.models.minimax`.

    Norms of q and k span all heads; part of each head rotates.
    """
    attention.require_equal_widths(model)
    rotated = rope.rotated_dims(model)
    mixture = experts.read(model, "feed_forward_length")
    experts.require_sigmoid(model)
    target = f"{LAYER}.block_sparse_moe"
    return model.plan(
        "minimax",
        [
            *layers.llama(model, heads=layers.HEAD_NORMS, feed_forward={}),
            *experts.rules(model, mixture, target),
            *experts.router(mixture, "e_score_correction_bias", at=target, required=True),
        ],
        {
            **mixture.arguments,
            "shared_intermediate_size": 0,
            "rotary_dim": rotated,
        },
        rotary=rope.layers(model, dims=rotated),
    )


def minimax_m3(model: Decoder) -> ModelPlan:
    """MiniMax M3, its text model, for `mlx_lm.models.minimax_m3_vl`.

    Layers with experts have indexers, which choose the blocks of rows that are attended to.
    Converters add the 1 of Gemma's norms to their weights.
    """
    attention.require_equal_widths(model)
    keys = model.keys
    mixture = experts.read_behind_dense(model)
    experts.require_sigmoid(model, mixture)
    experts.require_normalized(model)
    index_heads = keys.integer("attention.indexer.head_count", high=MAX_HEADS)
    if index_heads != model.num_kv_heads:
        wanted = f"as many heads of an indexer as of keys, here {model.num_kv_heads}"
        raise keys.unsupported("attention.indexer.head_count", index_heads, wanted)
    routed = [mixture.routed(layer) for layer in range(model.num_layers)]
    target = f"{LAYER}.block_sparse_moe"
    indexers = {
        f"indexer.{part}": f"index_{part}" for part in ("q_proj", "k_proj", "q_norm", "k_norm")
    }
    rules = [
        *layers.llama(model, heads=layers.HEAD_NORMS, feed_forward={}),
        *modules(ATTENTION, indexers, layers=mixture.routed),
        *modules(FEED_FORWARD, layers.GATED, layers=mixture.dense),
        *experts.stacks(model, mixture, f"{target}.switch_mlp"),
        *modules(f"{target}.shared_experts", experts.SHARED, layers=mixture.routed),
        *experts.router(mixture, "e_score_correction_bias", at=target, required=True),
    ]
    arguments = {
        "intermediate_size": mixture.feed_forward_size,
        "dense_intermediate_size": model.feed_forward_size,
        "shared_intermediate_size": mixture.feed_forward_size * experts.shared_count(model, low=1),
        **mixture.arguments,
        "routed_scaling_factor": experts.weights_scale(model),
        "rotary_dim": rope.rotated_dims(model),
        "rope_parameters": rope.scaling(model),
        "use_gemma_norm": False,
        "mlp_layer_types": ["sparse" if flag else "dense" for flag in routed],
        "sparse_attention_freq": [int(flag) for flag in routed],
        "index_n_heads": index_heads,
        "index_head_dim": keys.integer("attention.indexer.key_length", high=MAX_HEAD_DIM),
        "index_block_size": keys.integer("attention.indexer.block_size"),
        "index_topk_blocks": keys.integer("attention.indexer.top_k"),
        "index_local_blocks": keys.integer("attention.indexer.local_blocks", 1, low=0),
    }
    return model.plan(
        "minimax_m3_vl",
        within("language_model", rules),
        {"text_config": model.arguments(arguments)},
        shared_arguments=False,
    )


def mellum(model: Decoder) -> ModelPlan:
    """Mellum 2 for `mlx_lm.models.mellum`.

    Only layers without a window scale their positions. Every layer has experts, whose weights sum
    to one, without a key.
    """
    attention.require_whole_heads(model)
    mixture = experts.read(model)
    window = windows.size(model, 0)
    windowed = windows.windowed_layers(model, 4) if window else [False] * model.num_layers
    if all(windowed):
        raise model.keys.unsupported(windows.PATTERN, "windows alone", "a layer without a window")
    parameters = rope.of_both_kinds(model)
    if parameters["full_attention"]["type"] == "linear":
        raise model.keys.unsupported("rope.scaling.type", "linear", "yarn scaling of positions")
    return model.plan(
        "mellum",
        [
            *layers.llama(model, heads=layers.HEAD_NORMS, feed_forward={"ffn_gate_inp": "gate"}),
            *experts.rules(model, mixture),
        ],
        {
            **mixture.arguments,
            "norm_topk_prob": True,
            "layer_types": windows.layer_types(windowed),
            "sliding_window": window,
            "rope_parameters": parameters,
        },
    )


def mimo2(model: Decoder) -> ModelPlan:
    """MiMo V2 for `mlx_lm.models.mimo_v2_flash`.

    Windowed layers have another number of heads, another rotary base and sinks. Values are narrower
    than keys, and part of each key rotates.
    """
    keys = model.keys
    all_layers = range(model.num_layers)
    windowed = keys.layer_flags(windows.PATTERN, model.num_layers)
    windows.require_both_kinds(model, windowed)
    heads, kv_heads = windows.heads_by_kind(model, windowed)
    head_dim = read_head_dim(keys, model.hidden_size, heads[False])
    value_dim = keys.integer("attention.value_length", head_dim, high=MAX_HEAD_DIM)
    rotated = rope.rotated_dims(model, head_dim)
    rope.require_unscaled(model)
    sinks = [f"blk.{layer}.attn_sinks.weight" in model.tensors for layer in all_layers]
    sinks_of = windows.by_kind(model, "attention sinks", sinks, windowed)
    routed = [f"blk.{layer}.ffn_gate_inp.weight" in model.tensors for layer in all_layers]
    mixture = experts.read(model, layers=[layer for layer in all_layers if routed[layer]])
    sink = "attention_sink_bias"
    return model.plan(
        "mimo_v2_flash",
        [
            *layers.frame(model, tied=False),
            *modules(LAYER, layers.NORMS),
            *attention.inputs_by_layer(model, head_dim, value_dim),
            *modules(ATTENTION, {"attn_output": "o_proj"}),
            parameter("blk.{}.attn_sinks.weight", f"{ATTENTION}.{sink}", required=False),
            *experts.rules(model, mixture),
            *experts.router(mixture),
        ],
        {
            "num_attention_heads": heads[False],
            "num_key_value_heads": kv_heads[False],
            "swa_num_attention_heads": heads[True],
            "swa_num_key_value_heads": kv_heads[True],
            "add_full_attention_sink_bias": bool(sinks_of[False]),
            "add_swa_attention_sink_bias": bool(sinks_of[True]),
            "head_dim": head_dim,
            "swa_head_dim": head_dim,
            "v_head_dim": value_dim,
            "swa_v_head_dim": value_dim,
            "hybrid_layer_pattern": [int(narrow) for narrow in windowed],
            "sliding_window_size": windows.size(model),
            "partial_rotary_factor": rope.share(rotated, head_dim),
            "attention_value_scale": keys.number("attention.value_scale", 1.0, low=0, high=1e3),
            "swa_rope_theta": rope.window_base(model),
            "layernorm_epsilon": model.rms_eps,
            **mixture.arguments,
            "n_shared_experts": None,
            "moe_layer_freq": [int(flag) for flag in routed],
            "topk_method": "noaux_tc",
            "scoring_func": "sigmoid",
            "norm_topk_prob": True,
            "routed_scaling_factor": 1.0,
            "n_group": 1,
            "topk_group": 1,
        },
    )
