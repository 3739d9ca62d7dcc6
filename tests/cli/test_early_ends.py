"""Commands that end before they are done: Ctrl-C, other signals, a reader that has gone, a full disk."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from akunu_runs import AKUNU
from programs import python

# Neither end-of-generation id of the default model is chosen: it says 1,500 tokens, which is seconds.
ENDLESS = ["--raw", "--max-tokens", "1500", "--drafter", "none"]


# Output is written in pieces, as at a user's.
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
BUFFERED["AKUNU_LOGIT_BIAS"] = "0=-1e6 4=-1e6"


def started(*arguments, **streams):
    return subprocess.Popen(
        [*AKUNU, *map(str, arguments)],
        env=BUFFERED,
        **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
           **streams},
    )  # fmt: skip


def interrupted(child, codes=(130,)):
    """Send Ctrl-C's signal; return what stderr had after it."""
    try:
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=300)
    finally:
        child.kill()
        child.wait()
    assert b"Traceback" not in errors
    assert child.returncode in codes
    return errors


@pytest.mark.slow
def test_an_interrupt_while_a_model_is_loaded(default_model):
    child = started("-v", "generate", default_model, "-p", "def", *ENDLESS)
    child.stderr.readline()  # what --verbose says while the model is being loaded
    assert interrupted(child).endswith(b"Interrupted.\n")


INTERRUPTED_PREFILL = """
import contextlib, os, signal
from akunu_py.cli import terminal

@contextlib.contextmanager
def progress():
    yield lambda _done, _total: os.kill(os.getpid(), signal.SIGINT)

terminal.prompt_progress = progress
from akunu_py.cli.main import main
main()
"""


@pytest.mark.slow
def test_an_interrupt_while_a_prompt_is_read(tiny_gguf):
    words = ["generate", tiny_gguf, "-p", "hello world"]
    done = python("-c", INTERRUPTED_PREFILL, *words, code=130, timeout=300)
    assert done.stdout == ""
    assert done.stderr.endswith("Interrupted.\n")
    assert "Traceback" not in done.stderr


def test_an_interrupt_while_a_reply_is_made(default_model):
    child = started("generate", default_model, "-p", "def", *ENDLESS)
    assert child.stdout.read(1)
    interrupted(child)


@pytest.mark.slow
def test_an_interrupt_while_a_model_is_written(default_model, tmp_path):
    out = tmp_path / "out"
    child = started("models", "convert", default_model, out)
    end = time.monotonic() + 300
    # The folder, or the one it is made in, appears when writing begins.
    while not any(tmp_path.iterdir()) and time.monotonic() < end and child.poll() is None:
        time.sleep(0.001)
    interrupted(child, codes=(0, 130))
    assert out.exists() == (child.returncode == 0)
    assert [path.name for path in tmp_path.iterdir()] == ([out.name] if out.exists() else [])


@pytest.mark.slow
def test_a_reader_that_has_seen_enough(default_model):
    with started("generate", default_model, "-p", "def", *ENDLESS) as child:
        child.stdout.read(1)
        child.stdout.close()
        errors = child.stderr.read()
        assert child.wait(300) == 141
    assert errors == b""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"], ["models", "show", "MODEL"],
        pytest.param(["config", "show"], marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_a_reader_that_reads_nothing(arguments, tiny_gguf):
    read, write = os.pipe()
    os.close(read)
    child = started(*[tiny_gguf if a == "MODEL" else a for a in arguments], stdout=write)
    os.close(write)
    _, errors = child.communicate(timeout=300)
    assert (child.returncode, errors) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is full")
@pytest.mark.parametrize("arguments", [["models", "show", "MODEL"], ["--version"]])
def test_a_full_disk(arguments, tiny_gguf):
    with Path("/dev/full").open("wb") as full:
        child = started(*[tiny_gguf if a == "MODEL" else a for a in arguments], stdout=full)
        _, errors = child.communicate(timeout=300)
    assert child.returncode == 1
    assert errors.startswith(b"Error: ")
    assert b"No space left" in errors
    assert b"Traceback" not in errors
    assert b"Exception" not in errors


@pytest.mark.slow
@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_that_ends_a_reply(name, code, default_model):
    """By an exception, so that a terminal's state and files half written are put back."""
    child = started("generate", default_model, "-p", "def", *ENDLESS)
    assert child.stdout.read(1)
    try:
        child.send_signal(getattr(signal, name))
        _, errors = child.communicate(timeout=300)
    finally:
        child.kill()
        child.wait()
    assert (child.returncode, errors) == (code, b"")


def test_a_signal_that_is_ignored_stays_so():
    code = (
        "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from akunu_py.cli.signals import end_by_signals; end_by_signals()\n"
        "print(repr(signal.getsignal(signal.SIGHUP)), signal.getsignal(signal.SIGTERM))"
    )
    done = python("-c", code)
    assert "SIG_IGN" in done.stdout
    assert "_end" in done.stdout


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 1), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_while_a_module_is_imported_ends_the_program_behind_it(name, code, tmp_path):
    """Inside, Python turns it into another error where a class is made, as here, or ignores it."""
    (tmp_path / "slow.py").write_text(
        "import signal, time\n"
        "class Field:\n"
        "    def __set_name__(self, *_):\n"
        f"        signal.raise_signal(signal.{name})\n"
        "        time.sleep(0.1)\n"
        "class Made:\n"
        "    field = Field()\n"
        "print('whole', flush=True)\n"
    )
    program = (
        "import sys, time; from akunu_py.cli.signals import end_by_signals; end_by_signals()\n"
        f"sys.path.append({str(tmp_path)!r})\n"
        "def run():\n"
        "    import slow\n"
        "    time.sleep(300)\n"
        "try:\n"
        "    run()\n"
        "except KeyboardInterrupt:\n"
        "    sys.exit(1)\n"
    )
    done = python("-c", program, code=code)
    assert (done.stdout, done.stderr) == ("whole\n", "")


def test_an_interrupt_while_the_program_is_imported():
    code = (
        "import sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'akunu_py.cli.group':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from akunu_py.__main__ import main\n"
        "main()"
    )
    done = python("-c", code, "--version", code=130)
    assert (done.stdout, done.stderr) == ("", "")


def test_little_is_imported_before_an_interrupt_becomes_an_exit_code():
    code = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "import akunu_py.__main__\n"
        "print(*(set(sys.modules) - before))"
    )
    done = python("-S", "-c", code, variables={"PYTHONPATH": str(Path(__file__).parents[2])})
    names = set(done.stdout.split())
    assert "akunu_py.__main__" in names
    assert not names & {"typing", "re", "click"}
