"""Sizes of a tiny model of every kind of cache that mlx-lm builds, by family.

`FAMILIES` are module and arguments of mlx-lm's model classes, with sliding windows and chunks of 16
tokens; `family_models` makes models of them.
"""

from typing import Any

VOCABULARY = 97
WINDOW = 16


def sizes(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {name: value for part in (*parts, more) for name, value in part.items()}


def family(*parts: dict[str, Any], module: str = "", **more: Any) -> tuple[str, dict[str, Any]]:
    """Module, where it is not called as the family, and arguments of its class."""
    return module, sizes(*parts, **more)


def by_name(families):
    return {name: (module or name, given) for name, (module, given) in families.items()}


FRAME = sizes(
    hidden_size=64, num_hidden_layers=4, intermediate_size=96, num_attention_heads=4,
    num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-5, vocab_size=VOCABULARY,
    max_position_embeddings=2048, rope_theta=10000.0, tie_word_embeddings=False,
)  # fmt: skip
ALTERNATING = ["sliding_attention", "full_attention"] * 2
SLIDING = sizes(FRAME, layer_types=ALTERNATING, sliding_window=WINDOW)
PATTERN = sizes(FRAME, sliding_window=WINDOW, sliding_window_pattern=2)
EXPERTS = sizes(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=True)
QWEN_EXPERTS = sizes(EXPERTS, decoder_sparse_step=1, mlp_only_layers=[])
GROUPED = sizes(
    moe_intermediate_size=32, n_routed_experts=4, n_shared_experts=1, n_group=1, topk_group=1,
    num_experts_per_tok=2, norm_topk_prob=True, routed_scaling_factor=1.0, first_k_dense_replace=1,
)  # fmt: skip
LATENT = sizes(
    kv_lora_rank=32, q_lora_rank=32, qk_rope_head_dim=8, qk_nope_head_dim=16, v_head_dim=16,
    num_key_value_heads=4,
)  # fmt: skip
DELTA_NET = sizes(
    linear_num_value_heads=4, linear_num_key_heads=2, linear_key_head_dim=16,
    linear_value_head_dim=16, linear_conv_kernel_dim=4,
)  # fmt: skip
DELTA_ATTENTION = sizes(
    kda_layers=[1, 3], full_attn_layers=[2, 4], num_heads=4, head_dim=16, short_conv_kernel_size=4
)
BAILING = sizes(
    FRAME, EXPERTS, num_shared_experts=1, first_k_dense_replace=1, layer_group_size=2, n_group=1,
    topk_group=1,
)  # fmt: skip
STATE_SPACE = sizes(
    hidden_size=64, num_hidden_layers=4, vocab_size=VOCABULARY, state_size=16, conv_kernel=4,
    use_bias=False, use_conv_bias=True, intermediate_size=128, tie_word_embeddings=False,
)  # fmt: skip
MIXER = sizes(mamba_d_conv=4, mamba_d_head=16, mamba_d_state=16, mamba_n_groups=2, mamba_n_heads=8)
NEMOTRON = sizes(
    FRAME, attention_bias=False, mlp_bias=False, use_bias=False, use_conv_bias=True,
    mamba_num_heads=8, mamba_head_dim=16, mamba_proj_bias=False, ssm_state_size=16, conv_kernel=4,
    n_groups=2, layer_norm_epsilon=1e-5, hybrid_override_pattern=list("M*M-"),
)  # fmt: skip
MINISTRAL = sizes(SLIDING, rope_parameters=sizes(
    rope_type="default", rope_theta=10000.0, llama_4_scaling_beta=0.1,
    original_max_position_embeddings=32,
))  # fmt: skip
SHARED_KV = sizes(
    FRAME, num_hidden_layers=6, layer_types=["sliding_attention", "full_attention"] * 3,
    sliding_window=WINDOW, num_kv_shared_layers=2, hidden_size_per_layer_input=8,
    vocab_size_per_layer_input=VOCABULARY,
)  # fmt: skip
GEMMA_4 = sizes(
    SHARED_KV, global_head_dim=32, num_global_key_value_heads=2, tie_word_embeddings=True
)
OSS = sizes(SLIDING, num_local_experts=4, num_experts_per_tok=2, rope_scaling=None)
SCALED_32 = {"factor": 4.0, "original_max_position_embeddings": 32}
LONGCAT = sizes(
    FRAME, LATENT, ffn_hidden_size=96, moe_topk=2, expert_ffn_hidden_size=32, n_routed_experts=4,
    zero_expert_num=2, num_layers=2, routed_scaling_factor=1.0, mla_scale_q_lora=True,
    mla_scale_kv_lora=True, attention_bias=False, attention_method="MLA",
    zero_expert_type="identity",
)  # fmt: skip
COMPRESSED = sizes(
    FRAME, head_dim=32, q_lora_rank=32, qk_rope_head_dim=16, o_groups=2, o_lora_rank=32,
    moe_intermediate_size=32, n_routed_experts=4, num_experts_per_tok=2, sliding_window=WINDOW,
    compress_ratios=[0, 4, 4, 1], kv_source_layer_ids=[1, 3], index_source_layer_ids=[1, 3],
    index_n_heads=2, index_head_dim=32, index_topk=8, candidate_block_size=4,
    candidate_topk_blocks=4, hc_mult=2, rms_norm_eps=1e-6,
)  # fmt: skip
LLAMA_4 = sizes(
    FRAME, model_type="llama4_text", attention_bias=False, attention_chunk_size=WINDOW,
    interleave_moe_layer_step=2, intermediate_size_mlp=96, num_experts_per_tok=1,
    num_local_experts=4, use_qk_norm=True, rope_scaling=None,
)  # fmt: skip

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = by_name({
    # Caches of all rows.
    "llama": family(FRAME),
    "llama, scaled positions": family(FRAME, module="llama", rope_scaling=sizes(
        SCALED_32, rope_type="llama3", low_freq_factor=1.0, high_freq_factor=4.0,
    )),
    "mixtral": family(FRAME, num_local_experts=4, num_experts_per_tok=2),
    "qwen2": family(FRAME),
    "qwen3": family(FRAME),
    "qwen3_moe": family(FRAME, QWEN_EXPERTS),
    "gemma2": family(FRAME, query_pre_attn_scalar=16.0),
    "phi3": family(FRAME),
    "olmo2": family(FRAME),
    "smollm3": family(FRAME),
    "glm4": family(FRAME, attention_bias=True, partial_rotary_factor=0.5),
    "glm4_moe": family(
        FRAME, GROUPED, rope_scaling=None, use_qk_norm=True, attention_bias=True,
        partial_rotary_factor=0.5,
    ),
    "llama4_text": family(
        FRAME, intermediate_size_mlp=96, no_rope_layers=[1, 1, 1, 0], use_qk_norm=True,
    ),
    "deepseek_v3": family(FRAME, GROUPED, LATENT, rope_scaling=None),
    "deepseek_v32": family(
        FRAME, GROUPED, LATENT, rope_scaling=None, index_head_dim=16, index_n_heads=2,
        index_topk=8,
    ),
    "nanbeige": family(FRAME, num_hidden_layers=2, num_loops=2),
    "talkie": family(FRAME, rms_norm_eps=1e-7),
    "mistral4": family(FRAME, GROUPED, LATENT, rope_parameters=MINISTRAL["rope_parameters"]),
    "longcat_flash": family(LONGCAT),
    "minimax_m3": family(module="minimax_m3_vl", text_config=sizes(
        FRAME, intermediate_size=32, dense_intermediate_size=96, shared_intermediate_size=32,
        num_local_experts=4, num_experts_per_tok=2, sparse_attention_config=sizes(
            use_sparse_attention=True, sparse_num_index_heads=2, sparse_index_dim=16,
            sparse_block_size=8, sparse_topk_blocks=2, sparse_local_block=1,
            sparse_attention_freq=[0, 1, 0, 1],
        ),
    )),
    "mistral3": family(text_config=sizes(MINISTRAL, model_type="ministral3")),
    # Sliding windows, most of them with caches of all rows between them.
    "llama, sliding": family(SLIDING, module="llama"),
    "llama, window of 300": family(SLIDING, module="llama", sliding_window=300),
    "ministral3": family(MINISTRAL),
    "gemma3": family(PATTERN, module="gemma3_text", query_pre_attn_scalar=16),
    "gemma3n": family(text_config=sizes(
        SHARED_KV, model_type="gemma3n_text", rope_local_base_freq=10000.0,
        final_logit_softcapping=30.0, intermediate_size=[96] * 6,
        activation_sparsity_pattern=[0.5, 0.5, 0, 0, 0, 0], altup_num_inputs=2,
        altup_coef_clip=120.0, altup_correct_scale=True, altup_active_idx=0, laurel_rank=8,
    )),
    "gemma4": family(GEMMA_4, module="gemma4_text"),
    "gemma4, experts": family(
        GEMMA_4, module="gemma4_text", enable_moe_block=True, num_experts=4, top_k_experts=2,
        moe_intermediate_size=32,
    ),
    "gpt_oss": family(OSS),
    "gpt_oss, scaled positions": family(OSS, module="gpt_oss", rope_scaling=sizes(
        SCALED_32, rope_type="yarn", beta_fast=32.0, beta_slow=1.0, truncate=False,
    )),
    "cohere2": family(PATTERN, logit_scale=1.0),
    "olmo3": family(SLIDING),
    "exaone4": family(PATTERN, rope_scaling=None, sliding_window_pattern="LG"),
    "exaone_moe": family(
        SLIDING, EXPERTS, num_shared_experts=1, is_moe_layer=[False, True, True, True],
    ),
    "mellum": family(
        SLIDING, EXPERTS,
        rope_parameters={"full_attention": sizes(rope_theta=1e4, rope_type="yarn", **SCALED_32), "sliding_attention": {"rope_theta": 1e4}},
    ),
    "mimo_v2_flash": family(
        FRAME, GROUPED, hybrid_layer_pattern=[1, 0, 1, 0], moe_layer_freq=[0, 1, 0, 1],
        add_swa_attention_sink_bias=True, add_full_attention_sink_bias=False,
        sliding_window_size=WINDOW, topk_method="noaux_tc", scoring_func="sigmoid",
        layernorm_epsilon=1e-5, swa_rope_theta=10000.0, swa_num_attention_heads=4,
        swa_num_key_value_heads=2, v_head_dim=16, swa_head_dim=16, swa_v_head_dim=16,
        partial_rotary_factor=0.5,
    ),
    "step3p5": family(
        SLIDING, num_attention_groups=2, moe_num_experts=4, moe_top_k=2,
        moe_intermediate_size=32, share_expert_dim=32, swiglu_limits=[0, 0.5, 0, 0.5],
        attention_other_setting={"num_attention_heads": 2, "num_attention_groups": 1},
    ),
    "spark2_5": family(SLIDING, rope_parameters={"sliding_attention": {}, "full_attention": {}}),
    "muse_glimmer": family(SLIDING, output_multiplier=1.0),
    "laguna": family(
        SLIDING, EXPERTS, shared_expert_intermediate_size=32,
        num_attention_heads_per_layer=[4, 2, 4, 2],
        rope_parameters={"full_attention": {"partial_rotary_factor": 0.5}},
    ),
    "iquestloopcoder": family(FRAME, num_hidden_layers=2, loop_window_size=WINDOW),
    # Chunks.
    "llama4": family(text_config=LLAMA_4),
    # A window with compressed context, in a cache of the model's own.
    "deepseek_v41": family(COMPRESSED),
    # Recurrent states alone.
    "mamba": family(STATE_SPACE, time_step_rank=4),
    "mamba2": family(
        STATE_SPACE, num_heads=8, head_dim=16, layer_norm_epsilon=1e-5, n_groups=2,
        time_step_limit=(0.0, float("inf")), time_step_rank="auto",
    ),
    "rwkv7": family(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, norm_eps=1e-5, head_dim=16,
        num_hidden_layers=3, a_low_rank_dim=8, v_low_rank_dim=8, gate_low_rank_dim=8,
        decay_low_rank_dim=8,
    ),
    # Recurrent states with caches of all rows.
    "qwen3_next": family(
        FRAME, QWEN_EXPERTS, DELTA_NET, full_attention_interval=2,
        shared_expert_intermediate_size=32, partial_rotary_factor=0.5,
    ),
    "qwen3_5": family(text_config=sizes(
        FRAME, DELTA_NET, full_attention_interval=2, model_type="qwen3_5_text",
        rope_theta=100000.0,
    )),
    "olmo_hybrid": family(
        FRAME, DELTA_NET, linear_allow_neg_eigval=True, attention_bias=False,
        layer_types=["linear_attention", "full_attention"] * 2,
    ),
    "kimi_linear": family(
        FRAME, LATENT, EXPERTS, model_max_length=2048, num_experts_per_token=2,
        num_shared_experts=1, first_k_dense_replace=1, mla_use_nope=True,
        linear_attn_config=DELTA_ATTENTION,
    ),
    "lfm2": family(
        FRAME, norm_eps=1e-5, conv_bias=False, conv_L_cache=3, block_dim=64,
        block_multiple_of=8, block_ffn_dim_multiplier=1.0, block_auto_adjust_ff_dim=False,
        full_attn_idxs=[1, 3],
    ),
    "lfm2_moe": family(
        FRAME, EXPERTS, norm_eps=1e-5, conv_bias=False, conv_L_cache=3, full_attn_idxs=[1, 3],
        num_dense_layers=1, use_expert_bias=True,
    ),
    "jamba": family(
        FRAME, attn_layer_offset=1, attn_layer_period=2, expert_layer_offset=1,
        expert_layer_period=2, mamba_d_conv=4, mamba_d_state=16, mamba_expand=2, num_experts=4,
        num_experts_per_tok=2,
    ),
    "plamo2": family(
        FRAME, hidden_size_per_head=16, mamba_d_state=16, mamba_d_conv=4, mamba_num_heads=8,
        mamba_step=2, tie_word_embeddings=True,
    ),
    "granitemoehybrid": family(
        FRAME, MIXER, attention_bias=False, embedding_multiplier=1.0, attention_multiplier=0.25,
        logits_scaling=1.0, residual_multiplier=1.0, layer_types=["mamba", "attention"] * 2,
        num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=32,
        mamba_proj_bias=False, mamba_conv_bias=True,
    ),
    "nemotron_h": family(NEMOTRON),
    "nemotron_h, experts": family(
        NEMOTRON, GROUPED, module="nemotron_h", hybrid_override_pattern=list("M*EM"),
        moe_shared_expert_intermediate_size=32,
    ),
    "kimi_k3": family(text_config=sizes(
        FRAME, LATENT, model_type="kimi_linear", num_experts=4, moe_intermediate_size=32,
        num_experts_per_token=2, num_shared_experts=1, first_k_dense_replace=1,
        linear_attn_config=DELTA_ATTENTION,
    )),
    "bailing_hybrid": family(BAILING, LATENT, group_norm_size=2, routed_scaling_factor=1.0),
    "bailing_moe_v3": family(
        BAILING, LATENT, moe_shared_expert_intermediate_size=32, routed_scaling_factor=1.0,
    ),
    "bailing_moe_linear": family(BAILING, group_norm_size=2),
    "longcat_flash_ngram": family(
        LONGCAT, ngram_vocab_size_ratio=3, emb_neighbor_num=3, emb_split_num=2,
    ),
    # Both in one layer, and states with sliding windows.
    "falcon_h1": family(
        FRAME, MIXER, num_hidden_layers=3, mamba_d_ssm=128, mamba_rms_norm=True,
        lm_head_multiplier=1.0,
    ),
    "recurrent_gemma": family(
        FRAME, num_hidden_layers=3, num_key_value_heads=1, attention_bias=False, conv1d_width=4,
        logits_soft_cap=30.0, attention_window_size=WINDOW,
        block_types=["recurrent", "recurrent", "attention"],
    ),
    "baichuan_m1": family(
        FRAME, conv_window=2, sliding_window=WINDOW, sliding_window_layers=[0, 2],
        num_swa_attention_heads=4, num_swa_key_value_heads=2,
    ),
    "gear": family(
        FRAME, sliding_window=WINDOW, tie_word_embeddings=True,
        layer_types=["conv_mixer", "sliding_attention", "conv_mixer", "full_attention"],
    ),
})  # fmt: skip
