"""The conformance list: what coding agents rely on, a row each, and its result on a server."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from akunu_lab.conformance import prompts, replies, requests
from akunu_lab.conformance.client import FailedError, SkippedError
from akunu_lab.conformance.examined import ExaminedServer

Check = Callable[[ExaminedServer], str]
"""Returns a remark, or "", if the rule is kept; raises FailedError or SkippedError otherwise."""

State = Literal["passed", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class ConformanceRule:
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


_LIST: tuple[tuple[int, str, Check | str], ...] = (
    (1, "HEAD of /, /api/hello and /v1/models", requests.probes),
    (2, "one list of models for all clients", requests.model_list),
    (3, "all fields of Claude Code, and unknown ones", requests.unknown_fields),
    (4, "system messages anywhere", prompts.system_messages),
    (5, "the billing block does not spoil the cache", prompts.billing_block),
    (6, "keep-alive while a prompt is read", prompts.keep_alive),
    (7, "clients that leave make room", prompts.disconnects),
    (8, "the same request twice at once", prompts.same_request_twice),
    (9, "calls are whole and valid", replies.calls),
    (10, "tool_choice", replies.tool_choice),
    (11, "a reply cut inside of a call", replies.cut_call),
    (12, "results of tools in all forms", requests.tool_results),
    (13, "namespaces of tools", replies.namespaces),
    (14, "custom tools with a grammar", replies.custom_tool),
    (15, "tools and items that are not known", requests.foreign_tools),
    (16, "a prompt longer than the context", requests.overflow),
    (17, "thinking on, off, and echoed", requests.thinking),
    (18, "a growing conversation reads its new text alone", prompts.growing_conversation),
    (19, "usage, streamed or not, and cached tokens", prompts.usage),
    (20, "answers by a JSON schema", replies.answer_schema),
    (21, "a failure inside of a stream", "somebody would have to kill the server"),
    (22, "errors in each API's shape", requests.errors),
    (23, "the same seed, the same text", replies.seeds),
    (24, "the clients themselves", "akunu's own tests run them"),
)
ROWS = tuple(ConformanceRule(*row) for row in _LIST)


def result_of(row: ConformanceRule, server: ExaminedServer) -> Result:
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
