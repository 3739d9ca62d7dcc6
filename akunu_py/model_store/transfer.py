"""One file from the hub into its cache: resumed after an interrupt, and checked by its hash.

The library restarts a file after an interrupt and compares only sizes. Here the fetched part stays
beside the cached contents as ETAG.incomplete, and the next attempt asks for the rest. The name of
the content is its hash, against which it is checked. Files that the hub serves through Xet are left
to the library, which uses many connections and checks each piece.
"""

import hashlib
import importlib.util
import re
import shutil
import urllib.parse
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from akunu_py.model_store.hub_cache import repository_folder
from akunu_py.system.errors import HubError

_SHA256, _GIT_SHA1 = re.compile("[0-9a-f]{64}"), re.compile("[0-9a-f]{40}")
_ETAG = re.compile("[0-9A-Za-z_-][0-9A-Za-z._-]{0,127}")
_OFFICIAL_HOST = "huggingface.co"


@dataclass(frozen=True, slots=True)
class FileTransfer:
    """A file that is being fetched: its hash, as the hub states it, and its size."""

    digest: str
    num_bytes: int
    blobs: Path

    def completed(self) -> int:
        """Return how many bytes of it are here."""
        found = 0
        for part in self.blobs.glob(f"{self.digest}*"):
            with suppress(OSError):  # it may have got its last name meanwhile
                found = max(found, part.stat().st_size)
        return min(found, self.num_bytes)


Begin = Callable[[FileTransfer], object]
"""Is told of each file that is fetched."""


def fetch_file(
    repository: str, name: str, commit: str, cache: Path, begin: Begin = lambda _: None
) -> Path:
    """Fetch a file of a revision into the cache, if it is not there; return its path there.

    Raises the library's errors, and HubError for content with the wrong hash.
    """
    import huggingface_hub  # 0.1 s that --help must not pay
    from huggingface_hub.utils import (  # type: ignore[attr-defined]
        WeakFileLock,
    )

    folder = repository_folder(repository)
    place = folder / "snapshots" / commit / name
    if place.exists():
        return place
    url = huggingface_hub.hf_hub_url(repository, name, revision=commit)
    found = huggingface_hub.get_hf_file_metadata(url, retry_on_errors=True)
    etag = found.etag or ""
    if not _ETAG.fullmatch(etag):
        # The library would create a file of that name.
        raise HubError(f"{url} does not answer as the hub does; check HF_ENDPOINT")
    begin(FileTransfer(etag, found.size or 0, folder / "blobs"))
    through_xet = found.xet_file_data is not None and _has_xet()
    if not through_xet and (_SHA256.fullmatch(etag) or _GIT_SHA1.fullmatch(etag)):
        content = folder / "blobs" / etag
        lock = cache / ".locks" / folder.name / f"{etag}.lock"
        for part in (content, lock):
            part.parent.mkdir(parents=True, exist_ok=True)
        with WeakFileLock(lock):
            if not content.exists():
                _fetch_content(name, url, found, content)
    return Path(huggingface_hub.hf_hub_download(repository, name, revision=commit, cache_dir=cache))


def free_bytes(cache: Path) -> int:
    """Return the free bytes of the disk of the cache, which need not exist."""
    return shutil.disk_usage(
        next(place for place in (cache, *cache.parents) if place.exists())
    ).free


def _fetch_content(name: str, url: str, found: Any, content: Path) -> None:
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import (  # type: ignore[attr-defined]
        build_hf_headers,
    )

    headers = build_hf_headers()
    hosts = {urllib.parse.urlsplit(url).netloc, _OFFICIAL_HOST}
    if urllib.parse.urlsplit(found.location).netloc not in hosts:
        # Signed addresses elsewhere must not get the user's token.
        headers.pop("authorization", None)
    part = content.with_name(f"{content.name}.incomplete")
    if found.size is not None and part.exists() and part.stat().st_size > found.size:
        part.unlink()
    with part.open("ab") as stream:
        http_get(
            found.location,
            stream,
            resume_size=stream.tell(),
            headers=headers,
            expected_size=found.size,
            displayed_filename=name,
        )
    if _hash(part, content.name) != content.name:
        part.unlink()
        raise HubError(
            f"{name} arrived with another hash than the hub stated, and was deleted; fetch it "
            "again, and if that fails twice, tell the owner of the repository"
        )
    part.replace(content)


def _hash(path: Path, like: str) -> str:
    """Return the SHA-256 of a file, or git's SHA-1 if `like` is one."""
    with path.open("rb") as stream:
        if _SHA256.fullmatch(like):
            return hashlib.file_digest(stream, "sha256").hexdigest()
        digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
        while piece := stream.read(2**20):
            digest.update(piece)
        return digest.hexdigest()


def _has_xet() -> bool:
    from huggingface_hub import constants

    return not constants.HF_HUB_DISABLE_XET and importlib.util.find_spec("hf_xet") is not None
