"""Builds the libraries of kernels and compares them with MLX's own functions.

    python -m akunu_py.cpu.build [LEVEL]

builds those for this machine, if need be, and waits for them; `library` calls it with --background.
What opens the libraries is a process of its own, which may crash: --into FOLDER.
"""

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from akunu_py.cpu import places, processor
from akunu_py.cpu.library import KERNELS_VARIABLE, give_arithmetic, lead, open_kernels, replacements
from akunu_py.cpu.places import ARITHMETIC, KERNELS, NAMES, OPTIONS, REPLACEMENTS, SOURCES, Wanted

_TOLERANCE = 1e-4
"""Of the largest number of a result: sums have other orders, and MLX's exponential is rough."""

_MOST_S = 600
_NOT_NOW = 4
"""What the process that makes libraries returns if it may succeed another time."""

_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_MAY_PASS = re.compile(
    r"no space|quota|killed|memory|allocate|terminated|read-only|input/output|unavailable",
    re.IGNORECASE,
)
"""What compilers say of a machine, not of sources."""


class _WrongError(OSError):
    """Building cannot succeed with these sources and this compiler."""


class _NotNowError(OSError):
    """Building may succeed another time."""


def build(wanted: Wanted, *, background: bool = False) -> float:
    """Build libraries unless they are there; return how many seconds that took.

    Raises OSError with the reason if it cannot be done. In the background the outcome is news for
    others, and BlockingIOError is raised if another process is at it.
    """
    store = places.writable_store()
    news = store / places.NEWS if background else Path(os.devnull)
    with (store / ".lock").open("w") as lock:
        # The lock ends with the process.
        fcntl.flock(lock, fcntl.LOCK_EX | (fcntl.LOCK_NB if background else 0))
        if wanted.found():
            return 0
        began = time.monotonic()
        for rest in store.glob(".building-*"):
            shutil.rmtree(rest, ignore_errors=True)
        folder, note = store / wanted.name, store / f"{wanted.name}.failed"
        with tempfile.TemporaryDirectory(prefix=".building-", dir=store) as name:
            try:
                new = _made(Path(name), wanted)
            except OSError as error:
                news.write_text(places.CANNOT % error, encoding="utf-8")
                if isinstance(error, _WrongError):
                    places.remember(note, str(error))
                raise
            note.unlink(missing_ok=True)
            # A damaged one.
            shutil.rmtree(folder, ignore_errors=True)
            new.rename(folder)
        seconds = time.monotonic() - began
        news.write_text(
            f"kernels for this processor were built in {seconds:.1f} s", encoding="utf-8"
        )
        return seconds


def _made(place: Path, wanted: Wanted) -> Path:
    """Return a new folder of libraries; raises OSError."""
    if wanted.ready_made(KERNELS):
        # Those for another version of MLX may do.
        with suppress(_WrongError):
            return _made_by_process(place / "copied", wanted.level, "--copy")
    return _made_by_process(place / "compiled", wanted.level)


def _made_by_process(folder: Path, *arguments: str) -> Path:
    command = [sys.executable, "-m", "akunu_py.cpu.build", *arguments, "--into", str(folder)]
    process = subprocess.Popen(  # noqa: S603 - akunu itself
        command, stderr=subprocess.PIPE, text=True, errors="replace", process_group=0
    )
    with process:
        try:
            said = process.communicate(timeout=_MOST_S)[1].strip().splitlines()
        except subprocess.TimeoutExpired:
            raise _NotNowError(f"building took more than {_MOST_S} s") from None
        finally:
            # Compilers, too.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if code := process.returncode:
        reason = (said or [f"the process ended with {code}"])[-1]
        not_now = code == _NOT_NOW or -code in _FROM_OUTSIDE
        raise (_NotNowError if not_now else _WrongError)(f"they could not be built: {reason:.300}")
    return folder


def make(folder: Path, level: str, *, copy: bool) -> None:
    """Make libraries in a new folder, and compare them with MLX if the machine has their level.

    Raises OSError; `copy` allows for MLX's side that was built with another version of it.
    """
    folder.mkdir(mode=0o700, parents=True)
    wanted = places.wanted(level)
    for name in NAMES:
        if (name == ARITHMETIC or copy) and (ready := wanted.ready_made(name)):
            shutil.copyfile(ready, folder / ready.name)
    missing = [name for name in NAMES if not any(folder.glob(f"{name}-*.so"))]
    compile_one = partial(_compile, folder, level)
    with ThreadPoolExecutor() as side_by_side:
        list(side_by_side.map(compile_one, (name for name in missing if name != REPLACEMENTS)))
    kernels = open_kernels(folder)
    if REPLACEMENTS in missing:
        compile_one(REPLACEMENTS, replacements(kernels))
    if level in processor.levels():
        give_arithmetic(kernels, folder)
        lead(kernels, folder)
        check(kernels)


def _compile(
    folder: Path, level: str, name: str, functions: list[tuple[str, int]] | None = None
) -> None:
    mlx, path = places.mlx_folder(), folder / f"{name}.so"
    if not (mlx / "include/mlx/mlx.h").is_file():
        raise OSError("MLX is installed without the headers of its library")
    names = (f'REPLACE({n}, "{name}")' for n, (name, _) in enumerate(functions or ()))
    arguments = {
        ARITHMETIC: [
            *OPTIONS, "-O3", *processor.options(level), f'-DLEVEL="{level}"', "arithmetic.cpp"
        ],
        # MLX's headers take most of its time; loops over numbers are in the arithmetic.
        KERNELS: [
            *OPTIONS, "-O1", "-isystem", str(mlx / "include"), "operations.cpp",
            f"-L{mlx / 'lib'}", "-lmlx", "-Wl,-z,defs",
        ],
        REPLACEMENTS: [
            *OPTIONS[1:], "-x", "c", f"-DREPLACEMENTS={' '.join(names)}", "replacements.c"
        ],
    }[name]  # fmt: skip
    program, *options = places.compiler()
    # S603: the system's compiler, on sources of akunu.
    done = subprocess.run(  # noqa: S603
        [program, *options, *arguments, "-s", "-o", str(path)], capture_output=True, text=True,
        errors="replace", check=False, cwd=SOURCES,
    )  # fmt: skip
    if done.returncode:
        said = done.stderr.splitlines()
        errors = [line for line in said if re.search("error|undefined", line, re.IGNORECASE)]
        # The last line of a linker does not say why it failed.
        reasons = [line for line in errors if "ld returned" not in line]
        said_why = done.returncode > 0 and reasons and not _MAY_PASS.search(done.stderr)
        first = (reasons or errors or [f"it ended with {done.returncode}"])[0]
        reason = f"{program} failed: {first}"
        raise (OSError if said_why else _NotNowError)(reason)
    path.chmod(0o600)
    path.rename(folder / f"{name}-{places.digest(path)}.so")


def _operations(mx: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Return each operation that the kernels have, on random numbers, with a name."""
    mx.random.seed(1)
    x = mx.random.normal((1, 6, 5, 64))
    weights = mx.random.normal((3, 36, 64))
    scores = mx.random.normal((5, 40))
    ways: list[dict[str, Any]] = [{"bits": b, "group_size": 32} for b in (1, 2, 3, 4, 5, 6, 8)]
    for way in (*ways, {"mode": "mxfp4"}, {"mode": "nvfp4"}):
        packed = mx.quantize(weights[0], **way)
        for rows in (1, 5, 30):
            part = x.reshape(30, 64)[:rows]
            yield (
                f"the product of {rows} rows with {way}",
                partial(mx.quantized_matmul, part, *packed, **way),
            )
        yield (
            f"the product with {way} as they are",
            partial(mx.quantized_matmul, scores[:, :36], *packed, transpose=False, **way),
        )
        chosen = mx.array([[2, 0], [0, 0]])
        experts = mx.quantize(weights, **way)
        yield (
            f"the product of experts with {way}",
            partial(mx.gather_qmm, x[0, 0, :2, None, None], *experts, rhs_indices=chosen, **way),
        )
    dense = weights.swapaxes(-1, -2)
    for rows in (1, 5, 30):
        part = x.reshape(30, 64)[:rows]
        yield f"the dense product of {rows} rows", partial(mx.matmul, part, weights[0].T)
    yield "the dense product with a bias", partial(mx.addmm, weights[1, :, 0], x, weights[0].T)
    yield (
        "the dense product of experts",
        partial(mx.gather_mm, x[0, 0, :2, None, None], dense, rhs_indices=chosen),
    )
    keys, values = mx.random.normal((2, 1, 2, 19, 64))
    attend = partial(mx.fast.scaled_dot_product_attention, x, keys, values, scale=0.125)
    for mask in (None, "causal", scores[:, :19], scores[:, :19] > 0):
        yield "attention", partial(attend, mask=mask)
    turn = partial(mx.fast.rope, x, 32, base=10000.0, scale=1.0, offset=3)
    for neighbours in (False, True):
        yield "rope", partial(turn, traditional=neighbours)
    yield "rms_norm", partial(mx.fast.rms_norm, x, mx.arange(64) / 32, 1e-5)
    yield "sigmoid", partial(mx.sigmoid, x * 9)
    yield "softmax", partial(mx.softmax, x * 9, axis=-1)
    yield "logsumexp", partial(mx.logsumexp, x, axis=-1)


def check(kernels: Any) -> None:
    """Compare the operations with MLX's; OSError names the first that differs."""
    # Only now: its calls are led elsewhere when it is imported.
    import mlx.core as mx

    mx.set_default_device(mx.Device(mx.cpu))
    for name, operation in _operations(mx):
        kernels.akunu_enable(0)
        expected = operation()
        mx.eval(expected)
        kernels.akunu_enable(1)
        before = kernels.akunu_taken()
        found = operation()
        if kernels.akunu_taken() == before:
            raise OSError(f"{name} went to MLX")
        error = _error(mx, found, expected)
        # A NaN is not less, either.
        if not error < _TOLERANCE:
            raise OSError(f"{name} is wrong by {error:.2g} of its largest number")


def _error(mx: Any, found: Any, expected: Any) -> float:
    return float((mx.abs(found - expected).max() / mx.abs(expected).max()).item())


def main(arguments: list[str]) -> int:
    """Return the exit status, having said one line on stderr where there is something to say."""
    if sys.platform != "linux":
        return 0
    words = (*arguments, os.environ.get(KERNELS_VARIABLE))
    wanted = places.wanted(next((word for word in words if word in processor.LEVELS), ""))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_NOT_NOW))
    background = "--background" in arguments
    try:
        if "--into" in arguments:
            make(Path(arguments[-1]), wanted.level, copy="--copy" in arguments)
            return 0
        if background:
            os.nice(10)
        elif not wanted.found():
            _say(f"akunu: building kernels for {wanted.level}")
        seconds = build(wanted, background=background)
    except OSError as error:
        if "--into" not in arguments:
            _say(f"akunu: {error}")
            return 1
        _say(str(error))
        # The system's errors have numbers.
        return _NOT_NOW if error.errno or isinstance(error, _NotNowError) else 1
    done = f"were built in {seconds:.1f} s" if seconds else "are there"
    _say(f"akunu: the kernels for {wanted.level} {done}")
    return 0


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
