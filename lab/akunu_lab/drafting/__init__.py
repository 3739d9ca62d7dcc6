"""Drafters for study: trees, combinations, several proposals, length rules."""
