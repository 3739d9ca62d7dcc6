"""A Hugging Face hub on 127.0.0.1: as much of its protocol as huggingface_hub's client speaks.

`/api/models/REPO[/revision/main]` and `/api/models/REPO/tree/COMMIT` describe a repository,
`/REPO/resolve/REVISION/FILE` answers HEAD and GET: small files at once, large ones (LFS) by sending
on to a second host, which knows Range. Errors are told by X-Error-Code, as the hub does.
`add_to_cache` fills the hub's cache on this machine without a hub.
"""

import contextlib
import hashlib
import http.server
import json
import threading
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

TOKEN = "hf_right"  # noqa: S105 - of nobody
COMMIT = "a" * 40


def add_to_cache(cache: Path, repository: str, files: dict, commit: str = COMMIT) -> Path:
    """Put files (path -> bytes) of a repository into the cache; return its snapshot's folder."""
    folder = cache / f"models--{repository.replace('/', '--')}"
    snapshot = folder / "snapshots" / commit
    for part in (folder / "blobs", folder / "refs", snapshot):
        part.mkdir(parents=True, exist_ok=True)
    (folder / "refs" / "main").write_text(commit)
    for name, content in files.items():
        blob = folder / "blobs" / hashlib.sha256(content).hexdigest()
        blob.write_bytes(content)
        place = snapshot / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(blob)
    return snapshot


@dataclass
class Repository:
    """Files by path, and who may have them: `private` and `gated` ask for TOKEN.

    Attributes:
        linked: whether files lie on the second host, but for JSON.
        sizes: what is promised of a file instead of its size.
        hashes: what is promised instead of its hash.
        corrupt: files of which the first byte is sent wrongly.
        xet: files that the hub says to have in Xet.

    """

    files: dict[str, bytes]
    commit: str = COMMIT
    private: bool = False
    gated: bool = False
    linked: bool = True
    sizes: dict[str, int] = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict)
    corrupt: set[str] = field(default_factory=set)
    xet: set[str] = field(default_factory=set)

    def is_linked(self, name: str) -> bool:
        return self.linked and not name.endswith(".json")

    def size(self, name: str) -> int:
        return self.sizes.get(name, len(self.files[name]))

    def etag(self, name: str) -> str:
        content = self.files[name]
        if not self.is_linked(name):
            return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()  # noqa: S324
        return self.hashes.get(name, hashlib.sha256(content).hexdigest())


@dataclass(frozen=True)
class Asked:
    """A request as it came."""

    method: str
    path: str
    range: str
    authorization: str


class HubServer:
    """The hub, its repositories, what it was asked, and what goes wrong there.

    Attributes:
        url: for HF_ENDPOINT.
        repositories: by name.
        asked: all requests.
        sent: bytes of content that went out, by the file's path.
        statuses: answers to all that ask for a path with such an ending, instead of the right one.
        absent: files that are announced and not there.
        answers: bodies sent instead of the right ones, by such endings.
        breaks: after how many bytes of a file the connection breaks, for each time it is asked for.
        holds: after how many bytes of a file nothing more is sent until `release`.
        held: set when that is so.

    """

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.asked: list[Asked] = []
        self.sent: dict[str, int] = {}
        self.statuses: dict[str, int] = {}
        self.absent: set[str] = set()
        self.answers: dict[str, bytes] = {}
        self.breaks: dict[str, list[int]] = {}
        self.holds: dict[str, int] = {}
        self.held, self.release = threading.Event(), threading.Event()
        self.without_ranges = False
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.005,))
        self._thread.start()

    def add(self, name: str, files: dict[str, bytes], **options) -> Repository:
        self.repositories[name] = Repository(files, **options)
        return self.repositories[name]

    def asked_for(self, ending: str, method: str = "GET") -> list[Asked]:
        return [a for a in self.asked if a.method == method and a.path.endswith(ending)]

    @property
    def fetched(self) -> list[str]:
        """Return the files of which content was asked for, in this order."""
        paths = [a.path.strip("/").split("/") for a in self.asked if a.method == "GET"]
        names = [
            parts[3:] if parts[0] == "content" else parts[4:]
            for parts in paths
            if parts[0] == "content" or "resolve" in parts[2:3]
        ]
        return list(dict.fromkeys("/".join(name) for name in names))

    def forget(self) -> None:
        self.asked.clear()
        self.sent.clear()

    def close(self) -> None:
        self.release.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextlib.contextmanager
def hub_server() -> Iterator[HubServer]:
    server = HubServer()
    try:
        yield server
    finally:
        server.close()


def _handler(hub: HubServer) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_HEAD(self):
            self.answer()

        def do_GET(self):
            self.answer()

        def answer(self):
            path = urllib.parse.urlsplit(self.path).path
            asked = Asked(
                self.command,
                urllib.parse.unquote(path),
                self.headers.get("Range", ""),
                self.headers.get("Authorization", ""),
            )
            hub.asked.append(asked)
            for ending, status in hub.statuses.items():
                if asked.path.endswith(ending):
                    self.refuse(status)
                    return
            for ending, body in hub.answers.items():
                if asked.path.endswith(ending):
                    self.reply(200, body, {})
                    return
            parts = asked.path.strip("/").split("/")
            if parts[0] == "content":
                name = "/".join(parts[1:3])
                self.content(hub.repositories[name], "/".join(parts[3:]), {})
            elif parts[:2] == ["api", "models"]:
                self.describe("/".join(parts[2:4]), parts[4:])
            else:
                self.resolve("/".join(parts[:2]), parts[2:])

        def refuse(self, status, code="", message=""):
            self.reply(status, b"", {"X-Error-Code": code, "X-Error-Message": message})

        def reply(self, status, body, headers):
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, str(value))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def found(self, name):
            """Return a repository that who asks may see; answer that there is none otherwise."""
            repository = hub.repositories.get(name)
            allowed = self.headers.get("Authorization") == f"Bearer {TOKEN}"
            if repository is None or (repository.private and not allowed):
                # The hub does not tell whether there is a private one.
                self.refuse(401 if repository else 404, "RepoNotFound", "Repository not found")
                return None
            return repository

        def describe(self, name, rest):
            repository = self.found(name)
            if repository is None:
                return
            names = list(repository.files)
            if rest[:1] == ["revision"] and rest[1] not in {"main", repository.commit}:
                self.refuse(404, "RevisionNotFound", "Invalid rev id")
                return
            described = [self.entry(repository, file) for file in names]
            if rest[:1] == ["tree"]:
                answer = described
            else:
                siblings = [
                    {
                        "rfilename": entry["path"],
                        "size": entry["size"],
                        "blobId": entry["oid"],
                        **(
                            {"lfs": {**entry["lfs"], "sha256": entry["lfs"]["oid"]}}
                            if "lfs" in entry
                            else {}
                        ),
                    }
                    for entry in described
                ]
                answer = {
                    "id": name, "modelId": name, "sha": repository.commit, "siblings": siblings,
                    "private": repository.private, "gated": "manual" if repository.gated else False,
                }  # fmt: skip
            self.reply(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

        def entry(self, repository, name):
            size, etag = repository.size(name), repository.etag(name)
            entry = {"type": "file", "path": name, "size": size, "oid": etag[:40]}
            if repository.is_linked(name):
                entry["lfs"] = {"oid": etag, "size": size, "pointerSize": 134}
            return entry

        def resolve(self, name, rest):
            repository = self.found(name)
            if repository is None:
                return
            file = "/".join(rest[2:])
            allowed = self.headers.get("Authorization") == f"Bearer {TOKEN}"
            if repository.gated and not allowed:
                self.refuse(401, "GatedRepo", "Access to this model is restricted")
            elif file not in repository.files or file in hub.absent:
                self.refuse(404, "EntryNotFound", "Entry not found")
            else:
                etag = f'"{repository.etag(file)}"'
                headers = {"X-Repo-Commit": repository.commit, "ETag": etag}
                if not repository.is_linked(file):
                    self.content(repository, file, headers)
                    return
                if file in repository.xet:
                    headers["X-Xet-Hash"] = "e" * 64
                    headers["X-Xet-Refresh-Route"] = f"/api/models/{name}/xet-read-token/main"
                # Another host's name, to which no token may go.
                place = urllib.parse.quote(f"content/{name}/{file}")
                self.reply(302, b"", {
                    **headers, "X-Linked-Etag": etag, "X-Linked-Size": repository.size(file),
                    "Location": f"http://localhost:{hub.port}/{place}",
                })  # fmt: skip

        def content(self, repository, file, headers):
            body, begin = repository.files[file], 0
            if file in repository.corrupt:
                body = bytes([body[0] ^ 1]) + body[1:]
            wanted = self.headers.get("Range", "")
            if wanted and not hub.without_ranges:
                begin = int(wanted.removeprefix("bytes=").split("-")[0])
            whole = len(body)
            if begin >= whole > 0:
                self.refuse(416)
                return
            self.send_response(206 if begin else 200)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(whole - begin))
            if begin:
                self.send_header("Content-Range", f"bytes {begin}-{whole - 1}/{whole}")
            self.end_headers()
            if self.command == "HEAD":
                return
            end = whole
            if hub.breaks.get(file):
                end = min(end, begin + hub.breaks[file].pop(0))
            if file in hub.holds and hub.holds[file] > begin:
                self.send(file, body[begin : hub.holds[file]])
                begin = hub.holds.pop(file)
                hub.held.set()
                hub.release.wait(300)
            self.send(file, body[begin:end])
            if end < whole:
                self.close_connection = True

        def send(self, file, piece):
            # Counted first: whoever has the last byte may look at once.
            hub.sent[file] = hub.sent.get(file, 0) + len(piece)
            try:
                self.wfile.write(piece)
                self.wfile.flush()
            except OSError:  # they are gone
                hub.sent[file] -= len(piece)

    return Handler
