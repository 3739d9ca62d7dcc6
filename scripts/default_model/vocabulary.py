"""The byte-level BPE of the default models, trained on their own corpus."""

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from default_model.corpus import SPECIAL_TOKENS

# The split of "qwen2" (llama.cpp's name for it): digits stand alone, and runs of spaces before a
# word keep the last space for the word, so that indentation is a token of its own.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PRE_TOKENIZER_NAME = "qwen2"
VOCABULARY_SIZE = 4096


def train_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """Learn merges; special tokens take the lowest ids and never take part in merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def load_or_train(path: Path, texts: Iterable[str]) -> Tokenizer:
    """Reuse the tokenizer of an earlier run: a checkpoint is worth nothing with another one."""
    if path.exists():
        return Tokenizer.from_file(str(path))
    tokenizer = train_tokenizer(texts)
    tokenizer.save(str(path))
    return tokenizer
