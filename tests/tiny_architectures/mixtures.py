"""Parts of mixtures of experts."""

from tiny_architectures.builder import TinyModel


def expert_stacks(
    model: TinyModel, block, *, experts, feed_forward, width, bias=False, fused=False, std=1.0
):
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


def gated(model: TinyModel, block, suffix, *, feed_forward, width):
    """Add a dense gated part, such as the expert that all tokens go through."""
    model.matrix(f"{block}ffn_gate{suffix}.weight", feed_forward, width)
    model.matrix(f"{block}ffn_up{suffix}.weight", feed_forward, width)
    model.matrix(f"{block}ffn_down{suffix}.weight", width, feed_forward)
