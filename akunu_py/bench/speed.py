"""akunu's decoding speed next to mlx-lm's: the same passes and the same ids, in one run.

Every arm decodes each case in turn, and the order changes from case to case, so that heat or other
work on the machine slows all arms alike. Prefill is shared and not timed: the rows of a prompt stay
in the caches. The clock starts after the first step.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from akunu_py.bench.result_file import Failure
from akunu_py.bench.resume import ItemStore
from akunu_py.bench.run import turned
from akunu_py.bench.speed_report import BASELINE, Run, SpeedReport
from akunu_py.bench.workloads import Prompt
from akunu_py.decoding.budget import Budget, BudgetState
from akunu_py.decoding.loop import Step, decode
from akunu_py.decoding.stats import StatsRecorder
from akunu_py.drafting.auto import AutoDrafter, AutoState
from akunu_py.drafting.draft_model import TokenModel
from akunu_py.drafting.prediction_head import HeadModel
from akunu_py.drafting.registry import default_num_draft_tokens, make_drafter
from akunu_py.models.baseline import Baseline
from akunu_py.models.budget_memory import device_prior
from akunu_py.models.heads import Head, make_head_model
from akunu_py.models.load import LoadedModel
from akunu_py.models.pass_times import PassTimes, measure_passes
from akunu_py.models.session import Session
from akunu_py.models.token_model import make_token_model
from akunu_py.protocols import Drafter, Tokenizer, as_drafter
from akunu_py.sampling.forced import ForcedSampler
from akunu_py.sampling.sampler import Sampler
from akunu_py.sampling.transforms import TransformChain
from akunu_py.system.errors import AkunuError, ConfigError
from akunu_py.values.types import GenerationConfig

_MARGIN = 65
"""Tokens of room after a reply: as in mlx-lm, the last pass queues a further one."""


@dataclass(frozen=True, slots=True)
class Case:
    """A prompt in token ids, and the reply to force, if any; sessions are resampled whole."""

    id: str
    session: str
    prompt: tuple[int, ...]
    text: tuple[int, ...] | None = None


def prompt_cases(
    tokenizer: Tokenizer, prompts: Iterable[Prompt]
) -> tuple[list[Case], list[Failure]]:
    """Return prompts in ids, and failures of those that the tokenizer cannot encode."""
    cases: list[Case] = []
    failures: list[Failure] = []
    for prompt in prompts:
        try:
            ids = prompt.encode(tokenizer)
        # A tokenizer's own library may raise ValueError for a text it cannot encode.
        except (AkunuError, ValueError) as error:
            failures.append(Failure(prompt.id, str(error)))
        else:
            cases.append(Case(prompt.id, prompt.session, tuple(ids)))
    return cases, failures


def content_hash(cases: Sequence[Case]) -> str:
    """Return the SHA-256 of the token ids of cases."""
    content = [[case.id, case.session, case.prompt, case.text] for case in cases]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


@dataclass(slots=True)
class _Bench:
    loaded: LoadedModel
    session: Session
    baseline: Baseline
    num_draft_tokens: int | None
    token_model: TokenModel | None
    head_model: HeadModel | None
    states: dict[str, BudgetState] = field(default_factory=dict)
    # The state that `auto` keeps from reply to reply, as in an engine.
    auto_states: dict[str, AutoState] = field(default_factory=dict)


def run_speed(
    loaded: LoadedModel,
    cases: Sequence[Case],
    *,
    drafters: Sequence[str] = ("none", "ngram", "auto"),
    num_draft_tokens: int | None = None,
    max_tokens: int = 96,
    rounds: int = 1,
    repeats: int = 5,
    times: PassTimes | None = None,
    draft_model: LoadedModel | None = None,
    head: Head | None = None,
    store: ItemStore | None = None,
    progress: Callable[[int, int], None] | None = None,
    until: Callable[[], bool] | None = None,
) -> SpeedReport:
    """Decode each case with mlx-lm and with each drafter, greedily, `rounds` times.

    Unless `times` has the cost of passes, it is measured first, after the first case's prompt and
    with `repeats`. The budgets of all arms get it. `progress` is called with finished and all runs;
    `until` is called before each case but the first, and ends the run early when it returns true.

    `auto` keeps its memory over the cases of a round, as in an engine, and forgets it before the
    next round: a repeated case must not be copied from itself. `num_draft_tokens` bounds all
    drafters; with None each uses its own default. Drafters that ask a draft model need
    `draft_model`, and mtp needs the model's prediction `head`.

    `store` has finished cases, also from an interrupted run. Only `auto` decodes these again,
    uncounted, to restore its memory. After an interrupt the report covers the cases that every arm
    has decoded. A case that does not fit into the context becomes a failure.

    Raises ConfigError without cases or if none fits, for an unknown drafter, for a missing draft
    model or head, or for a draft model with another vocabulary.
    """
    if not cases:
        raise ConfigError("there is nothing to measure with; give prompts or a trace with items")
    context = loaded.description.context
    failures = tuple(
        Failure(
            case.id,
            f"the prompt has {len(case.prompt)} tokens; with {max_tokens} more, and "
            f"{2 * _MARGIN} that a draft may reach, it does not fit into the context of {context}",
        )
        for case in cases
        if len(case.prompt) + max_tokens + 2 * _MARGIN > context
    )
    failed = {failure.item for failure in failures}
    cases = [case for case in cases if case.id not in failed]
    if not cases:
        raise ConfigError(f"nothing can be measured; {failures[0].item}: {failures[0].error}")
    session = Session(loaded.model, context=context)
    token_model = None
    if draft_model is not None:
        token_model = make_token_model(draft_model, loaded, session.vocabulary_size)
    head_model = None
    if head is not None:
        head_model = make_head_model(head, context=context, vocabulary_size=session.vocabulary_size)
    bench = _Bench(
        loaded, session, Baseline(loaded.model), num_draft_tokens, token_model, head_model
    )
    for name in drafters:
        _drafter(bench, name)
    if times is None:
        times = measure_passes(session, cases[0].prompt, repeats=repeats)
    for name in drafters:
        bench.states[name] = _state(times)
    arms = (BASELINE, *drafters)
    # Kernels are compiled at their first use.
    for arm in arms:
        _run(bench, arm, cases[0], max_tokens)
    bench.auto_states.clear()
    runs, finished = _measure(
        bench,
        [cases] * rounds,
        arms,
        max_tokens,
        store=ItemStore(None, {}) if store is None else store,
        progress=progress,
        until=until or (lambda: False),
    )
    return SpeedReport(
        runs=tuple(runs),
        times=times,
        failures=failures,
        finished=finished,
        forced=any(case.text is not None for case in cases),
        num_draft_tokens=num_draft_tokens,
        max_tokens=max_tokens,
    )


def _measure(
    bench: _Bench,
    rounds: Sequence[Sequence[Case]],
    arms: Sequence[str],
    max_tokens: int,
    *,
    store: ItemStore,
    progress: Callable[[int, int], None] | None,
    until: Callable[[], bool],
) -> tuple[list[Run], bool]:
    """Return the runs of all arms, and whether they were not interrupted."""
    runs: list[Run] = []
    number = 0
    total = sum(map(len, rounds)) * len(arms)
    try:
        for turn, cases in enumerate(rounds):
            bench.auto_states.clear()
            for case in cases:
                if number and until():
                    return runs, True
                key = f"round {turn}: {case.id}"
                stored = store.get(key, list[Run])
                made: list[Run] = []
                for arm in turned(arms, number):
                    if stored is None or arm == AutoDrafter.name:
                        made.append(_run(bench, arm, case, max_tokens))
                    if progress:
                        progress(len(runs) + len(made), total)
                if stored is None:
                    store.put(key, made)
                runs += made if stored is None else stored
                number += 1
    except KeyboardInterrupt:
        return runs, False
    return runs, True


def _state(times: PassTimes) -> BudgetState:
    state = BudgetState(device_prior())
    state.costs.learn(times.context, times.plain_s, times.costs)
    return state


def _run(bench: _Bench, arm: str, case: Case, max_tokens: int) -> Run:
    if case.text is not None:
        # The last step of a drafting arm may go beyond the end, and needs text there.
        max_tokens = min(max_tokens, max(2, len(case.text) - _MARGIN))
    if arm == BASELINE:
        done = bench.baseline.run(case.prompt, max_tokens, case.text)
        return Run(
            arm=arm,
            case=case.id,
            session=case.session,
            token_ids=done.token_ids,
            num_timed_tokens=done.num_timed_tokens,
            decode_s=done.decode_s,
            peak_memory_bytes=done.peak_memory_bytes,
        )
    return _akunu(bench, arm, case, max_tokens)


def _drafter(bench: _Bench, arm: str) -> Drafter:
    return make_drafter(
        arm,
        num_draft_tokens=bench.num_draft_tokens,
        auto_state=bench.auto_states.setdefault(arm, AutoState()),
        token_model=bench.token_model,
        head_model=bench.head_model,
    )


def _akunu(bench: _Bench, arm: str, case: Case, max_tokens: int) -> Run:
    session, prompt = bench.session, case.prompt
    config = GenerationConfig()
    chain = TransformChain.from_config(config, session.vocabulary_size)
    sampler = (
        Sampler(chain, 0, session.vocabulary_size)
        if case.text is None
        else ForcedSampler(chain, len(prompt), case.text, session.vocabulary_size)
    )
    drafter = as_drafter(_drafter(bench, arm))
    most = bench.num_draft_tokens
    if most is None:
        most = default_num_draft_tokens(arm)
    with session.measured():
        states = None if drafter.hidden is None else drafter
        session.begin(prompt, sampler, max_tokens + _MARGIN, states=states)
        drafter.begin_reply(config, 0)
        drafter.observe(prompt)
        budget = Budget(
            bench.states[arm],
            context=len(prompt),
            target=session,
            drafter=drafter,
        )
        steps: list[Step] = []
        count = 0
        started = time.perf_counter()
        for step in decode(
            session,
            drafter,
            prompt[-1],
            num_draft_tokens=most,
            max_tokens=max_tokens + _MARGIN,
            budget=None if arm == "none" else budget,
        ):
            if not steps:
                # The first step's tokens and time are not counted.
                started = time.perf_counter()
            steps.append(step)
            count += len(step.token_ids)
            if count >= max_tokens:
                break
        decode_s = time.perf_counter() - started
        peak = session.peak_memory_bytes()
    recorder = StatsRecorder()
    for step in steps[1:]:
        recorder.add(step.stats)
    timed = recorder.stats
    return Run(
        arm=arm,
        case=case.id,
        session=case.session,
        token_ids=tuple(token for step in steps for token in step.token_ids)[:max_tokens],
        num_timed_tokens=timed.output_tokens,
        decode_s=decode_s,
        peak_memory_bytes=peak,
        num_passes=timed.steps,
        num_drafted=timed.drafted,
        num_accepted=timed.accepted,
        target_s=timed.target_s,
        sources=timed.sources,
    )
