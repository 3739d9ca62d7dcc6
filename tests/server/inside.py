"""What tests of the server look at inside of it, each in one place."""

from akunu_py.models.cached_rows import CachedRows


def session_of(engine):
    """The session of an engine's own replies."""
    return engine._session


def entries(cache):
    """What a prefix cache keeps, the oldest first."""
    return list(cache._entries)


def lanes_of(resident):
    """The lanes of a model, in use or not."""
    return resident._lanes


def running_jobs(worker):
    """The jobs of the replies under way."""
    return [one.job for one in worker._running]


def wake(worker):
    """Let a worker that waits look at its clock."""
    changed = worker._changed
    with changed:
        changed.notify_all()


def pass_sizes(monkeypatch):
    """A list of the sizes of passes over prompts, to which each adds its own when it begins."""
    sizes, feed = [], CachedRows._feeding

    def feeding(self, ids, *more):
        sizes.append(len(ids))
        return feed(self, ids, *more)

    monkeypatch.setattr(CachedRows, "_feeding", feeding)
    return sizes
