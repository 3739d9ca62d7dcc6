"""Models that requests have fetched, where the server's user allowed that.

Each is fetched by a process of its own, so that replies go on, and it can be ended. Who asks for a
model that is being fetched follows the same fetch; when the last of them leaves, it ends. What was
fetched is kept, for the next attempt.
"""

import asyncio
import contextlib
import json
import logging
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from akunu_py.model_store import pull_child
from akunu_py.model_store.hub import FileTransfer
from akunu_py.model_store.hub_cache import delete_contents
from akunu_py.model_store.names import fetchable
from akunu_py.server.errors import RequestError
from akunu_py.system.errors import AkunuError, ServerBusyError

_log = logging.getLogger(__name__)

_RETRY_S = 60
_FOLDERS = re.compile(r"(?<![\w.:/])/(?:[^/:;,'\"`\n]+/)*(?=[\w.])")
"""Of this machine, in a sentence: no business of clients. OWNER/REPO and addresses stay."""


class Pull:
    """A fetch under way, of `files`."""

    def __init__(self, name: str) -> None:
        self.files: list[FileTransfer] = []
        self.task = asyncio.create_task(self._fetch(name))
        self.followers = 0

    async def _fetch(self, name: str) -> Path:
        """Return the model's path; raises RequestError if it cannot be fetched."""
        process = await asyncio.create_subprocess_exec(
            # Without the script's folder among the places that modules come from.
            sys.executable, "-P", pull_child.__file__, name,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        assert process.stdout is not None  # noqa: S101 - asked for
        try:
            async for line in process.stdout:
                step = json.loads(line)
                if "path" in step:
                    return Path(step["path"])
                if "error" in step:
                    reason = _FOLDERS.sub("", step["error"])
                    raise RequestError(reason, status=400 if step["refused"] else 502)
                file = FileTransfer(step["digest"], step["num_bytes"], Path(step["blobs"]))
                self.files.append(file)
        finally:
            with contextlib.suppress(ProcessLookupError):
                # With the package client that it may have started.
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        raise RequestError(
            f"{name} was not fetched; akunu models pull {name} shows why", status=502
        )


class Pulls:
    """Fetches for requests, of which each model has one at most; for one event loop.

    `adopt` takes the name that was asked for and the path of the model, and has requests find it.
    It is called in a thread, once at a time, and may raise AkunuError. `most` are fetched at once.
    """

    def __init__(self, adopt: Callable[[str, Path], object], *, most: int = 4) -> None:
        self._adopt = adopt
        self._most = most
        self._adopting = asyncio.Lock()
        self._running: dict[str, Pull] = {}

    @contextlib.asynccontextmanager
    async def following(self, name: str) -> AsyncIterator[Pull]:
        """Fetch a model while the context lasts, or follow who does already.

        Raises ConfigError for a name of nothing that can be fetched, and ServerBusyError.
        """
        key = str(fetchable(name))
        if key not in self._running and len(self._running) >= self._most:
            raise ServerBusyError(
                f"{self._most} models are being fetched already; try again later",
                retry_after_s=_RETRY_S,
            )
        pull = self._running.get(key) or Pull(key)
        self._running[key] = pull
        pull.followers += 1
        try:
            yield pull
        finally:
            pull.followers -= 1
            if not pull.followers:
                del self._running[key]
                pull.task.cancel()

    async def adopt(self, name: str, pull: Pull) -> None:
        """Wait for a fetch, and have requests find its model by a name.

        Raises RequestError if it cannot be fetched or served, ServerBusyError if the server ends.
        """
        try:
            path = await asyncio.shield(pull.task)
        except asyncio.CancelledError:
            if not pull.task.cancelled():
                raise
            raise ServerBusyError(
                "the server ends; ask again later", retry_after_s=_RETRY_S
            ) from None
        async with self._adopting:
            await asyncio.to_thread(self._adopt_or_delete, name, path, pull.files)

    def _adopt_or_delete(self, name: str, path: Path, fetched: Sequence[FileTransfer]) -> None:
        try:
            self._adopt(name, path)
        except AkunuError as error:
            _log.warning("%s cannot be served: %s", name, error.message)
            with contextlib.suppress(AkunuError):
                delete_contents(path, {file.digest for file in fetched})
            raise RequestError(
                f"{name} was fetched, and cannot be served: {_FOLDERS.sub('', error.message)}"
            ) from None

    def stop(self) -> None:
        """End all fetches; who follows them gets a ServerBusyError."""
        for pull in self._running.values():
            pull.task.cancel()
