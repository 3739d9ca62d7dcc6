"""Tokenizers from GGUF vocabularies, incremental detokenization, chat templates."""

from akunu_py.tokenizers.chat_template import ChatTemplate
from akunu_py.tokenizers.gguf_tokenizer import GGUFTokenizer, from_gguf
from akunu_py.tokenizers.vocabulary import ByteDetokenizer

__all__ = ["ByteDetokenizer", "ChatTemplate", "GGUFTokenizer", "from_gguf"]
