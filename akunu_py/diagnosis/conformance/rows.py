"""The conformance list: what coding agents rely on, a row each, and its result on a server."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from akunu_py.diagnosis.conformance import prompts, replies, requests
from akunu_py.diagnosis.conformance.client import FailedError, SkippedError
from akunu_py.diagnosis.conformance.examined import Examined

Check = Callable[[Examined], str]
"""Returns a remark, or "", if the rule is kept; raises FailedError or SkippedError otherwise."""

State = Literal["passed", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the list: its number, the rule, and its check, or why there is none."""

    number: int
    rule: str
    check: Check | str


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a row; `reason` says what broke the rule, or is a remark, or empty."""

    number: int
    rule: str
    state: State
    reason: str

    def to_dict(self) -> Mapping[str, object]:
        """Return the fields as JSON-ready values."""
        return asdict(self)


ROWS = (
    Row(1, "HEAD of /, /api/hello and /v1/models", requests.probes),
    Row(2, "one list of models for all clients", requests.model_list),
    Row(3, "all fields of Claude Code, and unknown ones", requests.unknown_fields),
    Row(4, "system messages anywhere", prompts.system_messages),
    Row(5, "the billing block does not spoil the cache", prompts.billing_block),
    Row(6, "signs of life while a prompt is read", prompts.signs_of_life),
    Row(7, "clients that leave make room", prompts.disconnects),
    Row(8, "the same request twice at once", prompts.same_request_twice),
    Row(9, "calls are whole and valid", replies.calls),
    Row(10, "tool_choice", replies.tool_choice),
    Row(11, "a reply cut inside of a call", replies.cut_call),
    Row(12, "results of tools in all forms", requests.tool_results),
    Row(13, "namespaces of tools", replies.namespaces),
    Row(14, "custom tools with a grammar", replies.custom_tool),
    Row(15, "tools and items that are not known", requests.foreign_tools),
    Row(16, "a prompt longer than the context", requests.overflow),
    Row(17, "thinking on, off, and echoed", requests.thinking),
    Row(18, "a growing conversation reads its new text alone", prompts.growing_conversation),
    Row(19, "usage, streamed or not, and cached tokens", prompts.usage),
    Row(20, "answers by a JSON schema", replies.answer_schema),
    Row(21, "a failure inside of a stream", "somebody would have to kill the server"),
    Row(22, "errors in each API's shape", requests.errors),
    Row(23, "the same seed, the same text", replies.seeds),
    Row(24, "the clients themselves", "akunu's own tests run them"),
)


def result_of(row: Row, server: Examined) -> Result:
    """Check a row on a server."""
    if isinstance(row.check, str):
        return Result(row.number, row.rule, "skipped", row.check)
    try:
        remark = row.check(server)
    except FailedError as error:
        return Result(row.number, row.rule, "failed", error.message)
    except SkippedError as error:
        return Result(row.number, row.rule, "skipped", error.message)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        said = f"a field is missing or of another type: {type(error).__name__} {error}"
        return Result(row.number, row.rule, "failed", said)
    return Result(row.number, row.rule, "passed", remark)
