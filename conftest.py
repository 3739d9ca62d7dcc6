"""Fixtures of all rooms: where test data lies, and small models to run."""

import contextlib
import gc
import importlib.metadata
import importlib.util
import logging
import os
import signal
import subprocess
import sys
import time
import types
from collections import Counter

import pytest
from gguf_files import write_tiny_llama
from hub_server import hub_server
from hypothesis import settings
from shared_files import ROOT


def load_libraries():
    """Load the BLAS and the kernels, since test modules import MLX before akunu.

    Imports of akunu's rooms load them as well. So none stands above: they would not see what is set
    here.
    """
    # Identity is asserted to the bit, which MLX's own BLAS gives; tests/fast_blas asks for another.
    os.environ.setdefault("AKUNU_BLAS", "mlx")
    if os.environ.get("AKUNU_CPU", "auto") == "auto" and sys.platform == "linux":
        # Else MLX's own would be tested while they are built.
        subprocess.run([sys.executable, "-m", "akunu_py.cpu.build"], check=False)
    from akunu_py.cpu import load_kernels

    # Programs that tests start have caches of their own, and would build the kernels again.
    os.environ["AKUNU_CPU"] = str(load_kernels().path or "mlx")
    from akunu_py.models.device import disable_compile_with_kernels

    # As it is once a model was loaded: bits are not to depend on the tests before.
    disable_compile_with_kernels()


# Here, since a conftest of a room may import MLX before tests are configured.
load_libraries()

# Failing examples must not depend on the day; and model passes take what they take.
# `scripts/test --all` asks for the second.
for name, examples in {"fast": 10, "all": 25}.items():
    settings.register_profile(name, deadline=None, derandomize=True, max_examples=examples)
settings.load_profile("fast")


def run_on_one_core():
    """Give each worker of pytest-xdist a core of its own, where the system lets it.

    MLX computes in a thread of its own. On another core it wakes for each operation and interrupts
    Python each time; on the same core it waits until Python waits, if it runs as a batch. That is a
    tenth of the switches and a fifth less processor time.
    """
    # A container may forbid either, and only Linux knows them.
    with contextlib.suppress(AttributeError, OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    with contextlib.suppress(AttributeError, OSError, KeyError, IndexError):
        number = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
        # A worker beyond the last core goes where there is time.
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[number]})


def pytest_configure(config):
    run_on_one_core()
    # Else every worker, and every akunu that a test starts, compiles all modules again.
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if os.environ.get("LD_PRELOAD"):
        pytest.exit("unset LD_PRELOAD: a preloaded library may change what is tested", 2)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell's background job: the programs that tests interrupt would ignore it as well.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        # nohup leaves it ignored in the processes that tests start.
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


LONG = (
    "test_leaks.py", "test_many.py", "test_interrupts.py", "test_check.py", "test_fuzz_gguf.py",
)  # fmt: skip
"""Modules with the longest tests, of up to half a minute."""


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Look for no garbage meanwhile: a million objects are made that stay, a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


# Before pytest leaves out those that are marked slow.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Begin with the longest, lest one worker waits for another that has them at its end."""
    mark_slow_cases(items)
    if importlib.util.find_spec("akunu_lab") is None:
        for item in items:
            if item.get_closest_marker("lab"):
                item.add_marker(pytest.mark.skip(reason="akunu_lab is not installed"))
    items.sort(key=lambda item: item.path.name not in LONG)


def mark_slow_cases(items):
    """Mark all but every n-th case of a test with `fast_every(n)` as slow."""
    cases = Counter()
    for item in items:
        every = item.get_closest_marker("fast_every")
        if every is None or item.get_closest_marker("slow"):
            continue
        test = item.nodeid.partition("[")[0]
        if cases[test] % every.args[0]:
            item.add_marker(pytest.mark.slow)
        cases[test] += 1


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory):
    """Costs of passes that tests measure are not remembered on the machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AKUNU_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        # Nor do the settings of whoever runs the tests count.
        for name in [name for name in os.environ if name.startswith("AKUNU_")]:
            if name not in ("AKUNU_BLAS", "AKUNU_CPU", "AKUNU_CACHE_DIR"):
                patch.delenv(name)
        # On a Mac the first load would race, and say so.
        patch.setenv("AKUNU_METAL", "mlx")
        # Without a model that was fetched the default one is the toy.
        patch.setenv("AKUNU_DATA_DIR", str(tmp_path_factory.mktemp("data")))
        patch.setenv("AKUNU_CONFIG", os.devnull)
        # Nothing here outlives the machine: a disk that is waited for only costs time.
        patch.setattr(os, "fsync", lambda _file: None)
        # pytest-xdist sets it in its workers; without a terminal commands choose their own width.
        patch.delenv("COLUMNS", raising=False)
        yield


@pytest.fixture(scope="module", autouse=True)
def old_objects_are_left_alone():
    """`Engine.close` collects garbage: it need not walk over all that was imported, 0.1 s each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def level_of_the_log():
    """Commands that tests run in this process set it, and would hide what later tests look for.

    So do those of fixtures, which run before a test's own.
    """
    logging.getLogger("akunu_py").setLevel(logging.NOTSET)
    yield
    logging.getLogger("akunu_py").setLevel(logging.NOTSET)


@pytest.fixture(autouse=True)
def progress_clock(monkeypatch):
    """The clock of lines of progress, `now`, which stands still unless a test gives another one.

    Without a terminal a run of ten seconds prints one, and a busy machine makes any run that long.
    """
    clock = types.SimpleNamespace(now=lambda: 0.0)
    monkeypatch.setattr("akunu_py.cli.count_progress.monotonic", lambda: clock.now())  # noqa: PLW0108 - tests replace it
    return clock


@pytest.fixture(autouse=True)
def no_load(monkeypatch):
    """Commands that measure wait and warn on a busy machine; tests of that set the load."""
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))


@pytest.fixture
def offer(monkeypatch):
    """Offer objects as entry points of some groups, as in offer(drafters={"mine": make})."""
    from akunu_py.system import plug_ins

    class Point:
        def __init__(self, name, offered):
            self.name, self.offered, self.value = name, offered, f"{name}:{name}"

        def load(self):
            if self.offered is None:
                raise ModuleNotFoundError("removed since")
            if isinstance(self.offered, Exception):
                raise self.offered
            return self.offered

    real = importlib.metadata.entry_points

    def offer(**groups):
        found = {f"akunu.{group}": offered for group, offered in groups.items()}

        def entry_points(group):
            if group not in found:
                return real(group=group)
            return [Point(*entry) for entry in found[group].items()]

        monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
        plug_ins.forget_plug_ins()

    yield offer
    monkeypatch.undo()
    plug_ins.forget_plug_ins()


@pytest.fixture(scope="session")
def default_model():
    return ROOT / "models" / "akunu-tiny.gguf"


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory):
    """A random llama with byte-level BPE and a chat template, float32, context 256."""
    return write_tiny_llama(tmp_path_factory.mktemp("tiny") / "tiny.gguf", tied=False, seed=3)


@pytest.fixture(scope="module")
def shared_engine(tiny_gguf):
    from akunu_py import Engine

    with Engine.load(tiny_gguf) as engine:
        yield engine


@pytest.fixture
def engine(shared_engine):
    """An engine over the tiny model."""
    shared_engine.reset()
    return shared_engine


@pytest.fixture(scope="session")
def tiny_draft(tmp_path_factory):
    """The tiny model's smaller relative: the same vocabulary, other weights, one layer."""
    path = tmp_path_factory.mktemp("draft") / "draft.gguf"
    return write_tiny_llama(path, tied=False, seed=9, layers=1)


@pytest.fixture(scope="module")
def shared_tiny_pair(tiny_gguf, tiny_draft):
    from akunu_py import Engine

    with Engine.load(tiny_gguf, draft_model=tiny_draft) as engine:
        yield engine


@pytest.fixture
def tiny_pair(shared_tiny_pair):
    """The tiny model with its smaller relative as draft model."""
    shared_tiny_pair.reset()
    return shared_tiny_pair


@pytest.fixture(scope="module")
def pair(default_model):
    """The shipped model with the shipped draft model."""
    from akunu_py import Engine

    draft = default_model.with_name("akunu-tiny-draft.gguf")
    with Engine.load(default_model, draft_model=draft) as engine:
        yield engine


@pytest.fixture
def hub_cache(tmp_path, monkeypatch):
    """Where the hub's cache will be, and a settings file of this test's own, which is empty."""
    cache = tmp_path / "hub"
    settings = tmp_path / "config" / "config.toml"
    settings.parent.mkdir()
    settings.touch()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    monkeypatch.setenv("AKUNU_CONFIG", str(settings))
    return cache


@pytest.fixture
def hub(hub_cache, monkeypatch):
    """A hub on this machine, which huggingface_hub asks and whose files come into `hub_cache`."""
    import huggingface_hub

    with hub_server() as server:
        for name, value in {
            "ENDPOINT": server.url,
            "HUGGINGFACE_CO_URL_TEMPLATE": server.url + "/{repo_id}/resolve/{revision}/{filename}",
            "HF_TOKEN_PATH": str(hub_cache / "token"),
            "HF_HUB_OFFLINE": False,
        }.items():
            monkeypatch.setattr(f"huggingface_hub.constants.{name}", value)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
        # Between its attempts the library waits for seconds.
        hurried = types.SimpleNamespace(**vars(time) | {"sleep": lambda _seconds: None})
        for module in ("file_download", "utils._http"):
            monkeypatch.setattr(f"huggingface_hub.{module}.time", hurried)
        yield server
        huggingface_hub.close_session()
