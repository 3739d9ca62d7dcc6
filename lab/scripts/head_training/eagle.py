"""EAGLE-3 heads, to be trained: how one begins, the states it takes, and its files."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten

from akunu_py.models.heads.eagle import EagleHead
from akunu_py.models.heads.families import decoder_of, shared_layers
from akunu_py.models.hidden_states import StateTap
from akunu_py.protocols import Hidden


def initial_eagle(model: nn.Module, rows: mx.array) -> EagleHead:
    """Return a head that begins as the model's last layer, behind the last state that it takes.

    The layers are those of the authors, but in models of few. `rows` [n, width] of the output head
    are the tokens it guesses. Attention takes the mean of embedding and state.
    """
    decoder, count = decoder_of(model)[1], len(model.layers)
    layers = (2 if count > 6 else 0, count // 2, max(count // 2 + 1, count - 3))
    args = dataclasses.replace(
        model.args, num_hidden_layers=1, layer_types=None, rope_traditional=False
    )
    shared = shared_layers(model, decoder)
    head = EagleHead(dataclasses.replace(args, vocab_size=len(rows)), shared, layers)
    head.midlayer.args = args
    last = dict(tree_flatten(decoder.layers[-1].parameters()))
    last["hidden_norm.weight"] = last["input_layernorm.weight"]
    for part in ("q_proj", "k_proj", "v_proj"):
        name = f"self_attn.{part}.weight"
        weight = last[name]
        if part != "v_proj" and model.args.rope_traditional:
            # Heads rotate the halves of a key, these models its neighbours.
            pairs = weight.reshape(-1, head.midlayer.self_attn.rope.dims // 2, 2, weight.shape[1])
            weight = pairs.swapaxes(1, 2).reshape(weight.shape)
        last[name] = mx.concatenate([weight, weight], axis=1) / 2
    arrays = {f"midlayer.{name}": array for name, array in last.items()}
    none = mx.zeros((head.width, 2 * head.width))
    arrays["fc.weight"] = mx.concatenate([none, mx.eye(head.width)], axis=1)
    arrays |= {"norm.weight": decoder.norm.weight, "lm_head.weight": rows}
    # Copies: the arrays of the model stay its own.
    head.load_weights([(name, array.astype(mx.float32) + 0) for name, array in arrays.items()])
    return head


def states_between(model: nn.Module, layers: Hidden, ids: mx.array) -> mx.array:
    """Return what goes into a model's layers, side by side, for texts `ids` [texts, n].

    Replies are not kept with these states: a pass computes them.
    """
    tap = StateTap(model, layers)
    with tap.listening():
        decoder_of(model)[1](ids)
    return tap.states


def stored_eagle(head: EagleHead, ids: Sequence[int]) -> tuple[dict[str, mx.array], dict[str, Any]]:
    """Return the arrays of a head by their names in files, and its config, as the authors do."""
    offsets = mx.array(ids, dtype=mx.int64) - mx.arange(len(ids))
    config = {
        **{name: value for name, value in vars(head.midlayer.args).items() if value is not None},
        "architectures": ["LlamaForCausalLMEagle3"],
        "hidden_act": "silu",
        "draft_vocab_size": len(ids),
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": head.takes},
    }
    return {**dict(tree_flatten(head.parameters())), "d2t": offsets}, config
