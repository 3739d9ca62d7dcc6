"""Checks of how prompts are read: system messages, caches, keep-alive, who is served when."""

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor

from akunu_lab.conformance.apis import CHAT, MESSAGES, Api, ApiReply, Turns
from akunu_lab.conformance.client import FailedError, SkippedError
from akunu_lab.conformance.examined import ExaminedServer, words

_BLOCK = 256
"""Tokens that a cache may drop at the end of a prompt; 256 is the largest block of a peer."""

_FIRST_S = 1.0
_LIFE_S = 10.0
_LEAVING = 6
_SLOWER_S = 5.0
"""How much longer a request may take after others have left."""

_TURNS = 6


def system_messages(server: ExaminedServer) -> str:
    """Check that system messages anywhere are neither dropped nor moved to the beginning."""
    asked = False
    for api in (CHAT, MESSAGES):
        if api not in server.apis:
            continue
        asked = True
        start = [("user", "Say hello."), ("assistant", "Hello."), ("user", "Again.")]
        for place, count in ((0, 1), (1, 1), (3, 1), (3, 2), (2, 1)):
            _check_shown(server, api, start, place, count)
    if not asked:
        raise SkippedError(f"the server has no {CHAT.path} and no {MESSAGES.path}")
    if server.caches:
        _check_stays(server)
    return "" if server.caches else "whether they stay in place is not seen without cached tokens"


def _check_shown(server: ExaminedServer, api: Api, said: Turns, place: int, count: int) -> None:
    """See by the size of the prompt that system messages at a place are part of it.

    Long ones are compared with short ones, since some templates write a system message of their own
    where there is none.
    """
    sizes = []
    for length in (4, 44):
        notes = [("system", words(length)) for _ in range(count)]
        sizes.append(_prompt(api, server.ask(api, [*said[:place], *notes, *said[place:]])))
    longer = sizes[1] - sizes[0]
    if longer < 30 * count:
        raise FailedError(
            f"{api.path}: 40 more words in each of {count} system messages before message {place} "
            f"make the prompt {longer} tokens longer"
        )


def _check_stays(server: ExaminedServer) -> None:
    """See by the cache that a later system message does not change what is before it."""
    for api in (CHAT, MESSAGES):
        if api not in server.apis:
            continue
        long = server.word_count(600)
        before: Turns = [("user", words(long)), ("assistant", "Yes."), ("user", "Go on.")]
        size = _prompt(api, server.ask(api, before))
        after = server.ask(api, [*before, ("system", words(20)), ("user", "And?")])
        if (after.cached or 0) < min(size - _BLOCK, size // 2):
            raise FailedError(
                f"{api.path}: after a system message at the end {after.cached} of {size} tokens "
                "were in the cache"
            )


def billing_block(server: ExaminedServer) -> str:
    """Check that Claude Code's block, another one in every request, does not spoil the cache."""
    api = server.require_api(MESSAGES)
    server.require_cache()
    rules = {"type": "text", "text": words(server.word_count(600))}
    replies = []
    for number in ("a1b2c", "d3e4f"):
        bill = {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2; cch={number};"}
        replies.append(server.send(api, server.body(api, "Go on.") | {"system": [bill, rules]}))
    size, cached = _prompt(api, replies[1]), replies[1].cached or 0
    if cached < min(size - _BLOCK, size // 2):
        raise FailedError(f"with another cch {cached} of {size} tokens were in the cache")
    return f"{cached} of {size} tokens in the cache"


def keep_alive(server: ExaminedServer) -> str:
    """Check that a stream begins at once, and that events come while a prompt is read."""
    long = server.word_count(4000) * 4
    longest = 0.0
    for api in server.apis:
        body = {**server.body(api, words(long)), "stream": True}
        last = 0.0
        for place, event in enumerate(server.client.events(api.path, body)):
            if place == 0 and event.seconds > _FIRST_S:
                raise FailedError(f"{api.path}: the first event came after {event.seconds:.1f} s")
            if event.seconds - last > _LIFE_S:
                raise FailedError(f"{api.path}: {event.seconds - last:.0f} s without an event")
            last = event.seconds
        longest = max(longest, last)
    if longest < _FIRST_S:
        raise SkippedError(
            f"a prompt of {long} words was read in {longest:.1f} s: too fast to tell"
        )
    return f"a prompt of {long} words took {longest:.0f} s"


def disconnects(server: ExaminedServer) -> str:
    """Leave while prompts are read and replies are made, and see that others are served."""
    for api in server.apis:
        started = time.perf_counter()
        server.ask(api, "Say hello.", 4)
        usual = time.perf_counter() - started
        for number in range(_LEAVING):
            many = (server.context or 4096) // 2
            body = server.body(api, f"Count from {number} to ten thousand.", many)
            events = server.client.events(api.path, body | {"stream": True})
            # A short queue may be full for a moment.
            with contextlib.suppress(FailedError):
                next(events, None)
            events.close()
            server.client.leave(api.path, server.body(api, words(server.word_count(600)), many))
        started = time.perf_counter()
        server.ask(api, "Say hello.", 4)
        seconds = time.perf_counter() - started
        if seconds > 5 * usual + _SLOWER_S:
            raise FailedError(
                f"{api.path}: after {2 * _LEAVING} clients had left a request took {seconds:.1f} s "
                f"instead of {usual:.1f} s"
            )
    return ""


def same_request_twice(server: ExaminedServer) -> str:
    """Send the same request twice at once; both must be answered."""
    for api in server.apis:
        body = server.body(api, words(server.word_count(400)), 8)
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda _, api=api, body=body: server.stream(api, body), range(2)))
    return "both answered; whether it was computed once is not seen from outside"


def growing_conversation(server: ExaminedServer) -> str:
    """Check that each turn of a conversation reads its new text alone."""
    server.require_cache()
    worst = 0
    for api in server.apis:
        said: list[tuple[str, str]] = [("system", words(server.word_count(300)))]
        if api is MESSAGES:
            said = [("user", said[0][1]), ("assistant", "Yes.")]
        before = 0
        for turn in range(_TURNS):
            said.append(("user", f"Turn {turn}: {words(server.word_count(300) // 3)}"))
            reply = server.ask(api, said, 8)
            size = _prompt(api, reply)
            old = size - (reply.cached or 0) - (size - before)
            if before and old > _BLOCK:
                raise FailedError(f"{api.path}: turn {turn} read {old} old tokens again")
            worst = max(worst, old if before else 0)
            before = size
            said.append(("assistant", reply.text or "Yes."))
    return f"{_TURNS} turns, at most {worst} old tokens read again"


def usage(server: ExaminedServer) -> str:
    """Check that usage is the same in a stream, and tells of cached tokens."""
    told = []
    for api in server.apis:
        body = server.body(api, words(server.word_count(600)), 8)
        whole = server.send(api, body)
        options = {"stream_options": {"include_usage": True}} if api is CHAT else {}
        streamed = server.stream(api, body | options)
        counts = [(one.prompt, one.completion) for one in (whole, streamed)]
        if None in counts[0] or counts[0] != counts[1]:
            raise FailedError(
                f"{api.path}: tokens of prompt and reply are {counts[0]}, streamed {counts[1]}"
            )
        again = server.send(api, body)
        size = _prompt(api, again)
        if (again.cached or 0) < min(size - _BLOCK, size // 2):
            raise FailedError(f"{api.path}: a repeated prompt has {again.cached} cached tokens")
        told.append(f"{again.cached} of {size}")
    return f"cached of a repeated prompt: {', '.join(told)}"


def _prompt(api: Api, reply: ApiReply) -> int:
    if reply.prompt is None:
        raise FailedError(f"{api.path}: usage has no tokens of the prompt")
    return reply.prompt
