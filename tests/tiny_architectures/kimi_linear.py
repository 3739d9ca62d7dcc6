"""Kimi Linear and its kin."""

from tiny_architectures.builder import EXPERTS, TinyModel, tiny
from tiny_architectures.mixtures import drafting_block, feed_forward, mixture

WIDTH, HEADS, KDA, PLAIN, ROTATED, VALUE, LATENT = 64, 4, 16, 16, 8, 16, 32


def delta_net(model: TinyModel, block) -> None:
    inner = HEADS * KDA
    for part in "qkv":
        model.linear(f"{block}attn_{part}", inner, WIDTH)
        kernel = model.random.normal(0, 0.6, (1, inner, 1, 4))
        model.tensor(f"{block}ssm_conv1d_{part}.weight", kernel)
    for part in "fg":
        model.linear(f"{block}ssm_{part}_a", KDA, WIDTH)
        model.linear(f"{block}ssm_{part}_b", inner, KDA, std=2)
    model.linear(block + "ssm_beta", HEADS, WIDTH, std=2)
    model.tensor(block + "ssm_a", -(2 ** model.random.uniform(-2, 2, (1, 1, HEADS, 1))))
    model.vector(block + "ssm_dt.bias", inner, mean=-1, std=1)
    model.norm(block + "ssm_norm", KDA)
    model.linear(block + "attn_output", WIDTH, inner)


def latent_attention(model: TinyModel, block) -> None:
    model.linear(block + "attn_q", HEADS * (PLAIN + ROTATED), WIDTH, std=2)
    model.linear(block + "attn_kv_a_mqa", LATENT + ROTATED, WIDTH, std=2)
    model.norm(block + "attn_kv_a_norm", LATENT)
    model.matrix(block + "attn_k_b.weight", HEADS, LATENT, PLAIN)
    model.matrix(block + "attn_v_b.weight", HEADS, VALUE, LATENT)
    model.linear(block + "attn_output", WIDTH, HEADS * VALUE)


@tiny("kimi-linear")
def kimi_linear(model: TinyModel) -> None:
    kv_heads = [0, 0, 1, 0]
    # Heads are normed to unit length with this epsilon, whatever the file has.
    model.sizes(
        layers=4, kv_heads=kv_heads, rms_eps=1e-6, attention__kv_lora_rank=LATENT, attention__key_length=LATENT + ROTATED,
        attention__value_length=LATENT, attention__key_length_mla=PLAIN + ROTATED,
        attention__value_length_mla=VALUE, rope__dimension_count=ROTATED, ssm__conv_kernel=4,
        kda__head_dim=KDA, **EXPERTS, expert_shared_count=2, leading_dense_block_count=1,
        expert_weights_scale=2.446, expert_gating_func=2,
    )  # fmt: skip
    model.frame(WIDTH)
    for layer, attends in enumerate(kv_heads):
        block = f"blk.{layer}."
        model.norm(block + "attn_norm", WIDTH)
        if attends:
            latent_attention(model, block)
        else:
            delta_net(model, block)
        model.norm(block + "ffn_norm", WIDTH)
        feed_forward(model, block, layer == 0, shared=64, bias=0.0, std=2)


def gated_net(model: TinyModel, block) -> None:
    """Ling's, with whole matrices for decays and gates, and positive rates."""
    delta_net(model, block)
    inner = HEADS * KDA
    for part in "fg":
        for half in "ab":
            del model.tensors[f"{block}ssm_{part}_{half}.weight"]
        model.linear(f"{block}ssm_{part}_a", inner, WIDTH, std=2)
    model.tensor(block + "ssm_a", -model.tensors.pop(block + "ssm_a").reshape(HEADS, 1))


def latent_keys(model: TinyModel, kv_heads) -> None:
    model.keys(
        attention__head_count_kv=kv_heads, attention__kv_lora_rank=LATENT,
        attention__key_length=LATENT + ROTATED, attention__value_length=LATENT,
        attention__key_length_mla=PLAIN + ROTATED, attention__value_length_mla=VALUE,
        rope__dimension_count=ROTATED, ssm__conv_kernel=4, kda__head_dim=KDA,
        kda__gate_lower_bound=-5.0, expert_gating_func=2, expert_weights_norm=True,
        expert_weights_scale=2.5, leading_dense_block_count=1,
    )  # fmt: skip


@tiny("bailingmoe3")
def bailingmoe3(model: TinyModel) -> None:
    """Groups of three layers and of experts, an odd layer behind the groups, a block for drafting."""
    kv_heads = [0, 0, 1, 0, 0, 1, 1, 1]
    model.sizes(layers=8, rms_eps=1e-6)
    latent_keys(model, kv_heads)
    model.keys(
        **EXPERTS, expert_shared_count=1, expert_shared_feed_forward_length=48,
        attention__q_lora_rank=32, kda__safe_gate=True, expert_group_count=4,
        expert_group_used_count=2, nextn_predict_layers=1, swiglu_clamp_exp=[0.0] * 8,
    )  # fmt: skip
    model.frame(WIDTH)
    for layer, attends in enumerate(kv_heads):
        block = f"blk.{layer}."
        model.norm(block + "attn_norm", WIDTH)
        if attends:
            latent_attention(model, block)
            model.tensors.pop(block + "attn_q.weight")
            model.linear(block + "attn_q_a", 32, WIDTH)
            model.norm(block + "attn_q_a_norm", 32)
            model.linear(block + "attn_q_b", HEADS * (PLAIN + ROTATED), 32, std=2)
            model.linear(block + "attn_gate", HEADS, WIDTH, std=2)
        else:
            gated_net(model, block)
        model.norm(block + "ffn_norm", WIDTH)
        feed_forward(model, block, layer == 0, shared=48, bias=-0.8)
    drafting_block(model, 7, ("nextn.enorm", "nextn.hnorm", "layer_output_norm"))


@tiny("kimi-k3")
def kimi_k3(model: TinyModel) -> None:
    """Residuals over blocks of two layers, narrow experts, gates."""
    kv_heads, latent = [0, 0, 1, 0, 1], 32
    model.sizes(layers=5, rms_eps=1e-6)
    latent_keys(model, kv_heads)
    model.keys(
        **EXPERTS, expert_shared_count=2, attn_res__block_size=2, activation__situ_beta=1.5,
        activation__situ_linear_beta=2.0, expert_latent_length=latent,
    )  # fmt: skip
    model.frame(WIDTH)
    model.vector("output_res_score.weight", WIDTH, std=0.3)
    for layer, attends in enumerate(kv_heads):
        block = f"blk.{layer}."
        model.norm(block + "attn_norm", WIDTH)
        model.vector(block + "attn_res_score.weight", WIDTH, std=0.3)
        model.vector(block + "ffn_res_score.weight", WIDTH, std=0.3)
        if attends:
            latent_attention(model, block)
            model.linear(block + "attn_gate", HEADS * VALUE, WIDTH, std=2)
        else:
            delta_net(model, block)
            for half in "ab":
                del model.tensors[f"{block}ssm_g_{half}.weight"]
            model.linear(block + "ssm_g", HEADS * KDA, WIDTH, std=2)
            model.tensor(block + "ssm_a", model.tensors[block + "ssm_a"].reshape(-1))
        model.norm(block + "ffn_norm", WIDTH)
        if layer == 0:
            model.gated(block)
            continue
        mixture(model, block, shared=64, bias=-0.8)
        for part in ("gate", "up"):
            model.matrix(f"{block}ffn_{part}_exps.weight", 8, 32, latent)
        model.matrix(f"{block}ffn_down_exps.weight", 8, latent, 32)
        model.linear(block + "ffn_routed_down", latent, WIDTH)
        model.linear(block + "ffn_routed_up", WIDTH, latent)
        model.norm(block + "ffn_routed_norm", latent)
