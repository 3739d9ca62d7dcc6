"""The part "prefill": time and memory of reading prompts."""

import gc
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from akunu_lab.machine.asked import ask
from akunu_lab.machine.planning import (
    TEXT_LENGTHS,
    TRIES,
    CannotBeMeasuredError,
    PartRun,
    Subject,
)
from akunu_lab.machine.report import REPORT_IT, Finding, PartFigures, size
from akunu_py.api import Prompt


@dataclass(frozen=True, slots=True)
class PrefillLength:
    """Prompts of one length."""

    tokens: int
    seconds: tuple[float, ...]
    """Time from the call to the end of the prefill, for each run."""
    peak_bytes: int
    """Largest memory of MLX."""
    foreseen_bytes: int
    """Expected memory for a context of this length."""

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / median(self.seconds)


@dataclass(frozen=True, slots=True)
class PrefillFigures(PartFigures):
    """Speed and memory of the prefill."""

    section = "How long is the wait?"
    explanation = (
        "Prompts of this many *tokens* are read. *Peak* is the most memory that MLX held then, "
        "weights included; it should not exceed what was *foreseen*."
    )
    lengths: tuple[PrefillLength, ...]

    def answers(self) -> Iterator[str]:
        longest = self.lengths[-1]
        yield (
            f"A prompt of {longest.tokens:,} tokens is read at {longest.tokens_per_s:.0f} tokens/s "
            f"and takes {size(longest.peak_bytes)} of memory in all."
        )

    def findings(self) -> Iterator[Finding]:
        for length in self.lengths:
            if length.peak_bytes > length.foreseen_bytes:
                yield Finding(
                    "warning",
                    f"a prompt of {length.tokens:,} tokens took {size(length.peak_bytes)} of "
                    f"memory, and {size(length.foreseen_bytes)} were foreseen",
                    REPORT_IT,
                )


def measure_prefill(subject: Subject, run: PartRun) -> PrefillFigures:
    """Prefill prompts of several lengths, and measure time and memory."""
    engine, pace = subject.ready()
    # Caches of earlier parts, which hold each other, are not the prompts' memory.
    gc.collect()
    lengths: list[PrefillLength] = []
    text = "\n\n".join(prompt.last_user_text for prompt in Prompt.load())
    ids = engine.tokenizer.encode(text)
    for tokens in TEXT_LENGTHS:
        if tokens >= min(engine.context, len(ids)):
            run.note = f"prompts of {tokens:,} tokens do not fit into the context"
            break
        if lengths and tokens * pace.prefill_s_per_token > run.left:
            run.note = f"there was no time for prompts of {tokens:,} tokens"
            break
        seconds: list[float] = []
        peak = 0
        while len(seconds) < TRIES and (not seconds or run.left > max(seconds)):
            run.tell()
            engine.reset()
            reply = engine.generate(ids[:tokens], max_tokens=1, drafter="none")
            seconds.append(reply.prefill_s)
            peak = max(peak, reply.peak_memory_bytes)
        said = ask("models", "show", str(subject.path), "--context", str(tokens + 1))
        needs = said["memory"][0]
        foreseen = said["weights_bytes"] + needs["kv_bytes"] + needs["pass_bytes"]
        lengths.append(PrefillLength(tokens, tuple(seconds), peak, foreseen))
        run.so_far = PrefillFigures(tuple(lengths))
    if not lengths:
        raise CannotBeMeasuredError(run.note)
    return PrefillFigures(tuple(lengths))
