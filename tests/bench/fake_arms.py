"""Arms whose passes are written down beforehand, for tests of what is done with them."""

from akunu_py.bench.reply import MeasuredReply, Pass
from akunu_py.bench.runner import Item, ItemReplies
from akunu_py.system.errors import ContractError
from akunu_py.values.decode_stats import DecodeStats

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
        made, passes = [], []
        for tokens in self._passes(item.prompt) if callable(self._passes) else self._passes:
            if isinstance(tokens, BaseException):
                raise tokens
            ends = [place for place, token in enumerate(tokens, start=1) if token in END]
            kept = tokens[: min([*ends, self._max_tokens - len(made)])]
            made += kept
            passes.append(Pass(4, min(len(tokens) - 1, len(kept)), len(kept)))
            if len(made) == self._max_tokens or made[-1] in END:
                break
        if not made:
            raise ContractError("the arm returned no token")
        stats = DecodeStats(
            steps=len(passes), steps_with_draft=len(passes), drafted=4 * len(passes),
            accepted=sum(one.accepted for one in passes), output_tokens=len(made),
        )  # fmt: skip
        return MeasuredReply(tuple(made), passes[0].tokens, 0.5, 0.25, stats, tuple(passes))

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
