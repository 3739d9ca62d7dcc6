"""Parts of mixtures of experts, and of blocks that draft."""

from tiny_architectures.builder import TinyModel, blocks


def expert_stacks(
    model: TinyModel, block, *, experts=8, feed_forward=32, width=64, bias=False, fused=False,
    std=1.0,
):  # fmt: skip
    """Add the stacks of gate, up and down, gate and up as one with `fused`."""
    up = {"gate_up": 2 * feed_forward} if fused else {"gate": feed_forward, "up": feed_forward}
    for part, rows in up.items():
        model.matrix(f"{block}ffn_{part}_exps.weight", experts, rows, width, std=std)
        if bias:
            model.tensor(
                f"{block}ffn_{part}_exps.bias", model.random.normal(0, 0.5, (experts, rows))
            )
    model.matrix(f"{block}ffn_down_exps.weight", experts, width, feed_forward)
    if bias:
        model.tensor(f"{block}ffn_down_exps.bias", model.random.normal(0, 0.5, (experts, width)))


def mixture(
    model: TinyModel, block, *, count=8, feed_forward=32, shared=0, bias=None, fused=False, std=1.0
) -> None:
    """Add a router, with biases around `bias`, the stacks, and an expert `shared` wide for all."""
    # Wide, so that the chosen experts' weights differ.
    model.linear(block + "ffn_gate_inp", count, 64, std=2)
    if bias is not None:
        model.vector(block + "exp_probs_b.bias", count, mean=bias, std=0.5)
    expert_stacks(model, block, experts=count, feed_forward=feed_forward, fused=fused, std=std)
    if shared:
        model.gated(block, "_shexp", feed_forward=shared)


def experts(model: TinyModel, *, first=0, count=8, feed_forward=32, shared=0) -> None:
    """Put a mixture in the place of dense feed-forward parts, from layer `first` on."""
    for block in blocks(first, 3):
        for part in ("gate", "up", "down"):
            model.tensors.pop(f"{block}ffn_{part}.weight", None)
        mixture(model, block, count=count, feed_forward=feed_forward, shared=shared)


def drafting_block(
    model: TinyModel, layer, names=("nextn.enorm", "nextn.hnorm", "nextn.shared_head_norm")
) -> None:
    """Add to the last block what makes it predict a further token; nothing runs it."""
    model.linear(f"blk.{layer}.nextn.eh_proj", 64, 128)
    for name in names:
        model.norm(f"blk.{layer}.{name}", 64)
