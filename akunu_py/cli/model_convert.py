"""`akunu models convert`: a GGUF file as a folder of MLX arrays."""

from pathlib import Path
from typing import Literal

import click

from akunu_py.cli import completing
from akunu_py.cli.command import Command
from akunu_py.cli.input_text import GivenPath
from akunu_py.cli.terminal import printable
from akunu_py.system.settings import load_settings


@click.command(cls=Command)
@click.argument("model", metavar="FILE", shell_complete=completing.models)
@click.argument("out_dir", type=GivenPath(path_type=Path))
@click.option(
    "--compute-type",
    type=click.Choice(["auto", "float16", "bfloat16", "float32"]),
    default="auto",
    show_default=True,
    help="Of scales and dense weights: float16 where it holds the model's numbers.",
)
@click.option(
    "--q6k",
    type=click.Choice(["planes", "8bit"]),
    default="planes",
    show_default=True,
    help="Q6_K tensors as exact bit planes, or requantized to 8 bits, which mlx-lm reads.",
)
@click.option(
    "--pre-tokenizer",
    metavar="NAME",
    help="How the tokenizer splits texts, where the file does not say so rightly.",
)
def convert(
    model: str,
    out_dir: Path,
    pre_tokenizer: str | None,
    compute_type: Literal["auto", "float16", "bfloat16", "float32"],
    q6k: Literal["planes", "8bit"],
) -> None:
    """Convert the GGUF model FILE into the MLX folder OUT_DIR.

    The folder opens without the re-layout that a GGUF file needs each time. mlx-lm loads it too
    where every layer has a form of MLX's own; the last line says whether it does.

    \b
    Examples:
      akunu models convert model-Q4_K_M.gguf model-mlx
      akunu models convert model-Q6_K.gguf model-mlx --q6k 8bit
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from akunu_py.model_store.names import resolve_model  # what --help does not need
    from akunu_py.models.load import LoadOptions, convert_model  # imports MLX

    file = resolve_model(model, load_settings())
    options = LoadOptions(compute_type=compute_type, q6k=q6k, pre_tokenizer=pre_tokenizer)
    stock = convert_model(file, out_dir, options)
    reads = "akunu and mlx-lm read it" if stock else "akunu reads it; mlx-lm does not"
    click.echo(printable(f"wrote {out_dir}: {reads}"))
