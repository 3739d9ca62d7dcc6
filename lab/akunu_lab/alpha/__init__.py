"""Acceptance: the probability that a model accepts drafted tokens, without their cost."""
