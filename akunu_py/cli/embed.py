"""`akunu embed`: embeddings of texts, as JSON lines or an array."""

import io
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from akunu_py.cli.command import Command, option
from akunu_py.cli.count_progress import Count, count_progress
from akunu_py.cli.input_text import MOST_BYTES, GivenPath, check_text, decode_input
from akunu_py.cli.loading_options import (
    LoadingOptions,
    load_engine,
    loading_options,
    model_argument,
)
from akunu_py.system.errors import AkunuError, ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_TOGETHER = 1024
"""Texts that are sorted by length at once; their embeddings are written together."""


@dataclass(frozen=True, slots=True)
class _Text:
    """A text to embed; `place` is for messages."""

    id: int | str
    text: str
    place: str


@click.command(cls=Command)
@model_argument
@click.argument("files", nargs=-1, type=GivenPath(path_type=Path, allow_dash=True))
@option(
    "-t", "--text", "texts", multiple=True, metavar="TEXT", also=["--content"],
    help="Embed TEXT; repeatable.",
)  # fmt: skip
@option(
    "--input", "form", type=click.Choice(["text", "lines", "jsonl"]),
    help="Take a file as one text, as a text a line, or as JSON Lines: texts, or objects with a "
    "text and an id. Left out, jsonl for files with that ending, else text.",
)  # fmt: skip
@option(
    "-o", "--output", type=GivenPath(path_type=Path, dir_okay=False), metavar="FILE",
    help="Write to FILE instead of standard output: a NumPy array if it ends with .npy, else JSON "
    "Lines.",
)  # fmt: skip
@option(
    "--prompt-name",
    metavar="NAME",
    help="Put the prompt of this name from the model's files before each text, such as query.",
)
@option(
    "--dimensions",
    type=click.IntRange(min=1),
    metavar="N",
    help="Keep the first N numbers of each embedding, for models that were trained for that.",
)
@option("--truncate", is_flag=True, help="Cut texts that are longer than the context.")
@loading_options("pooling")
def embed(  # noqa: PLR0917 - click passes by name
    model: str | None,
    files: tuple[Path, ...],
    texts: tuple[str, ...],
    form: str | None,
    output: Path | None,
    prompt_name: str | None,
    dimensions: int | None,
    truncate: bool,
    loading: LoadingOptions,
) -> None:
    """Make embeddings of texts, for searches and comparisons.

    Texts come from FILES, --text, or standard input (-). Each embedding has the length 1, so the
    product of two is their similarity. A line of the output has the text's id (the file's name, or
    the number of the text) and its embedding.

    \b
    Examples:
      akunu embed qwen3-embedding:0.6b notes.txt letter.txt
      akunu embed model.gguf documents.jsonl -o documents.npy
      akunu embed model.gguf --input lines --prompt-name query < questions.txt
      akunu embed model.gguf -t "a cat" -t "a dog"
    """  # noqa: D301 - \b keeps click from wrapping the examples
    if not (files or texts) and not sys.stdin.isatty():
        files = (Path("-"),)
    given = list(_numbered(files, texts, form))
    if not given:
        raise click.UsageError("there is no text; give FILES, --text, or pipe texts in")
    with load_engine(model, loading, replies=False) as engine, count_progress("texts") as count:
        writer = _Writer(output)
        for done in range(0, len(given), _TOGETHER):
            some = given[done : done + _TOGETHER]
            try:
                vectors = engine.embed(
                    [one.text for one in some],
                    dimensions=dimensions, prompt_name=prompt_name, truncate=truncate,
                    progress=_shifted(count, done, len(given)),
                )  # fmt: skip
            except AkunuError as error:
                raise _placed(error, some) from None
            writer.add(some, vectors)
        writer.end()


def _shifted(count: Count, before: int, total: int) -> Count:
    """Return a callback for a part of the texts, `before` which others were done."""
    return lambda done, _: count(before + done, total)


def _placed(error: AkunuError, texts: list[_Text]) -> AkunuError:
    """Return an error that names the place of a text in place of its number."""
    number, _, rest = error.message.removeprefix("text ").partition(" ")
    if not error.message.startswith("text ") or not number.isdecimal():
        return error
    return ConfigError(f"{texts[int(number)].place} {rest.replace('(truncate)', '(--truncate)')}")


def _numbered(files: tuple[Path, ...], texts: tuple[str, ...], form: str | None) -> Iterator[_Text]:
    """Yield the texts of a command; those without an id are numbered."""
    number = 0
    for text in texts:
        yield _Text(number, check_text("--text", text), f"--text {text[:20]!r}")
        number += 1
    for path in files:
        for one in _read(path, form):
            # A whole file is known by its name.
            yield one if one.id != "" else _Text(number, one.text, one.place)
            number += 1


def _read(path: Path, form: str | None) -> Iterator[_Text]:
    """Yield the texts of a file or of standard input; "" is the id of those without one."""
    is_input = str(path) == "-"
    name = "standard input" if is_input else str(path)
    try:
        data = sys.stdin.buffer.read(MOST_BYTES + 1) if is_input else path.read_bytes()
    except OSError as error:
        raise click.UsageError(f"{name} cannot be read: {error.strerror}") from None
    text = decode_input(data, name)
    if not text.strip():
        raise click.UsageError(f"{name} is empty; give FILES with text, or --text")
    form = form or ("jsonl" if path.suffix.casefold() == ".jsonl" else "text")
    if form == "text":
        yield _Text("" if is_input else name, text, name)
        return
    for number, line in enumerate(text.splitlines() if form == "lines" else text.split("\n"), 1):
        if line.strip():
            place = f"line {number} of {name}"
            yield _Text("", line, place) if form == "lines" else _of_json(line, place)


def _of_json(line: str, place: str) -> _Text:
    try:
        found: Any = json.loads(line)
    except ValueError as error:
        raise click.UsageError(f"{place} is not JSON: {error}") from None
    if isinstance(found, str):
        return _Text("", found, place)
    id_, text = (found.get("id", ""), found.get("text")) if isinstance(found, dict) else ("", None)
    if not isinstance(text, str) or not isinstance(id_, int | str):
        raise click.UsageError(
            f'{place} is not a text; give a text, or an object such as {{"id": 1, "text": "..."}}'
        )
    return _Text(id_, text, place)


class _Writer:
    """Writes embeddings to a file, or to standard output."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._arrays: list[NDArray[np.float32]] = []
        self._lines = io.StringIO()

    @property
    def _is_array(self) -> bool:
        return self._path is not None and self._path.suffix.casefold() == ".npy"

    def add(self, texts: list[_Text], vectors: "NDArray[np.float32]") -> None:
        if self._is_array:
            self._arrays.append(vectors)
            return
        for one, vector in zip(texts, vectors.tolist(), strict=True):
            # Nine digits tell every float32 from the next.
            numbers = [float(f"{number:.9g}") for number in vector]
            line = json.dumps({"id": one.id, "embedding": numbers}, ensure_ascii=False)
            if self._path is None:
                click.echo(line)
            else:
                self._lines.write(f"{line}\n")

    def end(self) -> None:
        """Write the file, whole."""
        if self._path is None:
            return
        import numpy as np  # not for --help

        from akunu_py.system.files import replace_file

        data = io.BytesIO(self._lines.getvalue().encode())
        if self._is_array:
            np.save(data, np.concatenate(self._arrays))
        try:
            replace_file(self._path, data.getvalue(), private=False)
        except OSError as error:
            raise ConfigError(f"{self._path} cannot be written: {error.strerror}") from None
