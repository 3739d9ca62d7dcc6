"""The decode loop and its parts: budget, verification, stopping. Token ids only, no MLX."""
