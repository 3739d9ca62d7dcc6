"""Vocabularies and tokens for tests of constraints."""

import functools

import numpy as np

from akunu_py.constraints import MatcherVocabulary
from akunu_py.gguf import GGUFFile
from akunu_py.model_store.known_models import default_model_path
from akunu_py.tokenizers import from_gguf


@functools.cache
def tiny():
    """Tokenizer and vocabulary of the toy model."""
    with GGUFFile.open(default_model_path()) as file:
        tokenizer = from_gguf(file.metadata)
    return tokenizer, MatcherVocabulary(tokenizer, tokenizer.vocabulary_size)


def ids_of(text):
    """The ids of a text within a reply; control tokens are recognised."""
    tokenizer, _ = tiny()
    before = tokenizer.encode("\n")
    return tokenizer.encode("\n" + text, parse_special=True)[len(before) :]


def allowed(mask):
    return set(np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist())
