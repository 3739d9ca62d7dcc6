"""The only room that knows mlx_lm and mlx.nn: models, their caches, and the Target over both."""
