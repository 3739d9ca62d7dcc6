"""Ids of calls in a conversation, as a model's format has them.

Clients send back ids of other models, or none. A template may refuse those, or write them in place
of the name of the tool; and a result must have the number that its call has.
"""

import hashlib
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import replace

from akunu_py.tool_calls.format import ToolFormat
from akunu_py.values.messages import Message


def with_ids_of(format_: ToolFormat, messages: Sequence[Message]) -> list[Message]:
    """Return a conversation, with results in the order of their calls, in the ids of a format."""
    if not (format_.id_form or format_.id_length):
        return list(messages)
    said: list[Message] = []
    ids = defaultdict[str, deque[str]](deque)  # of the latest calls, by the ids that they had
    count = 0
    for message in messages:
        if message.tool_calls:
            if not (said and said[-1].tool_calls):
                ids.clear()
            count = 0 if format_.counts_each_message else count
            calls = []
            for number, call in enumerate(message.tool_calls, count):
                calls.append(replace(call, id=_id(format_, call.id, call.name, number)))
                ids[call.id].append(calls[-1].id)
            count += len(calls)
            message = replace(message, tool_calls=tuple(calls))  # noqa: PLW2901
        elif message.role == "tool":
            known = ids.get(message.tool_call_id)
            if known or format_.id_length:
                id_ = known[0] if known else _id(format_, message.tool_call_id, message.name, count)
                message = replace(message, tool_call_id=id_)  # noqa: PLW2901
            if known and len(known) > 1:
                known.popleft()
        said.append(message)
    return said


def _id(format_: ToolFormat, given: str, name: str, number: int) -> str:
    if format_.id_form:
        return format_.id_form.format(name=name, index=number)
    if len(given) == format_.id_length and given.isascii() and given.isalnum():
        return given
    digest = hashlib.sha256((given or f"{number} {name}").encode()).hexdigest()
    return digest[: format_.id_length]
