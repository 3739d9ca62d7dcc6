"""A conversation in turns that a chat template accepts.

Clients send what they like: two messages of the user in a row, a note of the system in the middle,
a reply first. Templates refuse some of that, or leave texts out without a word. So small
conversations are tried once on each template, and only what it does not write in full is changed:
neighbours become one message, and a system message becomes text of the user. No text is lost, and
none moves, but for text that calls have beside them, which becomes a message before them. A longer
conversation begins with the shorter one's.

Results of tools are in the order of their calls. Most templates write them without ids, so a model
takes the first for that of the first call.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain, groupby, takewhile

from akunu_py.values.messages import Message, Role, ToolCall

_LABELS: Sequence[Callable[[str, str], object]] = (
    lambda id_, name: (id_, name) if id_ and name else None,
    lambda id_, _: id_,
    lambda _, name: name,
)
"""What a result and its call have in common, the surest first; nothing true where it lacks that."""


def no_result(call: ToolCall) -> Message:
    """Return the stand-in for the result of a call that has none."""
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
    """Yield the messages after calls, with results in the places of results."""
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


_ROLES: dict[str, Role] = {"s": "system", "u": "user", "r": "tool"}


class AcceptedTurns:
    """Turns of conversations for one template.

    Args:
        writes: whether the template writes all words of a conversation; with True as the second
            argument, also in their order, and each once.

    """

    def __init__(self, writes: Callable[[Sequence[Message], bool], bool]) -> None:
        self._tried = cache(lambda pattern: writes(_sample(pattern), pattern not in _ANY_ORDER))

    def of(self, messages: Sequence[Message], *, tools: bool = False) -> list[Message]:
        """Return a conversation as the template accepts it, as far as that is known.

        `tools` says whether there are any: some templates write them into the first question.
        """
        said = self._with_systems(in_order_of_calls(messages))
        said = self._with_calls(said)
        said = list(self._merge_neighbours(said))
        leading = _leading(said)
        lacks_question = said[leading].role != "user" if said[leading:] else tools
        if lacks_question:
            called = tools or any(message.tool_calls for message in said)
            patterns = ("au", "cru") if called else ("au",)
            if not all(self._takes("s" * leading + pattern) for pattern in patterns):
                said.insert(leading, Message("user", ""))
        return said

    def _takes(self, pattern: str) -> bool:
        """Whether the template writes a conversation, which has a letter for each message.

        Where it does not even write the plainest one, nothing is known of it.
        """
        return self._tried(pattern) or not self._tried(_PLAIN)

    def _with_systems(self, messages: Sequence[Message]) -> list[Message]:
        said = _one_beginning(messages)
        if any(message.role == "system" for message in said[1:]) and not (
            self._takes("suaus") and self._takes("suasu")
        ):
            said = as_notes(said)
        # Mistral's templates write it before the last question, so with two of them.
        if said[0].role == "system" and not self._takes("suau" if said[1:] else "s"):
            said[0] = replace(said[0], role="user")
            if said[1:] and said[1].role == "user":
                said[:2] = [join_messages(said[0], said[1])]
        return said

    def _with_calls(self, messages: Sequence[Message]) -> list[Message]:
        """Return a conversation with each call, its text and its result where they are written."""
        said = list(messages)
        if any(message.tool_calls and message.text for message in said) and (
            not self._takes("utrau") and (self._takes("uacrau") or self._takes("uaucrau"))
        ):
            said = [part for message in said for part in _text_apart(message)]
        if any(message.tool_calls[1:] for message in said) and (
            not self._takes("udrr") and self._takes("ucr")
        ):
            said = list(_one_by_one(said))
        if any(map(_is_empty, said)) and not self._takes("ueu"):
            said = [message for message in said if not _is_empty(message)] or said
        return list(self._with_results(said))

    def _with_results(self, messages: Sequence[Message]) -> Iterator[Message]:
        """Yield messages; a result without a call is the user's, a call without one gets one."""
        called = False  # whether a result may follow
        waiting: ToolCall | None = None  # without any result
        for message in messages:
            if message.role == "tool":
                if not called and not self._takes("uarau"):
                    message = Message("user", message.content)  # noqa: PLW2901
            elif message.role == "user" and waiting and not self._takes("ucu"):
                yield no_result(waiting)
            called = bool(message.tool_calls) or (called and message.role == "tool")
            waiting = message.tool_calls[-1] if message.tool_calls else None
            yield message
        if waiting and not self._takes("uc") and self._takes("ucr"):
            yield no_result(waiting)

    def _merge_neighbours(self, messages: Sequence[Message]) -> Iterator[Message]:
        """Yield messages; neighbours that the template does not take apart are one."""
        last: Message | None = None
        for message in messages:
            if last is not None:
                pattern = _NEIGHBOURS.get((_letter(last), _letter(message)))
                if pattern is None or self._takes(pattern):
                    yield last
                elif pattern == "uacrau" and self._takes("uaucrau"):
                    # Mistral's templates leave the text of a call's message out.
                    yield last
                    yield Message("user", "")
                else:
                    message = join_messages(last, message)  # noqa: PLW2901
            last = message
        if last is not None:
            yield last


_NEIGHBOURS = {
    ("u", "u"): "uu",
    ("a", "a"): "uaau",
    ("a", "c"): "uacrau",
    ("c", "c"): "uccrr",
    ("r", "u"): "ucru",
}
"""What to try before two neighbours are one message."""

_PLAIN = "uau"
_ANY_ORDER = ("utrau",)
"""A template may write the text of a call's message where it likes."""


def _letter(message: Message) -> str:
    if message.role == "tool":
        return "r"
    return "c" if message.tool_calls else message.role[0]


def _sample(pattern: str) -> list[Message]:
    """Return a conversation: a letter for each message.

    "s", "u" and "a" are texts of system, user and assistant, "e" is an empty text of the assistant,
    "c" a call, "t" a text with a call, "d" two calls, and "r" the result of a call.
    """
    said: list[Message] = []
    waiting: list[str] = []
    for place, letter in enumerate(pattern):
        word = f"probe_word{place}"
        # Mistral's templates require ids of nine letters and digits.
        ids = [f"probe{place}{number:03}" for number in range({"d": 2}.get(letter, 1))]
        if letter == "r":
            id_ = waiting.pop(0) if waiting else ids[0]
            said.append(Message("tool", word, tool_call_id=id_, name="probe_tool"))
        elif letter in _ROLES:
            said.append(Message(_ROLES[letter], word))
        elif letter in "ae":
            said.append(Message("assistant", word if letter == "a" else ""))
        else:
            calls = tuple(
                ToolCall("probe_tool", {"probe_key": f"probe_call{id_}"}, id_) for id_ in ids
            )
            said.append(Message("assistant", word if letter == "t" else "", calls))
            waiting += ids
    return said


def words_of(messages: Sequence[Message]) -> Iterator[str]:
    """Yield the texts of a sample, those of arguments among them."""
    for message in messages:
        if message.text:
            yield message.text
        for call in message.tool_calls:
            yield from call.arguments.values()


def _leading(messages: Sequence[Message]) -> int:
    """Return the number of system messages at the beginning."""
    return sum(1 for _ in takewhile(lambda message: message.role == "system", messages))


def _one_beginning(messages: Sequence[Message]) -> list[Message]:
    """Return a conversation whose first system messages are one."""
    count = _leading(messages)
    if count < 2:
        return list(messages)
    head = "\n\n".join(message.text for message in messages[:count])
    return [Message("system", head), *messages[count:]]


def with_one_turn_each(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return a conversation in which no two messages of the user or the assistant are neighbours.

    Anthropic's API promises that. Calls that follow a text or other calls are one message with it.
    """
    said: list[Message] = []
    for message in messages:
        if said and message.role == said[-1].role and message.role in {"user", "assistant"}:
            said[-1] = join_messages(said[-1], message)
        else:
            said.append(message)
    return tuple(said)


def as_notes(messages: Sequence[Message]) -> list[Message]:
    """Return a conversation in which later system messages are notes in texts of others.

    A note is at the end of the user's or tool's message before it, which the client always sends
    together with it. So a longer conversation begins with the same text, and rows of a cache serve
    again. After a reply a note is the user's.
    """
    placed: list[Message] = []
    apart = False  # whether the last message is a note by itself
    for place, message in enumerate(messages):
        note = message.role == "system" and place > 0
        if note:
            text = f"<system-reminder>\n{message.text}\n</system-reminder>"
            message = Message("user", text)  # noqa: PLW2901
        joins = ("user", "tool") if note else ("user",) if apart else ()
        if placed and placed[-1].role in joins and message.role == "user":
            placed[-1] = join_messages(placed[-1], message)
        else:
            placed.append(message)
            apart = note
    return placed


def join_messages(one: Message, other: Message) -> Message:
    """Return two neighbours as one message, with a blank line between their texts."""
    return replace(
        one,
        content="\n\n".join(filter(None, (one.text, other.text))),
        tool_calls=one.tool_calls + other.tool_calls,
        reasoning="\n\n".join(filter(None, (one.reasoning, other.reasoning))),
    )


def _is_empty(message: Message) -> bool:
    return message.role == "assistant" and not (
        message.text or message.tool_calls or message.reasoning
    )


def _text_apart(message: Message) -> Iterator[Message]:
    """Yield the text of a message and its calls as two."""
    if message.tool_calls and message.text:
        yield replace(message, tool_calls=())
        yield replace(message, content="", reasoning="")
    else:
        yield message


def _one_by_one(messages: Sequence[Message]) -> Iterator[Message]:
    """Yield each call of a message by itself, with its result; one that has none gets one."""
    place = 0
    while place < len(messages):
        message = messages[place]
        place += 1
        if len(message.tool_calls) < 2:
            yield message
            continue
        results = list(takewhile(lambda message: message.role == "tool", messages[place:]))
        place += len(results)
        found = results_by_call(message.tool_calls, results)
        for call, own in zip(message.tool_calls, found, strict=True):
            yield replace(message, tool_calls=(call,))
            yield from own or [no_result(call)]
            message = Message("assistant")
