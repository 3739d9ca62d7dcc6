"""Acceptance: how likely a model takes what is drafted, whatever drafting then costs or brings."""
