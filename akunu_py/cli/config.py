"""`akunu config`: the settings file, and where the value of each option came from."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import click

from akunu_py.cli import completing
from akunu_py.cli.command_settings import (
    SourcedValue,
    absolute,
    check_settings,
    settings_below,
    unknown_variables,
)
from akunu_py.cli.editor import edit_file
from akunu_py.cli.group import CommandGroup
from akunu_py.cli.terminal import printable
from akunu_py.system.errors import ConfigError
from akunu_py.system.settings import (
    CONFIG_VARIABLE,
    FOLDERS_KEY,
    FOLDERS_VARIABLE,
    MODEL_KEY,
    MODEL_VARIABLE,
    Settings,
    config_path,
    load_settings,
    nearest,
    parse_settings,
    settings_content,
)
from akunu_py.system.shown_text import one_line

_TEMPLATE = """\
# Settings of akunu. `akunu config --help` says what may stand here, `akunu config show --all`
# which options there are. A line counts without the # before it.

# model = "~/models/large.gguf"
# model-folders = ["~/models"]
# temperature = 0.7

# [chat]
# system = "Answer briefly."
"""


@click.group(cls=CommandGroup)
def config() -> None:
    """Show and change settings, and show where each of them comes from.

    The settings file is TOML. A key before the first table is for every command that has the
    option, a table for one command; keys are long options without their dashes. `model` is what
    commands open without a MODEL, `model-folders` a list of folders with models.

    \b
    An example:
      model = "~/models/large.gguf"
      temperature = 0.7
      [chat]
      system = "Answer briefly."
      [bench.speed]
      quick = true

    Variables have precedence over the file: AKUNU_CHAT_SYSTEM is the option --system of akunu
    chat, AKUNU_TEMPERATURE that of every command. In a variable, the values of a repeatable option
    are separated by spaces, paths by colons. AKUNU_CONFIG names another settings file.

    A key that no command has is an error, and so is a value of a wrong type. A variable that
    begins with AKUNU_ and sets nothing is a warning: it may be another program's.

    \b
    Examples:
      akunu config set temperature 0.7
      akunu config show
      akunu config show chat --all
    """  # noqa: D301 - \b keeps click from wrapping the examples


@config.command()
def path() -> None:
    """Print the path of the settings file, whether or not it exists.

    \b
    Examples:
      akunu config path
      cat "$(akunu config path)"
    """  # noqa: D301 - \b keeps click from wrapping the examples
    click.echo(printable(str(config_path())))


@config.command()
def edit() -> None:
    """Open the settings file in an editor, and check it afterwards.

    The editor is $VISUAL or $EDITOR. Where there is no file yet, it begins with examples that are
    commented out.

    \b
    Examples:
      akunu config edit
      EDITOR=nano akunu config edit
    """  # noqa: D301 - \b keeps click from wrapping the examples
    place = _changeable_path()
    if not place.exists():
        _write(place, _TEMPLATE.encode())
    edit_file(place)
    check_settings(load_settings(), click.get_current_context())


@config.command("set")
@click.argument("key", shell_complete=completing.keys)
@click.argument(
    "values", nargs=-1, required=True, metavar="VALUE...", shell_complete=completing.values
)
def set_value(key: str, values: tuple[str, ...]) -> None:
    """Write KEY = VALUE into the settings file; the rest of it stays as it is.

    KEY is an option's name: for all commands that have it, or for one command, with the command
    and a dot in front. A repeatable option takes several values. A relative path is kept as an
    absolute one.

    \b
    Examples:
      akunu config set model ~/models/large.gguf
      akunu config set temperature 0.7
      akunu config set chat.system "Answer briefly."
      akunu config set bench.speed.quick true
    """  # noqa: D301 - \b keeps click from wrapping the examples
    if key.rpartition(".")[2] == MODEL_KEY:
        values = tuple(_lasting(name) for name in values)
    _change(key, values)


def _lasting(name: str) -> str:
    """Return the name of a model as it holds in every folder; raises ConfigError for none."""
    from akunu_py.model_store.aliases import load_aliases
    from akunu_py.model_store.names import locate

    locate(name, load_settings())
    is_path = Path(name).expanduser().exists() and name not in load_aliases()
    return absolute(name) if is_path else name


@config.command()
@click.argument("key", shell_complete=completing.set_keys)
def unset(key: str) -> None:
    """Delete KEY from the settings file.

    \b
    Examples:
      akunu config unset temperature
      akunu config unset chat.system
    """  # noqa: D301 - \b keeps click from wrapping the examples
    _change(key, None)


def _change(key: str, values: tuple[str, ...] | None) -> None:
    """Set a key, or delete it where there are no values, if the file is sound afterwards."""
    from akunu_py.cli.settings_edit import with_key

    place = _changeable_path()
    root = click.get_current_context().find_root()
    content = settings_content(place)
    parse_settings(place, content)
    content = with_key(content or b"", key, values, settings_below(root.command, root))
    check_settings(parse_settings(place, content), root)
    _write(place, content)


def _changeable_path() -> Path:
    place = config_path()
    if str(place) == os.devnull:
        raise ConfigError(f"settings are switched off: {CONFIG_VARIABLE} is {place}")
    return place


def _write(place: Path, content: bytes) -> None:
    from akunu_py.system.files import replace_file

    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        replace_file(place, content, private=True)
    except OSError as error:
        raise ConfigError(f"{place} cannot be written: {error.strerror or error}") from None


@config.command()
@click.argument("command", nargs=-1, shell_complete=completing.commands)
@click.option("--all", "everything", is_flag=True, help="Show defaults, too.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
def show(command: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """Show settings and their sources, for all commands or for one COMMAND.

    Ends with an error if the file has an unknown key or table, or a value of a wrong type. Unknown
    variables that begin with AKUNU_ are named on stderr.

    \b
    Examples:
      akunu config show
      akunu config show bench speed --all
      akunu config show --json
    """  # noqa: D301 - \b keeps click from wrapping the examples
    context = click.get_current_context().find_root()
    settings = load_settings()
    check_settings(settings, context)
    known = list(settings_below(context.command, context))
    for warning in unknown_variables(context):
        click.echo(one_line(f"Warning: {warning}"), err=True)
    if command and not any(setting.command[: len(command)] == command for setting in known):
        names = {" ".join(setting.command) for setting in known}
        name = printable(" ".join(command))
        raise click.UsageError(f"there is no command named {name!r}.{nearest(name, names)}")
    rows = [] if command else list(_own_rows(settings))
    for setting in known:
        if setting.command[: len(command)] == command:
            value = setting.sourced_value(settings)
            if everything or value.source:
                rows.append((" ".join(setting.command), setting.key, value))
    if as_json:
        click.echo(json.dumps(_record(settings, rows), default=str))
    else:
        click.echo(printable("\n".join(_lines(settings, rows))))


_Row = tuple[str, str, SourcedValue]
"""A command's words, a key, and its value."""


def _own_rows(settings: Settings) -> Iterator[_Row]:
    if settings.model is not None:
        source = MODEL_VARIABLE if os.environ.get(MODEL_VARIABLE) else MODEL_KEY
        yield "", MODEL_KEY, SourcedValue(settings.model, source)
    folders = [str(folder) for folder in settings.model_folders]
    if folders:
        source = FOLDERS_VARIABLE if os.environ.get(FOLDERS_VARIABLE) else FOLDERS_KEY
        yield "", FOLDERS_KEY, SourcedValue(folders, source)


def _record(settings: Settings, rows: list[_Row]) -> dict[str, object]:
    return {
        "path": str(settings.path),
        "found": settings.found,
        "settings": [
            {"command": command, "key": key, "value": value.value, "source": value.source or None}
            for command, key, value in rows
        ],
    }


def _lines(settings: Settings, rows: list[_Row]) -> Iterator[str]:
    yield f"settings file: {settings.path}" + ("" if settings.found else " (does not exist yet)")
    if not rows:
        yield "nothing is set: every option has its default; --all shows them"
        return
    cells = [
        (f"{command} {key}".strip(), _text(value.value), value.source or "default")
        for command, key, value in rows
    ]
    widths = [max(len(row[column]) for row in cells) for column in (0, 1)]
    for name, value, source in cells:
        yield f"{name:{widths[0]}}  {value:{widths[1]}}  {source}"


def _text(value: object) -> str:
    return "-" if value is None else json.dumps(value, ensure_ascii=False, default=str)
