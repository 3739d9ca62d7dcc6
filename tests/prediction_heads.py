"""Tiny random models that can have prediction heads, their heads, and the layouts of files."""

import copy
import importlib
import json
import math
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten, tree_map_with_path
from tiny_families import (
    DELTA_NET,
    FAMILIES,
    FRAME,
    GROUPED,
    LATENT,
    QWEN_EXPERTS,
    VOCABULARY,
    by_name,
    family,
    sizes,
)

from akunu_py.models.heads.families import family_of, make_head, single_layer
from akunu_py.models.load import LoadedModel, ModelDescription

WIDTH = FRAME["hidden_size"]
LAYERS = FRAME["num_hidden_layers"]
TARGETS = {
    **{name: FAMILIES[name] for name in ("llama", "qwen3_next", "qwen3_5", "deepseek_v3", "glm4_moe")},
    **by_name({
        "qwen3_5_moe": family(text_config=sizes(
            FRAME, DELTA_NET, QWEN_EXPERTS, shared_expert_intermediate_size=32,
            full_attention_interval=2, model_type="qwen3_5_moe_text",
        )),
        "glm4_moe_lite": family(FRAME, GROUPED, LATENT),
        "mimo": family(FRAME),
    }),
}  # fmt: skip
"""Family -> module and arguments of its class in mlx-lm."""

QWEN = {
    "eh_proj": "fc", "enorm": "pre_fc_norm_embedding", "hnorm": "pre_fc_norm_hidden",
    "body.norm": "norm", "body.layers.0": "layers.0",
}  # fmt: skip
EXTRA_LAYER = {
    "body.norm": "shared_head.norm", "body.layers.0.": "", "lm_head": "shared_head.head",
}  # fmt: skip
MIMO = {
    "eh_proj": "input_proj", "enorm": "token_layernorm", "hnorm": "hidden_layernorm",
    "body.norm": "final_layernorm", "body.layers.0.": "",
}  # fmt: skip
"""Part of `PredictionHead` -> its name in files, without their prefix."""


def tiny_target(name):
    """A random model of a family, with float32 weights."""
    module_name, arguments = TARGETS[name]
    module = importlib.import_module(f"mlx_lm.models.{module_name}")
    arguments = copy.deepcopy({"model_type": module_name, **arguments})
    model = module.Model(module.ModelArgs.from_dict(arguments))
    _draw(model, seed=1)
    model.eval()
    return model


def random_head(target, seed=2):
    family = family_of(target)
    head = make_head(target, single_layer(target, family), family)
    _draw(head, seed)
    head.eval()
    return head


def _draw(model, seed):
    mx.random.seed(seed)

    def drawn(path, values):
        if values.ndim < 2 and not path.endswith(("A_log", "dt_bias")):
            mean = 1.0 if "norm" in path else 0.0
            # Norms before the projection are small in real heads.
            mean = 0.4 if path.startswith(("enorm", "hnorm")) else mean
            return mean + 0.1 * mx.random.normal(values.shape)
        if path.endswith(("A_log", "dt_bias")) or "conv1d" in path:
            return values
        return mx.random.normal(values.shape) * (1.2 / math.sqrt(values.shape[-1]))

    model.update(tree_map_with_path(drawn, model.parameters()))
    mx.eval(model.parameters())


def parameters_of(head):
    return dict(tree_flatten(head.parameters()))


def named(parameters, names, prefix):
    """Rename a head's parameters as a layout has them."""
    renamed = {}
    for path, array in parameters.items():
        part = next((part for part in names if path.startswith(part)), None)
        name = path if part is None else names[part] + path.removeprefix(part)
        renamed[prefix + name] = array
    return renamed


def less_one(arrays):
    """Store the weights of norms less 1, as Qwen's checkpoints do."""
    return {
        name: array - 1 if array.ndim == 1 and "norm" in name else array
        for name, array in arrays.items()
    }


def with_single_experts(arrays):
    """Store each expert's matrices by themselves, as checkpoints do."""
    parts = {}
    for name, array in arrays.items():
        if "switch_mlp" in name:
            for number in range(array.shape[0]):
                parts[name.replace("switch_mlp", f"experts.{number}")] = array[number]
        else:
            parts[name] = array
    return parts


def with_fused_experts(arrays):
    """Store gate and up projections of all experts in one stack, as Qwen 3.5's checkpoints do."""
    parts = {name: array for name, array in arrays.items() if "switch_mlp" not in name}
    stacks = {name: array for name, array in arrays.items() if "switch_mlp" in name}
    for name, gate in stacks.items():
        if name.endswith("switch_mlp.gate_proj.weight"):
            at = name.removesuffix("switch_mlp.gate_proj.weight")
            up, down = (stacks[f"{at}switch_mlp.{part}_proj.weight"] for part in ("up", "down"))
            parts[f"{at}experts.gate_up_proj"] = mx.concatenate([gate, up], axis=-2)
            parts[f"{at}experts.down_proj"] = down
    return parts


def write(path: Path, arrays):
    path.parent.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(str(path), {name: mx.contiguous(array) for name, array in arrays.items()})
    return path


def write_config(folder: Path, model_type="qwen3_5"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))


def loaded_from(place: Path, model, weights="dense") -> LoadedModel:
    """A model as if it had been loaded from a file or folder."""
    description = ModelDescription(
        path=place, name="tiny", architecture="tiny", parameters=1, weights=weights, context=256,
        file_bytes=1,
    )  # fmt: skip
    return LoadedModel(model, None, description)


def outputs(head, seed=3, rows=6):
    """Logits of a head at two depths: over random states in one pass, and over its own."""
    hidden = mx.random.normal((1, rows, head.width), key=mx.random.key(seed))
    tokens = mx.arange(rows, dtype=mx.int32)[None] * 7 % VOCABULARY
    cache = head.make_cache()
    first = head(hidden, tokens, cache)
    second = head(first[:, -1:], tokens[:, :1], cache)
    return mx.concatenate([head.logits(first), head.logits(second)], axis=1)


def rms(x, weight, eps=1e-6):
    """NumPy's RMS norm over the last axis."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def rotated(x, angles):
    """Rotate the first numbers of the last axis, whose pairs lie as far apart as there are angles."""
    half = angles.shape[-1]
    low, high, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    turned = [
        low * np.cos(angles) - high * np.sin(angles),
        low * np.sin(angles) + high * np.cos(angles),
    ]
    return np.concatenate([*turned, rest], axis=-1)


def softmax(scores):
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


def silu(x):
    return x / (1 + np.exp(-x))
