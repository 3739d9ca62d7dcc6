"""A Mac that is short of memory, as a source in its place says: what is given back and refused."""

import ctypes
import logging
import sys

import mlx.core as mx
import pytest
from inside import entries
from kept_worker import KeptModels, Worker
from toy_engine import PLAIN
from turns import run

from akunu_py.models import device
from akunu_py.models.device import Pressure
from akunu_py.models.memory_check import PlannedModel, check_memory
from akunu_py.server.disk_tier import DiskTier
from akunu_py.server.prefix_cache import PrefixCache
from akunu_py.system.errors import MemoryLimitError
from akunu_py.values.load_options import LoadOptions

TEXTS = [f"{letter} cat and a dog, a cat and a bird. " for letter in "abcd"]


class Mac:
    """A library that answers as macOS does, and the time of a test."""

    def __init__(self):
        self.level, self.failed, self.asked, self.now = 1, 0, 0, 0.0

    def sysctlbyname(self, name, level, size, new, new_size):
        assert name == b"kern.memorystatus_vm_pressure_level"
        assert size._obj.value == ctypes.sizeof(ctypes.c_int)
        assert (new, new_size) == (None, 0)
        self.asked += 1
        level._obj.value = self.level
        return self.failed


@pytest.fixture
def mac(monkeypatch):
    found = Mac()
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: found if name is None else None)
    cleared = []
    monkeypatch.setattr(mx, "clear_cache", lambda: cleared.append(found.level))
    found.cleared = cleared
    return found


@pytest.mark.parametrize(
    ("level", "failed", "said"),
    [(1, 0, 1), (2, 0, 2), (4, 0, 4), (0, 0, 1), (3, 0, 1), (-1, 0, 1), (4, -1, 1)],
)
def test_what_macos_says(mac, level, failed, said):
    mac.level, mac.failed = level, failed
    assert device.pressure_reader()() is Pressure(said)


def test_other_systems_are_not_asked(monkeypatch, toy):
    monkeypatch.setattr(device, "read_pressure", lambda system: pytest.fail("asked"))
    monkeypatch.setattr(sys, "platform", "linux")
    assert device.pressure_reader() is None
    device.yield_to_others()
    models = KeptModels(toy, PrefixCache(1 << 26))
    models.relieve()
    assert models.tidy_in() is None


def test_an_engine_gives_buffers_back_and_then_refuses(mac, toy, tiny_gguf):
    def reply():
        return toy.generate(TEXTS[0], max_tokens=4, logit_bias=PLAIN).token_ids

    expected = reply()
    mac.cleared.clear()
    mac.level = 2
    assert reply() == expected
    assert 2 in mac.cleared
    mac.level = 4
    for refused in (reply, lambda: check_memory([PlannedModel(tiny_gguf, LoadOptions())])):
        with pytest.raises(MemoryLimitError, match="critically short; close other programs"):
            refused()
    mac.level = 1
    assert reply() == expected


def serving(mac, toy, cache):
    """A worker with four conversations in its cache."""
    models = KeptModels(toy, cache)
    models._clock = lambda: mac.now
    worker = Worker(models, parallel=2)
    for text in TEXTS:
        ask(worker, toy, text)
    run(worker)
    assert len(entries(cache)) == 4
    return worker


def ask(worker, toy, text):
    prompt = toy.prompt_ids(text)
    return worker.submit(toy.check(prompt, max_tokens=4, logit_bias=PLAIN, drafter="none"))


def idle(worker, mac, seconds):
    """Let time go by with nothing to do."""
    mac.now += seconds
    worker._tidy(idle=True)


def test_a_server_gives_back_what_it_keeps_for_later(mac, toy, caplog):
    cache = PrefixCache(1 << 26)
    worker = serving(mac, toy, cache)
    idle(worker, mac, 10)
    assert len(entries(cache)) == 4
    mac.level, whole, asked = 2, cache.nbytes, mac.asked
    with caplog.at_level(logging.INFO):
        idle(worker, mac, 0.1)
        assert mac.asked == asked  # not at each step of a reply
        assert worker.models.tidy_in() == pytest.approx(1.9)
        idle(worker, mac, 1.9)
    assert 0 < cache.nbytes <= whole / 2
    assert [entry.key[0] for entry in entries(cache)][-1] == toy.prompt_ids(TEXTS[-1])[0]
    assert "macOS is short of memory" in caplog.text
    mac.level = 4
    idle(worker, mac, 2)
    assert cache.nbytes == 0
    assert worker.models.tidy_in() is None  # nothing is kept, and nobody looks
    worker.close()


def test_a_server_refuses_replies_while_it_is_critical_and_goes_on(mac, toy):
    worker = serving(mac, toy, PrefixCache(1 << 26))
    mac.level = 4
    refused = ask(worker, toy, TEXTS[0])
    run(worker)
    with pytest.raises(MemoryLimitError, match="critically short"):
        list(refused.events)
    mac.level = 1
    made = ask(worker, toy, TEXTS[0])
    run(worker)
    *_, last = made.events
    assert len(last.result.token_ids) == 4
    worker.close()


def test_rows_are_written_to_disk_before_they_go(mac, toy, tmp_path):
    lane = toy.lane()
    steps = lane.session.digest()
    try:
        while True:
            next(steps)
    except StopIteration as end:
        cache = PrefixCache(1 << 26, DiskTier(tmp_path, 1 << 26, end.value))
    lane.close()
    worker = serving(mac, toy, cache)
    mac.level = 4
    idle(worker, mac, 2)
    assert not entries(cache)
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) >= 4
    worker.close()
