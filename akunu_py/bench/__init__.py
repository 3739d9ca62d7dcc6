"""Measurements of a loaded engine, and their results."""
