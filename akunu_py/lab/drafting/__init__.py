"""Drafters for study: from counts, trees, several at once, by rules of length."""
