"""mlx-lm's classes with what GGUF files need and they lack.

A module here has `Model` and `ModelArgs` as mlx-lm's have; it says what it adds, and a test fails
without it. A `ModelPlan` names it as "variants.<module>".
"""
