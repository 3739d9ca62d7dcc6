"""A process that prints how many blocks Python's allocator holds after each 25 requests."""

import gc
import json
import sys

from kept_worker import Worker
from toy_engine import PLAIN, toy_engine

from akunu_py.drafting.memory import Memory

# What `auto` remembers of a client grows up to its bound, which is put low here.
Memory.__init__.__kwdefaults__["max_tokens"] = 20


def some(engine, worker, count):
    """Make requests, cancel every fifth, and return the number of blocks then held."""
    for number in range(count):
        text = "".join(chr(97 + number * place % 7) for place in range(1, 20))
        call = engine.check(engine.prompt_ids(text), max_tokens=3, logit_bias=PLAIN)
        job = worker.submit(call, client=str(number % 8), respell=True)
        if number % 5 == 0:
            job.cancel()
    while worker.step():
        pass
    del call, job
    gc.collect()
    return sys.getallocatedblocks()


def main():
    with toy_engine() as engine:
        worker = Worker(engine, parallel=4)
        try:
            print(json.dumps([some(engine, worker, 25) for _ in range(45)]))
        finally:
            worker.close()


if __name__ == "__main__":
    main()
