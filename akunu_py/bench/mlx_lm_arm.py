"""mlx-lm's own loop as an arm, over a model that akunu has loaded."""

import contextlib
from importlib.metadata import version
from time import perf_counter

from akunu_py.bench.reply import MeasuredReply, Pass
from akunu_py.bench.runner import Item
from akunu_py.engine.engine import Engine
from akunu_py.models.mlx_lm_loop import PlainLoop, peak_memory_bytes
from akunu_py.values.decode_stats import DecodeStats


class MlxLmArm:
    """Greedy replies of mlx-lm's `generate_step`.

    Args:
        name: of the arm.
        engine: lends its model for each reply.
        max_tokens: tokens of a reply, if it does not end before.
        end_ids: ids that end one; None: those of the engine's tokenizer.
        about: weights and settings, for people.
        keeps_prompt: whether rows of the last reply's prompt stay.

    """

    steady = True

    def __init__(
        self,
        name: str,
        engine: Engine,
        *,
        max_tokens: int,
        end_ids: frozenset[int] | None = None,
        about: str = "",
        keeps_prompt: bool = False,
    ) -> None:
        self.name = self.plain = name
        self.about = about
        self.version = f"mlx-lm {version('mlx-lm')}"
        self._engine, self._max_tokens = engine, max_tokens
        self._end_ids = engine.tokenizer.end_ids if end_ids is None else end_ids
        self._keeps_prompt = keeps_prompt
        self._loop: PlainLoop | None = None

    def forget(self) -> None:
        """Need nothing: it does not draft."""

    def reply(self, item: Item) -> MeasuredReply:
        made: list[int] = []
        started = first = last = perf_counter()
        with self._engine.lend("this reply was ended by a measurement on the same engine") as lent:
            self._loop = self._loop or PlainLoop(lent.model, keeps_prompt=self._keeps_prompt)
            tokens = self._loop.passes(item.prompt, self._max_tokens, item.text)
            with contextlib.closing(tokens):
                for token in tokens:
                    last = perf_counter()
                    first = first if made else last
                    made.append(token)
                    if token in self._end_ids or len(made) == self._max_tokens:
                        break
                peak = peak_memory_bytes()
        return MeasuredReply(
            token_ids=tuple(made),
            num_first=1,
            first_s=first - started,
            decode_s=last - first,
            stats=DecodeStats(steps=len(made), output_tokens=len(made)),
            passes=(Pass(0, 0, 1),) * len(made),
            peak_memory_bytes=peak,
        )

    def close(self) -> None:
        """Need nothing: the engine is somebody else's."""
