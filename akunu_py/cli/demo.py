"""`akunu demo`: one edit made twice, plain and with drafts, side by side."""

import sys
from typing import TYPE_CHECKING

import click

from akunu_py.cli import completing
from akunu_py.cli.command import Command
from akunu_py.cli.loading_options import LoadingOptions, load_engine
from akunu_py.cli.terminal import echo, fitted, is_dumb, printable

if TYPE_CHECKING:
    from akunu_py.cli.demo_race import Runner
    from akunu_py.engine.engine import Engine

_CODE = """\
def area(shape, unit):
    \"\"\"Return the area of a shape.\"\"\"
    kind = shape["kind"]
    scale = SCALES[unit]
    if kind == "circle":
        radius = shape["radius"]
        size = PI * radius ** 2
    elif kind == "square":
        side = shape["side"]
        size = side * side
    elif kind == "rectangle":
        width = shape["width"]
        height = shape["height"]
        size = width * height
    elif kind == "triangle":
        base = shape["base"]
        height = shape["height"]
        size = base * height / 2
    else:
        raise ValueError(kind)
    return size * scale"""

_TASK = 'Write this function again with `unit="cm"` as the default. Keep everything else as it is.'
_PROMPT = f"{_TASK}\n\n```python\n{_CODE}\n```"
_MOST_TOKENS = 300
_PLAIN, _DRAFTED = "plain", "with drafts"


@click.command(cls=Command)
@click.argument("model", required=False, shell_complete=completing.models)
def demo(model: str | None) -> None:
    """Watch a model edit a function twice: plain, and with drafts.

    Both replies are generated while you watch, in turns of a tenth of a second; the one that is
    behind goes next. Each clock starts before the prompt is read and runs only during its own
    turns; tokens a second are counted on it. Copied text is tinted. The model checks every token,
    so both replies are the same.

    Without a terminal both replies are printed one after the other.

    \b
    Examples:
      akunu demo
      akunu demo model.gguf
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from akunu_py.cli.default_model_offer import offer_default_model

    if model is None:
        offer_default_model()
    # A key that were shown would move what is drawn in place.
    with (
        echo(False),
        load_engine(model, LoadingOptions()) as engine,
        engine.sibling() as other,
    ):
        if not engine.tokenizer.has_chat_template:
            raise click.ClickException("this model has no chat template, and the demo is a chat")
        _run(engine, other)


def _run(plain: "Engine", drafted: "Engine") -> None:
    """Show the task, both replies as they are made, and the result."""
    from akunu_py.cli.demo_race import Runner, race, warm_up
    from akunu_py.cli.demo_view import SideBySide  # rich
    from akunu_py.values.messages import Message
    from akunu_py.values.types import GenerationConfig

    live = sys.stdout.isatty() and not is_dumb()
    click.echo(printable(f"{plain.description.name} edits this function:\n"))
    click.echo(f"{click.style(_CODE, dim=True) if live else _CODE}\n\n{fitted(_TASK)}\n")
    view = SideBySide(sys.stdout, (_PLAIN, _DRAFTED))
    runners = []
    for engine, drafter, column in zip((plain, drafted), ("none", None), view.columns, strict=True):
        warm_up(engine)
        config = GenerationConfig(drafter=drafter, max_tokens=_MOST_TOKENS, stop_loops=True)
        runners.append(Runner(engine, [Message("user", _PROMPT)], config, column.take))

    def clocks() -> list[float]:
        return [runner.seconds for runner in runners]

    def show() -> None:
        if live:
            view.draw(clocks())

    show()
    race(runners, show)
    if live:
        view.finish(clocks())
    else:
        for column, runner in zip(view.columns, runners, strict=True):
            result = runner.outcome
            counts = f"{len(result.token_ids)} tokens in {runner.seconds:.1f} s"
            click.echo(f"{column.title}: {counts}\n\n{result.text}\n")
    click.echo()
    view.print_summary()
    click.echo(printable(fitted(_verdict(*runners))))


def _verdict(plain: "Runner", drafted: "Runner") -> str:
    """Compare the two clocks and the two texts in a sentence."""
    tokens, others = plain.outcome.token_ids, drafted.outcome.token_ids
    times = f"{drafted.seconds:.1f} s instead of {plain.seconds:.1f} s"
    if tokens != others:
        same = next(
            (place for place, (a, b) in enumerate(zip(tokens, others, strict=False)) if a != b),
            min(len(tokens), len(others)),
        )
        return (
            f"{times}, but the texts differ from token {same + 1} on: two tokens were almost "
            "equally likely, and larger passes round otherwise on this machine. With "
            "--reproducible akunu chat and akunu generate avoid that."
        )
    ratio = plain.seconds / drafted.seconds
    pace = f"{ratio:.1f} times as fast" if ratio >= 1 else f"{1 / ratio:.1f} times as slow"
    rates = [f"{len(tokens) / runner.seconds:.0f}" for runner in (drafted, plain)]
    return f"The same {len(tokens)} tokens, {pace}: {' instead of '.join(rates)} tokens/s, {times}."
