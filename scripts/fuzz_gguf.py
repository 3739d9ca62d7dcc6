#!/usr/bin/env python3
"""Fuzz the path of a model file: open, describe, tokenizer, load, and a forward pass of some.

    python scripts/fuzz_gguf.py [--seed 0] [--count 20000] [--jobs 2] [--part header|all]
                                [--models plain split types architecture]
    python scripts/fuzz_gguf.py --seed 0 --only 1234 --keep folder

Each case is a small sound model with a few changes: numbers set to edge values, bits flipped, ranges
cut, repeated or taken from another file, keys, types, shapes and names swapped, texts replaced,
parts of a split model exchanged. It is the same for the same seed, index, models and part, as long
as the sound models are the same. Every case must end in a loaded model or in an error of akunu's
own, within its time and memory. Anything else (another exception, the death of the process) is a
failure: it is printed with seed and index, and its files are kept. Exit status 1 where there were
failures. Warnings, of numpy for instance, are counted.
"""

import argparse
import contextlib
import json
import selectors
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

SCRIPTS = Path(__file__).resolve().parent
_PATHS = [str(SCRIPTS), str(SCRIPTS.parent)]
sys.path[:0] = _PATHS

from gguf_fuzzing.mutations import make_case
from gguf_fuzzing.seeds import GROUPS, make_seeds

_START_SECONDS = 600.0
_END_SECONDS = 60.0
_PROGRESS_EVERY = 1000
_SHOWN_FAILURES = 20


@dataclass(slots=True)
class Report:
    """What all cases came to."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, str]] = field(default_factory=list)
    warnings: Counter[str] = field(default_factory=Counter)
    slowest: tuple[float, int] = (0.0, -1)
    peak: int = 0
    cases: int = 0

    def add(self, result: dict) -> None:
        self.cases += 1
        self.outcomes[f"{result['stage']}: {result['outcome']}"] += 1
        self.warnings.update(set(result["warnings"]))
        self.slowest = max(self.slowest, (result["seconds"], result["index"]))
        self.peak = max(self.peak, result["peak"])
        if result["failure"] is not None:
            self.failures.append((result["index"], f"{result['stage']}: {result['failure']}"))


class Worker:
    """A process that runs cases, begun anew when it dies or hangs."""

    def __init__(self, seed: int, part: str, groups: Sequence[str], limit_s: float) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="fuzz-gguf-")
        self._arguments = [str(seed), part, ",".join(groups), self._folder.name]
        self._limit_s = limit_s
        self._process: subprocess.Popen[str] | None = None
        self._log: IO[str] | None = None

    def _command(self) -> list[str]:
        code = (
            f"import sys; sys.path[:0] = {_PATHS!r}; from gguf_fuzzing.worker import main; main()"
        )
        return [sys.executable, "-c", code, *self._arguments]

    def _start(self) -> subprocess.Popen[str]:
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._process = process = subprocess.Popen(
            self._command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        if self._answer(process, _START_SECONDS) != "ready\n":
            raise RuntimeError(f"a worker does not start:\n{self.end()}")
        return process

    @staticmethod
    def _answer(process: subprocess.Popen[str], seconds: float) -> str | None:
        """Return the next line, "" from a dead process, None when there is none in time."""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(seconds):
                return None
        return process.stdout.readline()

    def run(self, index: int) -> dict:
        """Run a case; of a death or a hang, return a result that says so."""
        process = self._process or self._start()
        started = time.perf_counter()
        print(index, file=process.stdin, flush=True)
        line = self._answer(process, self._limit_s)
        if line:
            return json.loads(line)
        seconds = time.perf_counter() - started
        outcome = "hang" if line is None else "death"
        if line is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_SECONDS)
        log = self.end()
        problem = (
            f"not done after {self._limit_s:g} s"
            if line is None
            else f"the process died with status {process.returncode}"
        )
        return {
            "index": index, "stage": "?", "outcome": outcome, "message": "", "peak": 0,
            "seconds": seconds, "warnings": [], "failure": f"{problem}\n{log}",
        }  # fmt: skip

    def close(self) -> None:
        """End the process and remove its files."""
        self.end()
        self._folder.cleanup()

    def end(self) -> str:
        """End the process; return the last of what it printed."""
        log = ""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
        if self._log is not None:
            self._log.seek(0)
            log = self._log.read()[-2000:]
            self._log.close()
            self._log = None
        return log


def run(
    seed: int,
    indices: range,
    *,
    jobs: int = 1,
    part: str = "all",
    groups: Sequence[str] = GROUPS,
    limit_s: float = 20.0,
) -> Report:
    """Run cases in `jobs` processes."""
    report = Report()
    lock = threading.Lock()
    todo: Iterator[int] = iter(indices)
    errors: list[Exception] = []

    def work() -> None:
        worker = Worker(seed, part, groups, limit_s)
        try:
            while True:
                with lock:
                    if (index := next(todo, None)) is None or errors:
                        return
                result = worker.run(index)
                with lock:
                    report.add(result)
                    if result["failure"] is not None:
                        print(f"seed {seed} index {index}: {result['stage']}: {result['failure']}")
                    if report.cases % _PROGRESS_EVERY == 0:
                        print(f"{report.cases} cases, {len(report.failures)} failures", flush=True)
        except Exception as error:  # noqa: BLE001 - a thread's own would be lost
            errors.append(error)
        finally:
            worker.close()

    threads = [threading.Thread(target=work) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return report


def keep_files(folder: Path, seed: int, index: int, *, part: str, groups: Sequence[str]) -> Path:
    """Write the files of a case, as the worker had them; return the path of the one to open."""
    case = make_case(make_seeds(groups), seed, index, data_too=part == "all")
    place = folder / f"{seed}-{index}"
    place.mkdir(parents=True, exist_ok=True)
    for name, raw in case.files.items():
        (place / name).write_bytes(raw)
    return place / case.given


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz akunu's loading of GGUF files.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=20_000, help="cases to run")
    parser.add_argument("--start", type=int, default=0, help="index of the first one")
    parser.add_argument("--only", type=int, metavar="INDEX", help="run one case")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--limit", type=float, default=20.0, help="seconds a case may take")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where files of failures go")
    parser.add_argument(
        "--part", choices=("header", "all"), default="all", help="leave the weights alone, or not"
    )
    parser.add_argument(
        "--models", nargs="+", choices=GROUPS, default=GROUPS, help="which models to mutate"
    )
    options = parser.parse_args()
    indices = range(options.start, options.start + options.count)
    if options.only is not None:
        indices = range(options.only, options.only + 1)
    started = time.perf_counter()
    chosen = {"part": options.part, "groups": options.models}
    report = run(options.seed, indices, jobs=options.jobs, limit_s=options.limit, **chosen)
    seconds = time.perf_counter() - started
    failed = [index for index, _ in report.failures]
    keep = options.keep
    if failed and keep is None:
        keep = Path(tempfile.mkdtemp(prefix="fuzz-gguf-failures-"))
    if keep is not None:
        for index in [options.only] if options.only is not None else failed[:_SHOWN_FAILURES]:
            print(f"kept {keep_files(keep, options.seed, index, **chosen)}")
    for name, count in report.outcomes.most_common():
        print(f"{count:7d}  {name}")
    for name, count in report.warnings.most_common():
        print(f"{count:7d}  warned: {name}")
    print(
        f"seed {options.seed}: {report.cases} cases in {seconds:.0f} s, "
        f"{len(failed)} failures; slowest {report.slowest[0]:.2f} s (index {report.slowest[1]}), "
        f"most memory {report.peak >> 20} MiB"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
