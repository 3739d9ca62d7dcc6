"""How the library of kernels is built, kept and opened; each case in a new process."""

import ast
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from shared_files import ROOT

from akunu_py.cpu import load_kernels

KERNELS = load_kernels()
pytestmark = pytest.mark.skipif(KERNELS.path is None, reason=f"no kernels: {KERNELS.reason}")

COPY = f"""
for last; do :; done
name=$(basename "$last" .so)
cp "{KERNELS.path}/$name"-*.so "$last"
"""

SAY = """
import sys
from akunu_py.cpu import load_kernels
from akunu_py.system.errors import ConfigError
try:
    kernels = load_kernels()
except ConfigError as error:
    print("refused:", error)
    sys.exit()
import mlx.core as mx
assert mx.sigmoid(mx.zeros(3)).tolist() == [0.5, 0.5, 0.5]
print(kernels.path, kernels.num_taken(), kernels.reason, sep=" | ")
"""


@pytest.fixture
def compiler(tmp_path):
    """A compiler that does what `script` says; it notes each call."""

    def make(script):
        path = tmp_path / "c++"
        path.write_text(f'#!/bin/sh\necho called >>"{tmp_path}/calls"\n{script}\n')
        path.chmod(0o700)
        return str(path)

    return make


@pytest.fixture
def copying(compiler):
    """A compiler that is done at once: the libraries are those of these tests."""
    return compiler(COPY)


def started(tmp_path, program=SAY, **variables):
    known = {name: value for name, value in os.environ.items() if not name.startswith("AKUNU_")}
    known |= {"AKUNU_CACHE_DIR": str(tmp_path / "cache"), "AKUNU_BLAS": "mlx"}
    return subprocess.Popen(
        [sys.executable, "-c", program], env=known | variables, stdout=subprocess.PIPE, text=True
    )


def said(tmp_path, program=SAY, **variables):
    """The path or None, the calls that were taken, and the reason."""
    process = started(tmp_path, program, **variables)
    output = process.communicate()[0].removesuffix("\n")
    assert process.returncode == 0
    return output.split(" | ") if " | " in output else output


def calls(tmp_path):
    return (tmp_path / "calls").read_text().count("called")


def libraries(tmp_path):
    return sorted((tmp_path / "cache").rglob("*.so"))


def test_a_library_is_built_once_and_kept_for_oneself(tmp_path, copying):
    path, taken, _ = said(tmp_path, CXX=copying)
    assert taken == "1"
    assert said(tmp_path, CXX=copying)[0] == path
    assert calls(tmp_path) == 3  # for each library
    assert [library.parent for library in libraries(tmp_path)] == [Path(path)] * 3
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o700
    assert list(Path(path).parent.iterdir()) == [Path(path)]


@pytest.mark.slow
def test_the_systems_compiler_builds_it(tmp_path):
    path, taken, reason = said(tmp_path)
    assert (path, taken, reason) == (str(libraries(tmp_path)[0].parent), "1", "")


DAMAGES = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:1000]),
    "empty": lambda path: path.write_bytes(b""),
    "changed": lambda path: path.write_bytes(path.read_bytes()[:-1] + b"?"),
    "writable by others": lambda path: path.chmod(0o666),
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
@pytest.mark.fast_every(5)
def test_a_damaged_library_is_built_again(tmp_path, copying, damage):
    said(tmp_path, CXX=copying)
    for number in (1, 2, 3):
        damage(libraries(tmp_path)[number - 1])
        _, taken, _ = said(tmp_path, CXX=copying)
        assert (taken, calls(tmp_path)) == ("1", 3 + 3 * number)


def test_two_processes_build_at_once(tmp_path, compiler):
    slow = compiler(f"sleep 1{COPY}")
    both = [started(tmp_path, CXX=slow) for _ in range(2)]
    found = [process.communicate()[0].split(" | ") for process in both]
    assert [taken for _, taken, _ in found] == ["1", "1"]
    assert len(libraries(tmp_path)) == 3


def test_a_build_that_fails_is_not_tried_again(tmp_path, compiler):
    failing = compiler("echo 'x.h:3: error: no <optional>' >&2; exit 1")
    for _ in range(2):
        path, taken, reason = said(tmp_path, CXX=failing)
        assert (path, taken) == ("None", "0")
        assert "error: no <optional>" in reason
    assert calls(tmp_path) == 2  # both begin at once


NOT_KERNELS = {
    "text": 'echo text >"$last"',
    "another library": 'cp "$(ldd /bin/sh | grep -o "/[^ ]*libc.so.6")" "$last"',
    "nothing": 'rm "$last"',
}


@pytest.mark.parametrize("script", NOT_KERNELS.values(), ids=NOT_KERNELS.keys())
@pytest.mark.fast_every(3)
def test_what_a_compiler_makes_is_not_believed(tmp_path, compiler, script):
    path, taken, reason = said(tmp_path, CXX=compiler(f"for last; do :; done; {script}"))
    assert (path, taken) == ("None", "0")
    assert "the kernels could not be built" in reason
    assert libraries(tmp_path) == []


def test_without_a_compiler_the_reason_says_what_to_install(tmp_path):
    path, taken, reason = said(tmp_path, CXX="there-is-no-such-compiler")
    assert (path, taken) == ("None", "0")
    assert "apt install g++" in reason


def test_a_cache_that_cannot_be_written_leaves_mlx_its_own(tmp_path, copying):
    (tmp_path / "cache").write_text("a file")
    path, _, reason = said(tmp_path, CXX=copying)
    assert path == "None"
    assert "cache" in reason


def test_the_variable_decides(tmp_path):
    assert said(tmp_path, AKUNU_CPU="mlx") == ["None", "0", "AKUNU_CPU is mlx"]
    assert said(tmp_path, AKUNU_CPU=str(KERNELS.path))[:2] == [str(KERNELS.path), "1"]
    refusal = said(tmp_path, AKUNU_CPU="always")
    assert refusal.startswith("refused: AKUNU_CPU is 'always'")
    early = said(tmp_path, f"import mlx.core\n{SAY}", AKUNU_CPU="auto")
    assert early == ["None", "0", "MLX was imported before akunu"]


def test_other_libraries_do_not_see_mlx(tmp_path):
    """MLX has functions of the same names as llama.cpp, which would call them if they were global."""
    program = f"{SAY}\nimport ctypes\nprint(hasattr(ctypes.CDLL(None), 'gguf_get_key'))"
    assert said(tmp_path, program, AKUNU_CPU=str(KERNELS.path))[-1].endswith("False")


def test_only_rooms_that_load_the_kernels_import_mlx_as_they_are_imported():
    """Another module may be the first of a program, which then computes without them."""
    found = []
    for path in (ROOT / "akunu_py").rglob("*.py"):
        if path.relative_to(ROOT / "akunu_py").parts[0] in {"models", "sampling", "lab"}:
            continue
        for line in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [alias.name for alias in line.names] if isinstance(line, ast.Import) else []
            names += [line.module or ""] if isinstance(line, ast.ImportFrom) else []
            found += [path for name in names if name.split(".")[0] in {"mlx", "mlx_lm"}]
    assert found == []
