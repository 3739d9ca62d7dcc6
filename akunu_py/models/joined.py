"""One pass over the rows of several sessions, each with its own caches; see `passes`."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import mlx.core as mx
from mlx import nn

from akunu_py.decoding.shared_passes import Offer
from akunu_py.models.cached_rows import CachedRows
from akunu_py.models.passes.forward import forward_of
from akunu_py.models.passes.plan import PassPlan, PassRows
from akunu_py.models.passes.trials import Pair, refusal, varied
from akunu_py.models.session import Choosing, Session
from akunu_py.values.types import Draft

_log = logging.getLogger(__name__)

_TRIED = ((3, 1, 1), (5, 3, 2))
"""Rows that the two sessions of a try feed, pass by pass."""


class JoinedForward:
    """Passes of one model over the rows of several sessions, if they give what passes alone give.

    That is tried once, on throwaway caches. A model that asks its cache for what only one session
    has, such as a position to compute with, raises there, before any cache has moved.
    """

    def __init__(self, model: nn.Module) -> None:
        self._forward = forward_of(model)
        # Why passes are not joined, empty where they are; None before the try.
        self._refusal: str | None = None

    def refusal(self, session: Session) -> str:
        """Return why passes of this model are not joined; an empty text if they can be.

        The first call tries it, on empty caches of the session's kind.
        """
        if self._refusal is None:
            with mx.stream(session.stream):
                self._refusal = refusal(
                    lambda: self._pairs(session.rows.empty, session.vocabulary_size),
                    "logits of joined passes differ",
                )
            if self._refusal:
                _log.info("replies take turns: %s", self._refusal)
        return self._refusal

    def __call__(self, parts: Sequence[PassRows]) -> list[mx.array]:
        """Return the logits [1, n, vocabulary] of each session's rows [n], not yet evaluated.

        After an error the caches of all are unknown.
        """
        return self._forward(PassPlan(parts))

    def _pairs(self, new_rows: Callable[[], CachedRows], size: int) -> list[Pair]:
        """Feed two sessions of different lengths, joined and alone."""
        together, alone = ([new_rows() for _ in _TRIED] for _ in range(2))
        pairs: list[Pair] = []
        for number, counts in enumerate(zip(*_TRIED, strict=True)):
            rows = [
                mx.array(varied(n, size, 17 * number + 5 * place)) for place, n in enumerate(counts)
            ]
            texts = zip(rows, together, strict=True)
            found = self([PassRows(own, session.caches) for own, session in texts])
            expected = [session.feed(own) for session, own in zip(alone, rows, strict=True)]
            pairs += zip(found, expected, strict=True)
        return pairs


@dataclass(slots=True)
class WantedChoice:
    """What a session is asked to choose: the arguments of `Session.choose`."""

    session: Session
    last: int
    draft: Draft
    offer: Offer | None = None
    """What the draft promises, if it may be cut before the work begins."""
    work: Choosing | None = field(default=None, init=False)
    """The session's work on it, once it has begun."""
    rows: PassRows | None = field(default=None, init=False)
    """The rows that the work waits for."""


Forward = Callable[..., list[mx.array]]
"""A `JoinedForward`, or what calls one."""

Choices = list[int] | BaseException | None
"""What a session chooses, or its own error; None if the choice comes with the next pass."""


def choose_together(forward: Forward | None, wanted: Sequence[WantedChoice]) -> list[Choices]:
    """Return what each session chooses, with their rows in one pass.

    The sessions are of one model. One that wants a further pass, to have a step in flight again
    behind a draft, gets it with the next call's: rows of their own would read all weights again.
    Without `forward`, as for one session, each has all its passes now. The host waits for a choice
    only when those of all sessions are queued.

    Raises the error of a joined pass, after which the rows of all these sessions are unknown.
    """
    found: list[Choices] = [None] * len(wanted)
    waiting: list[int] = []

    def go_on(sent: Mapping[int, mx.array | None]) -> None:
        for place, logits in sent.items():
            one = wanted[place]
            one.work = one.work or one.session.choosing(one.last, one.draft)
            try:
                one.rows = one.work.send(logits)
            except StopIteration as end:
                found[place] = end.value
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # noqa: BLE001 - of whatever kind, it is its own
                found[place] = error
            else:
                if one.rows is None:
                    waiting.append(place)

    with mx.stream(wanted[0].session.stream):
        go_on({place: None for place, one in enumerate(wanted) if one.rows is None})
        while feeding := {n: one.rows for n, one in enumerate(wanted) if one.rows is not None}:
            for place in feeding:
                wanted[place].rows = None
            go_on(_feed(forward, wanted, feeding))
            if forward is not None:
                break
        go_on(dict.fromkeys(waiting))
    return found


def _feed(
    forward: Forward | None, wanted: Sequence[WantedChoice], feeding: Mapping[int, PassRows]
) -> dict[int, mx.array]:
    """Run one pass over the rows of sessions, by their places; return the logits of each."""
    sessions = [wanted[place].session for place in feeding]
    if len(sessions) < 2 or forward is None:
        return {place: wanted[place].session.feed(rows) for place, rows in feeding.items()}
    ends = (0, *accumulate(rows.tokens.size for rows in feeding.values()))
    with ExitStack() as stack:
        for session, (start, end) in zip(sessions, pairwise(ends), strict=True):
            session.largest_pass = max(session.largest_pass, ends[-1])
            stack.enter_context(session.building(slice(start, end)))
        logits = forward(list(feeding.values()))
    return dict(zip(feeding, logits, strict=True))
