"""Text that users give, checked: bytes of files and pipes, and words of a command line."""

import contextlib
import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from akunu_py.system.errors import ConfigError

MOST_BYTES = 64 * 2**20
"""Of one text."""

_GGUF = b"GGUF"
_MODEL_FILES = (".bin", ".ggml", ".gguf", ".npz", ".pt", ".pth", ".safetensors")


def decode_input(data: bytes, name: str, start: int = 0) -> str:
    """Return bytes as text; `start` is where they begin in what they were read from.

    At its beginning a mark of the byte order, which some editors write, is left out. Raises
    click.UsageError, by `name`, for more than MOST_BYTES and for what is not UTF-8.
    """
    if len(data) > MOST_BYTES:
        raise click.UsageError(f"{name} is larger than {MOST_BYTES // 2**20} MB")
    try:
        return data.decode("utf-8" if start else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{name} is not UTF-8 text (byte {start + error.start})") from None


def check_text(option: str, text: str) -> str:
    """Return the text of an option; raise UsageError where the shell gave other bytes."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise click.UsageError(f"{option} is not UTF-8 text (character {error.start})") from None
    return text


def is_prompt(word: str) -> bool:
    """Return whether a word can only be a prompt: it has spaces, and there is no such file."""
    return any(character.isspace() for character in word.strip()) and not os.path.lexists(word)


def is_text_file(word: str) -> bool:
    """Return whether a word is the path of a file, but not a model by its name or first bytes."""
    if word.casefold().endswith(_MODEL_FILES):
        return False
    from akunu_py.model_store.aliases import load_aliases  # not for --help

    try:
        path = Path(word).expanduser()
        if not path.is_file() or word in load_aliases():
            return False
        with path.open("rb") as stream:
            return stream.read(len(_GGUF)) != _GGUF
    except (OSError, RuntimeError, ValueError):
        # Whoever opens it as a model tells.
        return False


def names_model(word: str) -> bool:
    """Return whether a word names a model, or looks as if it should."""
    if not word.strip():
        return False
    from akunu_py.model_store.names import UnknownNameError  # not for --help

    try:
        check_model(word)
    except UnknownNameError:
        return _looks_like_model(word)
    except ConfigError:
        # A link that leads nowhere, or a damaged file of aliases: whoever opens the model tells.
        return True
    return True


def check_model(word: str, asked: str | None = None) -> None:
    """Raise ConfigError for a word that names no model.

    What may have been meant as a prompt is told what to type; `asked` is then the whole of it.
    """
    from akunu_py.model_store.names import UnknownNameError, locate  # not for --help
    from akunu_py.system.settings import load_settings  # TOML

    try:
        locate(word, load_settings())
    except UnknownNameError as error:
        if asked is None or word.casefold().endswith(_MODEL_FILES):
            raise
        raise UnknownNameError(
            f"{error.message} For a reply to a prompt, type: akunu generate -p {shlex.quote(asked)}"
        ) from None


def _looks_like_model(word: str) -> bool:
    from akunu_py.model_store.repository_files import quantization_of

    return (
        "/" in word
        or word.startswith("hf:")
        or word.casefold().endswith(_MODEL_FILES)
        or quantization_of(word) != ""
    )


def split_words(
    words: Sequence[str], model: str | None, *, prompted: bool = False
) -> tuple[str | None, str | None]:
    """Return MODEL and PROMPT of words; with a model that was given otherwise all are PROMPT.

    A lone word that names no model is the PROMPT, unless that was given otherwise (`prompted`).
    """
    left = [word for word in words if word != "-"]
    if model is None and left and not is_prompt(left[0]):
        is_model = len(left) > 1 or prompted or names_model(left[0])
        model = left.pop(0) if is_model else None
    return model, " ".join(left) if left else None


class GivenPath(click.Path):
    """A path that is not empty: that would be the current folder, which nobody meant."""

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str | bytes | os.PathLike[str]:
        """Return the path; fails for an empty one and as click.Path does."""
        if value == "":
            self.fail("the path is empty; give one, or leave it out", param, ctx)
        return super().convert(value, param, ctx)


@contextlib.contextmanager
def with_file_errors(path: str) -> Iterator[None]:
    """Say in akunu's words that a file cannot be read."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path!r} is not a path: {error}") from None
