"""Beam search over an engine's model, plain and with drafts."""

from akunu_lab.beam.reply import BeamHypothesis, BeamOptions, BeamResult, BeamStats, beam_search

__all__ = ["BeamHypothesis", "BeamOptions", "BeamResult", "BeamStats", "beam_search"]
