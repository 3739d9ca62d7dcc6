"""DeepSeek: the first mixture, with llama's attention; the others, with latent attention."""

from typing import Any

from akunu_py.gguf.names import ATTENTION, FEED_FORWARD, Rule, modules
from akunu_py.gguf.parts import attention, experts, latent_attention, layers, rope
from akunu_py.gguf.parts.decoder import MAX_HEAD_DIM, MAX_HEADS, Decoder
from akunu_py.gguf.parts.experts import Gating
from akunu_py.gguf.plan import ModelPlan

_GLM_LITE_VOCABULARY = 154880
_GLM_LITE_LAYERS = (47, 48)


def deepseek(model: Decoder) -> ModelPlan:
    """DeepSeek's first mixture for `mlx_lm.models.deepseek`.

    The rows of q and k are ordered for neighbours; the class rotates halves. The weights of the
    chosen experts are not scaled to sum to one.
    """
    attention.require_plain_heads(model)
    mixture = experts.read_behind_dense(model, rest=1)
    if (scale := experts.weights_scale(model)) != 1.0:
        raise model.keys.unsupported("expert_weights_scale", scale, "a scale of 1")
    return model.plan(
        "deepseek",
        [
            *layers.llama(model, feed_forward={}, reorder=True, copied=True),
            *modules(FEED_FORWARD, {"ffn_gate_inp": "gate"}, layers=mixture.routed),
            *experts.rules(model, mixture, shared="shared_experts"),
        ],
        {**mixture.arguments, "n_shared_experts": experts.shared_count(model, low=1)},
        rotary=rope.layers(model),
    )


def deepseek2(model: Decoder) -> ModelPlan:
    """DeepSeek 2, 3 and R1 for `variants.deepseek2`; also Kimi K2, GLM 4.7 Flash and Youtu."""
    # The first files of GLM 4.7 Flash do not state its gating function.
    lite = model.vocabulary_size == _GLM_LITE_VOCABULARY and model.num_layers in _GLM_LITE_LAYERS
    rules, arguments = _parts(model, Gating.SIGMOID if lite else Gating.SOFTMAX)
    return model.plan("variants.deepseek2", rules, {**arguments, "model_type": "deepseek_v3"})


def _parts(model: Decoder, gating: Gating = Gating.SIGMOID) -> tuple[list[Rule], dict[str, Any]]:
    """Return rules and arguments of latent attention and of experts, or of dense layers alone."""
    heads = latent_attention.read_heads(model)
    rules = layers.llama(model, latent=heads, feed_forward={}, copied=True)
    arguments = {**heads.arguments, "rope_scaling": rope.scaling_with_mscale(model)}
    if experts.leading_dense(model) == model.num_layers:
        model.keys.ignore("expert_count", "expert_shared_count", "expert_weights_scale")
        rules += modules(FEED_FORWARD, layers.GATED)
        return rules, {**arguments, "first_k_dense_replace": model.num_layers}
    mixture = experts.read_behind_dense(model)
    rules += experts.rules(model, mixture, shared=experts.shared_name(model))
    rules += experts.router(mixture)
    return rules, {**arguments, **experts.arguments(model, mixture, gating)}


def deepseek32(model: Decoder) -> ModelPlan:
    """DeepSeek 3.2 for `variants.deepseek32`."""
    return _sparse(model, interleaved=False)


def glm_dsa(model: Decoder) -> ModelPlan:
    """GLM 5 and 5.1 for `variants.deepseek32`, in which neighbours rotate in indexers, too.

    In GLM 5.2 most layers attend to the rows that the indexer of an earlier layer chose, which the
    class cannot do.
    """
    types = "attention.indexer.types"
    every = range(model.num_layers)
    own = (
        model.keys.layer_flags(types, model.num_layers)
        if types in model.keys
        else [f"blk.{layer}.indexer.proj.weight" in model.tensors for layer in every]
    )
    if not all(own):
        without = f"missing in layer {own.index(False)}"
        raise model.keys.unsupported(types, without, "an indexer in each layer (GLM 5 and 5.1)")
    return _sparse(model, interleaved=True)


def _sparse(model: Decoder, *, interleaved: bool) -> ModelPlan:
    """Return the plan of a model with indexers, which choose the rows that are attended to."""
    keys = model.keys
    rules, arguments = _parts(model)
    names = {"attn_q_b": "wq_b", "attn_k": "wk", "k_norm": "k_norm", "proj": "weights_proj"}
    indexers = {f"indexer.{source}": target for source, target in names.items()}
    return model.plan(
        "variants.deepseek32",
        [*rules, *modules(f"{ATTENTION}.indexer", indexers)],
        {
            **arguments,
            "index_n_heads": keys.integer("attention.indexer.head_count", high=MAX_HEADS),
            "index_head_dim": keys.integer("attention.indexer.key_length", high=MAX_HEAD_DIM),
            "index_topk": keys.integer("attention.indexer.top_k"),
            "indexer_rope_interleave": interleaved,
        },
    )


def mistral4(model: Decoder) -> ModelPlan:
    """Mistral Small 4 for `mlx_lm.models.mistral4`: DeepSeek's attention, and Mistral's queries."""
    keys = model.keys
    heads = latent_attention.read_heads(model)
    mixture = experts.read_behind_dense(model)
    routing = experts.arguments(model, mixture, Gating.SOFTMAX)
    if routing["scoring_func"] != "softmax":
        raise keys.unsupported("expert_gating_func", routing["scoring_func"], "softmax (1)")
    parameters = rope.tempered(model, rope.scaling_with_mscale(model), rope.temperature(model))
    original = parameters["original_max_position_embeddings"]
    if (length := keys.integer("attention.temperature_length", original)) != original:
        wanted = f"the context before its extension, {original}"
        raise keys.unsupported("attention.temperature_length", length, wanted)
    return model.plan(
        "mistral4",
        [
            *layers.llama(model, latent=heads, feed_forward={}),
            *modules(FEED_FORWARD, {"ffn_gate_inp": "gate"}, layers=mixture.routed),
            *experts.rules(model, mixture, shared=experts.shared_name(model)),
        ],
        {**heads.arguments, **routing, "rope_parameters": parameters},
    )
