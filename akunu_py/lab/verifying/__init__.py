"""Verifiers that go by probabilities: rejection sampling, lenience, sampled trees."""
