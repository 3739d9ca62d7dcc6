"""Text in, text out: the engine, and one reply of it."""
