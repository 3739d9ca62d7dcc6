"""Verifiers by probability: rejection sampling, lenience, sampled trees."""
