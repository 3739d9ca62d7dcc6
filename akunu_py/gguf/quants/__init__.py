"""GGML blocks to MLX's quantized layout: the same numbers wherever MLX can hold them.

`forms` defines the form of each type, with reasons. `simple_blocks` and `iq_blocks` read the blocks
of a file. `packing` writes MLX's bit stream, in memory from `scratch`. `matrix` applies them to a
tensor. docs/gguf.md has measured errors.
"""
