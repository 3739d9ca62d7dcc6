"""Other programs, each in its own process, apart from the others' BLAS and threads."""

import multiprocessing
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

from akunu_lab.compare.arm import ComparedModel, Program, Skipped, UnavailableError
from akunu_py.api import AkunuError, Arm, Item, MeasuredReply


class PeerError(AkunuError):
    """The failure of a program in another process, with its message."""


@dataclass(slots=True)
class PeerArm:
    """An arm in another process; all fields but `peer` are copies of the arm's own."""

    name: str
    plain: str
    steady: bool
    version: str
    about: str
    peer: "Peer | None" = None

    def forget(self) -> None:
        """Need nothing: no other program remembers more than a reply."""

    def reply(self, item: Item) -> MeasuredReply:
        """Continue a prompt in that process; raises PeerError."""
        assert self.peer is not None  # noqa: S101 - `Peer` sets it
        reply: MeasuredReply = self.peer.ask((self.name, item))
        return reply

    def close(self) -> None:
        """End the process, and so the program's other arms."""
        assert self.peer is not None  # noqa: S101
        self.peer.close()


class Peer:
    """A program in a new process.

    Attributes:
        arms: its arms.
        skipped: arms that it could not make, with the reasons.

    """

    def __init__(self, program: Program, subject: ComparedModel) -> None:
        # A fork would share this process's libraries.
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, program, subject), daemon=True)
        self.arms: tuple[PeerArm, ...] = ()
        self.skipped: tuple[Skipped, ...] = ()
        try:
            self._process.start()
            theirs.close()
            arms, self.skipped = self._answer()
            self.arms = tuple(replace(arm, peer=self) for arm in arms)
        except PeerError as error:
            self.skipped = tuple(Skipped(name, str(error)) for name in program.arms)
        finally:
            if not self.arms:
                self.close()

    def ask(self, request: object) -> Any:
        """Return the answer to a request; raises PeerError with the message of an error there."""
        try:
            self._connection.send(request)
        except OSError as error:
            raise PeerError("its process has ended") from error
        return self._answer()

    def _answer(self) -> Any:
        try:
            good, answer = self._connection.recv()
        except (EOFError, OSError) as error:
            self._process.join(1)
            raise PeerError(f"its process ended with exit code {self._process.exitcode}") from error
        if not good:
            raise PeerError(answer)
        return answer

    def close(self) -> None:
        """End the process at once."""
        if self._process.pid is not None:
            self._process.kill()
            self._process.join()
        self._connection.close()


def start_peers(
    programs: Sequence[Program], subject: ComparedModel
) -> tuple[tuple[Arm, ...], tuple[Skipped, ...]]:
    """Start all programs, each in its process; return their arms, and the missing ones."""
    arms: list[Arm] = []
    skipped: list[Skipped] = []
    try:
        for program in programs:
            peer = Peer(program, subject)
            arms += peer.arms
            skipped += peer.skipped
    except BaseException:
        # An interrupt came while a program starts.
        for arm in arms:
            arm.close()
        raise
    return tuple(arms), tuple(skipped)


def _serve(connection: Connection, program: Program, subject: ComparedModel) -> None:
    """Make the program's arms, then serve requests until the first process ends.

    Sends pairs: whether the request succeeded, and the answer or the error.
    """
    # Ctrl-C reaches all processes of a terminal; the first process decides what to do.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        made = program.make(subject)
    except UnavailableError as error:
        connection.send((False, str(error)))
        return
    except Exception as error:  # noqa: BLE001 - whatever another program raises
        connection.send((False, f"could not be set up: {type(error).__name__}: {error}"))
        return
    arms = {arm.name: arm for arm in made if not isinstance(arm, Skipped)}
    described = tuple(
        PeerArm(arm.name, arm.plain, arm.steady, arm.version, arm.about) for arm in arms.values()
    )
    skipped = tuple(arm for arm in made if isinstance(arm, Skipped))
    connection.send((True, (described, skipped)))
    with suppress(EOFError, OSError):
        while True:
            name, item = connection.recv()
            try:
                answer: object = arms[name].reply(item)
            except Exception as error:  # noqa: BLE001
                connection.send((False, f"{type(error).__name__}: {error}"))
            else:
                connection.send((True, answer))
