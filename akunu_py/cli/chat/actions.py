"""What the commands of a chat do."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from akunu_py.cli.chat.attachments import (
    Attachment,
    mentions,
    question_of,
    read_attachment,
    unquote,
    with_attachments,
)
from akunu_py.cli.chat.commands import ChatCommand, help_text
from akunu_py.cli.chat.model_change import Load, change_model, local_models
from akunu_py.cli.chat.recalled import show_turn
from akunu_py.cli.chat.session_file import ChatSession, export_markdown, load_session, save_session
from akunu_py.cli.chat.session_store import KeptSession, StoredSession, describe_session
from akunu_py.cli.chat.set_values import (
    changed_fields,
    explain,
    field_named,
    overview,
    settable,
    shown,
    with_field,
)
from akunu_py.cli.chat.tables import statistics_rows, tables
from akunu_py.cli.reply_view import Reasoning
from akunu_py.cli.terminal import statistics_line
from akunu_py.engine.conversation import Conversation, Question
from akunu_py.system.errors import ConfigError
from akunu_py.values.generation_config import GenerationConfig
from akunu_py.values.recommended import Recommended

if TYPE_CHECKING:
    from akunu_py.values.types import GenerationResult

_SHOWN_TURN = 60
"""Characters of a message that a note quotes."""

_RECALLED = 2
"""Turns that are shown of a conversation that goes on."""

_LISTED = 20
"""Sessions that `/sessions` lists; `akunu sessions list` lists all."""

_WAYS: tuple[Reasoning, ...] = get_args(Reasoning)
_REASONING = f"reasoning before an answer: {', '.join(_WAYS)}"


@dataclass(frozen=True, slots=True)
class Tools:
    """What actions use of the world."""

    note: Callable[[str], None]
    """Shows a text that is not a reply."""
    load: Load
    """Opens the model with this name; None is the model that ships with akunu."""
    edit: Callable[[str], str | None] | None
    """Lets the user edit a text; None for nothing saved. Without a terminal there is none."""
    width: Callable[[], int | None] = lambda: None
    """Columns that notes may take; None where they go to no terminal."""
    kept: KeptSession | None = None
    """Where the conversation is kept by itself; None where it is not."""
    choose: Callable[[str, Sequence[tuple[str, str]]], str | None] | None = None
    """Lets the user choose one of values with their texts; None for none of them."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """The source of each setting that is not at its default, by name."""


class Actions:
    """Carries out commands on a conversation."""

    def __init__(self, conversation: Conversation, tools: Tools) -> None:
        self._conversation = conversation
        self._tools = tools
        self._note = tools.note
        self._kept = tools.kept
        self.leaving = False  # whether /exit was given
        self.show_drafts = False
        self.reasoning: Reasoning = "show"
        self.plain = False
        self._sources = dict(tools.sources)
        self.attachments: list[Attachment] = []
        self.last_result: GenerationResult | None = None
        self._drafter = conversation.config.drafter
        self._path: Path | None = None
        self._recommended = Recommended()
        self._follow_model()

    def run(self, command: ChatCommand, argument: str) -> Question | None:
        """Carry a command out; return what it wants to be sent.

        Raises ConfigError and the errors of loading a model, with nothing changed.
        """
        action: Callable[[str], Question | None] = getattr(self, f"_{command.name}")
        return action(argument)

    def attach(self, path: Path, to: str = "the next message") -> None:
        """Add a file to the next message, and say how many tokens it brings."""
        added = read_attachment(path)
        self.attachments = [one for one in self.attachments if one.path != added.path] + [added]
        tokens = len(self._conversation.engine.tokenizer.encode(added.text))
        size = f"{tokens:,} token{'' if tokens == 1 else 's'}"
        self._note(f"{added.name}, {size}, goes with {to}")

    def compose(self, message: str, *, as_is: bool = False) -> Question:
        """Return a message with the attached files, which the next message will not have.

        Files that it names with an @ are among them, unless it is to be taken `as_is`.
        """
        for name, path in () if as_is else mentions(message):
            if path is None:
                self._note(f"@{name} is sent as text: there is no such file")
            else:
                self.attach(path, "this message")
        question = Question(with_attachments(message, self.attachments))
        self.attachments.clear()
        return question

    def go_on(self, session: ChatSession, path: Path) -> None:
        """Take up a conversation that was saved in `path`, a file or one of the kept sessions."""
        conversation = self._conversation
        conversation.replace(session.turns, session.system)
        self._path = path
        if self._kept is not None:
            self._kept.begin(session=self._session())
        own = conversation.engine.description.name
        other = f"; {session.model} answered then, {own} does now" * (session.model != own)
        self._note(f"turns: {len(session.turns)}{other}")
        # A script that goes on with a conversation needs no reminder.
        watched = self._tools.width() is not None and sys.stdout.isatty()
        for turn in session.turns[-_RECALLED:] if watched else ():
            click.echo()
            show_turn(turn, plain=self.plain)

    def continue_kept(self, stored: StoredSession, session: ChatSession) -> None:
        """Take up a session that was kept by itself; from here on it is kept there."""
        path = self._path
        self.go_on(session, stored.path)
        self._path = path
        if self._kept is not None:
            self._kept.begin(stored.path, self._session())

    def keep(self) -> None:
        """Keep the conversation as it is now, where that is wanted; once it fails no more."""
        if self._kept is None:
            return
        try:
            self._kept.keep(self._session())
        except ConfigError as error:
            self._kept = None
            self._note(f"conversations are not kept from here on: {error}")

    def _help(self, word: str) -> None:
        if word not in ("", "all"):
            raise ConfigError(f"give /help or /help all, not {word!r}")
        click.echo(help_text(self._tools.width(), everything=word == "all"))

    def _exit(self, _: str) -> None:
        self.leaving = True

    def _system(self, text: str) -> None:
        conversation = self._conversation
        if text:
            conversation.system = None if text == '""' else text
            self._note("the next reply will follow it" if conversation.system else "removed")
        else:
            self._note(conversation.system or "there is no system message")

    def _set(self, argument: str) -> None:
        config = self._conversation.config
        # Ollama's `/set parameter NAME VALUE` is meant as well.
        name, _, value = argument.removeprefix("parameter ").strip().partition(" ")
        if not name:
            display = [("reasoning", self.reasoning, _REASONING)]
            values = {name: self._effective(config, name) for name in settable()}
            self._note(overview(values, display, self._tools.width(), self._sources))
            return
        if name == "reasoning":
            if value.strip():
                self._set_reasoning(value.strip())
            else:
                self._note(f"reasoning {self.reasoning}: {_REASONING}")
            return
        if not value.strip():
            named = field_named(name)
            source = self._sources.get(named, "")
            self._note(explain(self._effective(config, named), name, source))
            return
        changed = with_field(config, name, value.strip())
        self._check_sources(changed)
        self._conversation.config = changed
        named = field_named(name)
        self._set_source(named, value.strip(), "/set")
        self._follow_model()
        self._note(f"{named} {self._effective(self._conversation.config, named)}")

    def _follow_model(self) -> None:
        """Sample as the makers of the model recommend, where nobody chose otherwise."""
        config, before = self._conversation.config, self._recommended
        for name in before.values:
            if self._sources.get(name) == before.origin:
                config = with_field(config, name, "default")
                del self._sources[name]
        found = self._recommended = self._conversation.engine.description.recommended
        self._conversation.config = config = found.fill(config, self._sources)
        for name, value in found.values.items():
            if name not in self._sources and getattr(config, name) == value:
                self._sources[name] = found.origin

    def _set_source(self, name: str, value: str, source: str) -> None:
        """Remember what a setting comes from now; "default" is its default."""
        self._sources.pop(name, None)
        if value != "default":
            self._sources[name] = source

    def _effective(self, config: GenerationConfig, field: str) -> str:
        """Return the value of a configuration's field in the next reply, as text."""
        if field in ("drafter", "num_draft_tokens") and getattr(config, field) is None:
            choice = self._conversation.engine.drafter_of(config)
            return choice.name if field == "drafter" else str(choice.num_draft_tokens)
        return shown(config, field)

    def _set_reasoning(self, word: str) -> None:
        found = next((way for way in _WAYS if word in (way, "default")), None)
        if found is None:
            raise ConfigError(f"reasoning is {word!r}; give one of {', '.join(_WAYS)}")
        self.reasoning = found
        self._set_source("reasoning", word, "/set")
        self._note(f"reasoning {found}")

    def _show(self, _: str) -> None:
        conversation = self._conversation
        engine = conversation.engine
        turns, forgotten = len(conversation.turns), conversation.forgotten
        # What a template adds behind a reply that filled the context is not part of it.
        used = min(conversation.num_tokens(), engine.context)
        lines = [
            f"model    {engine.description.name}",
            f"path     {engine.description.path}",
            f"weights  {engine.description.weights_text}",
            f"context  {used:,} of {engine.context:,} tokens",
            f"turns    {turns}{f', the oldest {forgotten} dropped' * bool(forgotten)}",
            f"system   {conversation.system or 'none'}",
        ]
        lines += [f"file     {attachment.name}" for attachment in self.attachments]
        changed = changed_fields(conversation.config)
        if self.reasoning != "show":
            changed["reasoning"] = self.reasoning
        lines += [f"{name} {value}" for name, value in changed.items()]
        self._note("\n".join(lines))

    def _stats(self, _: str) -> None:
        conversation = self._conversation
        replies = conversation.replies
        if self.last_result is not None:
            self._note(f"last reply: {statistics_line(self.last_result)}")
        self._note(f"this run: {replies} {'reply' if replies == 1 else 'replies'}")
        if replies:
            self._note(tables({"": statistics_rows(conversation.stats)}, self._tools.width()))
        if conversation.config.exactness == "none":
            self._note("not exact: the rule that accepts drafts changes how likely replies are")

    def _retry(self, _: str) -> Question:
        conversation = self._conversation
        question = conversation.last_question()
        config = conversation.config
        same = config.temperature == 0 or config.seed is not None
        if question.instead and same and not conversation.interrupted:
            why = "temperature 0" if config.temperature == 0 else "a fixed seed"
            self._note(f"at {why} the reply will be the same; see /set")
        return question

    def _undo(self, _: str) -> None:
        self._note(f"taken back: {_short(self._conversation.undo().user)}")

    def _edit(self, _: str) -> Question | None:
        if self._tools.edit is None:
            raise ConfigError("/edit needs a terminal")
        conversation = self._conversation
        said = conversation.turns or conversation.unanswered is not None
        question = conversation.last_question() if said else Question("")
        text = self._tools.edit(question.text)
        if text is None or not text.strip():
            self._note("nothing was saved, so nothing is sent")
            return None
        self._note(f"sent: {_short(text)}")
        return Question(text.rstrip("\n"), question.instead)

    def _file(self, name: str) -> None:
        if name:
            self.attach(_path(name))
        else:
            names = ", ".join(attachment.name for attachment in self.attachments)
            self._note(names or "no files go with the next message")

    def _save(self, name: str) -> None:
        path = _path(name) if name else self._path
        if path is None:
            raise ConfigError("give /save FILE; later /save alone will do")
        save_session(path, self._session())
        self._path = path
        self._note(f"saved in {path}")

    def _load(self, name: str) -> None:
        path = _path(name)
        self.go_on(load_session(path), path)

    def _sessions(self, words: str) -> None:
        kept = self._kept
        if kept is None:
            raise ConfigError(
                "conversations are not kept here; they are at a terminal, without --no-keep"
            )
        stored = kept.store.named(words) if words else None
        if stored is not None:
            self.continue_kept(stored, stored.load())
            return
        if words:
            found = [(one.name, "", text) for one, text in kept.store.search(words)]
        else:
            found = [(one.name, *describe_session(one)) for one in kept.store.sessions()]
        if not found:
            self._note(f"no conversation has {words!r}" if words else "no conversation is kept yet")
            return
        self._note(tables({"": found[:_LISTED]}, self._tools.width()))
        self._note("/sessions NAME continues one; `akunu sessions` shows and deletes them")

    def _export(self, name: str) -> None:
        path = _path(name)
        config = self._conversation.config
        settings = {"temperature": shown(config, "temperature"), **changed_fields(config)}
        export_markdown(path, self._session(), settings)
        self._note(f"written to {path}")

    def _model(self, name: str) -> None:
        conversation = self._conversation
        if not name:
            options = local_models(Path(conversation.engine.description.path))
            if self._tools.choose is None:
                self._note("\n".join(text for _, text in options))
                self._note("/model NAME switches to another")
                return
            name = self._tools.choose("Which model shall answer?", options) or ""
            if not name or name == options[0][0]:
                self._note("the model stays as it is")
                return
        name = name if os.path.lexists(name) else unquote(name)
        change_model(
            conversation, self._tools.load, None if name == "default" else name, self._note
        )
        self._follow_model()
        self._note(f"{conversation.engine.description.name}, context {conversation.engine.context}")

    def _draft(self, word: str) -> None:
        conversation = self._conversation
        config = conversation.config
        if word not in ("", "show"):
            self._set_source("drafter", "default" if word == "on" else word, "/draft")
        if word == "show":
            self.show_drafts = not self.show_drafts
            tints = "drafted words are coloured by their source; /draft show again turns this off"
            self._note(tints if self.show_drafts else "drafted words are no longer coloured")
            return
        if word == "off":
            if config.drafter != "none":
                self._drafter = config.drafter
            conversation.config = with_field(config, "drafter", "none")
        elif word:
            before = self._drafter if self._drafter not in (None, "none") else "default"
            name = (before or "default") if word == "on" else word
            changed = with_field(config, "drafter", name)
            self._check_sources(changed)
            conversation.config = changed
        self._note(self._drafter_text())

    def _drafter_text(self) -> str:
        config = self._conversation.config
        if config.drafter == "none":
            return "nothing is drafted"
        name = self._conversation.engine.drafter_of(config).name
        return f"drafter {name}{', the default' * (config.drafter is None)}"

    def _check_sources(self, config: GenerationConfig) -> None:
        """Raise ConfigError for a drafter without what it drafts from."""
        from akunu_py.drafting.registry import DrafterKind  # numpy, for --help

        name, engine = config.drafter, self._conversation.engine
        needs = "text" if name is None else DrafterKind.named(name).needs
        if needs == "draft model" and engine.draft_model is None:
            raise ConfigError(f"{name} needs a draft model; begin with --draft-model MODEL")
        if needs == "prediction head" and not engine.has_head:
            raise ConfigError(
                f"{name} needs a prediction head; begin with --heads own, or --heads PATH"
            )

    def _clear(self, _: str) -> None:
        self.attachments.clear()
        click.clear()
        if self._conversation.turns:
            self._note("the conversation goes on; /reset forgets it")

    def _new(self, _: str) -> None:
        if self._kept is not None:
            self._kept.begin()
        self._conversation.reset()
        self.attachments.clear()
        self._note("another conversation begins")

    def _reset(self, _: str) -> None:
        self._conversation.reset()
        self.attachments.clear()
        self._note("the conversation is forgotten")

    def _session(self) -> ChatSession:
        conversation = self._conversation
        model = conversation.engine.description
        return ChatSession(model.name, conversation.system, conversation.turns, str(model.path))


def _path(name: str) -> Path:
    """Return the path a user wrote: ~, quotes and a shell's backslashes resolved.

    A terminal writes the name of a file that is dropped on it as a shell wants it.
    """
    try:
        path = Path(name).expanduser()
        if os.path.lexists(path):
            return path
        return Path(unquote(name)).expanduser()
    except RuntimeError:
        raise ConfigError(f"the home folder of {name} is not known") from None


def _short(text: str) -> str:
    """Return the beginning of a message on one line, without the files that go before it."""
    text = " ".join(question_of(text).split())
    return text if len(text) <= _SHOWN_TURN else text[: _SHOWN_TURN - 3] + "..."
