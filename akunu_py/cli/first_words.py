"""What users of Ollama, llama.cpp, mlx_lm and llm type first, in akunu's words.

docs/coming-from.md is the page about it, and a test runs its tables.
"""

import shlex
import sys
from collections.abc import Mapping

import click

from akunu_py.cli.input_text import is_prompt, names_model, split_words
from akunu_py.system.settings import load_settings, nearest

PHRASES: Mapping[str, str] = {
    "benchmark": "bench speed",
    "aliases": "models alias",
    "ask": "generate",
    "convert": "models convert",
    "delete": "models rm",
    "download": "models pull",
    "fetch": "models pull",
    "get": "models pull",
    "info": "models show",
    "list": "models list",
    "ls": "models list",
    "prompt": "generate",
    "pull": "models pull",
    "remove": "models rm",
    "rm": "models rm",
    "search": "models search",
    "server": "serve",
    "settings": "config",
    "show": "models show",
    "uninstall": "models rm",
    "version": "--version",
}
"""First words with akunu's own in their place; those for models also behind `models`."""

_NOTHING_STAYS = (
    "akunu keeps no model in memory between commands; `akunu models list` shows the models on this "
    "machine"
)
_NO_TRAINING = "akunu runs models and does not train them"
_NO_IMPORT = (
    "akunu opens models where they are; to give one a name, type: akunu models alias NAME FILE"
)
_NO_UPDATES = (
    "akunu pull NAME fetches what is new of a model; akunu itself is updated by what installed it, "
    "such as pip, uv or git"
)
_SERVE = "type: akunu serve, which prints the address of its page"

REFUSED: Mapping[str, str] = {
    "add": _NO_IMPORT,
    "api": _SERVE,
    "cp": "akunu copies no models; to give one a second name, type: akunu models alias NEW NAME",
    "create": "akunu has no Modelfiles; `akunu config set chat.system TEXT` sets a system message, "
    "and `akunu models alias NAME MODEL` names a model",
    "import": _NO_IMPORT,
    "install": "akunu installs no plug-ins; install a Python package beside it",
    "keys": "akunu needs no keys; for models on the hub that do, set HF_TOKEN",
    "load": _NOTHING_STAYS,
    "login": "akunu has no accounts; for private models on the hub, set HF_TOKEN",
    "logs": "type: akunu sessions list, for conversations that akunu chat kept",
    "lora": _NO_TRAINING,
    "ps": _NOTHING_STAYS,
    "push": "akunu sends nothing anywhere",
    "quantize": "akunu makes no quantized files; fetch one, as in akunu pull hf:OWNER/REPO:Q4_K_M",
    "start": _SERVE,
    "status": "akunu doctor checks this machine, and a server's state is at /health",
    "stop": _NOTHING_STAYS,
    "templates": "akunu keeps no prompts; a system message: akunu config set chat.system TEXT",
    "train": _NO_TRAINING,
    "ui": _SERVE,
    "unload": _NOTHING_STAYS,
    "update": _NO_UPDATES,
    "upgrade": _NO_UPDATES,
    "web": _SERVE,
}
"""First words of others for what akunu does not do, and what is said of them."""

_LEAVE_OUT_THREADS = "akunu uses all cores; leave {} out"
_LEAVE_OUT_GPU = "MLX computes on the GPU where it has one; leave {} out"

FOREIGN_OPTIONS: Mapping[str, str] = {
    "-c": "type --context N for the size of the context",
    "-cnv": "type: akunu chat",
    "-hf": "give the model as hf:OWNER/REPO:QUANT",
    "-i": "type: akunu chat",
    "-md": "type --draft-model MODEL",
    "-ngl": _LEAVE_OUT_GPU,
    "-o": "options have names of their own here, as in --temperature 0.7",
    "-sys": "type --system TEXT",
    "--ctx-size": "type --context N",
    "--conversation": "type: akunu chat",
    "--draft-max": "type --num-draft-tokens N",
    "--format": "type --json-schema '{{}}' for a reply in JSON, --json for a record of the reply",
    "--gpu-layers": _LEAVE_OUT_GPU,
    "--hf-repo": "give the model as hf:OWNER/REPO:QUANT",
    "--hidethinking": "type --reasoning hide",
    "--ignore-chat-template": "type --raw",
    "--interactive": "type: akunu chat",
    "--keepalive": "akunu keeps no model in memory between commands; leave {} out",
    "--lora-scaled": "type --adapter PATH:SCALE",
    "--max-kv-size": "type --context N",
    "--model-draft": "type --draft-model MODEL",
    "--n-gpu-layers": _LEAVE_OUT_GPU,
    "--no-stream": "a reply is printed as it comes; leave {} out",
    "--nowordwrap": "type: akunu config set plain true",
    "--num-ctx": "type --context N",
    "--option": "options have names of their own here, as in --temperature 0.7",
    "--quantized-kv-start": "akunu quantizes from the first token on: type --kv-bits 8 alone",
    "--think": "type --reasoning show or --reasoning hide",
    "--threads": _LEAVE_OUT_THREADS,
    "--trust-remote-code": "akunu never runs code of a model; leave {} out",
}
"""Options of others that akunu has under another name, or not at all."""

FORM_OPTIONS = ("--json-schema", "--regex", "--grammar", "--choice")

FORMS_ELSEWHERE: Mapping[str, str] = {
    "chat": "type /set in the chat, as in /set json-schema FILE",
    "serve": "the form of a reply belongs to its request, as in "
    "response_format (docs/server-reference.md)",
}
"""Where the form of a reply is given to commands that lack FORM_OPTIONS."""

FOREIGN_VALUES: Mapping[str, str] = {
    "-s": "-s is the seed; for a system message type --system TEXT",
}
"""What is said of a short option that got a value as another program takes it."""

_OWN_OPTIONS = frozenset({"-v", "--verbose", "-q", "--quiet"})
_HELP = frozenset({"-h", "--help", "--version", "--"})
_PROMPT_OPTIONS = frozenset({"-p", "--prompt", "-f", "--file"})


def in_own_words(args: list[str], root: click.Group, context: click.Context) -> list[str]:
    """Return the words behind `akunu` with akunu's own commands in front.

    Raises click.UsageError for a word of another program's that has no equivalent.
    """
    start = next((at for at, word in enumerate(args) if word not in _OWN_OPTIONS), len(args))
    before, rest = args[:start], args[start:]
    if not rest or rest[0] in _HELP:
        return args
    _refuse_foreign_options(rest)
    # `akunu models download` is `akunu download`.
    at = 1 if rest[0] == "models" and len(rest) > 1 else 0
    phrase = PHRASES.get(rest[at], "")
    if phrase and phrase.startswith("models " * at):
        return [*before, *phrase.split(), *rest[at + 1 :]]
    if rest[0] == "help":
        return [*before, *rest[1:], "--help"]
    if rest[at] in REFUSED:
        said = " ".join(rest[: at + 1])
        raise click.UsageError(f"There is no akunu {said}: {REFUSED[rest[at]]}.", context)
    if rest[0] == "run":
        if {"-h", "--help"} & set(rest):
            return [*before, "chat", "--help"]
        return [*before, *_run(rest[1:], root, context)]
    if not rest[0].strip():
        return [*before, "generate", *rest]
    if rest[0].startswith("-") or is_prompt(rest[0]):
        return [*before, *_run(rest, root, context)]
    if rest[0] in root.list_commands(context):
        return args
    if names_model(rest[0]):
        return [*before, *_run(rest, root, context)]
    from akunu_py.model_store.names import near_names  # not for --help

    words = {*root.list_commands(context), *PHRASES, *REFUSED, "run", "help"}
    near = nearest(rest[0], words | {*near_names(rest[0], load_settings())})
    asked = rest[0] if any(word.startswith("-") for word in rest) else " ".join(rest)
    raise click.UsageError(
        f"No such command {rest[0]!r}."
        + (
            near
            or " akunu help lists the commands; for a reply to these words, type: akunu generate "
            + shlex.quote(asked)
        ),
        context,
    )


def _refuse_foreign_options(words: list[str]) -> None:
    """Options of one dash and several letters: click would take `-ngl` for `-n gl`."""
    for word in words:
        if word == "--":
            return
        if len(word) > 2 and not word.startswith("--") and word in FOREIGN_OPTIONS:
            raise click.UsageError(foreign_option(word) or "")


def foreign_option(name: str, command: str | None = None) -> str | None:
    """Return the hint for an option that another program or command has, or None."""
    said: str | None
    if command == "launch":
        said = "options of the agent go after --"
    elif name in FORM_OPTIONS:
        said = FORMS_ELSEWHERE.get(command or "")
    else:
        said = FOREIGN_OPTIONS.get(name.replace("_", "-"))
    return None if said is None else f"There is no {name} here: {said.format(name)}."


def _run(words: list[str], root: click.Group, context: click.Context) -> list[str]:
    """Return the words of `akunu run` with generate or chat in front, as Ollama decides."""
    chat, generate = (root.get_command(context, name) for name in ("chat", "generate"))
    assert chat is not None  # noqa: S101
    assert generate is not None  # noqa: S101
    given = {word.partition("=")[0] for word in words}
    if given & (_spellings(chat) - _spellings(generate)):
        return ["chat", *words]
    has_prompt = given & _PROMPT_OPTIONS or _has_prompt(words, generate, context)
    return ["generate" if has_prompt or not at_terminal() else "chat", *words]


def at_terminal() -> bool:
    """Return whether somebody types; what is piped in is a prompt."""
    return sys.stdin.isatty()


def _spellings(command: click.Command) -> set[str]:
    return {name for parameter in command.params for name in parameter.opts}


def _has_prompt(words: list[str], generate: click.Command, context: click.Context) -> bool:
    parser = generate.make_parser(click.Context(generate, context, "generate"))
    # Whoever gets the words tells what is wrong with them.
    parser.ignore_unknown_options = True
    try:
        values, _, _ = parser.parse_args(list(words))
    except click.UsageError:
        return False
    found = values.get("words")
    # click has a marker of its own where there is none.
    typed = found if isinstance(found, tuple) else ()
    # As Ollama has it, a lone word is the model: one that is not here is not a prompt.
    return split_words(typed, values.get("model_option"), prompted=True)[1] is not None
