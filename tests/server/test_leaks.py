"""A thousand short requests, many of them cancelled: every one ends, and memory stays flat."""

import gc
import random
import tracemalloc

import mlx.core as mx
import pytest
from toy_engine import PLAIN

from akunu_py.server.prefix_cache import PrefixCache
from akunu_py.server.worker import Worker

LIMIT = 4 << 20


@pytest.mark.slow
def test_memory_stays_flat(toy):
    rng = random.Random(0)
    worker = Worker(toy, parallel=4, cache=PrefixCache(LIMIT))
    ended = 0

    def some(count):
        """Ask, work and cancel at random; return the bytes that MLX and Python hold then."""
        nonlocal ended
        jobs = []
        for number in range(count):
            text = "".join(rng.choice("abcdefg ") for _ in range(rng.randrange(1, 200)))
            shared = "you are an agent. " * rng.randrange(3)
            call = toy.check(
                toy.prompt_ids(shared + text), max_tokens=rng.randrange(1, 12), logit_bias=PLAIN
            )
            jobs.append(worker.submit(call, client=str(number % 80), respell=True))
            while worker.health().waiting > 8 or rng.random() < 0.7:
                worker.step()
                if rng.random() < 0.1:
                    rng.choice(jobs).cancel()
        while worker.step():
            pass
        for job in jobs:
            events = list(job.events)
            cancelled = job.cancelled.is_set()
            assert cancelled or events[-1].result.finish_reason == "length"
            ended += 1
        assert worker.health().running == worker.health().waiting == 0
        assert worker.cache.nbytes <= LIMIT
        del jobs
        gc.collect()
        mx.clear_cache()
        return mx.get_active_memory(), tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        some(200)
        arrays, objects = some(200)
        for _ in range(3):
            more_arrays, more_objects = some(200)
        assert ended == 1000
        # Rows in the cache change in number, and `auto` remembers more of each client's replies.
        assert more_arrays - arrays < LIMIT / 4
        assert more_objects - objects < 4_000_000
    finally:
        tracemalloc.stop()
        worker.close()
    assert len(worker.cache) == 0
