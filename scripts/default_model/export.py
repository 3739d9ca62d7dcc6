"""Write a trained decoder and its tokenizer as GGUF: Q8_0 matrices, F32 norms."""

import json
from pathlib import Path

import gguf
import numpy as np
from tokenizers import Tokenizer

from default_model.corpus import END, END_OF_TEXT, SPECIAL_TOKENS
from default_model.network import Decoder
from default_model.vocabulary import PRE_TOKENIZER_NAME

# One text for the trainer's `corpus.render` and for everybody who loads the file.
CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>\\n' + message['content'] + '<|end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
)


def write_gguf(model: Decoder, tokenizer: Tokenizer, path: Path, name: str, about: str) -> None:
    """Write the model; the file is complete or absent, never half."""
    shape = model.shape
    partial = path.with_suffix(".partial")
    writer = gguf.GGUFWriter(str(partial), "llama")
    writer.add_name(name)
    writer.add_description(about)
    writer.add_license("MIT")
    writer.add_languages(["en"])
    writer.add_tags(["text-generation", "code"])
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(shape.norm_eps)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_rope_dimension_count(shape.head_width)
    writer.add_vocab_size(shape.vocabulary)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    _add_tokenizer(writer, tokenizer)
    for tensor_name, parameter in model.state_dict().items():
        values = parameter.detach().cpu().numpy().astype(np.float32)
        if values.ndim == 1:
            writer.add_tensor(tensor_name, values)
            continue
        packed = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0)
        writer.add_tensor(tensor_name, packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    partial.replace(path)


def _add_tokenizer(writer: gguf.GGUFWriter, tokenizer: Tokenizer) -> None:
    content = json.loads(tokenizer.to_str())["model"]
    by_id = sorted(content["vocab"], key=content["vocab"].__getitem__)
    kinds = [
        gguf.TokenType.CONTROL if token in SPECIAL_TOKENS else gguf.TokenType.NORMAL
        for token in by_id
    ]
    merges = [m if isinstance(m, str) else " ".join(m) for m in content["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(PRE_TOKENIZER_NAME)
    writer.add_token_list(by_id)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(content["vocab"][END_OF_TEXT])
    writer.add_eos_token_id(content["vocab"][END_OF_TEXT])
    writer.add_eot_token_id(content["vocab"][END])
    writer.add_add_bos_token(True)
    writer.add_chat_template(CHAT_TEMPLATE)
