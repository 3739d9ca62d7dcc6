"""Heads that predict further tokens (multi-token prediction), and their loading.

head              what a head computes
token_model       a head over its own cache, which draws tokens
draft_vocabulary  the logits of some tokens alone
families          the families that have heads, and a head without weights for a model
gguf_head         heads in GGUF files
stored_head       heads in safetensors files, among a model's weights or beside them
assistant         what Gemma 4's assistant computes
assistant_model   an assistant over the target's rows, which draws tokens
gguf_assistant    assistants in GGUF files
stored_assistant  assistants in folders
eagle             what an EAGLE-3 head computes, from states between the target's layers
stored_eagle      EAGLE-3 heads in folders
dflash            what a DFlash head computes: a block of tokens in one pass
block_model       a head that guesses blocks, which draws tokens
dflash2           what a DFlash 2 head computes: convolutions, and a choice among candidates
dspark            what a DSpark head computes: a bias by the token before, and its confidence
gguf_drafters     EAGLE-3, DFlash, DFlash 2 and DSpark heads in GGUF files
parallel          what heads compute whose places know nothing of each other: Medusa, blockwise
stored_parallel   Medusa heads and those of blockwise parallel decoding in files
look_ahead        look-ahead embeddings (PaSS), whose guesses are rows of a pass of the target
stored_dflash     DFlash, DFlash 2 and DSpark heads in folders
head_config       the numbers of a head's config.json, checked
stored_weights    tensors of safetensors files, checked and put into a head
state_queue       hidden states that wait until a head needs them
kinds             the table of the kinds
found             a head that was found at a place: its needs, and its weights
loading           the head of a loaded model
needs             what a head needs of the memory
"""

from akunu_py.models.heads.kinds import Head, HeadModel, make_head_model
from akunu_py.models.heads.loading import load_head, wanted_head

__all__ = ["Head", "HeadModel", "load_head", "make_head_model", "wanted_head"]
