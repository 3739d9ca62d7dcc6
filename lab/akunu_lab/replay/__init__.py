"""Recorded outputs played back as the target's choices: drafters compared without a model."""
