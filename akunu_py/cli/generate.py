"""`akunu generate`: one reply to a prompt."""

import json
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from akunu_py.cli import completing
from akunu_py.cli.command import Command, option, setting
from akunu_py.cli.form_options import form_options
from akunu_py.cli.input_text import (
    MOST_BYTES,
    GivenPath,
    check_model,
    check_text,
    decode_input,
    split_words,
)
from akunu_py.cli.loading_options import (
    LoadingOptions,
    load_engine,
    loading_options,
    model_option,
)
from akunu_py.cli.prompt_file import PromptFile, prompt_file_options
from akunu_py.cli.ranks import is_follower, on_ranks
from akunu_py.cli.reply_options import generation_options, showing_options, value_sources
from akunu_py.cli.reply_view import ReplyView, make_view
from akunu_py.cli.terminal import prompt_progress
from akunu_py.cli.verbosity import hold_log, is_quiet

if TYPE_CHECKING:
    from akunu_py.cli.reply_view import Reasoning
    from akunu_py.engine.admission import ReplyStream
    from akunu_py.engine.engine import Engine
    from akunu_py.values.types import GenerationConfig, GenerationResult


@click.command(cls=Command)
@click.argument("words", nargs=-1, metavar="[MODEL] [PROMPT]", shell_complete=completing.models)
@model_option
@option("-p", "--prompt", help="The prompt; - is standard input.")
@option(
    "-f", "--file", "path", type=GivenPath(path_type=Path, allow_dash=True),
    help="Read the prompt from a file; - is standard input.",
)  # fmt: skip
@option("--system", also=["--system-prompt"], help="A system message for the chat template.")
@option("--raw", is_flag=True, help="Continue the prompt without a chat template.")
@option("--json", "as_json", is_flag=True, help="Print one line of JSON instead of text.")
@prompt_file_options
@setting("trace_category", metavar="NAME", default="generate", help="Of a line in the trace file.")
@generation_options
@form_options
@loading_options("draft_model", "heads", "memory", ranks=True, shipped_head=True)
@showing_options
def generate(  # noqa: PLR0917 - click passes by name
    words: tuple[str, ...],
    model_option: str | None,
    prompt: str | None,
    path: Path | None,
    system: str | None,
    raw: bool,
    as_json: bool,
    prompt_file: PromptFile | None,
    trace_file: Path | None,
    trace_category: str,
    config: "GenerationConfig",
    loading: LoadingOptions,
    plain: bool,
    reasoning: "Reasoning",
) -> None:
    """Answer one prompt and print the reply.

    PROMPT may also be given as --prompt, as --file, or on standard input (-). Piped input follows
    the other prompt after an empty line: UTF-8, 64 MB at most. A first word with spaces in it is
    the PROMPT, unless a file has that name, and so is a lone word that names no model. The reply
    goes to standard output, everything else to standard error. akunu chat holds a conversation.

    \b
    Examples:
      akunu generate "Who are you?"
      akunu generate model.gguf "Who are you?"
      akunu generate model.gguf --raw -p "def fibonacci(n):" --max-tokens 64
      akunu generate --file question.txt --temperature 0.7 --json
      akunu generate "Is a whale a fish?" --choice yes --choice no
      akunu generate model.gguf --prompts questions.jsonl --output answers.jsonl
      git diff | akunu generate model.gguf -p "Write a commit message for this:"
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from_stdin = "-" in (*words, prompt)
    prompt = None if prompt == "-" else prompt
    prompted = (prompt, path, prompt_file) != (None, None, None)
    model, said = split_words(words, model_option, prompted=prompted)
    if said is not None and prompt is not None:
        raise click.UsageError(f"the prompt is given twice, as {said!r} and as --prompt {prompt!r}")
    if prompt_file is not None and (said is not None or from_stdin):
        raise click.UsageError("give either a prompt or --prompts")
    if prompt is not None:
        check_text("--prompt", prompt)
    elif said is not None:
        prompt = check_text("PROMPT", said)
    if prompt is not None and path is not None:
        raise click.UsageError("give either a prompt or --file")
    if system is not None:
        check_text("--system", system)
    if raw and system is not None:
        raise click.UsageError("--system needs the chat template; leave out --raw or --system")
    if model is not None and model_option is None:
        # Before a prompt is asked for, which would not mend a name that is misspelt.
        asked = None if prompted else " ".join(word for word in words if word != "-")
        check_model(model, asked)
    given = value_sources(click.get_current_context())
    text, piped, make_replies = "", "", None
    if prompt_file is not None and not is_follower():
        make_replies = prompt_file.prepare(config, given, raw=raw, system=system)
    elif not is_follower():
        piped = _piped_text(path, from_stdin=from_stdin)
        text = _prompt_text(prompt, path, model, piped)
    with load_engine(model, loading, several=True) as engine:
        engine.compares_rows = as_json
        config = engine.description.recommended.fill(config, given)
        tokenizer = engine.tokenizer
        if piped and not is_quiet() and sys.stderr.isatty():
            click.echo(f"standard input: {len(tokenizer.encode(piped)):,} tokens", err=True)
        if not raw and not tokenizer.has_chat_template:
            raise click.ClickException(
                "this model has no chat template; with --raw it continues the prompt"
            )
        if make_replies is not None:
            make_replies(engine)
            return

        if as_json:
            view: AbstractContextManager[ReplyView | None] = nullcontext()
        else:
            # What continues a prompt is not a text of its own.
            view = make_view(plain=plain or raw, stream=sys.stdout, reasoning=reasoning)
        reply = _reply(engine, text, system, config, raw=raw, view=view)
        assert reply.result is not None  # noqa: S101 - the last event carries the result
        if as_json:
            click.echo(json.dumps(_record(reply.result)))
        if reply.result.finish_reason == "length" and not is_quiet():
            click.echo(_cut(reply.result, engine.context), err=True)
        if reply.result.constraint_met is False and not is_quiet():
            click.echo(_INCOMPLETE, err=True)
        if reply.result.finish_reason == "loop" and not is_quiet():
            click.echo(_LOOP, err=True)
        if trace_file is not None:
            engine.append_trace(trace_file, reply, category=trace_category)


def _cut(result: "GenerationResult", context: int) -> str:
    """Return where a reply was cut, and what lets it go on."""
    if result.num_prompt_tokens + len(result.token_ids) >= context:
        return (
            f"the reply ends here: the context of {context:,} tokens is full; a larger --context "
            "holds more, if the model has one"
        )
    return f"the reply ends here: it has {len(result.token_ids):,} tokens, as --max-tokens says"


_INCOMPLETE = (
    "Warning: the reply ended before it had the form asked for; allow more with --max-tokens, or "
    "leave --stop out."
)
_LOOP = "The reply repeated itself and was ended; akunu config set stop-loops false lets it go on."


def _piped_text(path: Path | None, *, from_stdin: bool) -> str:
    """Return the prompt's part from standard input, "" where nobody asked for it or piped it."""
    from_stdin = from_stdin or str(path) == "-"
    # A terminal is read only when it is asked for, what is piped in always.
    # mlx.launch gives every rank a pipe, which never ends.
    if from_stdin and on_ranks():
        raise click.UsageError(
            "on several ranks standard input has no end; give the prompt in quotes or as --file"
        )
    if not from_stdin and (on_ranks() or sys.stdin.isatty()):
        return ""
    return decode_input(sys.stdin.buffer.read(MOST_BYTES + 1), "standard input")


def _prompt_text(prompt: str | None, path: Path | None, model: str | None, piped: str) -> str:
    """Put the prompt together from its sources."""
    parts = [] if prompt is None else [prompt]
    if path is not None and str(path) != "-":
        parts.append(_read_file(path))
    parts.append(piped)
    text = "\n\n".join(part for part in parts if part)
    if not text.strip():
        raise click.UsageError(
            "there is no prompt; type one in quotes, give --file, or pipe one in"
            if model is None
            # In quotes a second time it would be the model again.
            else f"there is no prompt for the model {model}; give one with --prompt or --file, or "
            "pipe it in"
        )
    return text


def _read_file(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return decode_input(stream.read(MOST_BYTES + 1), str(path))
    except OSError as error:
        raise click.UsageError(f"{path} cannot be read: {error.strerror}") from None


def _reply(
    engine: "Engine",
    text: str,
    system: str | None,
    config: "GenerationConfig",
    *,
    raw: bool,
    view: "AbstractContextManager[ReplyView | None]",
) -> "ReplyStream":
    """Make a reply to its end; its view is fed with its events."""
    with prompt_progress() as progress:
        if raw:
            stream = engine.stream(text, config, progress=progress)
        else:
            messages = [] if system is None else [{"role": "system", "content": system}]
            messages.append({"role": "user", "content": text})
            stream = engine.stream_chat(messages, config, progress=progress)
        with hold_log(), view as shown:
            for event in stream:
                if shown is not None:
                    shown.feed(event)
    return stream


def _record(result: "GenerationResult") -> dict[str, object]:
    return {
        "text": result.text,
        "token_ids": list(result.token_ids),
        "finish_reason": result.finish_reason,
        **({} if result.constraint_met is None else {"constraint_met": result.constraint_met}),
        "prompt_tokens": result.num_prompt_tokens,
        "seed": result.seed,
        "stats": {
            **result.stats.to_dict(),
            "exactness": result.exactness,
            "row_bits": result.row_bits,
            "cached_tokens": result.num_cached_tokens,
            "prefill_s": result.prefill_s,
            "decode_s": result.decode_s,
            "decode_tokens_per_s": result.decode_tokens_per_s,
            "peak_memory_bytes": result.peak_memory_bytes,
        },
    }
