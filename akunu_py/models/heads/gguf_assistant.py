"""Gemma 4's assistant in a GGUF file, as llama.cpp's converter writes it.

The file has no keys or values, nor the numbers of the clusters of tokens: llama.cpp computes the
logits of all tokens, and so does akunu with such a file.
"""

from mlx import nn
from mlx_lm.models.gemma4_text import ModelArgs

from akunu_py.gguf.architectures import ASSISTANT
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import module, modules, parameter
from akunu_py.gguf.parts import layers, windows
from akunu_py.gguf.parts.decoder import MAX_HEAD_DIM, MAX_HEADS, Decoder
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import GGUFFile
from akunu_py.models.heads.assistant import Assistant, check_gemma, make_assistant
from akunu_py.models.heads.families import decoder_of
from akunu_py.system.errors import ModelFormatError

_FURTHER = f"{ASSISTANT}.nextn_predict_layers"
"""As many as there are layers, which no plan would allow."""

_OF_TARGET = (
    "attention.sliding_window", "rope.freq_base_swa", "final_logit_softcapping",
)  # fmt: skip
"""Keys of which the assistant needs nothing: positions and windows are those of the target's keys,
and its logits have no cap."""

_IGNORED = r"rope_freqs\.weight|masked_embd_centroids\.weight|masked_embd_ordering(\.weight)?"


def plan_assistant(
    file: GGUFFile, target: nn.Module, architecture: str
) -> tuple[Assistant, ModelPlan] | None:
    """Return the assistant in an open file without its weights, and where they come from.

    None where the file has none. Raises UnsupportedArchitectureError for another target than
    Gemma 4, which `architecture` names, ModelFormatError for an assistant that is incomplete,
    damaged or of another model.
    """
    if file.metadata.get("general.architecture") != ASSISTANT:
        return None
    check_gemma(target, architecture, file.path)
    metadata = {name: value for name, value in file.metadata.items() if name != _FURTHER}
    model = Decoder(Keys(metadata, ASSISTANT), file.tensors)
    try:
        return make_assistant(_arguments(model, target), target), _plan(model)
    except ValueError as error:
        raise ModelFormatError(f"{error}; use the assistant of this model") from None


def _arguments(model: Decoder, target: nn.Module) -> ModelArgs:
    """Return the arguments of the layers' class.

    Raises ValueError where the file was made for another target.
    """
    keys = model.keys
    _, decoder = decoder_of(target)
    width = keys.integer("embedding_length_out")
    for found, own, what in (
        (width, decoder.norm.weight.shape[0], "wide"),
        (model.vocabulary_size, decoder.embed_tokens.weight.shape[0], "tokens"),
    ):
        if found != own:
            raise ValueError(f"it is made for a model of {found} {what}, and this one has {own}")
    head_dim = keys.integer("attention.key_length", high=MAX_HEAD_DIM)
    return ModelArgs(
        hidden_size=model.hidden_size,
        num_hidden_layers=model.num_layers,
        intermediate_size=model.feed_forward_size,
        num_attention_heads=keys.integer("attention.head_count", high=MAX_HEADS),
        head_dim=keys.integer("attention.key_length_swa", head_dim, high=MAX_HEAD_DIM),
        global_head_dim=head_dim,
        rms_norm_eps=model.rms_eps,
        vocab_size=model.vocabulary_size,
        layer_types=windows.layer_types(windows.windowed_layers(model, 0)),
    )


def _plan(model: Decoder) -> ModelPlan:
    """Return the plan of an assistant, for the paths of `Assistant`."""
    model.keys.ignore(*_OF_TARGET)
    plan = model.plan(
        "gemma4_text",
        [
            *layers.frame(model, "embed_tokens", "norm", tied=True),
            *(module(f"nextn.{name}", name) for name in ("pre_projection", "post_projection")),
            *modules("layers.{}", layers.FOUR_NORMS),
            *modules(
                "layers.{}.self_attn",
                {"attn_q": "q_proj", "attn_q_norm": "q_norm", "attn_output": "o_proj"},
            ),
            *modules("layers.{}.mlp", layers.GATED),
            parameter("blk.{}.layer_output_scale.weight", "layers.{}.layer_scalar"),
        ],
        {},
        shared_arguments=False,
        ignored=_IGNORED,
    )
    model.keys.check_unused()
    return plan
