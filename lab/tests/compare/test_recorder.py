"""What the recorder of a reply counts, and what a file gives back."""

import types

import pytest
from bench.fake_arms import END

from akunu_lab.compare import recorder as recorder_module
from akunu_lab.compare.recorder import Recorder
from akunu_py import ConfigError
from akunu_py.bench.reply import MeasuredReply, Pass
from akunu_py.bench.rows import encode, parse, typed
from akunu_py.system.errors import ContractError


@pytest.fixture
def recorder(monkeypatch):
    """Make recorders with a clock that goes on by one second a look; each has started at 1."""
    now = iter(range(1, 100))
    monkeypatch.setattr(
        recorder_module, "time", types.SimpleNamespace(perf_counter=lambda: float(next(now)))
    )

    def make(max_tokens=20):
        made = Recorder(max_tokens, END)
        made.start()
        return made

    return make


def counts(reply):
    stats = reply.stats
    return (stats.steps, stats.steps_with_draft, stats.drafted, stats.accepted, stats.output_tokens)


def test_the_first_pass_is_the_prompts(recorder):
    made = recorder()
    assert not made.take((7, 8), num_drafted=9, num_accepted=1)
    assert not made.take((9,))
    assert not made.take((5, 6, 7), num_drafted=3, num_accepted=2)
    found = made.reply(peak_memory_bytes=7)
    assert found.token_ids == (7, 8, 9, 5, 6, 7)
    assert (found.num_first, found.num_timed, found.first_s, found.decode_s) == (2, 4, 1.0, 2.0)
    assert found.whole_s == 3.0
    assert found.passes == (Pass(9, 1, 2), Pass(0, 0, 1), Pass(3, 2, 3))
    assert counts(found) == (3, 2, 12, 3, 6)
    assert found.peak_memory_bytes == 7


def test_what_lies_behind_an_end_does_not_count(recorder):
    made = recorder()
    made.take((7,))
    assert made.take((5, 0, 6, 7), num_drafted=5, num_accepted=3)
    assert made.take((8, 9), num_drafted=5, num_accepted=1)
    found = made.reply()
    assert (found.token_ids, found.decode_s, counts(found)) == ((7, 5, 0), 1.0, (2, 1, 5, 2, 3))


def test_no_more_than_was_asked_for(recorder):
    made = recorder(3)
    assert not made.take((7,))
    assert not made.take(())
    assert made.take((5, 6, 7), num_drafted=2, num_accepted=2)
    assert made.reply().token_ids == (7, 5, 6)
    assert recorder(2).take((4, 5))


def test_no_token_is_an_error():
    with pytest.raises(ContractError, match="no token"):
        Recorder(3, END).reply()


def test_replies_survive_json(recorder):
    made = recorder()
    made.take((1, 2, 3), num_drafted=4, num_accepted=1)
    one = made.reply()
    value = parse(encode(one), "it")
    assert typed(value, MeasuredReply, "it") == one
    with pytest.raises(ConfigError, match=r"it: field token_ids\[1\]: Expected int >= 0"):
        typed({**value, "token_ids": [1, -2]}, MeasuredReply, "it")
