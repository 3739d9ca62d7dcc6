"""Heads that predict further tokens (multi-token prediction), and their loading.

head              what a head computes
token_model       heads that draw tokens: one over its own cache, and one that guesses blocks
families          the families that have heads, and a head without weights for a model
gguf_head         heads in GGUF files
stored_head       heads in safetensors files, among a model's weights or beside them
assistant         what Gemma 4's assistant computes, and its files
assistant_model   an assistant over the target's rows, which draws tokens
eagle             what an EAGLE-3 head computes, from states between layers, and its folders
dflash            what a DFlash head computes: a block of tokens in one pass
dflash2           what a DFlash 2 head computes: convolutions, and a choice among candidates
dspark            what a DSpark head computes: a bias by the token before, and its confidence
gguf_drafters     EAGLE-3, DFlash, DFlash 2 and DSpark heads in GGUF files
parallel          Medusa and blockwise heads, in which no place knows of another, and their files
look_ahead        look-ahead embeddings (PaSS), whose guesses are rows of a pass of the target
stored_dflash     DFlash, DFlash 2 and DSpark heads in folders
head_config       the numbers of a head's config.json, checked
stored_weights    tensors of safetensors files, checked and put into a head
kinds             the table of the kinds
found             a head that was found at a place: its needs, and its weights
loading           the head of a loaded model
"""

from akunu_py.models.heads.kinds import Head, HeadModel, make_head_model
from akunu_py.models.heads.loading import load_head, wanted_head

__all__ = ["Head", "HeadModel", "load_head", "make_head_model", "wanted_head"]
