"""A thousand requests, many of them cancelled: each is what it is alone, and nothing of it stays."""

import gc
import json
import os
import random
from collections import Counter
from pathlib import Path

import mlx.core as mx
import pytest
from kept_worker import Worker
from programs import python
from toy_engine import PLAIN
from turns import run

from akunu_py.server.prefix_cache import PrefixCache

LIMIT = 2 << 20
REQUESTS = 250


def objects_of_akunu():
    """How many objects of akunu's classes live, by class."""
    gc.collect()
    kinds = (type(found) for found in gc.get_objects())
    return Counter(kind for kind in kinds if kind.__module__.startswith("akunu_py."))


@pytest.mark.slow
def test_requests_leave_no_blocks_behind():
    """Blocks of Python's allocator: numbers and texts too, which the garbage collector ignores.

    In a process of its own, where nothing that other tests began goes on.
    """
    here = Path(__file__)
    variables = {"PYTHONPATH": os.pathsep.join([str(here.parent), str(here.parent.parent)])}
    held = json.loads(python(here.with_name("leak_child.py"), variables=variables).stdout)
    # Tables fill up in the first ten rounds, and the count varies by 180 from round to round. A block
    # for each request would be 650 more.
    assert min(held[39:]) - max(held[10:14]) < 300, held


@pytest.mark.slow
def test_a_thousand_requests_with_disconnects(toy):
    """Every request ends; what was made is what it makes alone; and memory stays flat."""
    rng = random.Random(0)
    worker = Worker(toy, parallel=8, places=32, cache=PrefixCache(LIMIT))
    kinds = []
    for number in range(60):
        text = "".join(rng.choice("abcdefg ") for _ in range(rng.randrange(1, 120)))
        ids = toy.prompt_ids("you are an agent. " * rng.randrange(3) + text)
        options = {"seed": number, "temperature": 0.8 * (number % 2), "logit_bias": PLAIN}
        options |= {
            "max_tokens": rng.randrange(1, 16),
            "drafter": ("none", "auto")[number % 3 == 0],
        }
        options |= {"draft_budget": "always"} if number % 3 == 0 else {}
        kinds.append((ids, options, toy.generate(ids, **options).token_ids))
    ended = Counter()

    def some(count):
        """Ask, work and cancel at random; return the bytes that MLX holds then, and the objects."""
        jobs = []
        for number in range(count):
            ids, options, whole = rng.choice(kinds)
            call = toy.check(ids, **options)
            jobs.append((worker.submit(call, client=str(number % 8), respell=True), whole))
            if rng.random() < 0.3:
                gone, _ = rng.choice(jobs[-12:])
                gone.cancel()
            while worker.health().waiting > 8 or rng.random() < 0.6:
                worker.step()
        run(worker)
        for job, whole in jobs:
            events = list(job.events)
            made = tuple(token for one in events for token in getattr(one, "token_ids", ()))
            result = getattr(events[-1], "result", None) if events else None
            cut = result is None or result.finish_reason == "cancelled"
            assert job.cancelled.is_set() or not cut
            assert made == (whole[: len(made)] if cut else whole)
            ended["cut" if cut else "whole"] += 1
        assert worker.health().running == worker.health().waiting == 0
        assert worker.cache.nbytes <= LIMIT
        jobs.clear()
        del call, job, events, result
        mx.clear_cache()
        return mx.get_active_memory(), objects_of_akunu()

    try:
        some(REQUESTS)  # fills the cache
        arrays, objects = some(REQUESTS)
        for _ in range(2):
            more_arrays, more_objects = some(REQUESTS)
        # The number of rows in the cache changes; each request that stayed would add more.
        assert more_arrays - arrays < LIMIT
        grown = more_objects - objects
        assert not [kind for kind, count in grown.items() if count > REQUESTS / 10], grown
        assert ended["whole"] > 600
        assert ended["cut"] > 100, ended
    finally:
        worker.close()
    assert len(worker.cache) == 0
