"""Training text for the default model: the Python standard library (PSF-2.0).

Files are split into training and held-out by a hash of their name, so that the split does not
depend on the order of the directory and a file never stands on both sides.
"""

import hashlib
import random
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from default_model.chat_examples import Conversation, FunctionSource, conversations, functions_of

END_OF_TEXT = "<|endoftext|>"
SYSTEM, USER, ASSISTANT, END = "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"
SPECIAL_TOKENS = (END_OF_TEXT, SYSTEM, USER, ASSISTANT, END)

# Third-party code, generated tables, and files that hold deliberately broken source.
SKIPPED_DIRECTORIES = frozenset(
    {"site-packages", "ensurepip", "__pycache__", "encodings", "pydoc_data", "data", "turtledemo"}
)
MAX_FILE_BYTES = 120_000
HELD_OUT_SHARE = 0.03
TEST_FILE_SHARE = 0.4  # unit tests are repetitive: a part of them is enough


@dataclass(frozen=True, slots=True)
class Corpus:
    """Plain files and the functions in them, split by file."""

    train_files: tuple[str, ...]
    held_out_files: tuple[str, ...]
    train_functions: tuple[FunctionSource, ...]
    held_out_functions: tuple[FunctionSource, ...]


def name_share(name: str) -> float:
    """A number in [0, 1) that depends on the name alone."""
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def source_files(root: Path) -> Iterator[tuple[str, str]]:
    """Yield (relative name, text) of every usable Python file under root, sorted by name."""
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if SKIPPED_DIRECTORIES & set(relative.parts[:-1]):
            continue
        if path.stat().st_size > MAX_FILE_BYTES:
            continue
        is_test = bool({"test", "tests"} & set(relative.parts))
        if is_test and name_share(f"test:{relative}") > TEST_FILE_SHARE:
            continue
        try:
            text = path.read_text(encoding="ascii")
        except UnicodeDecodeError:
            continue
        yield str(relative), text.expandtabs(8)


def load_corpus(root: Path | None = None) -> Corpus:
    """Read the standard library of the running Python (or of `root`)."""
    root = root or Path(sysconfig.get_paths()["stdlib"])
    train_files: list[str] = []
    held_out_files: list[str] = []
    train_functions: list[FunctionSource] = []
    held_out_functions: list[FunctionSource] = []
    for name, text in source_files(root):
        held_out = name_share(name) < HELD_OUT_SHARE
        (held_out_files if held_out else train_files).append(text)
        (held_out_functions if held_out else train_functions).extend(functions_of(text))
    # The same helper stands in several files: what was trained on is not held out.
    seen = {function.code for function in train_functions}
    fresh = [function for function in held_out_functions if function.code not in seen]
    return Corpus(tuple(train_files), tuple(held_out_files), tuple(train_functions), tuple(fresh))


def render(conversation: Conversation) -> str:
    """Lay a conversation out as the chat template of the exported model does."""
    parts = [END_OF_TEXT]
    if conversation.system:
        parts.append(f"{SYSTEM}\n{conversation.system}{END}\n")
    for user, assistant in conversation.turns:
        parts.append(f"{USER}\n{user}{END}\n{ASSISTANT}\n{assistant}{END}\n")
    return "".join(parts)


def training_documents(corpus: Corpus, seed: int, rounds: int) -> Iterator[str]:
    """Yield documents in random order: every file once and `rounds` conversations a function."""
    rng = random.Random(seed)
    names = sorted({name for function in corpus.train_functions for name in function.identifiers})
    documents: list[str] = [END_OF_TEXT + text for text in corpus.train_files]
    for _ in range(rounds):
        for function in corpus.train_functions:
            documents.extend(render(item) for item in conversations(function, names, rng))
    rng.shuffle(documents)
    yield from documents
