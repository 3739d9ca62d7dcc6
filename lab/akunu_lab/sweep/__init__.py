"""Drafters over a grid of their settings, and which of them to take."""
