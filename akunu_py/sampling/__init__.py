"""Logits to token ids: transforms, keyed noise, and the sampler that composes them."""
