"""What models are loaded from: nobody else asks what kind of place a path is.

source      what every kind of place can do
gguf        a GGUF file
converted   a folder that akunu wrote of a GGUF file
mlx_folder  a folder as mlx-lm writes it
"""
