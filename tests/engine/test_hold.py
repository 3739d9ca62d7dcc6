"""A hold: one block at a time, and free whatever ended the block."""

import sys
from concurrent.futures import ThreadPoolExecutor

from interrupts import HOLDING, Interrupt

from akunu_py.engine.hold import Hold


def test_one_block_at_a_time():
    hold = Hold()
    with hold.take(0) as taken:
        assert taken
        assert hold.is_mine
        with hold.take(0) as again:
            assert not again
        assert hold.held
    assert not hold.held


def test_a_block_that_is_gone_holds_nothing():
    hold = Hold()
    block = hold.take(0)
    assert block.__enter__()
    assert hold.held
    del block
    with hold.take(0) as taken:
        assert taken


def test_no_line_at_which_a_block_ends_leaves_it_held():
    """Also where the interpreter itself raises nothing, such as between two steps of a lock's."""
    hold, number, raised = Hold(), 0, True
    while raised:
        with Interrupt("line", number, HOLDING) as found, hold.take(0):
            pass
        number, raised = number + 1, found.raised
        with hold.take(0) as taken:
            assert taken
    assert number > 10


def test_threads_wait_for_each_other():
    hold, inside, most = Hold(), [], []

    def work(_):
        for _ in range(200):
            with hold.take(60) as taken:
                assert taken
                inside.append(0)
                most.append(len(inside))
                inside.pop()

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(work, range(6)))
    finally:
        sys.setswitchinterval(before)
    assert len(most) == 1200
    assert max(most) == 1
