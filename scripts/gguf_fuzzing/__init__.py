"""A seeded fuzzer of model files; `scripts/fuzz_gguf.py` runs it."""
