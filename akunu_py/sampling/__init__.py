"""Logits to token ids: transforms, keyed noise, and the sampler that composes them."""

from akunu_py.blas import load_blas

load_blas()
