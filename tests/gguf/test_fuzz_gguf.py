"""The fuzzer itself, and a short run of it; `scripts/fuzz_gguf.py` runs more."""

import dataclasses
import importlib
import os
import sys
import warnings
from pathlib import Path

import pytest

from akunu_py.gguf.reader import GGUFFile
from akunu_py.system.errors import ConfigError, ModelFormatError

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

fuzz_gguf = importlib.import_module("fuzz_gguf")
worker = importlib.import_module("gguf_fuzzing.worker")
Case, make_case = worker.Case, worker.make_case
make_seeds = worker.make_seeds
GROUPS = ("plain", "split")


@pytest.fixture(scope="module")
def seeds():
    return make_seeds(GROUPS)


def check(report, count):
    assert report.failures == []
    assert report.cases == count
    accepted = report.outcomes["done: accepted"]
    refused_late = sum(
        number
        for name, number in report.outcomes.items()
        if name.startswith(("load:", "forward:", "tokenizer:"))
    )
    # A fuzzer whose files are all refused at the door, or all accepted, tests nothing.
    assert accepted > 0.03 * count
    assert refused_late > 0.05 * count


def test_a_short_run():
    check(fuzz_gguf.run(1, range(100), groups=GROUPS, limit_s=600), 100)


@pytest.mark.slow
def test_a_longer_run():
    jobs = min(4, os.cpu_count() or 1)
    check(fuzz_gguf.run(2, range(1500), jobs=jobs, limit_s=600), 1500)


def test_cases_depend_on_seed_and_index_alone(seeds):
    again = make_seeds(GROUPS)
    cases = [make_case(seeds, 5, index, data_too=True) for index in range(60)]
    assert cases == [make_case(again, 5, index, data_too=True) for index in range(60)]
    assert cases != [make_case(seeds, 6, index, data_too=True) for index in range(60)]
    assert len({tuple(case.files.values()) for case in cases}) > 55


def test_seeds_are_sound(seeds, tmp_path):
    assert {len(seed.files) for seed in seeds} == {1, 3}
    for seed in seeds:
        for name, document in zip(seed.file_names(), seed.files, strict=True):
            (tmp_path / name).write_bytes(document.encode())
        GGUFFile.open(tmp_path / seed.file_names()[-1]).close()


def test_the_header_alone(seeds):
    """With `--part header` the weights of a single file stay as they are, unless bytes moved."""
    whole = {seed.name: seed.files[0] for seed in seeds if len(seed.files) == 1}
    cases = [make_case(seeds, 7, index, data_too=False) for index in range(200)]
    kept = [
        case.files["model.gguf"].endswith(whole[case.seed].data[-1000:])
        for case in cases
        if case.seed in whole
    ]
    assert sum(kept) > 0.9 * len(kept)


class FakeProcess(fuzz_gguf.Worker):
    """A worker whose process runs other code in place of the cases."""

    code = ""

    def _command(self):
        return [sys.executable, "-c", "print('ready', flush=True)\n" + self.code]


@pytest.mark.parametrize(
    ("code", "limit_s", "outcome", "words"),
    [
        ("import os, signal; input(); os.kill(os.getpid(), signal.SIGSEGV)", 600, "death",
         "status -11"),
        ("import sys; input(); print('last words', file=sys.stderr); sys.exit(3)", 600, "death",
         "last words"),
        ("import time; input(); time.sleep(3600)", 0.2, "hang", "not done after 0.2 s"),
    ],
)  # fmt: skip
def test_deaths_and_hangs_are_reported(code, limit_s, outcome, words):
    process = FakeProcess(0, "all", GROUPS, limit_s)
    process.code = code
    for index in (3, 4):  # and another process is started
        result = process.run(index)
        assert (result["index"], result["outcome"]) == (index, outcome)
        assert words in result["failure"]
    process.close()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ModelFormatError("fine"), None),
        (ConfigError("fine"), None),
        (ValueError("not ours"), "not ours"),
        (MemoryError(), "MemoryError"),
        (RecursionError("deep"), "deep"),
        (BaseException("a panic"), "a panic"),
    ],
)
def test_what_counts_as_a_failure(seeds, tmp_path, monkeypatch, error, words):
    monkeypatch.setattr(worker, "load_model", lambda *_, **__: raise_(error))
    seed = seeds[0]
    case = Case(seed.name, {"model.gguf": seed.files[0].encode()}, "model.gguf")
    result = worker.run_case(case, 0, tmp_path)
    assert result.stage == "load"
    assert result.outcome == type(error).__name__
    assert (words is None and result.failure is None) or words in result.failure


@pytest.mark.slow
def test_wrapped_errors_of_memory_and_libraries_are_failures(seeds, tmp_path, monkeypatch):
    seed = seeds[0]
    case = Case(seed.name, {"model.gguf": seed.files[0].encode()}, "model.gguf")
    for cause, words in ((MemoryError(), "memory ran out"), (RuntimeError("x"), "library")):

        def load(*_, cause=cause, **__):
            raise ConfigError("cannot be loaded") from cause

        monkeypatch.setattr(worker, "load_model", load)
        assert words in worker.run_case(case, 0, tmp_path).failure

    def grow(*_, **__):
        b"x" * (worker.MAX_GROWTH * 2 + worker._peak_bytes())
        raise ModelFormatError("fine")

    monkeypatch.setattr(worker, "load_model", grow)
    assert "grew by" in worker.run_case(case, 0, tmp_path).failure


def test_warnings_are_counted_and_no_failures(seeds, tmp_path, monkeypatch):
    def load(*_, **__):
        warnings.warn("numbers overflow", RuntimeWarning, stacklevel=1)
        raise ModelFormatError("fine")

    monkeypatch.setattr(worker, "load_model", load)
    case = Case("", {"model.gguf": seeds[0].files[0].encode()}, "model.gguf")
    result = worker.run_case(case, 0, tmp_path)
    assert result.failure is None
    report = fuzz_gguf.Report()
    report.add(dataclasses.asdict(result))
    ((words, count),) = report.warnings.items()
    assert "numbers overflow" in words
    assert count == 1


def raise_(error):
    raise error


@pytest.mark.slow
def test_the_command_keeps_the_files_of_one_case(tmp_path, monkeypatch, capsys):
    arguments = ["fuzz_gguf.py", "--seed", "1", "--only", "17", "--keep", str(tmp_path)]
    arguments += ["--models", "plain"]
    monkeypatch.setattr(sys, "argv", arguments)
    assert fuzz_gguf.main() == 0
    kept = make_case(make_seeds(["plain"]), 1, 17, data_too=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "1-17").iterdir()} == kept.files
    assert "1 cases" in capsys.readouterr().out
