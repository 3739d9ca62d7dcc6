"""What a user calls a model, and where it lies."""
