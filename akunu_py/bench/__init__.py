"""Measurements of a loaded engine: what is run, and what it came to."""
