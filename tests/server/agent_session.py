"""A coding agent's session over HTTP, in three formats: read a file, search, edit, run the tests.

The files are this project's own. The client carries out whatever calls the model makes, so a model
with random weights has a session, too: in each request it must call a given tool, whose arguments
are a choice of a few, or answer with text.
"""

import itertools
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "akunu_py" / "drafting"
FILES = ["draft_model.py", "memory.py", "ngram.py", "registry.py"]
WORDS = ["def ", "raise ", "limit", "tokens", "self._"]
LINES = [1, 61, 121]
ROUND = ("read_file", "grep", "edit_file", "run_tests", None)
"""What the model does in turn; None is an answer, after which the user asks for more."""

SYSTEM = (
    "You are a coding agent in a Python project. Read before you edit, keep each change small, run "
    "the tests after it, and say in a sentence what you did. "
) * 4
TASKS = (
    "Give the drafters one common way to say how far they look back.",
    "Rename the settings so that their units can be seen.",
    "Some errors do not say what to do. Find them, and write better messages.",
)
BILLING = "x-anthropic-billing-header: cc_version=2.1.36.e3c; cc_entrypoint=cli; cch={:05x};"


def _schema(**choices):
    properties = {name: {"enum": values} for name, values in choices.items()}
    return {
        "type": "object", "properties": properties, "required": list(properties),
        "additionalProperties": False,
    }  # fmt: skip


TOOLS = {
    "read_file": ("Return lines of a file", _schema(path=FILES, first=LINES)),
    "grep": ("Return the lines with a text", _schema(text=WORDS, path=FILES)),
    "edit_file": ("Replace a line", _schema(path=FILES, line=LINES, new=["pass", '"""x"""', ""])),
    "run_tests": ("Run the tests of a file", _schema(path=FILES)),
}


def result_of(name, arguments, size=90):
    """The result of a tool: at most `size` lines."""
    path = arguments["path"]
    lines = (SOURCES / path).read_text(encoding="utf-8").splitlines()
    numbered = [f"{number:5}  {line}" for number, line in enumerate(lines, 1)]
    match name:
        case "read_file":
            shown = numbered[arguments["first"] - 1 :][:size]
        case "grep":
            shown = [line for line in numbered if arguments["text"] in line][: size // 3]
        case "edit_file":
            place = arguments["line"]
            shown = [f"--- {path}", f"+++ {path}", *numbered[place - 1 : place + size // 15]]
            shown.append(f"+ {arguments['new']}")
        case "run_tests":
            names = re.findall(r"def (\w+)", "\n".join(lines))[: size // 3]
            shown = [f"test_{path}::test_{name} PASSED" for name in names]
            shown.append(f"{len(names)} passed")
    return "\n".join(shown)


@dataclass(frozen=True)
class Turn:
    """What a request cost, by the server's own counts, in tokens.

    `cached` and `prefilled` add up to the prompt; `header` has the same two.
    """

    cached: int
    prefilled: int
    reply: int
    header: tuple[int, int]
    thoughts: str

    @property
    def prompt(self):
        return self.cached + self.prefilled


@dataclass
class Conversation:
    """A client's side of a session. `shows_thoughts`: whether it sends thoughts back."""

    post: object
    shows_thoughts: bool = True
    size: int = 90
    options: dict = field(default_factory=dict)
    items: list = field(default_factory=list)

    def turn(self, number):
        """Make a request: a task or the last results are already among the items."""
        tool = ROUND[number % len(ROUND)]
        if number % len(ROUND) == 0:
            self.ask(TASKS[number // len(ROUND) % len(TASKS)])
        response = self.post(self.path, self.body(number, tool) | self.options)
        assert response.status_code == 200, response.text
        body = response.json()
        called, thoughts = self.take(body)
        assert bool(called) == (tool is not None), body
        for name, arguments, id_ in called:
            assert name == tool
            self.answer(id_, result_of(name, arguments, self.size))
        cached, prefilled, reply = self.counts(body["usage"])
        found = re.match(r"reused=(\d+); prefilled=(\d+)", response.headers["x-akunu-cache"])
        return Turn(cached, prefilled, reply, (int(found[1]), int(found[2])), thoughts)


class Chat(Conversation):
    """OpenAI's chat completions."""

    path = "/v1/chat/completions"

    def ask(self, text):
        self.items.append({"role": "user", "content": text})

    def answer(self, id_, text):
        self.items.append({"role": "tool", "tool_call_id": id_, "content": text})

    def body(self, number, tool):
        choice = {"type": "function", "function": {"name": tool}} if tool else "none"
        return {
            "messages": [{"role": "system", "content": SYSTEM}, *self.items],
            "tools": [
                {"type": "function", "function": {"name": n, "description": d, "parameters": s}}
                for n, (d, s) in TOOLS.items()
            ],
            "tool_choice": choice, "max_tokens": 100,
        }  # fmt: skip

    def take(self, body):
        message = body["choices"][0]["message"]
        thoughts = message.get("reasoning_content") or ""
        kept = {"role": "assistant", "content": message["content"]}
        if calls := message.get("tool_calls"):
            kept["tool_calls"] = calls
        if thoughts and self.shows_thoughts:
            kept["reasoning_content"] = thoughts
        self.items.append(kept)
        return [
            (c["function"]["name"], json.loads(c["function"]["arguments"]), c["id"])
            for c in calls or []
        ], thoughts

    def counts(self, usage):
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        return cached, usage["prompt_tokens"] - cached, usage["completion_tokens"]


REMINDER = "<system-reminder>\nRequest {0}. {1}\n</system-reminder>"


@dataclass
class Messages(Conversation):
    """Anthropic's messages, with Claude Code's billing block, which is another in each request.

    `reminders`: how the messages end with a reminder, which is another in each request and never
    comes back: as a "block" of the user's, or as a "message" of the system; "" for none.
    """

    reminders: str = ""

    path = "/v1/messages"

    def ask(self, text):
        self._add("user", {"type": "text", "text": text})

    def answer(self, id_, text):
        self._add("user", {"type": "tool_result", "tool_use_id": id_, "content": text})

    def _add(self, role, *blocks):
        self.items.append({"role": role, "content": list(blocks)})

    def body(self, number, tool):
        billing = BILLING.format(number * 7919)
        return {
            "system": [{"type": "text", "text": billing}, {"type": "text", "text": SYSTEM}],
            "messages": self.reminded(number),
            "tools": [
                {"name": n, "description": d, "input_schema": s} for n, (d, s) in TOOLS.items()
            ],
            "tool_choice": {"type": "tool", "name": tool} if tool else {"type": "none"},
            "max_tokens": 100,
        }

    def reminded(self, number):
        text = REMINDER.format(number, f"Todo {number * 7919}: keep changes small. " * 6)
        block = {"type": "text", "text": text}
        if self.reminders == "block":
            *before, last = self.items
            return [*before, last | {"content": [*last["content"], block]}]
        if self.reminders == "message":
            return [*self.items, {"role": "system", "content": [block]}]
        return self.items

    def take(self, body):
        blocks = body["content"]
        thoughts = "".join(b["thinking"] for b in blocks if b["type"] == "thinking")
        self._add(
            "assistant", *(b for b in blocks if b["type"] != "thinking" or self.shows_thoughts)
        )
        calls = [b for b in blocks if b["type"] == "tool_use"]
        return [(c["name"], c["input"], c["id"]) for c in calls], thoughts

    def counts(self, usage):
        return usage["cache_read_input_tokens"], usage["input_tokens"], usage["output_tokens"]


class Responses(Conversation):
    """OpenAI's responses, as Codex sends them."""

    path = "/v1/responses"

    def ask(self, text):
        content = [{"type": "input_text", "text": text}]
        self.items.append({"type": "message", "role": "user", "content": content})

    def answer(self, id_, text):
        self.items.append({"type": "function_call_output", "call_id": id_, "output": text})

    def body(self, number, tool):
        return {
            "instructions": SYSTEM,
            "input": self.items,
            "tools": [
                {"type": "function", "name": n, "description": d, "parameters": s}
                for n, (d, s) in TOOLS.items()
            ],
            "tool_choice": {"type": "function", "name": tool} if tool else "none",
            "max_output_tokens": 100,
            "include": ["reasoning.encrypted_content"],
            "store": False,
            "prompt_cache_key": "session",
        }

    def take(self, body):
        items = body["output"]
        thoughts = "".join(
            part["text"]
            for item in items
            if item["type"] == "reasoning"
            for part in (item.get("content") or item["summary"])
        )
        self.items += [i for i in items if i["type"] != "reasoning" or self.shows_thoughts]
        calls = [i for i in items if i["type"] == "function_call"]
        return [(c["name"], json.loads(c["arguments"]), c["call_id"]) for c in calls], thoughts

    def counts(self, usage):
        cached = usage["input_tokens_details"]["cached_tokens"]
        return cached, usage["input_tokens"] - cached, usage["output_tokens"]


def beyond_new_text(turns):
    """How many tokens each turn but the first prefilled that were not new, by its number.

    New is what the prompt has more than the prompt before and its reply.
    """
    pairs = itertools.pairwise(turns)
    return {
        number: turn.prefilled - (turn.prompt - before.prompt - before.reply)
        for number, (before, turn) in enumerate(pairs, 1)
    }


FORMATS = {"chat": Chat, "messages": Messages, "responses": Responses}
