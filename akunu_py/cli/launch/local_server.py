"""A server of this machine: the one that runs, or one for the time of a session."""

import contextlib
import http.client
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from akunu_py.system.errors import AkunuError, ConfigError

HOST = "127.0.0.1"

_ANSWER_S = 3.0
_MOST_BYTES = 2**24
_POLL_S = 0.1
_END_S = 15.0
_SHOWN_LINES = 6


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A server as an agent is told of it."""

    url: str
    """Its address, without a path."""
    model: str
    context: int | None = None
    """In tokens; None if it is not known yet."""
    key: str = field(default="", repr=False)
    trained: int | None = None
    """The largest context that the model has; None if it is not known."""


class OtherProgramError(AkunuError):
    """A port belongs to a program that is not akunu."""


def address(port: int) -> str:
    """Return the URL of a port of this machine."""
    return f"http://{HOST}:{port}"


def find_server(port: int, key: str, wanted: str | None = None) -> LocalServer | None:
    """Return the akunu server at a port, or None if nobody listens there.

    `wanted` is the name of the model that it must have; None for its default. Raises
    OtherProgramError for another program, and ConfigError if the key is wrong or the model missing.
    """
    url = address(port)
    try:
        props = _ask(port, "/props", key)
        if not str(props.get("build_info")).startswith("akunu "):
            raise OtherProgramError(f"the program at {url} is not akunu")
        names = [str(entry["id"]) for entry in _ask(port, "/v1/models", key)["data"]]
        if wanted is not None and wanted not in names:
            raise ConfigError(
                f"the server at {url} serves {props['model_alias']}, not {wanted}; leave the model "
                "out to use that one, or give another --port"
            )
        model = wanted or str(props["model_alias"])
        if model != props["model_alias"]:
            props = _ask(port, f"/props?model={model}", key)
        context = int(props["default_generation_settings"]["n_ctx"])
        return LocalServer(url, model, context, key, props.get("n_ctx_train"))
    except AkunuError:
        raise
    except ConnectionRefusedError:
        return None
    except (OSError, http.client.HTTPException, ValueError, TypeError, KeyError):
        raise OtherProgramError(f"the program at {url} does not answer as akunu does") from None


def _ask(port: int, path: str, key: str) -> dict[str, Any]:
    """Return the object that a path answers; raises ConfigError if a key is missing."""
    connection = http.client.HTTPConnection(HOST, port, timeout=_ANSWER_S)
    try:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        connection.request("GET", path, headers=headers)
        with connection.getresponse() as response:
            body = response.read(_MOST_BYTES)
    finally:
        connection.close()
    found = json.loads(body)
    if not isinstance(found, dict):
        raise TypeError(path)
    if response.status == 401 and found["error"]["code"] == "invalid_api_key":
        given = "another --api-key-file: it refuses this key" if key else "--api-key-file FILE"
        raise ConfigError(f"the server at {address(port)} asks for a key; give {given}")
    if response.status != 200:
        raise ValueError(response.status)
    return found


def free_port() -> int:
    """Return a port at which nobody listens."""
    with socket.create_server((HOST, 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


@contextlib.contextmanager
def started_server(arguments: Sequence[str], port: int, key: str) -> Iterator[LocalServer]:
    """Run `akunu serve` with arguments at a port, until the block ends.

    The process has a session of its own, so that Ctrl-C does not reach it. It also ends when this
    process is killed (`child`). Raises AkunuError with its last words if it ends before it answers.
    """
    # -P: not the modules of the folder in which the agent works.
    run = [sys.executable, "-P", "-m", "akunu_py.cli.launch.child"]
    command = [*run, "serve", *arguments, "--port", str(port)]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(  # noqa: S603 - akunu itself
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
        )
        try:
            yield _first_answer(process, log, port, key)
        finally:
            _end(process)
            assert process.stdin is not None  # noqa: S101 - a pipe
            process.stdin.close()


def _first_answer(
    process: "subprocess.Popen[bytes]", log: IO[bytes], port: int, key: str
) -> LocalServer:
    while process.poll() is None:
        # It listens before the model is loaded, and answers afterwards.
        with contextlib.suppress(OtherProgramError):
            server = find_server(port, key)
            if server is not None:
                return server
        time.sleep(_POLL_S)
    log.seek(0)
    lines = [line for line in log.read().decode(errors="replace").splitlines() if line.strip()]
    raise AkunuError(
        f"the server ended with code {process.returncode} before it answered; it said:",
        choices=lines[-_SHOWN_LINES:],
    )


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
