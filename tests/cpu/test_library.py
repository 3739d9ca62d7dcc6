"""How the libraries of kernels are built, kept, found and opened; each case in a new process."""

import ast
import math
import os
import platform
import shutil
import stat
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import mlx.core as mx
import pytest
from programs import python
from shared_files import ROOT

from akunu_py.cpu import build as checks
from akunu_py.cpu import load_kernels, places, processor

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

    def make(script, name="c++"):
        path = tmp_path / name
        path.write_text(f'#!/bin/sh\necho called >>"{tmp_path}/calls"\n{script}\n')
        path.chmod(0o700)
        return str(path)

    return make


@pytest.fixture
def copying(compiler):
    """A compiler that is done at once: the libraries are those of these tests."""
    return compiler(COPY)


def environment(tmp_path, **variables):
    known = {name: value for name, value in os.environ.items() if not name.startswith("AKUNU_")}
    known |= {"AKUNU_CACHE_DIR": str(tmp_path / "cache"), "AKUNU_BLAS": "mlx"}
    return known | variables


def start(tmp_path, program=SAY, **variables):
    """The path or None, the calls that were taken, the reason, and the lines on stderr."""
    done = python("-c", program, env=environment(tmp_path, **variables))
    output = done.stdout.removesuffix("\n")
    found = output.split(" | ") if " | " in output else [output]
    return *found, done.stderr.splitlines()


def build(tmp_path, *arguments, **variables):
    """Build in the foreground, or wait for whoever does; the status, and what was said."""
    known = environment(tmp_path, **variables)
    done = python("-m", "akunu_py.cpu.build", *arguments, code=None, env=known)
    return done.returncode, done.stderr


def calls(tmp_path):
    path = tmp_path / "calls"
    return path.read_text().count("called") if path.exists() else 0


def libraries(tmp_path):
    return sorted(
        path for path in (tmp_path / "cache").rglob("*.so") if ".building" not in str(path)
    )


def wait_until(true):
    while not true():
        time.sleep(0.05)


def test_the_first_start_does_not_wait_and_the_next_has_the_kernels(tmp_path, copying):
    path, taken, reason, said = start(tmp_path, CXX=copying)
    assert (path, taken) == ("None", "0")
    assert reason == "they are being built; the next start has them"
    assert len(said) == 1
    assert said[0].startswith("building kernels")
    wait_until((tmp_path / "cache/kernels/news").exists)
    path, taken, _, said = start(tmp_path, CXX=copying)
    assert taken == "1"
    assert len(said) == 1
    assert said[0].startswith("kernels for this processor were built in ")
    assert start(tmp_path, CXX=copying) == (path, "1", "", [])
    assert calls(tmp_path) == 3  # for each library
    assert [library.parent for library in libraries(tmp_path)] == [Path(path)] * 3
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o700
    assert {left.name for left in Path(path).parent.iterdir()} == {Path(path).name, ".lock"}


def test_a_process_that_lasts_says_itself_what_it_began(tmp_path, copying):
    wait = f"""{SAY}
import time
from pathlib import Path
while not Path({str(tmp_path / "cache/kernels/news")!r}).exists():
    time.sleep(0.05)
"""
    said = start(tmp_path, wait, CXX=copying)[-1]
    assert [line.split()[0] for line in said] == ["building", "kernels"]
    assert start(tmp_path, CXX=copying)[-1] == []


def test_in_the_foreground_somebody_waits(tmp_path, copying):
    status, said = build(tmp_path, CXX=copying)
    assert status == 0
    assert "were built in" in said
    assert build(tmp_path, CXX=copying) == (
        0, f"akunu: the kernels for {processor.levels()[-1]} are there\n"
    )  # fmt: skip
    assert start(tmp_path, CXX=copying)[1:] == ("1", "", [])


@pytest.mark.slow
def test_the_systems_compiler_builds_it(tmp_path):
    assert build(tmp_path)[0] == 0
    path = str(libraries(tmp_path)[0].parent)
    assert start(tmp_path) == (path, "1", "", [])


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
    build(tmp_path, CXX=copying)
    for number in (1, 2, 3):
        before = calls(tmp_path)
        damage(libraries(tmp_path)[number - 1])
        assert start(tmp_path, AKUNU_CPU="auto", CXX=copying)[0] == "None"
        assert build(tmp_path, CXX=copying)[0] == 0
        assert calls(tmp_path) > before
        assert start(tmp_path, CXX=copying)[1] == "1"


def test_processes_that_start_at_once_build_once(tmp_path, compiler):
    slow = compiler(f"sleep 1{COPY}")
    for _ in range(3):
        assert start(tmp_path, CXX=slow)[0] == "None"
    assert build(tmp_path, CXX=slow)[0] == 0
    assert (calls(tmp_path), len(libraries(tmp_path))) == (3, 3)


def test_what_a_compiler_says_of_the_sources_is_remembered(tmp_path, compiler):
    failing = compiler("echo 'x.h:3: error: no <optional>' >&2; exit 1")
    assert "being built" in start(tmp_path, CXX=failing)[2]
    wait_until((tmp_path / "cache/kernels/news").exists)
    path, taken, reason, said = start(tmp_path, CXX=failing)
    assert (path, taken) == ("None", "0")
    assert "error: no <optional>" in reason
    assert len(said) == 1
    assert said[0].startswith("akunu computes with MLX's own kernels, at about a quarter of the")
    assert reason in said[0]
    assert start(tmp_path, CXX=failing) == (path, taken, reason, [])
    assert calls(tmp_path) == 2
    status, said = build(tmp_path, CXX=failing)
    assert (status, reason in said) == (1, True)
    # Another compiler may do.
    other = compiler(COPY, "g++")
    assert start(tmp_path, CXX=other)[2] == "they are being built; the next start has them"
    assert build(tmp_path, CXX=other)[0] == 0
    assert start(tmp_path, CXX=other)[1] == "1"


PASSING = {
    "a full disk": "echo 'as: error: x.o: No space left on device' >&2; exit 1",
    "killed": "kill -9 $$",
    "a linker without a reason": "echo 'collect2: error: ld returned 1 exit status' >&2; exit 1",
    "killed inside": "echo 'g++: fatal error: Killed signal terminated program cc1plus' >&2; exit 1",
    "no memory": "echo 'cc1plus: error: out of memory allocating 65536 bytes' >&2; exit 1",
}


@pytest.mark.parametrize("script", PASSING.values(), ids=PASSING.keys())
def test_what_may_pass_is_tried_again(tmp_path, compiler, script):
    assert build(tmp_path, CXX=compiler(script))[0] == 1
    assert list((tmp_path / "cache/kernels").glob("*.failed")) == []
    reason = start(tmp_path, CXX=compiler(COPY))[2]
    assert reason == "they are being built; the next start has them"


NOT_KERNELS = {
    "text": 'echo text >"$last"',
    "another library": 'cp "$(ldd /bin/sh | grep -o "/[^ ]*libc.so.6")" "$last"',
    "nothing": 'rm "$last"',
}


@pytest.mark.parametrize("script", NOT_KERNELS.values(), ids=NOT_KERNELS.keys())
@pytest.mark.fast_every(3)
def test_what_a_compiler_makes_is_not_believed(tmp_path, compiler, script):
    status, said = build(tmp_path, CXX=compiler(f"for last; do :; done; {script}"))
    assert status == 1
    assert "they could not be built" in said
    assert libraries(tmp_path) == []


def test_kernels_that_compute_something_else_are_found(monkeypatch):
    """Or that MLX does not call."""
    now = SimpleNamespace(kernels=False, taken=0)

    def operation():
        now.taken += now.kernels * now.takes
        return mx.array([1.0, now.result if now.kernels else 2.0])

    kernels = SimpleNamespace(
        akunu_enable=lambda whether: setattr(now, "kernels", bool(whether)),
        akunu_taken=lambda: now.taken,
    )
    monkeypatch.setattr(checks, "_operations", lambda _: [("twice", operation)])
    for now.takes, now.result, wrong in [(1, 2.001, "is wrong"), (0, 2, "went"), (1, math.nan, "")]:
        with pytest.raises(OSError, match=f"twice {wrong}"):
            checks.check(kernels)
    now.takes, now.result = 1, 2
    checks.check(kernels)


def test_a_build_has_an_end_and_leaves_nothing(tmp_path, compiler):
    program = """
from akunu_py.cpu import build, places
build._MOST_S = 0.5
try:
    build.build(places.wanted())
except OSError as error:
    print(error)
"""
    slow = compiler("exec sleep 4711")
    assert start(tmp_path, program, CXX=slow)[0].endswith("took more than 0.5 s")
    assert [path.name for path in (tmp_path / "cache/kernels").iterdir()] == [".lock"]
    assert subprocess.run(["pgrep", "-f", "sleep 4711"], check=False).returncode == 1


def test_what_a_dead_process_left_is_deleted(tmp_path, copying):
    left = tmp_path / "cache/kernels/.building-dead"
    left.mkdir(parents=True)
    assert build(tmp_path, CXX=copying)[0] == 0
    assert not left.exists()


def test_without_a_compiler_a_line_says_once_what_to_install(tmp_path):
    path, taken, reason, said = start(tmp_path, CXX="there-is-no-such-compiler")
    assert (path, taken) == ("None", "0")
    assert "apt install g++" in reason
    assert len(said) == 1
    assert reason in said[0]
    assert start(tmp_path, CXX="there-is-no-such-compiler") == (path, taken, reason, [])
    assert build(tmp_path, CXX="there-is-no-such-compiler")[0] == 1


def test_the_compiler_may_have_options(tmp_path, copying):
    launcher = tmp_path / "ccache"
    launcher.write_text('#!/bin/sh\n[ "$2" = -g ] && exec "$@"\n')
    launcher.chmod(0o700)
    assert build(tmp_path, CXX=f"{launcher} {copying} -g")[0] == 0


def test_without_a_home_that_can_be_written_libraries_lie_beside_temporary_files(tmp_path, copying):
    (tmp_path / "cache").write_text("a file")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    variables = {"CXX": copying, "TMPDIR": str(temporary)}
    assert build(tmp_path, **variables)[0] == 0
    path, taken, _, said = start(tmp_path, **variables)
    store = temporary / f"akunu-kernels-{os.getuid()}"
    assert (Path(path).parent, taken, said) == (store, "1", [])
    assert stat.S_IMODE(store.stat().st_mode) == 0o700
    store.chmod(0o777)
    path, _, reason, _ = start(tmp_path, **variables)
    assert path == "None"
    assert "can be written by others" in reason
    assert "AKUNU_CACHE_DIR" in reason


def test_a_disk_from_which_nothing_runs_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("AKUNU_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_NOEXEC))
    with pytest.raises(OSError, match="noexec"):
        places.writable_store()


def test_the_variable_decides(tmp_path):
    assert start(tmp_path, AKUNU_CPU="mlx") == ("None", "0", "AKUNU_CPU is mlx", [])
    assert start(tmp_path, AKUNU_CPU=str(KERNELS.path))[:2] == (str(KERNELS.path), "1")
    refusal = start(tmp_path, AKUNU_CPU="always")[0]
    assert refusal.startswith("refused: AKUNU_CPU is 'always'")
    early = start(tmp_path, f"import mlx.core\n{SAY}", AKUNU_CPU="auto")
    assert early[:3] == ("None", "0", "MLX was imported before akunu")
    assert "put `from akunu_py import Engine` before" in early[3][0]


def test_whoever_names_a_level_waits_for_it(tmp_path, copying, compiler):
    level = KERNELS.level
    path, taken, _, _ = start(tmp_path, AKUNU_CPU=level, CXX=copying)
    assert Path(path).name.startswith(level)
    assert taken == "1"
    assert (
        f"of {level}"
        in start(tmp_path, SAY + "print('of', kernels.level)", AKUNU_CPU=level, CXX=copying)[-2]
    )
    shutil.rmtree(path)
    failing = compiler("echo 'x.h:3: error: no <optional>' >&2; exit 1")
    refusal = start(tmp_path, AKUNU_CPU=level, CXX=failing)[0]
    assert refusal.startswith(f"refused: AKUNU_CPU is '{level}'")
    assert "error: no <optional>" in refusal


def test_a_level_that_the_machine_lacks_is_refused(tmp_path):
    other = "aarch64" if platform.machine() != "aarch64" else "x86-64-v3"
    refusal = start(tmp_path, AKUNU_CPU=other)[0]
    assert refusal.startswith(f"refused: AKUNU_CPU is '{other}'")
    assert processor.levels()[-1] in refusal


def test_levels_are_read_from_the_processors_flags(monkeypatch):
    flags = " ".join(processor._X86.values()).split()
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    bests = {
        "": "x86-64-v4-vnni",
        "avx512_vnni": "x86-64-v4",
        "avx512bw": "x86-64-v3",
        "fma": "x86-64-v2",
    }
    for missing, best in bests.items():
        line = f"flags : {' '.join(flag for flag in flags if flag != missing)}"
        monkeypatch.setattr(processor, "_cpuinfo", lambda line=line: [line])
        assert processor.levels()[-1] == best
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert processor.levels()[-1] == "aarch64"


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """Libraries as wheels have them, for a version of MLX and a level."""
    monkeypatch.setenv("AKUNU_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(places, "SHIPPED", tmp_path / "prebuilt")

    def ship(mlx, level):
        shutil.copytree(KERNELS.path, folder := places.SHIPPED / mlx / level)
        for path in folder.iterdir():
            path.chmod(0o664)  # as some installers leave them
        return folder

    return ship


def test_the_best_shipped_level_of_the_machine_is_taken(shipped, monkeypatch):
    monkeypatch.setattr(processor, "levels", lambda: ["native", "x86-64", "x86-64-v2", "x86-64-v3"])
    mlx = places.wanted().mlx
    assert places.wanted().level == "x86-64-v3"
    assert places.wanted().found() is None
    shipped(mlx, "x86-64-v4")
    two = shipped(mlx, "x86-64-v2")
    assert places.wanted().found() == two
    three = shipped(mlx, "x86-64-v3")
    assert places.wanted().found() == three
    assert places.wanted("x86-64-v2").found() == two


def test_a_shipped_side_of_another_mlx_is_taken_after_a_check_alone(shipped, tmp_path):
    version, level = places.wanted().mlx, KERNELS.level
    minor = version.rpartition(".")[0]
    shipped("0.1.2", level)
    assert places.wanted().ready_made(places.KERNELS) is None
    assert places.wanted(level).ready_made(places.ARITHMETIC)
    shipped(f"{minor}.99", level)
    assert places.wanted(level).found() is None
    program = f"""
from pathlib import Path
from akunu_py.cpu import build, places
places.SHIPPED = Path({str(places.SHIPPED)!r})
build.make(Path("made"), {level!r}, copy=COPIED)
"""
    known = environment(tmp_path, CXX="there-is-no-such-compiler", PYTHONPATH=str(ROOT))
    for copied, code in ((True, 0), (False, 1)):
        words = ["-c", program.replace("COPIED", str(copied))]
        python(*words, code=code, cwd=tmp_path, env=known)
    assert {path.name for path in (tmp_path / "made").iterdir()} == {
        path.name for path in KERNELS.path.glob("*.so")
    }


def test_other_libraries_do_not_see_mlx(tmp_path):
    """MLX has functions of the same names as llama.cpp, which would call them if they were global."""
    program = f"{SAY}\nimport ctypes\nprint(hasattr(ctypes.CDLL(None), 'gguf_get_key'))"
    assert start(tmp_path, program, AKUNU_CPU=str(KERNELS.path))[2].endswith("False")


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
