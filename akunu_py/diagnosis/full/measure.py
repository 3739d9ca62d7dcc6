"""The measurements of the report, one function for each part, each within its time."""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, zip_longest
from pathlib import Path

from akunu_py.bench.bootstrap import LEAST_SESSIONS
from akunu_py.bench.hit_rate import run_hit_rate
from akunu_py.bench.speed import prompt_cases, run_speed
from akunu_py.bench.speed_report import BASELINE, SpeedReport
from akunu_py.bench.tuning import Cost, costs_with_intervals, least_confidence, run_tuning
from akunu_py.bench.workloads import CATEGORIES, Prompt, load_prompts
from akunu_py.diagnosis.full.first_token import first_token_s
from akunu_py.diagnosis.full.report import (
    ArmSpeed,
    Costs,
    Difference,
    Load,
    Memory,
    Model,
    Prefill,
    PrefillLength,
    Replies,
    Rows,
    SizeCost,
    Speed,
    Start,
)
from akunu_py.engine.engine import Engine
from akunu_py.gguf.reader import GGUFFile
from akunu_py.model_store.names import friendly_name
from akunu_py.models.aligned_rows import BLOCK_ROWS, usable_context
from akunu_py.models.folder_settings import read_folder_config
from akunu_py.models.load import LoadedModel, LoadOptions, load_model
from akunu_py.models.memory_check import USUAL_CONTEXT, PlannedModel, check_memory
from akunu_py.models.pass_times import ROWS, PassTimes
from akunu_py.models.requirements import Requirements, memory_limit, requirements
from akunu_py.models.session import Session
from akunu_py.system.errors import ConfigError, MemoryLimitError
from akunu_py.values.load_options import EngineOptions
from akunu_py.values.types import GenerationConfig

DRAFTER = "auto"
SPEED_CATEGORIES = ("edit", "prose")
"""The shipped categories that profit most and least from drafts."""

_ARMS = (BASELINE, "none", DRAFTER)
_TEMPERATURE = 0.8
_FEWEST_TOKENS, _MOST_TOKENS, _MOST_TIMED_TOKENS = 16, 64, 96
"""Limits of a reply: on a slow machine, of a compared reply, of a timed reply."""
_PROMPTS_WANTED = 2 * len(CATEGORIES)
_CASES_WANTED = 2 * (LEAST_SESSIONS + 1)
"""Number of prompts that the length of replies is planned for; more if there is time."""
_DRAFTING_S = 1.3
"""Assumed longest time of a token with drafting or sampling, in plain steps."""

_PACE_TOKENS = 8
_CONTEXT_TOKENS = 128
_FEWEST_ROUNDS, _MOST_ROUNDS = LEAST_SESSIONS, 9
_STEPS_A_ROUND = 45
"""Assumed longest time of a round over all sizes, in plain steps, while rows are cheap."""

_STEPS_OF_ALL_SIZES = 200
_MOST_ROWS_ON_SLOW_MACHINES = 9
"""Plain steps that comparing rows takes for all of `ROWS`, and the sizes that take 50."""

_STARTS = 5
_LONGEST_START, _LONGEST_START_S = 4, 30.0
"""Limits of a process: a multiple of the part's budget, and seconds."""

_LEAST_STEP_S = 1e-6
_LENGTHS = (128, 512, 2048)
_TRIES = 3


class CannotBeMeasuredError(Exception):
    """The part does not apply to this model; the message says why."""


class PartInterruptedError(Exception):
    """Ctrl-C during a part that already has figures."""

    def __init__(self, figures: object) -> None:
        super().__init__("interrupted")
        self.figures = figures


@dataclass(frozen=True, slots=True)
class Pace:
    """Rough speed of the model on this machine, with which parts plan their work.

    `prompt_tokens` is the length of a usual prompt.
    """

    step_s: float
    prefill_s_per_token: float
    prompt_tokens: int

    def reply_tokens(self, seconds: float, *, replies: int, most: int) -> int:
        """Return the limit of a reply, in tokens, at which all `replies` fit into the time."""
        prefill_s = self.prompt_tokens * self.prefill_s_per_token
        fitting = (seconds / replies - prefill_s) / (_DRAFTING_S * self.step_s)
        return max(_FEWEST_TOKENS, min(most, int(fitting)))


@dataclass(slots=True)
class Bench:
    """State that parts share.

    Attributes:
        path: path of the model.
        model: facts about the model.
        needs: its memory requirements.
        loaded: the model; None before it is loaded, or if loading failed.
        pace: speed of the loaded model.
        times: measured costs of passes.

    """

    path: Path
    model: Model | None = None
    needs: Requirements | None = None
    loaded: LoadedModel | None = None
    pace: Pace | None = None
    times: PassTimes | None = None

    def ready(self) -> tuple[LoadedModel, Pace]:
        """Return the loaded model and its pace; raises CannotBeMeasuredError before loading."""
        if self.loaded is None or self.pace is None:
            raise CannotBeMeasuredError("the model was not loaded")
        return self.loaded, self.pace


@dataclass(slots=True)
class Turn:
    """The time of a part, `seconds`, and `tell`, which reports its progress.

    `note` says in the report what there was no time for.
    """

    seconds: float
    tell: Callable[[str], None] = lambda _text: None
    clock: Callable[[], float] = time.perf_counter
    note: str = ""
    _ends: float = field(init=False)

    def __post_init__(self) -> None:
        self._ends = self.clock() + self.seconds

    @property
    def left(self) -> float:
        """Remaining seconds; below 0 after the end."""
        return self._ends - self.clock()

    def is_over(self) -> bool:
        """Return whether no time is left."""
        return self.left <= 0


def memory(bench: Bench, _turn: Turn) -> Memory:
    """Read facts and requirements of the model, without its weights."""
    needs = requirements(bench.path)
    bench.needs = needs
    is_folder = bench.path.is_dir()
    bench.model = Model(
        name=friendly_name(bench.path),
        architecture=needs.architecture,
        parameters=needs.parameters,
        stored_as=_folder_type(bench.path) if is_folder else _file_type(bench.path),
        file_bytes=needs.file_bytes,
        weights="dense" if needs.dense else "quantized",
        context=needs.context,
        drafting=bool(needs.rollback),
    )
    tokens = min(USUAL_CONTEXT, needs.context)
    return Memory(
        tokens=tokens,
        weights_bytes=needs.weights_bytes,
        cache_bytes=needs.cache_bytes(tokens),
        pass_bytes=needs.working_bytes(tokens),
        limit_bytes=memory_limit(),
    )


def _file_type(path: Path) -> str:
    sizes: Counter[str] = Counter()
    with GGUFFile.open(path) as file:
        for info in file.tensors.values():
            sizes[info.type.name] += info.nbytes
    return f"GGUF, {sizes.most_common(1)[0][0]}" if sizes else "GGUF"


def _folder_type(folder: Path) -> str:
    config = read_folder_config(folder)
    quantization = config.get("quantization") or config.get("quantization_config")
    bits = quantization.get("bits") if isinstance(quantization, dict) else None
    return f"MLX, {bits} bit" if isinstance(bits, int) else "MLX"


def start(bench: Bench, turn: Turn) -> Start:
    """Time processes up to their first token; the first one may read the model from disk."""
    taken: list[float] = []
    limit_s = max(_LONGEST_START_S, _LONGEST_START * turn.seconds)
    try:
        while len(taken) < _STARTS and (not taken or turn.left > max(taken)):
            turn.tell(f"process {len(taken) + 1}")
            taken.append(first_token_s(bench.path, limit_s=limit_s))
    except KeyboardInterrupt:
        raise PartInterruptedError(Start(tuple(taken)) if taken else None) from None
    return Start(tuple(taken))


def load(bench: Bench, turn: Turn) -> Load:
    """Load the model and estimate its speed."""
    try:
        check_memory([PlannedModel(bench.path, LoadOptions())])
    except MemoryLimitError:
        # The message names options that this command does not have.
        raise MemoryLimitError(
            "the model does not fit into the memory that this machine has for it; take a smaller "
            "model or quantization"
        ) from None
    turn.tell("reading the weights")
    started = turn.clock()
    loaded = load_model(bench.path)
    seconds = turn.clock() - started
    bench.loaded, bench.pace = loaded, _pace(loaded)
    return Load(seconds)


def _pace(loaded: LoadedModel) -> Pace:
    (prompt,) = load_prompts(["edit"], limit=1)
    with Engine(loaded) as engine:
        ids = engine.tokenizer.encode(prompt.last_user_text)[: engine.context // 2]
        # The first reply compiles kernels.
        engine.generate(ids, max_tokens=2, drafter="none")
        engine.reset()
        reply = engine.generate(ids, max_tokens=_PACE_TOKENS, drafter="none")
    step_s = max(reply.decode_s / len(reply.token_ids), _LEAST_STEP_S)
    return Pace(step_s, reply.prefill_s / len(ids), len(ids))


def rows(bench: Bench, turn: Turn) -> Rows:
    """Compare the bits of rows fed together with rows fed alone."""
    loaded, pace = bench.ready()
    sizes: Sequence[int] = ROWS
    if _STEPS_OF_ALL_SIZES * pace.step_s > turn.seconds:
        sizes = [size for size in ROWS if size <= _MOST_ROWS_ON_SLOW_MACHINES]
        turn.note = f"passes of more than {_MOST_ROWS_ON_SLOW_MACHINES} rows were left out"
    longest = loaded.description.context
    # Rows may differ only behind a long text, as where it exceeds a sliding window.
    fitting = [
        length
        for length in _LENGTHS
        if length + max(sizes) <= longest and 4 * length * pace.prefill_s_per_token <= turn.seconds
    ]
    context = max(fitting, default=0)
    with _session(loaded, longest) as session:
        if fitting:
            turn.tell(f"a text of {context:,} tokens")
            session.logits(
                [token % session.vocabulary_size for token in range(context)], context - 1
            )
        turn.tell("passes of several sizes")
        equal = session.bit_equal_to(max(sizes)) > 0
        by_size = session.row_differences(sizes)
    reproducible: bool | None = None
    with contextlib.suppress(ConfigError):
        usable = usable_context(None, longest, BLOCK_ROWS)
        with _session(loaded, usable, reproducible=True) as session:
            turn.tell("reproducible passes")
            reproducible = session.bit_equal_to(max(sizes)) > 0
    return Rows(equal, reproducible, by_size, context)


@contextlib.contextmanager
def _session(loaded: LoadedModel, context: int, *, reproducible: bool = False) -> Iterator[Session]:
    session = Session(loaded.model, context=context, reproducible=reproducible)
    try:
        yield session
    finally:
        session.close()


def costs(bench: Bench, turn: Turn) -> Costs:
    """Measure the costs of passes; later replies on this machine use them."""
    loaded, pace = bench.ready()
    with Engine(loaded) as engine:
        tokens = min(_CONTEXT_TOKENS, engine.context - 2 * max(ROWS))
        if tokens < 2:
            raise CannotBeMeasuredError(f"its context of {engine.context} tokens is too short")
        tuning = run_tuning(
            engine,
            context_tokens=tokens,
            repeats=_rounds(turn.seconds, pace.step_s),
            progress=lambda done, total: turn.tell(f"round {done} of {total}"),
        )
    times = tuning.times
    bench.times = times
    sizes = tuple(map(_size_cost, costs_with_intervals(times)))
    rounds = max(map(len, times.passes_s.values()), default=0)
    if rounds < LEAST_SESSIONS:
        turn.note = f"there was no time for {LEAST_SESSIONS} rounds, which an interval takes"
    traffic = times.traffic
    return Costs(
        context_tokens=times.context,
        plain_step_s=times.unit_s,
        rounds=rounds,
        sizes=sizes,
        copy_bytes_per_s=None if traffic is None else traffic.copy_bytes_per_s,
        step_bytes=None if traffic is None else traffic.step_bytes(times.context),
    )


def _size_cost(found: Cost) -> SizeCost:
    pays = [
        None if cost is None else least_confidence(cost, found.rows - 1)
        for cost in (found.cost, found.low, found.high)
    ]
    return SizeCost(found.rows, found.pass_s, found.cost, found.low, found.high, *pays)


def _rounds(seconds: float, step_s: float) -> int:
    """Return how many rounds over all sizes fit into the time, after one discarded round.

    If the rounds for an interval take at most twice the time, they are made.
    """
    fitting = int(seconds / (_STEPS_A_ROUND * step_s)) - 1
    if 2 * seconds >= (_FEWEST_ROUNDS + 1) * _STEPS_A_ROUND * step_s:
        fitting = max(_FEWEST_ROUNDS, fitting)
    return max(1, min(_MOST_ROUNDS, fitting))


def greedy(bench: Bench, turn: Turn) -> Replies:
    """Compare replies at temperature 0 with and without drafting."""
    return _replies(bench, turn, temperature=0.0)


def sampled(bench: Bench, turn: Turn) -> Replies:
    """Compare replies sampled with one seed."""
    return _replies(bench, turn, temperature=_TEMPERATURE)


def reproducible(bench: Bench, turn: Turn) -> Replies:
    """Compare replies at temperature 0 made with reproducible passes."""
    return _replies(bench, turn, temperature=0.0, is_reproducible=True)


def _replies(
    bench: Bench, turn: Turn, *, temperature: float, is_reproducible: bool = False
) -> Replies:
    """Answer prompts with and without drafting until the time is over.

    As much as possible is drafted, so that many passes have several rows.
    """
    loaded, pace = bench.ready()
    if bench.model is not None and not bench.model.drafting:
        raise CannotBeMeasuredError("nothing is drafted for it: its caches cannot go back")
    prompts = interleaved(CATEGORIES)
    config = GenerationConfig(
        max_tokens=pace.reply_tokens(
            turn.seconds, replies=2 * (_PROMPTS_WANTED + 1), most=_MOST_TOKENS
        ),
        temperature=temperature,
        seed=0,
        drafter=DRAFTER,
        draft_budget="always",
    )
    with Engine(loaded, EngineOptions(reproducible=is_reproducible)) as engine:
        report = run_hit_rate(
            engine,
            prompts,
            config,
            progress=lambda done, _total: turn.tell(f"{done} replies"),
            until=turn.is_over,
        )
    total = report.total
    figures = Replies(
        temperature=temperature,
        reproducible=is_reproducible,
        max_tokens=config.max_tokens or 0,
        prompts=total.num_prompts,
        shipped=len(prompts),
        left_out=len(report.failures),
        identical=total.num_identical or 0,
        drafted=total.stats.drafted,
        accepted=total.stats.accepted,
        differences=tuple(
            Difference(item.id, item.first_difference or 0, item.top2_margin, item.on.row_bits)
            for item in report.differences
        ),
    )
    if not report.finished:
        raise PartInterruptedError(figures if report.outcomes else None)
    if not report.outcomes and report.failures:
        raise ConfigError(f"no prompt could be answered: {report.failures[0].error}")
    turn.note = _shortened(config.max_tokens or 0, _MOST_TOKENS)
    return figures


def _shortened(max_tokens: int, most: int) -> str:
    """Return a note if replies are shorter than on a fast machine, or ""."""
    return f"replies of {max_tokens} tokens instead of {most}" if max_tokens < most else ""


def interleaved(categories: Sequence[str]) -> list[Prompt]:
    """Return the shipped prompts, one session of each category in turn, short ones first.

    So any beginning contains all categories, and a slow machine finishes some of them.
    """
    by_category = [
        sorted(
            (list(turns) for _, turns in groupby(load_prompts([name]), lambda item: item.session)),
            key=_num_characters,
        )
        for name in categories
    ]
    rounds = zip_longest(*by_category, fillvalue=list[Prompt]())
    return [prompt for sessions in rounds for session in sessions for prompt in session]


def _num_characters(prompts: Sequence[Prompt]) -> int:
    """Return the number of characters of all these prompts together."""
    return sum(
        len(prompt.text) + sum(len(message["content"]) for message in prompt.messages)
        for prompt in prompts
    )


def speed(bench: Bench, turn: Turn) -> Speed:
    """Decode prompts with mlx-lm's loop and with akunu in turns, until the time is over."""
    loaded, pace = bench.ready()
    cases, _ = prompt_cases(loaded.tokenizer, interleaved(SPEED_CATEGORIES))
    most = pace.reply_tokens(
        turn.seconds, replies=len(_ARMS) * (_CASES_WANTED + 1), most=_MOST_TIMED_TOKENS
    )
    report = run_speed(
        loaded,
        cases,
        drafters=_ARMS[1:],
        max_tokens=most,
        repeats=_FEWEST_ROUNDS,
        times=bench.times,
        progress=lambda done, _total: turn.tell(f"{done} replies"),
        until=turn.is_over,
    )
    figures = Speed(most, tuple(_arm_speeds(report)))
    if not report.finished:
        raise PartInterruptedError(figures if figures.arms else None)
    done = sum(arm.pairs for arm in figures.arms if arm.arm == BASELINE)
    notes = [
        f"{done} of {len(cases)} prompts" if done < len(cases) else "",
        _shortened(most, _MOST_TIMED_TOKENS),
    ]
    turn.note = ", ".join(filter(None, notes))
    return figures


def _arm_speeds(report: SpeedReport) -> Iterator[ArmSpeed]:
    for category in SPEED_CATEGORIES:
        own = tuple(run for run in report.runs if run.case.startswith(f"{category}/"))
        arms = replace(report, runs=own).arms
        for arm in sorted(arms, key=lambda arm: _ARMS.index(arm.arm)):
            itself = arm.arm == BASELINE
            ratio = arm.median_ratio
            yield ArmSpeed(
                category=category,
                arm=arm.arm,
                tokens_per_s=arm.tokens_per_s,
                ratio=None if itself else ratio.ratio,
                low=None if itself else ratio.low,
                high=None if itself else ratio.high,
                pairs=arm.pairs,
                identical=arm.identical,
            )


def prefill(bench: Bench, turn: Turn) -> Prefill:
    """Prefill prompts of several lengths, and measure time and memory."""
    loaded, pace = bench.ready()
    needs = bench.needs or requirements(bench.path)
    lengths: list[PrefillLength] = []
    with Engine(loaded) as engine:
        text = "\n\n".join(prompt.last_user_text for prompt in load_prompts())
        ids = engine.tokenizer.encode(text)
        try:
            for tokens in _LENGTHS:
                if tokens >= min(engine.context, len(ids)):
                    turn.note = f"prompts of {tokens:,} tokens do not fit into the context"
                    break
                if lengths and tokens * pace.prefill_s_per_token > turn.left:
                    turn.note = f"there was no time for prompts of {tokens:,} tokens"
                    break
                turn.tell(f"{tokens:,} tokens")
                lengths.append(_read_prompt(engine, ids[:tokens], needs, turn))
        except KeyboardInterrupt:
            raise PartInterruptedError(Prefill(tuple(lengths)) if lengths else None) from None
    if not lengths:
        raise CannotBeMeasuredError(turn.note)
    return Prefill(tuple(lengths))


def _read_prompt(
    engine: Engine, ids: Sequence[int], needs: Requirements, turn: Turn
) -> PrefillLength:
    seconds: list[float] = []
    peak = 0
    while len(seconds) < _TRIES and (not seconds or turn.left > max(seconds)):
        engine.reset()
        reply = engine.generate(ids, max_tokens=1, drafter="none")
        seconds.append(reply.prefill_s)
        peak = max(peak, reply.peak_memory_bytes)
    return PrefillLength(len(ids), tuple(seconds), peak, needs.total_bytes(len(ids) + 1))
