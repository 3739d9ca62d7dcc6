"""Who may use the server: its address, hosts, origins and keys.

A page in a browser can send requests to a server on the same machine. Three rules keep it out. The
`Host` of a request must be a name of this server, so that a foreign name that was made to point
here (DNS rebinding) is refused. The `Origin`, which browsers add to what pages send elsewhere, must
be this server's own, one of this machine or one that was allowed. And a server that other machines
can reach needs a key.
"""

import hashlib
import hmac
import ipaddress
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from starlette.datastructures import Headers

from akunu_py.server.errors import RequestError
from akunu_py.system.errors import ConfigError
from akunu_py.system.files import open_to_read

LOCAL_CLIENT = "local"
"""Name of the only client where no key is asked for."""

_SHORTEST_KEY = 16
_MOST_KEYS = 10_000
_KEY = re.compile(r"[!-~]+")
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")
LOCAL_PAGES = (
    r"(?:app|file|tauri|vscode-file|vscode-webview)://[^/?#@]*|https?://(?:localhost|"
    r"[a-z0-9-]+\.localhost|127(?:\.[0-9]{1,3}){3}|\[::1\]|0\.0\.0\.0)(?::[0-9]{1,5})?"
)
"""Origins that may always use the server, as with Ollama: of pages that programs of this machine
show or serve. No site can have one, since it chooses neither the scheme nor these names; "null" is
not among them, which a site can have."""

_WITHOUT_KEY = ("/", "/worker.js", "/health", "/healthz", "/v1/health", "/ping", "/api/hello")
"""Paths that tell nothing but whether a server is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Who may use the server.

    Attributes:
        host: the address that the server listens on.
        key_digests: SHA-256 of the keys; without keys everyone who reaches the server may use it.
        hosts: further names of the server, such as a proxy's.
        origins: pages of other servers that may use it, such as "https://studio.example".

    Raises ConfigError for an address that other machines reach if there is no key.

    """

    host: str = "127.0.0.1"
    key_digests: tuple[bytes, ...] = field(default=(), repr=False)
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.is_local and not self.key_digests:
            raise ConfigError(
                f"--host {self.host} lets other machines use the server; give --api-key-file FILE "
                "with a key, or leave --host out"
            )
        for origin in self.origins:
            if not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^\s/,*]+", origin):
                raise ConfigError(
                    f"{origin!r:.100} is not an origin; give one such as https://studio.example"
                )
        for host in self.hosts:
            if _HOST.fullmatch(host) is None:
                raise ConfigError(f"{host!r:.100} is not the name of a host, such as studio.local")

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches the server."""
        return _is_loopback(self.host)

    def check_host(self, headers: Headers) -> None:
        """Refuse a request to a name that is not this server's; raises RequestError."""
        given = headers.getlist("host")
        match = _HOST.fullmatch(given[0]) if len(given) == 1 else None
        if match is None:
            raise RequestError("the header Host is missing or malformed", status=400)
        name = match["name"].lower().strip("[]").rstrip(".")
        known = {self.host.lower().strip("[]"), *(_host_name(host) for host in self.hosts)}
        known |= {"0.0.0.0", "::"}  # noqa: S104 - which clients take for this machine
        # A name can be made to point here, an address cannot.
        if name in known or _is_loopback(name) or (not self.is_local and _is_address(name)):
            return
        raise RequestError(
            f"the host {name!r:.100} is not a name of this server; use localhost, or start it with "
            "--allowed-host NAME",
            status=403,
        )

    def check_origin(self, headers: Headers) -> None:
        """Refuse a request from a page of another server; raises RequestError.

        The host is checked before, so that it can be believed.
        """
        origin = headers.get("origin")
        own = tuple(f"{scheme}://{headers.get('host', '')}" for scheme in ("http", "https"))
        if origin is None or origin in own or origin in self.origins:
            return
        if re.fullmatch(LOCAL_PAGES, origin):
            return
        raise RequestError(
            f"pages of {origin!r:.100} may not use this server; start it with "
            "--allowed-origin ORIGIN to change that",
            status=403,
        )

    def client(self, path: str, headers: Headers) -> str:
        """Return the name of the client that a request's key belongs to; raises RequestError."""
        if not self.key_digests or path in _WITHOUT_KEY:
            return LOCAL_CLIENT
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        given = [bearer.strip()] if scheme.lower() == "bearer" else []
        # Clients with a key of another service in one place have this server's in the other.
        given.append(headers.get("x-api-key", ""))
        given_digests = [_digest(key) for key in given]
        # All are compared, so that the time does not tell which one was near.
        found = [
            any([hmac.compare_digest(digest, known) for digest in given_digests])  # noqa: C419
            for known in self.key_digests
        ]
        if True not in found:
            raise RequestError(
                "the API key is missing or wrong; send one of the server's keys as 'Authorization: "
                "Bearer KEY' or 'x-api-key: KEY'",
                status=401,
                code="invalid_api_key",
            )
        return f"key {found.index(True) + 1}"


def read_key_file(path: Path) -> tuple[bytes, ...]:
    """Return the digests of the keys in a file, as `read_keys` finds them."""
    return digests(read_keys(path))


def read_keys(path: Path) -> list[str]:
    """Return the keys in a file, one key a line; lines with # are comments.

    Raises ConfigError for a file that others may read, that has no keys, or a malformed key. No
    message quotes a key.
    """
    try:
        with open_to_read(path) as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            text = file.read(2**20).decode()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{path} cannot be read as a file of API keys: {reason}") from None
    if mode & 0o077:
        raise ConfigError(f"{path} can be read by other users; run: chmod 600 {path}")
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    keys = [(number, line) for number, line in lines if line and not line.startswith("#")]
    if not keys:
        raise ConfigError(f"{path} has no API key; write one on a line of its own")
    if len(keys) > _MOST_KEYS:
        raise ConfigError(f"{path} has more than {_MOST_KEYS} API keys")
    for number, key in keys:
        if len(key) < _SHORTEST_KEY or _KEY.fullmatch(key) is None:
            raise ConfigError(
                f"line {number} of {path} is not an API key: a key has {_SHORTEST_KEY} or more "
                "letters, digits and signs, without spaces"
            )
    return [key for _, key in keys]


def digests(keys: Sequence[str]) -> tuple[bytes, ...]:
    """Return the digests of keys, all that is kept of them."""
    return tuple(map(_digest, keys))


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _host_name(host: str) -> str:
    match = _HOST.fullmatch(host)
    return "" if match is None else match["name"].lower().strip("[]").rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _is_loopback(name: str) -> bool:
    if _is_address(name):
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    return name.lower().rstrip(".") == "localhost"
