"""Heads that predict further tokens (multi-token prediction), and their loading."""

from akunu_py.models.heads.head import PredictionHead

__all__ = ["PredictionHead"]
