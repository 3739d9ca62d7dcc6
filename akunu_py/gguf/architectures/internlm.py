"""InternLM 2: llama's model; converters take its fused tensors apart and reorder q and k."""

from akunu_py.gguf.architectures.llama import read_llama

READERS = {"internlm2": read_llama}
