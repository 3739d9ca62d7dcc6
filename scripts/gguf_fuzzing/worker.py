"""A process that takes cases through everything that happens to a model file, one after another.

It reads an index a line from standard input and answers with a line of JSON. What it dies of, and
how long it takes, the parent sees.
"""

import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import mlx.core as mx

from akunu_py.gguf.reader import GGUFFile
from akunu_py.models.load import LoadedModel, LoadOptions, load_model
from akunu_py.system.errors import AkunuError, ConfigError
from akunu_py.tokenizers import from_gguf, sandbox
from gguf_fuzzing.mutations import Case, make_case
from gguf_fuzzing.seeds import Seed, make_seeds

if TYPE_CHECKING:
    from akunu_py.protocols import Tokenizer

MAX_GROWTH = 64 << 20
"""Bytes by which one case may raise the memory of the process; the files have a hundred thousand."""

_ADDRESS_SPACE = 1 << 30
_TEMPLATE_SECONDS = 0.5
_FORWARD_EVERY = 2
_OPTIONS = (
    LoadOptions(weights="quantized"),
    LoadOptions(weights="dense"),
    LoadOptions(weights="quantized", compute_type="float16"),
    LoadOptions(weights="quantized", compute_type="bfloat16", q6k="8bit"),
)
"""Taken in turn, case by case."""
_MESSAGES = [{"role": "user", "content": "hello <s> the model ü"}]


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a case."""

    index: int
    stage: str  # The last one that was begun: open, info, tokenizer, load, forward, done.
    outcome: str  # "accepted", or the name of the error class.
    message: str
    failure: str | None  # What is wrong with that, None where nothing is.
    warnings: list[str]  # What numpy or others warned of, which a user would see; no failure.
    seconds: float
    peak: int  # The most memory the process has had, in bytes.


def _peak_bytes() -> int:
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _limit_memory() -> None:
    """Bound the address space to what is in use and a little more, where the system can."""
    import resource

    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        limit = pages * os.sysconf("SC_PAGE_SIZE") + _ADDRESS_SPACE
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _try_tokenizer(tokenizer: "Tokenizer") -> None:
    ids = tokenizer.encode("hello world\n\x00\u2581 ü \U0001f600", parse_special=True)
    tokenizer.decode(ids)
    if tokenizer.has_chat_template:
        tokenizer.encode_chat(_MESSAGES)


def _forward(loaded: LoadedModel) -> None:
    ids = loaded.tokenizer.encode("hello world")[:8] or [0]
    logits = loaded.model(mx.array([ids]))
    mx.eval(logits)
    if logits.shape != (1, len(ids), loaded.tokenizer.vocabulary_size):
        raise AssertionError(f"the logits have the shape {logits.shape}")


def _stages(path: Path, index: int) -> Iterator[str]:
    """Take a file through everything, saying before each stage which one begins."""
    yield "open"
    with GGUFFile.open(path) as file:
        for name, tensor in file.tensors.items():
            if file.tensor_bytes(name).nbytes != tensor.nbytes:
                raise AssertionError(f"the bytes of {name!r} are not as many as it says")
        # A model that akunu refuses may still have a sound vocabulary, so each is tried.
        refusal: AkunuError | None = None
        yield "tokenizer"
        try:
            _try_tokenizer(from_gguf(file.metadata))
        except AkunuError as error:
            refusal = error
    yield "load"
    options = _OPTIONS[index % len(_OPTIONS)]
    loaded = load_model(path, options)
    # The CPU backend has no products of experts in 16 bits.
    if index // len(_OPTIONS) % _FORWARD_EVERY == 0 and options.compute_type == "auto":
        yield "forward"
        _forward(loaded)
    yield "tokenizer"
    if refusal is not None:
        raise refusal
    yield "done"


def _fault(error: BaseException) -> str | None:
    """Return what is wrong with an error, None for one that a user should see."""
    if not isinstance(error, AkunuError):
        return "".join(traceback.format_exception(error))
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError):
            return "memory ran out:\n" + "".join(traceback.format_exception(error))
        if isinstance(error, ConfigError) and isinstance(cause, RuntimeError):
            return "an error of a library:\n" + "".join(traceback.format_exception(error))
        cause = cause.__cause__
    return None


def run_case(case: Case, index: int, folder: Path) -> Result:
    """Write a case's files, take them through everything, and say what came of it."""
    for old in folder.iterdir():
        old.unlink()
    for name, raw in case.files.items():
        (folder / name).write_bytes(raw)
    started = time.perf_counter()
    before = _peak_bytes()
    stage, outcome, message, failure = "open", "accepted", "", None
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            for stage in _stages(folder / case.given, index):  # noqa: B007 - the last one is kept
                pass
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - panics of Rust are raised past Exception
            outcome, message, failure = type(error).__name__, str(error), _fault(error)
    peak = _peak_bytes()
    if failure is None and peak - before > MAX_GROWTH:
        failure = f"the memory of the process grew by {(peak - before) >> 20} MiB"
    said = [f"{Path(one.filename).name}:{one.lineno}: {one.message}" for one in seen]
    seconds = time.perf_counter() - started
    return Result(index, stage, outcome, message, failure, said, seconds, peak)


def _warm_up(seeds: list[Seed], folder: Path) -> None:
    """Run every sound model, so that what is loaded and compiled once is behind us."""
    for place, seed in enumerate(seeds):
        files = dict(zip(seed.file_names(), (part.encode() for part in seed.files), strict=True))
        # The ways to load are the same for all architectures, of which there are many.
        for index in range(len(_OPTIONS)) if seed.group != "architecture" else (place % 2,):
            result = run_case(Case(seed.name, files, min(files)), index, folder)
            if result.stage != "done":
                raise AssertionError(f"the sound model {seed.name} fails: {result}")


def main() -> None:
    seed, part, groups, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3], Path(sys.argv[4])
    # Libraries may print; answers go where nothing else does.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sandbox.TIME_LIMIT_S = _TEMPLATE_SECONDS
    mx.set_default_device(mx.cpu)
    seeds = make_seeds(groups.split(","))
    _warm_up(seeds, folder)
    _limit_memory()
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        case = make_case(seeds, seed, int(line), data_too=part == "all")
        result = run_case(case, int(line), folder)
        print(json.dumps(asdict(result)), file=answers, flush=True)


if __name__ == "__main__":
    main()
