"""Logits to token ids: transforms, keyed noise, and the sampler that composes them."""

from akunu_py.cpu import load_kernels

load_kernels()
