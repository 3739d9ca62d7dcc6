"""Families that mlx-lm can split over ranks and that `tiny_families` does without.

Their caches are of kinds that other families have as well; what differs is how they are split.
"""

from tiny_families import (
    ALTERNATING,
    DELTA_NET,
    FAMILIES,
    FRAME,
    GROUPED,
    LATENT,
    QWEN_EXPERTS,
    WINDOW,
    by_name,
    family,
    sizes,
)

ROPE = {"rope_theta": 10000.0, "rope_type": "default"}
QWEN_35 = sizes(
    FRAME, DELTA_NET, full_attention_interval=2, model_type="qwen3_5_text",
    # The output is split as well, and 97 rows do not divide.
    vocab_size=98,
)  # fmt: skip
FAMILIES |= by_name({
    # Without the near-tie between two experts that the weights of "deepseek_v3" have.
    "deepseek_v3, other weights": FAMILIES["deepseek_v3"],
    "qwen3_5, in parts": family(module="qwen3_5", text_config=QWEN_35),
    "qwen3_5_moe": family(text_config=sizes(
        QWEN_35 | {"model_type": "qwen3_5_moe_text"}, QWEN_EXPERTS,
        shared_expert_intermediate_size=32,
    )),
    "solar_open": family(FRAME, GROUPED, partial_rotary_factor=0.5),
    "glm_moe_dsa": family(
        FRAME, GROUPED, LATENT, rope_parameters=ROPE, index_head_dim=16, index_n_heads=2,
        index_topk=8, topk_method="noaux_tc", moe_layer_freq=1, scoring_func="sigmoid",
        attention_bias=False,
    ),
    "deepseek_v2": family(FRAME, GROUPED, LATENT, topk_method="greedy", rope_scaling=sizes(
        type="yarn", factor=4.0, original_max_position_embeddings=32, beta_fast=32, beta_slow=1,
        mscale=1.0, mscale_all_dim=1.0,
    )),
    "glm4_moe_lite": family(FRAME, GROUPED, LATENT, rope_scaling=None),
    "kimi_k25": family(text_config=sizes(FRAME, GROUPED, LATENT, rope_scaling=None)),
    "minimax": family(
        FRAME, num_local_experts=4, num_experts_per_tok=2, rotary_dim=8, shared_intermediate_size=0,
    ),
    "muse_spark": family(text_config=sizes(
        FRAME, post_norm_eps=1e-5, rope_parameters=ROPE, layer_rope_theta=[10000.0, 0, 10000.0, 0],
        layer_types=ALTERNATING, sliding_window=WINDOW, final_logit_softcapping=30.0,
        output_multiplier=1.0, num_local_experts=4, num_experts_per_tok=2, moe_hidden_size=64,
        moe_intermediate_size=32,
    )),
    "step3p5, heads that divide": family(
        FRAME, module="step3p5", num_attention_groups=2, sliding_window=WINDOW,
        layer_types=ALTERNATING, moe_num_experts=4, moe_top_k=2, moe_intermediate_size=32,
        share_expert_dim=32, moe_layers_enum="1,2,3", partial_rotary_factors=[1.0] * 4,
    ),
})  # fmt: skip
