"""akunu's own arms: the engine as users have it, the text of the reply included."""

from collections.abc import Sequence
from time import perf_counter

import akunu_py
from akunu_py.bench.reply import MeasuredReply, Pass
from akunu_py.bench.runner import Item
from akunu_py.engine.admission import ReplyStream
from akunu_py.engine.engine import Engine
from akunu_py.models.pass_times import ROWS, PassTimes
from akunu_py.values.types import GenerationConfig, GenerationResult

_COSTS_AFTER = 128
"""Most tokens of a prompt in front of measured passes."""


class EngineArm:
    """Replies of an engine with one configuration, by default from an empty KV cache.

    Args:
        name: of the arm.
        engine: may be shared with other arms.
        config: of the replies.
        plain: name of the arm that decodes plainly.
        keeps_prompt: whether rows of the prompt stay in the cache, so that arms in turn read it
            once; their times to the first token say nothing then.
        forgets: whether drafters forget each reply, not each session.

    """

    def __init__(
        self,
        name: str,
        engine: Engine,
        config: GenerationConfig,
        *,
        plain: str,
        keeps_prompt: bool = False,
        forgets: bool = False,
    ) -> None:
        self.name, self.plain = name, plain
        is_plain = config.drafter == "none"
        # The budget's drafts depend on measured times.
        self.steady = is_plain or config.draft_budget == "always"
        self.version = f"akunu {akunu_py.__version__}"
        drafts = "" if is_plain else f", budget {config.draft_budget}"
        if not is_plain and config.num_draft_tokens is not None:
            drafts = f", up to {config.num_draft_tokens} drafted{drafts}"
        self.about = f"{engine.description.weights} weights{drafts}"
        self._engine, self._config = engine, config
        self._keeps_prompt, self._forgets = keeps_prompt, forgets

    def forget(self) -> None:
        self._engine.forget()

    def reply(self, item: Item) -> MeasuredReply:
        """Continue a prompt. Raises as `Engine.stream` does."""
        engine, passes, target_s = self._engine, list[Pass](), 0.0
        if self._forgets:
            engine.forget()
        if not self._keeps_prompt:
            engine.reset()
        first_s, num_first = 0.0, 0
        result: GenerationResult | None = None
        started = perf_counter()
        with self._stream(item) as stream:
            for event in stream:
                if not num_first and event.token_ids:
                    first_s, num_first = perf_counter() - started, len(event.token_ids)
                if (step := event.step) is not None:
                    target_s += step.target_s if passes else 0.0
                    passes.append(
                        Pass(
                            step.num_draft_tokens, step.num_accepted_tokens, step.num_output_tokens
                        )
                    )
                result = event.result
        assert result is not None  # noqa: S101 - the last event carries the result
        within_s = result.prefill_s + result.decode_s
        return MeasuredReply(
            token_ids=result.token_ids,
            num_first=num_first,
            first_s=first_s,
            # The reply's own clock: it stops before rows are compared, once for a length.
            decode_s=max(0.0, within_s - (result.time_to_first_token_s or within_s)),
            stats=result.stats,
            passes=tuple(passes),
            finish_reason=result.finish_reason,
            prefill_s=result.prefill_s,
            target_s=target_s,
            peak_memory_bytes=result.peak_memory_bytes,
            row_bits=result.row_bits,
        )

    def _stream(self, item: Item) -> ReplyStream:
        if item.text is None:
            return self._engine.stream(item.prompt, self._config)
        return self._engine.stream_forced(item.prompt, item.text, self._config)

    def close(self) -> None:
        self._engine.close()


def measure_costs(engine: Engine, prompt: Sequence[int], *, repeats: int = 3) -> PassTimes | None:
    """Measure passes after the beginning of a prompt; None where they do not fit the context."""
    ids = prompt[: min(_COSTS_AFTER, engine.context - 2 * max(ROWS))]
    return engine.tune(ids, repeats=repeats) if len(ids) > 1 else None
