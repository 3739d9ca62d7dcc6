"""Heads that predict further tokens (multi-token prediction), and their loading.

head         what a head computes
token_model  a head over its own cache, which draws tokens
families     the families that have heads, and a head without weights for a model
gguf_head    heads in GGUF files
stored_head  heads in safetensors files, among a model's weights or beside them
loading      the head of a loaded model
needs        what a head needs of the memory
"""

from akunu_py.models.heads.head import PredictionHead
from akunu_py.models.heads.loading import load_head, wanted_head

__all__ = ["PredictionHead", "load_head", "wanted_head"]
