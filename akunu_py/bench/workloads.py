"""Prompts for measurements, and the shipped ones by category.

`prompts/CATEGORY.jsonl` holds one record a line: a prompt, or a session of several turns, of which
each becomes a prompt. docs/measuring.md has the format. All were written for akunu, so no
model has been trained on these texts word for word.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from akunu_py.system.errors import ConfigError, ContextOverflowError, ContractError

if TYPE_CHECKING:
    # numpy, which `akunu --help` does without.
    from akunu_py.protocols import Tokenizer

CATEGORIES = ("completion", "edit", "boilerplate", "config", "session", "prose", "novel")
"""completion: new code; edit: a whole file again, with a change; boilerplate: code that repeats
with other names; config: JSON, TOML, YAML and the like; session: edits of one file, turn by
turn; prose: natural language, some about a given text; novel: replies with nothing to copy. Copied
drafts fit edits, boilerplate, configuration and sessions better than the others."""

PromptKind = Literal["raw", "chat"]
Message = Mapping[str, str]
"""{"role": "system" | "user" | "assistant", "content": text}"""

_ROLES = ("system", "user", "assistant")
_NEEDED = {
    "raw": {"id", "category", "kind", "prompt"},
    "chat": {"id", "category", "kind", "messages"},
    "session": {"id", "category", "kind", "turns"},
}
_OPTIONAL = {
    "raw": {"language", "reference"},
    "chat": {"language", "reference"},
    "session": {"language", "system"},
}


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt: a text to continue (`kind` "raw") or a conversation to answer ("chat").

    `language` is the language of its code, as after a code fence, or "". `reference` is an ideal
    reply: the whole file after an edit, without a fence; "" if there is none. Prompts of one
    `session` (by default the id) are turns 0, 1, ... of one conversation: a drafter may use its
    memory of earlier turns, which is emptied between sessions.

    Raises ContractError for an unknown kind, an empty id, category or text, half a surrogate pair,
    which no tokenizer takes, a turn that is not a whole number from 0 on, and a conversation that
    is malformed or does not end with the user.
    """

    id: str
    category: str
    kind: PromptKind
    text: str = ""
    messages: tuple[Message, ...] = ()
    language: str = ""
    reference: str = ""
    session: str = ""
    turn: int = 0

    def __post_init__(self) -> None:
        if not _is_text(self.id):
            raise ContractError(f"a prompt has the id {self.id!r:.60}; give a text")
        if not _is_text(self.category):
            raise ContractError(
                f"the prompt {self.id} has the category {self.category!r:.60}; give a text"
            )
        if self.kind == "raw":
            if not _is_text(self.text) or self.messages:
                raise ContractError(f"the raw prompt {self.id} needs a text and no messages")
        elif self.kind == "chat":
            if not self.messages or self.text:
                raise ContractError(f"the chat prompt {self.id} needs messages and no text")
            for message in self.messages:
                self._check(message)
            if self.messages[-1]["role"] != "user":
                raise ContractError(f"the chat prompt {self.id} does not end with the user")
        else:
            raise ContractError(
                f"the prompt {self.id} has the kind {self.kind!r:.60}; give raw or chat"
            )
        for name in ("language", "reference", "session"):
            value = getattr(self, name)
            if value != "" and not _is_text(value):
                raise ContractError(
                    f"the prompt {self.id} has the {name} {value!r:.60}; give a text"
                )
        if not isinstance(self.turn, int) or isinstance(self.turn, bool) or self.turn < 0:
            raise ContractError(
                f"the prompt {self.id} is turn {self.turn!r:.60}; give a whole number from 0 on"
            )
        if not self.session:
            object.__setattr__(self, "session", self.id)

    def _check(self, message: Message) -> None:
        well_formed = (
            isinstance(message, Mapping)
            and set(message) == {"role", "content"}
            and message["role"] in _ROLES
            and _is_text(message["content"])
        )
        if not well_formed:
            raise ContractError(
                f"the chat prompt {self.id} has the message {message!r:.200}; give a role of "
                f"{', '.join(_ROLES)}, and a content"
            )

    @property
    def last_user_text(self) -> str:
        """The text, or the user's last message: the input of a model without a template."""
        return self.text if self.kind == "raw" else self.messages[-1]["content"]

    def encode(
        self, tokenizer: "Tokenizer", context: int | None = None, *, room: int = 1
    ) -> list[int]:
        """Return the ids, rendered by the chat template if it is a chat and the model has one.

        Raises ConfigError if it has none, and ContextOverflowError, which names the prompt, if a
        `context` of so many tokens does not hold it with `room` tokens of the reply.
        """
        if self.kind == "chat" and tokenizer.has_chat_template:
            ids = tokenizer.encode_chat(self.messages)
        else:
            ids = tokenizer.encode(self.last_user_text)
        if context is not None:
            check_fits(self.id, self.category, len(ids), context, room)
        return ids

    @classmethod
    def load(
        cls, categories: Iterable[str] | None = None, *, limit: int | None = None
    ) -> "tuple[Prompt, ...]":
        """Return the shipped prompts of these categories, or all, in the order of CATEGORIES.

        With `limit` only the first prompts of each category. Raises ConfigError for an unknown
        category, ContractError for a malformed file.
        """
        # This import takes 40 ms, and `akunu --help` needs only CATEGORIES.
        from importlib.resources import files

        wanted = CATEGORIES if categories is None else tuple(categories)
        for category in wanted:
            if category not in CATEGORIES:
                raise ConfigError(
                    f"there is no category named {category!r}; choose from {', '.join(CATEGORIES)}"
                )
        folder = files("akunu_py.bench") / "prompts"
        prompts: list[Prompt] = []
        for category in order_of(wanted):
            name = f"{category}.jsonl"
            found = parse_prompts((folder / name).read_text(encoding="utf-8"), name)
            for prompt in found:
                if prompt.category != category:
                    raise ContractError(
                        f"{name} has {prompt.id}, of the category {prompt.category}"
                    )
            prompts += first_of_each(found, limit)
        return tuple(prompts)


def check_fits(name: str, category: str, size: int, context: int, room: int = 1) -> None:
    """Raise ContextOverflowError or ConfigError for a prompt of this size; see `Prompt.encode`."""
    if size + room > context:
        reply = "the reply" if room == 1 else f"{room} of the reply"
        raise ContextOverflowError(
            f"the prompt {name} has {size} tokens and the context holds {context}, {reply} "
            f"included; load the model with a larger context or leave out the category {category}"
        )
    if not size:
        raise ConfigError(f"the prompt {name} has no tokens for this model's tokenizer")


def order_of(categories: Iterable[str]) -> tuple[str, ...]:
    """Return categories, each once: the shipped ones in their order, then others as found."""
    found = dict.fromkeys(categories)
    shipped = [category for category in CATEGORIES if category in found]
    return (*shipped, *(category for category in found if category not in CATEGORIES))


def first_of_each(prompts: Iterable[Prompt], limit: int | None) -> list[Prompt]:
    """Return the first `limit` prompts of each category, all with None, in the order given."""
    counts: dict[str, int] = {}
    kept: list[Prompt] = []
    for prompt in prompts:
        counts[prompt.category] = counts.get(prompt.category, 0) + 1
        if limit is None or counts[prompt.category] <= limit:
            kept.append(prompt)
    return kept


def parse_prompts(text: str, name: str) -> list[Prompt]:
    """Read prompts, one JSON object a line; errors call the text `name`.

    Raises ContractError, which names the line.
    """
    prompts: list[Prompt] = []
    seen: set[str] = set()
    # Not splitlines: JSON allows U+2028 inside a string.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            found = prompts_of(json.loads(line))
        except (ValueError, RecursionError, ContractError) as error:
            raise ContractError(f"{name}, line {number}: {error}") from None
        for prompt in found:
            if prompt.id in seen:
                raise ContractError(f"{name}, line {number}: the id {prompt.id} occurs twice")
            seen.add(prompt.id)
        prompts += found
    return prompts


def prompts_of(record: Any) -> list[Prompt]:
    """Return the prompt of a JSON object, or the prompts of a session's turns.

    Raises ContractError for any other object; an unknown field is an error, too.
    """
    if not isinstance(record, dict):
        raise ContractError("the line is not a JSON object")
    kind = record.get("kind")
    if not isinstance(kind, str) or kind not in _NEEDED:
        raise ContractError(f"kind is {kind!r:.60}; give raw, chat or session")
    needed, optional = _NEEDED[kind], _OPTIONAL[kind]
    if not needed <= set(record) <= needed | optional:
        raise ContractError(
            f"a {kind} prompt has the fields {', '.join(sorted(needed))}, and may have "
            f"{', '.join(sorted(optional))}; this one has {', '.join(sorted(record))}"
        )
    for name in optional & set(record):
        if not _is_text(record[name]):
            raise ContractError(f"{name} is {record[name]!r:.60}; give a text, or leave it out")
    if kind == "session":
        return _turns(record)
    text, messages = record.get("prompt", ""), record.get("messages", [])
    if not isinstance(messages, list):
        raise ContractError(f"messages is {messages!r:.60}; give a list")
    return [
        Prompt(
            record["id"],
            record["category"],
            "raw" if kind == "raw" else "chat",
            text,
            tuple(messages),
            language=record.get("language", ""),
            reference=record.get("reference", ""),
        )
    ]


def _turns(record: Mapping[str, Any]) -> list[Prompt]:
    """Make a prompt of each turn, after the earlier turns as they are written."""
    turns = record["turns"]
    if not isinstance(turns, list) or not turns:
        raise ContractError(f"turns is {turns!r:.60}; give a list of one turn or more")
    if not _is_text(record["id"]):
        raise ContractError(f"a session has the id {record['id']!r:.60}; give a text")
    said: list[Message] = []
    if "system" in record:
        said.append({"role": "system", "content": record["system"]})
    prompts: list[Prompt] = []
    for number, turn in enumerate(turns):
        if not isinstance(turn, dict) or set(turn) != {"user", "assistant"}:
            raise ContractError(f"turn {number} is {turn!r:.60}; give user and assistant")
        if not _is_text(turn["assistant"]):
            raise ContractError(f"turn {number} has no text of the assistant; give one")
        said.append({"role": "user", "content": turn["user"]})
        prompts.append(
            Prompt(
                f"{record['id']}/{number}",
                record["category"],
                "chat",
                messages=tuple(said),
                language=record.get("language", ""),
                reference=turn["assistant"],
                session=record["id"],
                turn=number,
            )
        )
        said.append({"role": "assistant", "content": turn["assistant"]})
    return prompts


def _is_text(value: object) -> bool:
    """Return whether this is a text that is not blank and can be encoded."""
    if not isinstance(value, str) or not value.strip():
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
