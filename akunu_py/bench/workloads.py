"""Prompts for measurements, and the shipped ones by category.

`prompts/CATEGORY.jsonl` holds one record a line: a prompt, or a session of several turns, of which
each becomes a prompt. docs/measuring.md has the format. All were written for akunu, so no
model has been trained on these texts word for word.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

import msgspec

from akunu_py.bench.rows import Count, Row
from akunu_py.system.errors import ConfigError, ContextOverflowError, ContractError

if TYPE_CHECKING:
    # numpy, which `akunu --help` does without.
    from akunu_py.protocols import Tokenizer

CATEGORIES = ("completion", "edit", "boilerplate", "config", "session", "prose", "novel")
"""completion: new code; edit: a whole file again, with a change; boilerplate: code that repeats
with other names; config: JSON, TOML, YAML and the like; session: edits of one file, turn by
turn; prose: natural language, some about a given text; novel: replies with nothing to copy. Copied
drafts fit edits, boilerplate, configuration and sessions better than the others."""

Text = Annotated[str, msgspec.Meta(pattern=r"\S")]
"""A text that is not blank."""


class Said(TypedDict):
    """What somebody says in a conversation."""

    role: Literal["system", "user", "assistant"]
    content: Text


class Prompt(Row, frozen=True):
    """One prompt: a text to continue (`kind` "raw") or a conversation to answer ("chat").

    `language` is the language of its code, as after a code fence, or "". `reference` is an ideal
    reply: the whole file after an edit, without a fence; "" if there is none. Prompts of one
    `session` (by default the id) are turns 0, 1, ... of one conversation: a drafter may use its
    memory of earlier turns, which is emptied between sessions.

    Raises ConfigError for a raw prompt without a text, and for a conversation that does not end
    with the user.
    """

    id: Text
    category: Text
    kind: Literal["raw", "chat"]
    text: Text = msgspec.field(default="", name="prompt")
    messages: tuple[Said, ...] = ()
    language: str = ""
    reference: str = ""
    session: str = ""
    turn: Count = 0

    def __post_init__(self) -> None:
        if self.kind == "raw" and (self.messages or not self.text):
            raise ConfigError(f"the raw prompt {self.id} needs a text and no messages")
        if self.kind == "chat":
            if self.text or not self.messages:
                raise ConfigError(f"the chat prompt {self.id} needs messages and no text")
            if self.messages[-1]["role"] != "user":
                raise ConfigError(f"the chat prompt {self.id} does not end with the user")
        if not self.session:
            msgspec.structs.force_setattr(self, "session", self.id)

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
        # These imports take 40 ms, and `akunu --help` needs only CATEGORIES.
        from importlib.resources import files

        from akunu_py.bench.prompt_files import parse_prompt_file

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
            found, failures = parse_prompt_file((folder / name).read_bytes(), name)
            for failure in failures:
                raise ContractError(f"{failure.item}: {failure.error}")
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
