"""Runs one comparison of programs on a model and prompts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Literal

from akunu_lab.compare.arm import ComparedModel, Skipped
from akunu_lab.compare.llama_cpp_arms import LLAMA_CPP
from akunu_lab.compare.mlx_lm_arms import MLX_LM
from akunu_lab.compare.peer import start_peers
from akunu_lab.compare.report import AKUNU, compare, compare_findings
from akunu_lab.compare.transformers_arms import TRANSFORMERS
from akunu_lab.study.run import StudyRun
from akunu_lab.study.store import ItemStore
from akunu_py.api import (
    AkunuError,
    Arm,
    BenchResult,
    ConfigError,
    Costs,
    DrafterKind,
    Engine,
    EngineArm,
    Failure,
    GenerationConfig,
    Item,
    Prompt,
    make_drafter,
    run_arms,
)

PROGRAMS = {program.name: program for program in (MLX_LM, LLAMA_CPP, TRANSFORMERS)}
"""The programs that akunu is compared with, by name."""

_PROBE_TOKENS = 128
_REPEATS = 5
_COSTS = "costs of passes"
"""Key of the costs among the finished items; not an id of a prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions:
    """Options of a comparison.

    Attributes:
        drafters: akunu's drafters, by name.
        programs: names of the other programs.
        max_tokens: most tokens of a reply.
        draft_budget: budget of akunu's arms.
        num_threads: threads of every program that computes on the CPU.

    """

    drafters: tuple[str, ...] = ("auto", "ngram")
    programs: tuple[str, ...] = tuple(PROGRAMS)
    max_tokens: int = 96
    draft_budget: Literal["auto", "always"] = "auto"
    num_threads: int = 1


def check_drafters(names: Sequence[str]) -> None:
    """Raise ConfigError for an unknown drafter, before a model is loaded."""
    for name in names:
        if DrafterKind.named(name).needs != "draft model":
            make_drafter(name)


def run_compare(
    engine: Engine,
    prompts: Sequence[Prompt],
    options: CompareOptions,
    *,
    begin: Callable[[Mapping[str, object]], StudyRun],
    failures: Sequence[Failure] = (),
    progress: Callable[[int, int], None] | None = None,
) -> BenchResult:
    """Decode each prompt with each arm of each program, greedily, and compare.

    The costs of akunu's passes are measured first, and remembered as by `akunu tune`. `begin` opens
    the run, given the versions of the arms; `failures` are prompts that could not be read. After an
    interrupt the result covers the finished items.

    Raises ConfigError if no prompt can be used, for an unknown drafter, and for an unusable store.
    """
    import mlx.core as mx  # behind akunu, or it would compute without akunu's kernels

    check_drafters(options.drafters)
    items, unfit = Item.encoded(prompts, engine.tokenizer, engine.context, room=options.max_tokens)
    if not items:
        reason = unfit[0].error if unfit else "there are none"
        raise ConfigError(f"there are no prompts to compare with: {reason}")
    # Without the draft model, which `auto` would ask. It learns the costs that are measured on it.
    alone = engine.sibling()
    arms, missing = _own_arms(engine, alone, options)
    try:
        probe = items[0].prompt[:_PROBE_TOKENS]
        subject = ComparedModel(
            path=engine.description.path,
            options=engine.options,
            draft_path=None if engine.draft_model is None else engine.draft_model.path,
            longest=max(len(item.prompt) for item in items) + options.max_tokens,
            max_tokens=options.max_tokens,
            end_ids=engine.tokenizer.end_ids,
            num_threads=options.num_threads,
            on_gpu=mx.default_device() == mx.Device(mx.gpu),
            probe=probe,
            logits=engine.logits(probe),
        )
        peers, absent = start_peers([PROGRAMS[name] for name in options.programs], subject)
        arms += peers
        with begin({"arms": {arm.name: arm.version for arm in arms}}) as bench:
            costs = _costs(alone, items, bench.store)
            runs = run_arms(arms, items, store=bench.store, progress=progress)
        comparison = compare(arms, runs.items, engine.logits)
    finally:
        for arm in arms:
            arm.close()
    return bench.result(
        compare_findings(
            comparison, runs.answered, skipped=[*missing, *absent],
            failures=(*failures, *unfit, *runs.failures), costs=costs, finished=runs.finished,
        )
    )  # fmt: skip


def _own_arms(
    engine: Engine, alone: Engine, options: CompareOptions
) -> tuple[list[Arm], list[Skipped]]:
    """Return the plain arm, an arm for each drafter, and the arms that cannot be made.

    Drafters that ask a draft model each have their own engine, so that none profits from another's
    passes over a prompt.
    """
    arms: list[Arm] = []
    skipped: list[Skipped] = []
    for name in ("none", *(name for name in options.drafters if name != "none")):
        own = alone
        if DrafterKind.named(name).needs == "draft model":
            if engine.draft_model is None:
                reason = "it asks a draft model; give one: --draft-model"
                skipped.append(Skipped(f"akunu-{name}", reason))
                continue
            own = engine.sibling(drafts=True)
        plain = name == "none"
        config = GenerationConfig(
            max_tokens=options.max_tokens, seed=0, drafter=name, draft_budget=options.draft_budget,
            num_draft_tokens=None if plain else DrafterKind.named(name).num_draft_tokens,
        )  # fmt: skip
        arm = AKUNU if plain else f"akunu-{name}"
        arms.append(EngineArm(arm, own, config, plain=AKUNU, forgets=True))
    return arms, skipped


def _costs(engine: Engine, items: Sequence[Item], store: ItemStore) -> Costs | None:
    """Return the costs of passes after a prompt of the usual length, measured once in a run.

    None if the context has no room for that.
    """
    kept = store.get(_COSTS, Costs)
    if kept is not None:
        return kept
    usual = median_low(sorted((item.prompt for item in items), key=len))
    try:
        times = engine.tune(usual, repeats=_REPEATS)
    except AkunuError:
        # The context has no room for it.
        return None
    costs = Costs(times.unit_s, times.costs)
    store.put(_COSTS, costs)
    return costs
