"""Mamba 1 and 2, Jamba and Falcon H1, and the mixers that hybrids share with them."""

from tiny_architectures.builder import TinyModel, blocks, tiny
from tiny_architectures.mixtures import mixture


def mamba2_keys(model: TinyModel, *, inner=128, state=16, heads=8, groups=2, kernel=4) -> None:
    model.keys(
        ssm__conv_kernel=kernel, ssm__inner_size=inner, ssm__state_size=state,
        ssm__time_step_rank=heads, ssm__group_count=groups,
    )  # fmt: skip


def decay(model: TinyModel, block, heads, *, column) -> None:
    """Add rates of decay, around -1 and different from head to head, and the time steps' bias."""
    rates = -(2 ** model.random.uniform(-2, 2, heads))
    model.tensor(block + "ssm_a", rates[:, None] if column else rates)
    model.vector(block + "ssm_dt.bias", heads, mean=-1, std=1)


def kernel_of(model: TinyModel, block, channels, taps=4) -> None:
    model.tensor(block + "ssm_conv1d.weight", model.random.normal(0, 0.6, (channels, taps)))


def mamba2_mixer(
    model: TinyModel, block, *, width=64, inner=128, state=16, heads=8, groups=2, norm=True
) -> None:
    channels = inner + 2 * groups * state
    model.linear(block + "ssm_in", inner + channels + heads, width, std=1.5)
    kernel_of(model, block, channels)
    model.vector(block + "ssm_conv1d.bias", channels, std=0.3)
    decay(model, block, heads, column=True)
    model.tensor(block + "ssm_d", model.random.normal(1, 0.5, (heads, 1)))
    if norm:
        model.tensor(
            block + "ssm_norm.weight", model.random.normal(1, 0.2, (groups, inner // groups))
        )
    model.linear(block + "ssm_out", width, inner)


def mamba2_model(model: TinyModel, *, groups, tied) -> None:
    """Epsilon so large that its place matters; head counts as converters write them."""
    model.keys(
        block_count=3, context_length=1 << 20, embedding_length=64, feed_forward_length=0,
        attention__head_count=0, attention__layer_norm_rms_epsilon=0.05,
    )  # fmt: skip
    mamba2_keys(model, groups=groups)
    model.frame(64, tied=tied, std=0.3)
    for block in blocks(3):
        model.norm(block + "attn_norm", 64)
        mamba2_mixer(model, block, groups=groups)


@tiny("mamba2")
def mamba2(model: TinyModel) -> None:
    mamba2_model(model, groups=2, tied=False)


@tiny("mamba2-tied", "mamba2")
def mamba2_tied(model: TinyModel) -> None:
    mamba2_model(model, groups=1, tied=True)


def mamba_keys(model: TinyModel, *, inner=128, state=8, rank=8) -> None:
    model.keys(
        ssm__conv_kernel=4, ssm__inner_size=inner, ssm__state_size=state, ssm__time_step_rank=rank,
    )  # fmt: skip


def mamba_mixer(
    model: TinyModel, block, *, width=64, inner=128, state=8, rank=8, norms=False
) -> None:
    """Add the first Mamba's mixer: channels with decays and time steps of their own."""
    model.linear(block + "ssm_in", 2 * inner, width, std=1.5)
    kernel_of(model, block, inner)
    model.vector(block + "ssm_conv1d.bias", inner, std=0.3)
    model.linear(block + "ssm_x", rank + 2 * state, inner, std=2)
    if norms:
        for name, size in (("dt", rank), ("b", state), ("c", state)):
            model.norm(f"{block}ssm_{name}_norm", size)
    model.matrix(block + "ssm_dt.weight", inner, rank)
    model.vector(block + "ssm_dt.bias", inner, mean=-1, std=1)
    model.tensor(block + "ssm_a", -(2 ** model.random.uniform(-2, 2, (inner, state))))
    model.vector(block + "ssm_d", inner, mean=1, std=0.5)
    model.linear(block + "ssm_out", width, inner)


def mamba_model(model: TinyModel, *, normed, tied) -> None:
    model.keys(
        block_count=3, context_length=1 << 20, embedding_length=64, feed_forward_length=0,
        attention__head_count=0, attention__layer_norm_rms_epsilon=0.05, ssm__dt_b_c_rms=normed,
    )  # fmt: skip
    mamba_keys(model)
    model.frame(64, tied=tied, std=0.3)
    for block in blocks(3):
        model.norm(block + "attn_norm", 64)
        mamba_mixer(model, block)


@tiny("mamba")
def mamba(model: TinyModel) -> None:
    mamba_model(model, normed=False, tied=True)


@tiny("mamba-falcon", "mamba")
def falcon_mamba(model: TinyModel) -> None:
    """Time steps, B and C are normed, without weights."""
    mamba_model(model, normed=True, tied=False)


def jamba_model(model: TinyModel, kv_heads, routed, *, tied) -> None:
    model.sizes(layers=len(kv_heads), feed_forward=64, rms_eps=0.02, rope_base=None)
    model.key("attention.head_count_kv", kv_heads)
    mamba_keys(model)
    model.frame(64, tied=tied, std=0.3)
    for layer, count in enumerate(kv_heads):
        block = f"blk.{layer}."
        model.norm(block + "attn_norm", 64)
        if count:
            model.attention(block, kv_heads=count)
        else:
            mamba_mixer(model, block, norms=True)
        model.norm(block + "ffn_norm", 64)
        if layer in routed:
            mixture(model, block, feed_forward=64, std=2)
        else:
            model.gated(block, feed_forward=64)


@tiny("jamba")
def jamba(model: TinyModel) -> None:
    """Experts in every second layer, whose weights do not sum to one."""
    model.keys(expert_count=8, expert_used_count=2)
    jamba_model(model, [0, 2, 0, 0], {1, 3}, tied=False)


@tiny("jamba-dense", "jamba")
def jamba_dense(model: TinyModel) -> None:
    """The small ones: one expert, which is no expert."""
    model.keys(expert_count=1, expert_used_count=1)
    jamba_model(model, [2, 0, 0], set(), tied=True)


def falcon_model(model: TinyModel, *, groups, tied, norm, layers=3) -> None:
    model.sizes(layers=layers, rms_eps=0.02, rope_base=1e11, head_dim=16)
    # Inner sizes need not be twice the width.
    mamba2_keys(model, inner=96, heads=6, groups=groups)
    model.frame(64, tied=tied, std=0.3)
    for block in blocks(layers):
        model.norm(block + "attn_norm", 64)
        model.attention(block)
        mamba2_mixer(model, block, inner=96, heads=6, groups=groups, norm=norm)
        model.vector(block + "ffn_norm", 64, mean=1.0)
        model.gated(block)


@tiny("falcon-h1")
def falcon_h1(model: TinyModel) -> None:
    falcon_model(model, groups=1, tied=False, norm=False)


@tiny("falcon-h1-norm", "falcon-h1")
def falcon_h1_norm(model: TinyModel) -> None:
    """Two groups with norms of their own, tied embeddings."""
    falcon_model(model, groups=2, tied=True, norm=True)
