"""How transformers 5 writes the configs of the families in `tiny_families`.

`FORMS` are recorded from transformers 5.24: for each family the entries of transformers 4 that it
leaves out, and those it writes in their place, for a `rope_theta` of 500.
"""

THETA = 500.0
FLAT = {"rope_parameters": {"rope_theta": THETA, "rope_type": "default"}}
HALF = {"rope_parameters": {**FLAT["rope_parameters"], "partial_rotary_factor": 0.5}}
LOCAL = {"rope_theta": 10000.0, "rope_type": "default"}
BY_LAYER = {
    "rope_parameters": {"full_attention": FLAT["rope_parameters"], "sliding_attention": LOCAL}
}
WINDOWS = {"layer_types": ["sliding_attention", "full_attention"] * 2}
LINEAR = {"layer_types": ["linear_attention", "full_attention"] * 2}
WHOLE = {**FLAT, "layer_types": ["full_attention"] * 4}
GEMMA_4 = {
    "per_layer_config": {"1": {"head_dim": 32}, "3": {"head_dim": 32}, "5": {"head_dim": 32}},
    "rope_parameters": {
        "full_attention": {
            "partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional",
        },
        "sliding_attention": LOCAL,
    },
}  # fmt: skip
SCALED = {"original_max_position_embeddings": 32, "rope_theta": THETA, "factor": 4.0}
EXPERTS = {"moe_renormalize": True, "num_expert_group": 1}

Names = tuple[str, ...]
ROPE: Names = ("rope_theta", "rope_scaling")
FORMS: dict[str, tuple[Names, dict[str, object]]] = {
    **dict.fromkeys(
        ("llama", "mixtral", "olmo2", "deepseek_v3", "llama, sliding", "llama, window of 300",
         "olmo_hybrid", "falcon_h1"),
        (ROPE, FLAT),
    ),
    "llama, scaled positions": (
        ROPE,
        {"rope_parameters": {
            **SCALED, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "rope_type": "llama3",
        }},
    ),
    "qwen2": (ROPE, {**WHOLE, "sliding_window": None, "use_sliding_window": False}),
    "qwen3": (ROPE, {**WHOLE, "sliding_window": None, "use_sliding_window": False}),
    "smollm3": (ROPE, {**WHOLE, "no_rope_layers": [1, 1, 1, 0]}),
    "qwen3_moe": ((*ROPE, "num_experts"), {**FLAT, "num_local_experts": 4}),
    "gemma2": (ROPE, {**FLAT, **WINDOWS, "sliding_window": 4096}),
    "phi3": (
        ROPE, {"rope_parameters": {**FLAT["rope_parameters"], "partial_rotary_factor": 1.0}},
    ),
    "glm4": ((*ROPE, "partial_rotary_factor"), HALF),
    "glm4_moe": ((*ROPE, "partial_rotary_factor"), HALF),
    "llama4_text": (
        ROPE, {**FLAT, "layer_types": ["chunked_attention"] * 3 + ["full_attention"]},
    ),
    "llama4": (ROPE, {**FLAT, "layer_types": ["chunked_attention"] * 3 + ["full_attention"]}),
    "deepseek_v32": (ROPE, {**FLAT, "layer_types": ["indexed_attention"] * 4, "head_dim": 8}),
    "longcat_flash": ((*ROPE, "intermediate_size", "num_hidden_layers"), FLAT),
    "gemma3": (
        (*ROPE, "sliding_window_pattern"), {**BY_LAYER, **WINDOWS, "_sliding_window_pattern": 2},
    ),
    "gemma3n": ((*ROPE, "rope_local_base_freq"), BY_LAYER),
    "gemma4": (("global_head_dim", "num_global_key_value_heads"), GEMMA_4),
    "gemma4, experts": (("global_head_dim", "num_global_key_value_heads"), GEMMA_4),
    "gpt_oss, scaled positions": (
        ROPE,
        {"rope_parameters": {
            **SCALED, "beta_fast": 32.0, "beta_slow": 1.0, "rope_type": "yarn", "truncate": False,
        }},
    ),
    "cohere2": ((*ROPE, "sliding_window_pattern"), {**FLAT, **WINDOWS}),
    "olmo3": (
        ROPE,
        {"rope_parameters": dict.fromkeys(
            ("full_attention", "sliding_attention"), FLAT["rope_parameters"]
        )},
    ),
    "exaone4": (ROPE, {**FLAT, **WINDOWS, "sliding_window_pattern": 2}),
    "qwen3_next": ((*ROPE, "partial_rotary_factor", "full_attention_interval"), {**HALF, **LINEAR}),
    "qwen3_5": ((*ROPE, "full_attention_interval"), LINEAR),
    "kimi_linear": (
        ("max_position_embeddings", "norm_topk_prob", "num_experts_per_tok"),
        {**EXPERTS, **LINEAR},
    ),
    "lfm2": (ROPE, {**FLAT, "layer_types": ["conv", "full_attention"] * 2}),
    "lfm2_moe": (ROPE, {**FLAT, "layer_types": None}),
    "granitemoehybrid": (ROPE, {**FLAT, **LINEAR, "position_embedding_type": None}),
    "nemotron_h": (
        ("hybrid_override_pattern", "num_hidden_layers"),
        {"layers_block_type": ["linear_attention", "full_attention", "linear_attention", "mlp"]},
    ),
    "nemotron_h, experts": (
        ("hybrid_override_pattern", "num_hidden_layers"),
        {"layers_block_type": ["linear_attention", "full_attention", "moe", "linear_attention"]},
    ),
    "bailing_hybrid": (
        (*ROPE, "max_position_embeddings", "n_group", "norm_topk_prob", "num_experts_per_tok"),
        {**FLAT, **LINEAR, **EXPERTS, "model_max_length": 2048, "num_experts_per_token": 2},
    ),
}  # fmt: skip
"""Not here: families that transformers does not have, or writes as another architecture; those
without rotations; and Mistral 3, which has only the newer form."""
