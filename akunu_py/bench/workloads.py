"""The prompts that ship with akunu, by category.

`prompts/CATEGORY.jsonl` holds one prompt a line: `id`, `category` and `kind`, with `prompt` for the
kind "raw" and `messages` for the kind "chat". All were written for akunu, so that none of them is
code a model has been trained on word for word.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from akunu_py.errors import ConfigError, ContractError
from akunu_py.types import Message

CATEGORIES = ("completion", "edit", "boilerplate", "config")
"""completion: new code; edit: a change to given code; boilerplate: code that repeats itself with
other names; config: JSON, TOML and YAML. Drafts from what was seen fit the last three better."""

PromptKind = Literal["raw", "chat"]

_ROLES = ("system", "user", "assistant")
_FIELDS = {"id", "category", "kind"}


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt: a text to continue (`kind` "raw") or a conversation to answer ("chat").

    Raises ContractError for an unknown kind or category, an empty text, and a conversation that is
    malformed or does not end with the user.
    """

    id: str
    category: str
    kind: PromptKind
    text: str = ""
    messages: tuple[Message, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not self.id:
            raise ContractError(f"a prompt has the id {self.id!r}; an id is a text")
        if self.category not in CATEGORIES:
            raise ContractError(f"the prompt {self.id} is of no known category: {self.category!r}")
        if self.kind == "raw":
            if not isinstance(self.text, str) or not self.text.strip() or self.messages:
                raise ContractError(f"the raw prompt {self.id} needs a text and no messages")
        elif self.kind == "chat":
            if not self.messages or self.text:
                raise ContractError(f"the chat prompt {self.id} needs messages and no text")
            for message in self.messages:
                self._check(message)
            if self.messages[-1]["role"] != "user":
                raise ContractError(f"the chat prompt {self.id} does not end with the user")
        else:
            raise ContractError(f"the prompt {self.id} is of no known kind: {self.kind!r}")

    def _check(self, message: Message) -> None:
        well_formed = (
            isinstance(message, Mapping)
            and set(message) == {"role", "content"}
            and message["role"] in _ROLES
            and isinstance(message["content"], str)
            and bool(message["content"].strip())
        )
        if not well_formed:
            raise ContractError(
                f"the chat prompt {self.id} has the message {message!r}; a message has a role of "
                f"{', '.join(_ROLES)} and a content"
            )

    @property
    def last_user_text(self) -> str:
        """The text itself, or what the user said last: what a model without a template gets."""
        return self.text if self.kind == "raw" else self.messages[-1]["content"]


def load_prompts(categories: Iterable[str] | None = None) -> tuple[Prompt, ...]:
    """Return the shipped prompts of these categories, or all, in the order of CATEGORIES.

    Raises ConfigError for an unknown category, ContractError for a malformed file.
    """
    # 40 ms that `akunu --help`, which needs CATEGORIES alone, must not pay.
    from importlib.resources import files  # noqa: PLC0415

    wanted = CATEGORIES if categories is None else tuple(categories)
    for category in wanted:
        if category not in CATEGORIES:
            raise ConfigError(
                f"there is no category {category!r}; choose from {', '.join(CATEGORIES)}"
            )
    folder = files("akunu_py.bench") / "prompts"
    prompts: list[Prompt] = []
    for category in CATEGORIES:
        if category in wanted:
            name = f"{category}.jsonl"
            prompts += parse_prompts((folder / name).read_text(encoding="utf-8"), name)
    return tuple(prompts)


def parse_prompts(text: str, name: str) -> list[Prompt]:
    """Read prompts, one JSON object a line; `name` is what errors call the text.

    Raises ContractError naming the line.
    """
    prompts: list[Prompt] = []
    seen: set[str] = set()
    # Not splitlines: JSON allows U+2028 inside a string.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            prompt = _prompt(json.loads(line))
        except (ValueError, RecursionError, ContractError) as error:
            raise ContractError(f"{name}, line {number}: {error}") from None
        if prompt.id in seen:
            raise ContractError(f"{name}, line {number}: the id {prompt.id} occurs twice")
        seen.add(prompt.id)
        prompts.append(prompt)
    return prompts


def _prompt(record: Any) -> Prompt:
    """Make a prompt of a JSON value; a field too many is a mistake too."""
    if not isinstance(record, dict):
        raise ContractError("a prompt is a JSON object")
    kind = record.get("kind")
    if kind not in ("raw", "chat"):
        raise ContractError(f"kind is {kind!r}; it is raw or chat")
    fields = _FIELDS | {"prompt" if kind == "raw" else "messages"}
    if set(record) != fields:
        raise ContractError(
            f"a {kind} prompt has the fields {', '.join(sorted(fields))}, "
            f"this one {', '.join(sorted(record))}"
        )
    text, messages = record.get("prompt", ""), record.get("messages", [])
    if not isinstance(messages, list):
        raise ContractError(f"messages is {messages!r}; it is a list")
    return Prompt(record["id"], record["category"], kind, text, tuple(messages))
