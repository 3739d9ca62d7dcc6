"""Results of tools, each with its call.

Most templates write results without ids, so a model takes the first for that of the first call.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby

from akunu_py.values.messages import Message, ToolCall

_LABELS: Sequence[Callable[[str, str], object]] = (
    lambda id_, name: (id_, name) if id_ and name else None,
    lambda id_, _: id_,
    lambda _, name: name,
)
"""What a result and its call have in common, the surest first; nothing true where it lacks that."""


def no_result(call: ToolCall) -> Message:
    """Return what stands in place of the result of a call that has none."""
    return Message("tool", "(no result)", tool_call_id=call.id, name=call.name)


def results_by_call(calls: Sequence[ToolCall], results: Sequence[Message]) -> list[list[Message]]:
    """Return the results of each call, with its id and name.

    One without the id of a call is of the first call that has none yet, if possible of the tool
    that it names.
    """
    owners: dict[int, int] = {}  # place of the call, by the place of the result
    for label in _LABELS:
        # Further results are those of the last call with their label.
        answered = set(owners.values())
        places = defaultdict[object, deque[int]](deque)
        for place in sorted(range(len(calls)), key=lambda place: place in answered):
            places[label(calls[place].id, calls[place].name)].append(place)
        for number, result in enumerate(results):
            own = label(result.tool_call_id, result.name)
            if own and own in places and number not in owners:
                owners[number] = places[own][0]
                if len(places[own]) > 1:
                    places[own].popleft()
    waiting = iter(sorted(set(range(len(calls))) - set(owners.values())))
    for number in range(len(results)):
        if number not in owners:
            owners[number] = next(waiting, len(calls) - 1)
    found: list[list[Message]] = [[] for _ in calls]
    for number, place in owners.items():
        call, result = calls[place], results[number]
        named = replace(result, tool_call_id=call.id, name=result.name or call.name)
        found[place].append(named)
    return found


def in_order_of_calls(messages: Sequence[Message]) -> list[Message]:
    """Return a conversation in which results are in the order of their calls.

    A call without a result gets one that says so, if a later one has any: that would be read as its
    own.
    """
    said: list[Message] = []
    calls: list[ToolCall] = []
    for _, group in groupby(messages, lambda one: (one.role == "assistant", bool(one.tool_calls))):
        part = list(group)
        if calls and part[0].role != "assistant":
            part = list(_ordered(part, calls))
        calls = list(chain.from_iterable(message.tool_calls for message in part))
        said += part
    return said


def _ordered(messages: Sequence[Message], calls: Sequence[ToolCall]) -> Iterator[Message]:
    """Yield what follows calls, with results in the places of results."""
    results = [one for one in messages if one.role == "tool"]
    groups: list[list[Message]] = []
    missing: list[Message] = []
    for call, own in zip(calls, results_by_call(calls, results), strict=True):
        if not own:
            missing.append(no_result(call))
        for result in own:
            groups.append([*missing, result])
            missing = []
    places = iter(groups)
    for message in messages:
        yield from next(places) if message.role == "tool" else [message]
