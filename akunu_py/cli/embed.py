"""`akunu embed`: embeddings of texts, as JSON lines or an array."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from akunu_py.cli.command import Command, option
from akunu_py.cli.count_progress import count_progress
from akunu_py.cli.input_text import MOST_BYTES, GivenPath, check_text, decode_input
from akunu_py.cli.loading_options import (
    LoadingOptions,
    load_engine,
    loading_options,
    model_argument,
)
from akunu_py.system.errors import AkunuError, ConfigError


@dataclass(frozen=True, slots=True)
class _Text:
    """A text to embed; `place` is for messages."""

    text: str
    place: str
    id: int | str | None = None


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
    "-o", "--output", type=GivenPath(path_type=Path, dir_okay=False), metavar="FILE.npy",
    help="Write the embeddings to FILE.npy as a NumPy array, instead of JSON lines.",
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

    Texts come from FILES, --text, or standard input (-). Embeddings are normalised, so the product
    of two is their similarity. A line of the output has the text's id (the file's name, or the
    number of the text) and its embedding.

    \b
    Examples:
      akunu embed qwen3-embedding:0.6b notes.txt letter.txt
      akunu embed model.gguf documents.jsonl -o documents.npy
      akunu embed model.gguf --input lines --prompt-name query < questions.txt
      akunu embed model.gguf -t "a cat" -t "a dog"
    """  # noqa: D301 - \b keeps click from wrapping the examples
    if output is not None and not (output.suffix == ".npy" and output.parent.is_dir()):
        raise click.UsageError(
            f"--output is {output}; name a file that ends with .npy, in a folder that is there, or "
            "leave --output out for JSON lines"
        )
    if not (files or texts) and not sys.stdin.isatty():
        files = (Path("-"),)
    given = [_Text(check_text("--text", text), f"--text {text[:20]!r}") for text in texts]
    given += [one for path in files for one in _read(path, form)]
    if not given:
        raise click.UsageError("there is no text; give FILES, --text, or pipe texts in")
    with load_engine(model, loading, replies=False) as engine, count_progress("texts") as count:
        try:
            vectors = engine.embed(
                [one.text for one in given],
                dimensions=dimensions, prompt_name=prompt_name, truncate=truncate, progress=count,
            )  # fmt: skip
        except AkunuError as error:
            raise _placed(error, given) from None
    if output is not None:
        import numpy as np  # not for --help

        with output.open("wb") as stream:
            np.save(stream, vectors)
        return
    for number, (one, vector) in enumerate(zip(given, vectors.tolist(), strict=True)):
        # Nine digits tell every float32 from the next.
        numbers = [float(f"{value:.9g}") for value in vector]
        line = {"id": number if one.id is None else one.id, "embedding": numbers}
        click.echo(json.dumps(line, ensure_ascii=False))


def _placed(error: AkunuError, texts: list[_Text]) -> AkunuError:
    """Return an error that names the place of a text in place of its number."""
    kind, number, *rest = error.message.split(" ", 2)
    if kind != "text" or not number.isdecimal():
        return error
    said = rest[0].replace("(truncate)", "(--truncate)")
    return ConfigError(f"{texts[int(number)].place} {said}")


def _read(path: Path, form: str | None) -> Iterator[_Text]:
    """Yield the texts of a file, or of standard input."""
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
        yield _Text(text, name, None if is_input else name)
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            one = _Text(line.removesuffix("\r"), f"line {number} of {name}")
            yield one if form == "lines" else _of_json(one)


def _of_json(line: _Text) -> _Text:
    try:
        found: Any = json.loads(line.text)
    except ValueError as error:
        raise click.UsageError(f"{line.place} is not JSON: {error}") from None
    record = found if isinstance(found, dict) else {"text": found}
    text, id_ = record.get("text"), record.get("id")
    if not isinstance(text, str) or not isinstance(id_, int | str | None):
        raise click.UsageError(
            f'{line.place} is not a text; give a text, or an object such as {{"id": 1, "text": '
            '"..."}'
        )
    return replace(line, text=text, id=id_)
