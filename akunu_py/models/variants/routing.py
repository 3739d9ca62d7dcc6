"""The choice of experts, as llama.cpp makes it for every family."""

import mlx.core as mx


def choose_experts(
    logits: mx.array,
    bias: mx.array | None,
    *,
    used: int,
    scoring: str,
    groups: int = 1,
    used_groups: int = 1,
    normed: bool = True,
    scale: float = 1.0,
) -> tuple[mx.array, mx.array]:
    """Return which experts each row of logits [..., experts] uses, [..., used], and their weights.

    `scoring` is "softmax" or "sigmoid". `bias` counts in the choice alone. Of more than one group,
    each of as many experts, experts are chosen of the `used_groups` whose two best are best; those
    of other groups never, while mlx-lm's classes give them 0, which biased scores can be below.
    """
    logits = logits.astype(mx.float32)
    scores = mx.softmax(logits, axis=-1) if scoring == "softmax" else mx.sigmoid(logits)
    ranked = scores if bias is None else scores + bias
    if groups > used_groups:
        ranked = _of_best_groups(ranked, groups, used_groups)
    chosen = mx.argpartition(-ranked, kth=used - 1, axis=-1)[..., :used]
    weights = mx.take_along_axis(scores, chosen, axis=-1)
    if normed:
        weights = weights / mx.maximum(weights.sum(axis=-1, keepdims=True), 2.0**-14)
    return chosen, weights * scale


def _of_best_groups(ranked: mx.array, groups: int, used: int) -> mx.array:
    grouped = mx.unflatten(ranked, -1, (groups, -1))
    of_group = mx.topk(grouped, 2, axis=-1).sum(axis=-1)
    left_out = mx.argpartition(of_group, kth=-used, axis=-1)[..., : groups - used, None]
    grouped = mx.put_along_axis(grouped, left_out, mx.array(-mx.inf), axis=-2)
    return mx.flatten(grouped, -2, -1)
