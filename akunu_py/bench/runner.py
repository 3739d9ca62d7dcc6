"""Every item answered by every arm, in turns: the one way in which replies are measured.

Arms answer an item immediately after each other, each first and last in turn, so that heat or other
work on the machine slows all alike. What they remember is emptied before each session: a single
prompt finds nothing in it, a turn of a conversation finds the earlier turns.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol, TypeVar

from akunu_py.bench.reply import MeasuredReply
from akunu_py.bench.result_file import Failure
from akunu_py.bench.rows import Count, Row
from akunu_py.bench.workloads import Prompt
from akunu_py.protocols import Tokenizer
from akunu_py.system.errors import AkunuError, ConfigError

T = TypeVar("T")

Progress = Callable[[int, int], None]
"""Called with the number of finished replies and of all replies."""


_ERRORS = (AkunuError, ValueError, RuntimeError)
"""What fails an arm on an item; the last two are libraries' own, as where memory runs out."""


class Item(Row, frozen=True):
    """A prompt in token ids for every arm; items of a session are resampled together.

    `text` is the reply to force, if any: its tokens are chosen at the cost of the model's own.
    Prompts `beside` it are answered, too, by arms that make several replies at once.
    """

    id: str
    category: str
    session: str
    prompt: tuple[Count, ...]
    turn: Count = 0
    text: tuple[Count, ...] | None = None
    beside: tuple[tuple[Count, ...], ...] = ()

    @classmethod
    def encoded(
        cls, prompts: Iterable[Prompt], tokenizer: Tokenizer, context: int, *, room: int = 1
    ) -> "tuple[list[Item], list[Failure]]":
        """Return prompts in ids, and failures of those that the model cannot take.

        A `context` holds so many tokens, `room` of the reply among them.
        """
        items: list[Item] = []
        failures: list[Failure] = []
        for prompt in prompts:
            try:
                ids = prompt.encode(tokenizer, context, room=room)
            # A tokenizer's own library may raise ValueError for a text it cannot encode.
            except (AkunuError, ValueError) as error:
                failures.append(Failure(prompt.id, str(error)))
            else:
                items.append(
                    cls(prompt.id, prompt.category, prompt.session, tuple(ids), prompt.turn)
                )
        return items, failures


class ItemReplies(Row, frozen=True):
    """An item's replies by arm, and the errors of arms without one."""

    item: Item
    replies: dict[str, MeasuredReply]
    errors: dict[str, str]


class Arm(Protocol):
    """One way to decode.

    Attributes:
        name: of the arm.
        plain: name of the program's plain arm, which may be this one.
        steady: whether passes and drafts are the same in every run, independent of a clock.
        version: the program and its version.
        about: weights and settings, for people.

    """

    name: str
    plain: str
    steady: bool
    version: str
    about: str

    def forget(self) -> None:
        """Forget earlier replies, which drafts could copy."""

    def reply(self, item: Item) -> MeasuredReply:
        """Continue a prompt; an error fails this arm on this item alone."""

    def close(self) -> None:
        """Free the memory."""


class FinishedItems(Protocol):
    """Keeps finished items by key, so that an interrupted run can go on."""

    def get(self, key: str, kind: type[T]) -> T | None:
        """Return the kept value of this type; None if there is none."""

    def put(self, key: str, item: object) -> None:
        """Keep an item."""


@dataclass(frozen=True, slots=True)
class Runs:
    """Items in their order; `finished` is False after an interrupt."""

    items: tuple[ItemReplies, ...]
    finished: bool

    @property
    def answered(self) -> tuple[ItemReplies, ...]:
        """The items that some arm answered."""
        return tuple(run for run in self.items if run.replies)

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The errors: one for an item where all arms have the same, otherwise one for each arm."""
        found: list[Failure] = []
        for run in self.items:
            errors = set(run.errors.values())
            if len(errors) == 1 and not run.replies:
                found.append(Failure(run.item.id, errors.pop()))
            else:
                found += (Failure(f"{run.item.id}, {arm}", run.errors[arm]) for arm in run.errors)
        return tuple(found)


def run_arms(
    arms: Sequence[Arm],
    items: Sequence[Item],
    *,
    store: FinishedItems | None = None,
    rounds: int = 1,
    progress: Progress | None = None,
    until: Callable[[], bool] = lambda: False,
) -> Runs:
    """Let each arm answer each item, `rounds` times.

    The first item that is not in the store is answered once beforehand, uncounted: kernels are
    compiled and buffers made at their first use. A `store` has finished items, also from an
    interrupted run; a session is skipped if it has all of it, since a turn needs what was
    remembered of the earlier ones. An item with an error is tried again. `until` is called before
    each item but the first; the run ends early when it returns true. After an interrupt the result
    has the finished items.

    Raises ConfigError if the store cannot be written or has other content, and for an arm that
    lacks what its options ask for.
    """
    tell = progress or (lambda _done, _total: None)
    done: list[ItemReplies] = []
    total = rounds * len(items) * len(arms)
    warm = False
    try:
        for number in range(rounds):
            for _, group in groupby(items, key=lambda item: item.session):
                session = list(group)
                stored = None if store is None else _stored(store, session, number)
                if stored is not None:
                    done += stored
                    continue
                if not warm:
                    _warm_up(arms, session[0])
                    warm = True
                _forget(arms)
                for item in session:
                    if done and until():
                        return Runs(tuple(done), finished=True)
                    before = len(done) * len(arms)
                    tell(before, total)
                    order = rotated(arms, len(done))
                    run = _answer(order, item, tell, before, total)
                    # First, so that an interrupt while it is written finds it in both.
                    done.append(run)
                    if store is not None and not run.errors:
                        store.put(_key(item, number), run)
    except KeyboardInterrupt:
        return Runs(tuple(done), finished=False)
    tell(total, total)
    return Runs(tuple(done), finished=True)


def rotated(arms: Sequence[T], number: int) -> list[T]:
    """Return the arms in the order for item `number`; the first arm and the direction alternate."""
    start = number // 2 % len(arms)
    order = [*arms[start:], *arms[:start]]
    return order[::-1] if number % 2 else order


def _stored(store: FinishedItems, session: Sequence[Item], number: int) -> list[ItemReplies] | None:
    """Return a session that is complete in the store; a file of prompts may have changed since."""
    found = [store.get(_key(item, number), ItemReplies) for item in session]
    same = [run for run, item in zip(found, session, strict=True) if run and run.item == item]
    return same if len(same) == len(session) else None


def _key(item: Item, number: int) -> str:
    return f"{item.id}, round {number + 1}" if number else item.id


def _warm_up(arms: Iterable[Arm], item: Item) -> None:
    """Answer an item, uncounted. An arm that its options forbid is found here."""
    for arm in arms:
        arm.forget()
        try:
            arm.reply(item)
        except ConfigError:
            raise
        except _ERRORS:
            continue


def _forget(arms: Iterable[Arm]) -> None:
    for arm in arms:
        arm.forget()


def _answer(
    arms: Iterable[Arm],
    item: Item,
    tell: Progress = lambda _done, _total: None,
    before: int = 0,
    total: int = 0,
) -> ItemReplies:
    replies: dict[str, MeasuredReply] = {}
    errors: dict[str, str] = {}
    for arm in arms:
        try:
            replies[arm.name] = arm.reply(item)
        except _ERRORS as error:
            errors[arm.name] = str(error)
        tell(before + len(replies) + len(errors), total)
    return ItemReplies(item, replies, errors)
