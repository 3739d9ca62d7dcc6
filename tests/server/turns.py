"""Turns of a worker that a test makes itself."""


def run(worker):
    """Make turns until there is nothing left to do."""
    while worker.step():
        pass


def until(worker, condition):
    while not condition():
        worker.step()
