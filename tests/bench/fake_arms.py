"""Arms whose passes are written down beforehand, for tests of what is done with them."""

from akunu_py.bench.reply import Recorder
from akunu_py.bench.runner import Item, ItemReplies

END = frozenset({0})


class FakeArm:
    """Gives `passes` for a prompt: tuples of tokens, or an exception to raise in their place.

    `log` gets the first id of each prompt and "forget", both with the arm's name.
    """

    def __init__(self, name, passes, *, plain=None, steady=True, log=None, max_tokens=8):
        self.name = name
        self.plain = plain or name
        self.steady = steady
        self.version = f"{name} 1.0"
        self.about = "written down"
        self.closed = False
        self._passes = passes
        self._log = [] if log is None else log
        self._max_tokens = max_tokens

    def forget(self):
        self._log.append(("forget", self.name))

    def reply(self, item):
        self._log.append((item.prompt[0], self.name))
        recorder = Recorder(self._max_tokens, END)
        recorder.start()
        passes = self._passes(item.prompt) if callable(self._passes) else self._passes
        for tokens in passes:
            if isinstance(tokens, BaseException):
                raise tokens
            if recorder.take(tokens, num_drafted=4, num_accepted=len(tokens) - 1):
                break
        return recorder.reply()

    def close(self):
        self.closed = True


class Memory(dict):
    """Keeps finished items, for `run_arms`."""

    def get(self, key, _kind):
        return super().get(key)

    put = dict.__setitem__


def item(number, category="edit", session=None):
    return Item(f"i{number}", category, session or f"s{number}", (number, 5, 6))


def runs_of(*replies):
    return [ItemReplies(item(number), found, {}) for number, found in enumerate(replies, 1)]
