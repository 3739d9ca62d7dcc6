"""`akunu counts`: n-gram counts of a corpus, to draft from."""

from pathlib import Path
from typing import Any

import click

from akunu_lab.study.options import tokenizer_option
from akunu_py.api import CommandGroup, Measurement, load_tokenizer

_KB = 1024


class _GivenPath(click.Path):
    """A path that is not empty: that would be the current folder, which nobody meant."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("the path is empty; give one, or leave it out", param, ctx)
        return super().convert(value, param, ctx)


@click.group(cls=CommandGroup)
def counts() -> None:
    """Count the tokens of a corpus, for --drafter corpus.

    \b
    Examples:
      akunu counts fit logs.txt --output logs.counts
      akunu counts show logs.counts
      akunu generate -p "Go on: ..." --drafter corpus --counts logs.counts
    """  # noqa: D301 - \b keeps click from wrapping the examples


@counts.command()
@click.argument("corpus", type=_GivenPath(path_type=Path, dir_okay=False))
@click.option(
    "--output",
    type=_GivenPath(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE",
    help="Write the counts to this file.",
)
@click.option(
    "--order",
    type=click.IntRange(1, 2),
    default=2,
    show_default=True,
    help="Count only tokens (1), or also pairs of neighbours (2).",
)
@tokenizer_option(
    "The model to draft for; its tokenizer is enough. The model that ships, when left out."
)
@click.option("--ids", is_flag=True, help="CORPUS has decimal token ids instead of text.")
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
def fit(
    corpus: Path, output: Path, order: int, tokenizer: Path | None, *, ids: bool, force: bool
) -> None:
    """Count the tokens of CORPUS, a text in UTF-8.

    \b
    Examples:
      akunu counts fit logs.txt --output logs.counts
      akunu generate -p "Go on: ..." --drafter corpus --counts logs.counts
    """  # fmt: skip # noqa: D301 - \b keeps click from wrapping the examples
    if output.exists() and not force:
        raise click.UsageError(f"{output} exists; give --force to replace it")
    if not output.absolute().parent.is_dir():
        raise click.UsageError(f"the folder {output.parent} for the counts does not exist")
    from akunu_lab.counts import fit_counts, id_pieces, save_counts, text_pieces
    from akunu_py.api import vocabulary_fingerprint

    texts = load_tokenizer(tokenizer)
    with Measurement.progress("kB counted") as progress:

        def read(done: int, size: int) -> None:
            progress(done // _KB, size // _KB)

        pieces = id_pieces(corpus, read) if ids else text_pieces(corpus, texts, read)
        found = fit_counts(pieces, texts.vocabulary_size, order=order)
    if not found.num_tokens:
        raise click.UsageError(f"the corpus {corpus} is empty; there is nothing to count")
    try:
        save_counts(found, output, vocabulary_fingerprint(texts.token_texts()))
    except OSError as error:
        raise click.UsageError(f"{output} cannot be written: {error.strerror or error}") from None
    pairs = f", {found.pairs.size:,} different pairs" if order == 2 else ""
    click.echo(f"wrote {output}: {found.num_tokens:,} tokens, {found.tokens.size:,} of them "
               f"different{pairs}")  # fmt: skip


@counts.command()
@click.argument("file", type=_GivenPath(path_type=Path, dir_okay=False))
def show(file: Path) -> None:
    """Describe FILE, which `akunu counts fit` wrote.

    \b
    Examples:
      akunu counts show corpus.counts
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from akunu_lab.counts import read_counts  # numpy

    found, vocabulary = read_counts(file)
    lines = {
        "counted": "tokens and pairs of neighbours" if found.order == 2 else "tokens",
        "tokens": f"{found.num_tokens:,}, {found.tokens.size:,} different",
        "pairs": f"{int(found.pair_counts.sum()):,}, {found.pairs.size:,} different",
        "vocabulary": f"{found.vocabulary_size:,} ids, fingerprint {vocabulary}",
    }
    if found.order == 1:
        del lines["pairs"]
    for name, value in lines.items():
        click.echo(f"{name:<11} {value}")
