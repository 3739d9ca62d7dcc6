"""A hold: one block at a time, and free whatever ended the block."""

import sys
from concurrent.futures import ThreadPoolExecutor

from interrupts import HOLDING, Interrupt

from akunu_py.engine.hold import Hold


def test_one_block_at_a_time():
    hold = Hold()
    with hold.take(0) as block:
        assert block.taken
        assert hold.is_mine
        with hold.take(0) as other:
            assert not other.taken
        assert hold.held
    assert not hold.held


def test_a_block_that_is_gone_holds_nothing():
    hold = Hold()
    block = hold.take(0)
    assert block.taken
    assert hold.held
    del block
    assert hold.take(0).taken


def test_no_place_at_which_a_block_ends_leaves_it_held():
    """Nor while the interrupt is handled, whose traceback keeps what its functions had."""
    hold, number, raised = Hold(), 0, True
    while raised:
        with Interrupt("opcode", number, HOLDING) as found:
            try:
                with hold.take(0):
                    pass
            except KeyboardInterrupt:
                assert hold.take(0).taken
        number, raised = number + 1, found.raised
        assert hold.take(0).taken
    assert number > 10


def test_threads_wait_for_each_other():
    hold, inside, most = Hold(), [], []

    def work(_):
        for _ in range(200):
            with hold.take(60) as block:
                assert block.taken
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
