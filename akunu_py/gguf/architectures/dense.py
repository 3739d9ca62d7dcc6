"""Dense models, Phi and EXAONE among them; most are llama with a difference."""

import numpy as np
from numpy.typing import NDArray

from akunu_py.gguf.architectures.llama import attention_biases, llama
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import ATTENTION, FEED_FORWARD, LAYER, module, modules, parameter
from akunu_py.gguf.parts import attention, layers, rope, windows
from akunu_py.gguf.parts.decoder import EMBEDDING, MAX_LAYERS, OUTPUT, Decoder
from akunu_py.gguf.plan import ModelPlan
from akunu_py.system.errors import ModelFormatError


def apertus(model: Decoder) -> ModelPlan:
    """Apertus for `mlx_lm.models.apertus`.

    Its activation has four numbers per layer in the metadata (xIELU, arXiv:2411.13010).
    """
    attention.require_plain_heads(model)
    norms = {"attn_norm": "attention_layernorm", "ffn_norm": "feedforward_layernorm"}
    return model.plan(
        "apertus",
        layers.llama(model, norms=norms, heads=layers.HEAD_NORMS, feed_forward=layers.UNGATED),
        {
            "mlp_bias": False,
            "attention_bias": False,
            "post_norm": False,
            "qk_norm": True,
            "rope_scaling": rope.scaling(model),
        },
        rotary=rope.factors(model),
        constants=_activations(model),
    )


def _activations(model: Decoder) -> dict[str, NDArray[np.float32]]:
    # The keys have no architecture in front.
    keys = Keys(model.keys.metadata, "xielu")
    return {
        f"{FEED_FORWARD.format(layer)}.act_fn.{part}": np.array(number, np.float32)
        for part in ("alpha_n", "alpha_p", "beta", "eps")
        for layer, number in enumerate(keys.layer_numbers(part, model.num_layers, low=-1e30))
    }


def arcee(model: Decoder) -> ModelPlan:
    """Arcee's foundation models for `variants.arcee`; rows rotate as llama's do."""
    attention.require_whole_heads(model)
    return model.plan(
        "variants.arcee",
        layers.llama(model, feed_forward=layers.UNGATED),
        {
            "rope_traditional": True,
            "rope_scaling": rope.scaling(model),
        },
        rotary=rope.factors(model, traditional=True),
    )


def command_r(model: Decoder) -> ModelPlan:
    """Command R, Command R+ and Aya for `mlx_lm.models.cohere`.

    Command R+ has norms of q and k, with separate weights for each head.
    """
    attention.require_plain_heads(model)
    normed = "blk.0.attn_q_norm.weight" in model.tensors
    return model.plan(
        "cohere",
        layers.llama(
            model, norms=layers.ONE_NORM, heads=layers.HEAD_NORMS if normed else {}, tied=True
        ),
        {
            "layer_norm_eps": model.layer_norm_eps,
            # Without the key llama.cpp leaves logits unscaled.
            "logit_scale": model.keys.number("logit_scale", 1.0, low=-1, high=1e6) or 1.0,
            "use_qk_norm": normed,
        },
        rotary=rope.layers(model, traditional=True),
    )


def cohere2(model: Decoder) -> ModelPlan:
    """Command R7B and Command A for `mlx_lm.models.cohere2`.

    Layers without a window have no positions either.
    """
    attention.require_plain_heads(model)
    return model.plan(
        "cohere2",
        layers.llama(model, norms=layers.ONE_NORM, tied=True),
        {
            "layer_norm_eps": model.layer_norm_eps,
            "logit_scale": model.keys.number("logit_scale", low=-1, high=1e6) or 1.0,
            "sliding_window": windows.size(model),
            "sliding_window_pattern": windows.period(model, windows.windowed_layers(model, 4)),
        },
        rotary=rope.layers(model, traditional=True),
    )


def mistral3(model: Decoder) -> ModelPlan:
    """Ministral 3 for `mlx_lm.models.ministral3`; without a temperature it is a llama.

    A query at position p is multiplied by 1 + temperature ln(1 + floor(p / original context)). The
    class rotates halves of a head; the file's rows are ordered for neighbours.
    """
    temperature = rope.temperature(model)
    if not temperature:
        return llama(model)
    attention.require_whole_heads(model)
    scaling = rope.scaling_with_multiplier(model)
    return model.plan(
        "ministral3",
        layers.llama(model, reorder=True),
        {"rope_parameters": rope.tempered(model, scaling, temperature)},
    )


def muse_glimmer(model: Decoder) -> ModelPlan:
    """Muse Glimmer, its text model, for `variants.muse_glimmer`.

    Layers without a window have no positions. The rows of q and k are ordered for neighbours; the
    class rotates halves.
    """
    attention.require_whole_heads(model)
    scales = ["blk.{}.attn_q_norm.weight", "blk.{}.attn_k_norm.weight"]
    return model.plan(
        "variants.muse_glimmer",
        [
            *layers.llama(model, norms={}, heads={"attn_gate": "gate_proj"}, reorder=True),
            *layers.norms_minus_one(LAYER, layers.FOUR_NORMS),
            parameter(scales, f"{ATTENTION}.qk_scale_factor", convert=_query_scale),
        ],
        {
            "sliding_window": windows.size(model),
            "layer_types": windows.layer_types(windows.windowed_layers(model, 4)),
            "rope_theta": rope.window_base(model, model.rope_base),
            "output_multiplier": model.keys.number("logit_scale", low=0, high=1e6),
            "final_logit_softcapping": model.keys.number(
                "final_logit_softcapping", low=0, high=1e6
            ),
        },
        rotary=rope.layers(model),
    )


def _query_scale(norms: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the factors of queries, from the weights of both norms: keys have none."""
    queries, keys = np.split(norms, 2)
    if (keys != 1).any():
        raise ModelFormatError(
            "a norm of keys has weights other than 1, which Muse Glimmer has not; download or "
            "convert the model again"
        )
    return queries


def nanbeige(model: Decoder) -> ModelPlan:
    """Nanbeige 4.2 for `mlx_lm.models.nanbeige`: a llama that runs its layers several times.

    The rows of q and k are ordered for neighbours; the class rotates halves.
    """
    attention.require_whole_heads(model)
    biases, constants = attention_biases(model)
    return model.plan(
        "nanbeige",
        layers.llama(model, reorder=True),
        {
            "attention_bias": biases,
            "rope_scaling": rope.scaling(model),
            "num_loops": model.keys.integer("num_loops", 1, high=MAX_LAYERS),
            "skip_loop_final_norm": model.keys.flag("skip_loop_final_norm", False),
        },
        rotary=rope.factors(model),
        constants=constants,
    )


def spark2_5(model: Decoder) -> ModelPlan:
    """Spark 2.5 for `mlx_lm.models.spark2_5`, with windows and a gate for each head."""
    attention.require_equal_widths(model)
    rope.require_unscaled(model)
    fused = f"blk.0.{attention.FUSED}.weight" in model.tensors
    parts = [f"blk.{{}}.{part}" for part in ([attention.FUSED] if fused else attention.INPUTS)]
    return model.plan(
        "spark2_5",
        [
            *layers.frame(model, "model.embedding"),
            *modules(LAYER, layers.NORMS),
            module(parts, f"{ATTENTION}.q_k_v_proj"),
            *modules(ATTENTION, {"attn_gate": "g_proj", "attn_output": "out_proj"}),
            *modules(FEED_FORWARD, layers.GATED),
        ],
        {
            "sliding_window": windows.size(model),
            "layer_types": windows.layer_types(windows.windowed_layers(model, 4)),
            "rope_parameters": rope.of_both_kinds(model),
        },
    )


def talkie(model: Decoder) -> ModelPlan:
    """Talkie for `mlx_lm.models.talkie`, whose norms have no weights.

    The class rotates the other way round, as the model does. Converters change signs instead; with
    the halves of its rows exchanged, a file's head turns the class's way.
    """
    attention.require_whole_heads(model)
    attention.require_own_keys(model)
    rope.require_unscaled(model)
    rows = np.arange(model.num_heads * model.head_dim, dtype=np.intp)
    exchanged = rows.reshape(model.num_heads, 2, -1)[:, ::-1].ravel()
    block = "model.blocks.{}"
    names = {
        "attn_v": "attn.attn_value",
        "attn_output": "attn.attn_resid",
        "ffn_gate": "mlp.mlp_gate",
        "ffn_up": "mlp.mlp_linear",
        "ffn_down": "mlp.mlp_resid",
    }
    gain = f"{block}.attn.head_gain.head_g"
    scale = model.keys.number("logit_scale", low=-1e6, high=1e6)
    return model.plan(
        "talkie",
        [
            module(EMBEDDING, "model.embed"),
            parameter(f"{OUTPUT}.weight", "lm_head"),
            module("blk.{}.attn_q", f"{block}.attn.attn_query", rows=exchanged),
            module("blk.{}.attn_k", f"{block}.attn.attn_key", rows=exchanged),
            *modules(block, names),
            parameter("blk.{}.attn_output.scale", f"{block}.attn_gain.a_g"),
            parameter("blk.{}.ffn_down.scale", f"{block}.mlp_gain.a_g"),
            parameter("blk.{}.attn_q_norm.weight", gain, convert=np.ravel),
            parameter("blk.{}.layer_output_scale.weight", f"{block}.embed_skip.a_g"),
        ],
        {},
        constants={"lm_head_gain.w_g": np.array([scale], np.float32)},
    )


def seed_oss(model: Decoder) -> ModelPlan:
    """Seed OSS for `mlx_lm.models.seed_oss`."""
    attention.require_whole_heads(model)
    return model.plan(
        "seed_oss",
        layers.llama(model, norms=layers.NORMS_BETWEEN),
        {
            "attention_bias": attention.has_biases(model),
            "rope_scaling": rope.scaling(model),
        },
    )


def smollm3(model: Decoder) -> ModelPlan:
    """SmolLM 3 for `mlx_lm.models.smollm3`: llama without rotation in every fourth layer."""
    attention.require_whole_heads(model)
    biases, constants = attention_biases(model)
    return model.plan(
        "smollm3",
        layers.llama(model),
        {
            "attention_bias": biases,
            "rope_traditional": True,
            "rope_scaling": rope.scaling(model),
            # Fixed in llama.cpp and the released models, without a key.
            "no_rope_layer_interval": 4,
        },
        constants=constants,
    )


def stablelm(model: Decoder) -> ModelPlan:
    """StableLM 3B, 2 1.6B, Zephyr and 2 12B for `mlx_lm.models.stablelm`.

    A feed-forward part without a separate norm runs in parallel with attention. The 12B model has a
    norm for each head of q and k.
    """
    attention.require_plain_heads(model, partial=True)
    rotated = rope.rotated_dims(model)
    # Converters also write it for models without parallel parts.
    model.keys.ignore("use_parallel_residual")
    parallel = "blk.0.ffn_norm.weight" not in model.tensors
    head_norms = "blk.0.attn_q_norm.weight" in model.tensors
    rules = layers.llama(model, norms=layers.ONE_NORM if parallel else layers.NORMS, tied=False)
    if head_norms:
        for part, heads in (("q", model.num_heads), ("k", model.num_kv_heads)):
            rules += [
                parameter(
                    f"blk.{{}}.attn_{part}_norm.weight",
                    f"{ATTENTION}.{part}_layernorm.norms.{head}.weight",
                    rows=slice(head, head + 1),
                )
                for head in range(heads)
            ]
    return model.plan(
        "stablelm",
        rules,
        {
            "layer_norm_eps": model.layer_norm_eps,
            "use_qkv_bias": attention.has_biases(model),
            "partial_rotary_factor": rope.share(rotated, model.head_dim),
            "use_parallel_residual": parallel,
            "qk_layernorm": head_norms,
        },
        rotary=rope.layers(model, dims=rotated),
    )


def starcoder2(model: Decoder) -> ModelPlan:
    """StarCoder 2 for `variants.starcoder2`; norms and projections have biases.

    The released models were trained with a window of 4096 tokens, which files do not state. Neither
    llama.cpp nor akunu applies it.
    """
    attention.require_plain_heads(model)
    return model.plan(
        "variants.starcoder2",
        layers.llama(model, feed_forward={"ffn_up": "c_fc", "ffn_down": "c_proj"}),
        {"norm_epsilon": model.layer_norm_eps},
        rotary=rope.layers(model),
    )


def phi2(model: Decoder) -> ModelPlan:
    """Phi 1, 1.5 and 2 for `mlx_lm.models.phi`."""
    rotated = rope.rotated_dims(model)
    attention.require_plain_heads(model, partial=True)
    return model.plan(
        "phi",
        [
            *layers.frame(model, norm="model.final_layernorm", tied=False),
            *modules(LAYER, layers.ONE_NORM),
            *attention.rules(model, output="dense"),
            *modules(FEED_FORWARD, {"ffn_up": "fc1", "ffn_down": "fc2"}),
        ],
        {
            "layer_norm_eps": model.layer_norm_eps,
            "partial_rotary_factor": rope.share(rotated, model.head_dim),
        },
        rotary=rope.layers(model, dims=rotated),
    )


def phi3(model: Decoder) -> ModelPlan:
    """Phi 3, 3.5 and 4 for `variants.phi3`.

    Files have q, k and v fused, as in the class, or separate. Gate and up are always fused, under
    the name of up.
    """
    rotated = rope.rotated_dims(model)
    attention.require_plain_heads(model, partial=True)
    fused = f"blk.0.{attention.FUSED}.weight" in model.tensors
    parts = [f"blk.{{}}.{part}" for part in ([attention.FUSED] if fused else attention.INPUTS)]
    # Files of models trained without a window may state one as long as the context.
    window = windows.size(model, 0)
    return model.plan(
        "variants.phi3",
        [
            *layers.frame(model),
            *modules(LAYER, layers.NORMS),
            module(parts, f"{ATTENTION}.qkv_proj"),
            *modules(ATTENTION, {"attn_output": "o_proj"}),
            *modules(FEED_FORWARD, layers.GATE_IN_UP),
        ],
        {
            "partial_rotary_factor": rope.share(rotated, model.head_dim),
            "sliding_window": window if 0 < window < model.context_length else None,
        },
        rotary=rope.long(model, dims=rotated) or rope.layers(model, dims=rotated),
        ignored=rope.LONG_TENSORS,
    )


_WINDOWED_LAYERS = 64
"""Layers of the 32B model, whose old files have no keys for its windows."""


def exaone(model: Decoder) -> ModelPlan:
    """EXAONE 3 and 3.5 for `mlx_lm.models.exaone`."""
    attention.require_plain_heads(model)
    layer = "transformer.h.{}"
    names = {
        "attn_norm": "ln_1",
        "ffn_norm": "ln_2",
        "ffn_gate": "mlp.c_fc_0",
        "ffn_up": "mlp.c_fc_1",
        "ffn_down": "mlp.c_proj",
    }
    return model.plan(
        "exaone",
        [
            *layers.frame(model, "transformer.wte", "transformer.ln_f"),
            *attention.rules(model, f"{layer}.attn.attention", output="out_proj"),
            *modules(layer, names),
        ],
        {
            "num_layers": model.num_layers,
            "layer_norm_epsilon": model.rms_eps,
            "rope_scaling": rope.scaling(model),
        },
        rotary=rope.factors(model),
    )


def exaone4(model: Decoder) -> ModelPlan:
    """EXAONE 4 for `mlx_lm.models.exaone4`.

    Norms follow attention and feed-forward part. If some layers are windowed, as in the 32B model,
    only those rotate.
    """
    attention.require_whole_heads(model)
    window = windows.size(model, 4096 if model.num_layers == _WINDOWED_LAYERS else 0)
    pattern = None
    if window:
        windowed = windows.windowed_layers(model, 4)
        windows.require_both_kinds(model, windowed)
        pattern = "".join("L" if flag else "G" for flag in windowed)
    return model.plan(
        "exaone4",
        layers.llama(model, norms=layers.NORMS_BEHIND, heads=layers.HEAD_NORMS),
        {
            "rope_scaling": rope.scaling(model),
            "sliding_window": window or None,
            "sliding_window_pattern": pattern,
        },
        rotary=rope.factors(model),
    )
