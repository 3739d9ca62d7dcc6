"""Runs one comparison of programs on a model and prompts."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median_low

from akunu_lab.compare.arm import ComparedModel, Program, Skipped
from akunu_lab.compare.llama_cpp_arms import LLAMA_CPP
from akunu_lab.compare.mlx_lm_arms import MLX_LM
from akunu_lab.compare.peer import start_peers
from akunu_lab.compare.report import AKUNU, compare, compare_findings
from akunu_lab.compare.transformers_arms import TRANSFORMERS
from akunu_py.bench.engine_arm import EngineArm
from akunu_py.bench.environment import Environment
from akunu_py.bench.measured_model import model_from
from akunu_py.bench.result_file import BenchResult, Costs, Failure
from akunu_py.bench.resume import ItemStore
from akunu_py.bench.run import BenchRun
from akunu_py.bench.runner import Arm, Item, Progress, encode_items, run_arms
from akunu_py.bench.workloads import Prompt
from akunu_py.cpu.blas import fix_threads
from akunu_py.drafting.registry import default_num_draft_tokens, kind_of, make_drafter
from akunu_py.engine.engine import Engine
from akunu_py.models.load import LoadedModel, LoadOptions, draft_options, load_model
from akunu_py.system.errors import ConfigError, ContextOverflowError
from akunu_py.values.load_options import EngineOptions
from akunu_py.values.types import DraftBudget, GenerationConfig

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
        load: for the model, in every process that loads it.
        context: akunu's limit of prompt and reply, in tokens; None: the model's.
        draft_path: a smaller model with the same vocabulary, for the arms that ask one.
        drafters: akunu's drafters, by name.
        programs: the other programs.
        max_tokens: most tokens of a reply.
        draft_budget: budget of akunu's arms.
        num_threads: threads of every program that computes on the CPU.

    """

    load: LoadOptions
    context: int | None = None
    draft_path: Path | None = None
    drafters: tuple[str, ...] = ("auto", "ngram")
    programs: tuple[Program, ...] = tuple(PROGRAMS.values())
    max_tokens: int = 96
    draft_budget: DraftBudget = "auto"
    num_threads: int = 1


def run_compare(
    path: Path,
    prompts: Sequence[Prompt],
    options: CompareOptions,
    *,
    begin: Callable[..., BenchRun],
    failures: Sequence[Failure] = (),
    progress: Progress | None = None,
) -> BenchResult:
    """Decode each prompt with each arm of each program, greedily, and compare.

    The costs of akunu's passes are measured first, and remembered as by `akunu tune`. `begin` opens
    the run, given its `model`, `draft_model` and `inputs`; `failures` are prompts that could not be
    read. After an interrupt the result covers the finished items.

    Raises ConfigError if no prompt can be used, for an unknown drafter, and for an unusable store;
    and as `load_model` does.
    """
    for name in options.drafters:
        if kind_of(name).needs != "draft model":
            make_drafter(name)
    loaded = load_model(path, options.load, context=options.context)
    draft_model = None
    if options.draft_path is not None:
        beside = draft_options(options.draft_path, options.load)
        draft_model = load_model(options.draft_path, beside)
    context = options.context or loaded.description.context
    items, unfit = encode_items(loaded.tokenizer, prompts, context, options.max_tokens)
    if not items:
        reason = unfit[0].error if unfit else "there are none"
        raise ConfigError(f"there are no prompts to compare with: {reason}")
    fix_threads(options.num_threads)
    engine = _engine(loaded, context)
    arms, missing = _own_arms(engine, loaded, draft_model, options)
    try:
        probe = items[0].prompt[:_PROBE_TOKENS]
        subject = ComparedModel(
            path=loaded.description.path,
            options=asdict(options.load),
            context=options.context,
            draft_path=options.draft_path,
            longest=max(len(item.prompt) for item in items) + options.max_tokens,
            max_tokens=options.max_tokens,
            end_ids=loaded.tokenizer.end_ids,
            num_threads=options.num_threads,
            on_gpu=Environment.current().device == "gpu",
            probe=probe,
            logits=engine.logits(probe),
        )
        peers, absent = start_peers(options.programs, subject)
        arms += peers
        model = model_from(loaded.description)
        draft = None if draft_model is None else model_from(draft_model.description)
        inputs = {"arms": {arm.name: arm.version for arm in arms}}
        with begin(model=model, draft_model=draft, inputs=inputs) as bench:
            costs = _costs(engine, items, bench.store)
            runs = run_arms(arms, items, bench.store, progress=progress)
        comparison = compare(arms, runs.items, engine.logits)
    finally:
        for arm in arms:
            arm.close()
    return bench.result(
        compare_findings(
            comparison, runs, skipped=[*missing, *absent], failures=(*failures, *unfit), costs=costs
        )
    )


def _own_arms(
    engine: Engine,
    loaded: LoadedModel,
    draft_model: LoadedModel | None,
    options: CompareOptions,
) -> tuple[list[Arm], list[Skipped]]:
    """Return the plain arm, an arm for each drafter, and the arms that cannot be made.

    Drafters that ask a draft model each have their own engine, so that none profits from another's
    passes over a prompt.
    """
    arms: list[Arm] = []
    skipped: list[Skipped] = []
    for name in ("none", *(name for name in options.drafters if name != "none")):
        own = engine
        if kind_of(name).needs == "draft model":
            if draft_model is None:
                reason = "it asks a draft model; give one: --draft-model"
                skipped.append(Skipped(f"akunu-{name}", reason))
                continue
            own = _engine(loaded, engine.context, draft_model)
        plain = name == "none"
        config = GenerationConfig(
            max_tokens=options.max_tokens, seed=0, drafter=name, draft_budget=options.draft_budget,
            num_draft_tokens=None if plain else default_num_draft_tokens(name),
        )  # fmt: skip
        arm = AKUNU if plain else f"akunu-{name}"
        arms.append(EngineArm(arm, own, config, plain=AKUNU, forgets=True))
    return arms, skipped


def _engine(loaded: LoadedModel, context: int, draft_model: LoadedModel | None = None) -> Engine:
    engine = Engine(loaded, EngineOptions(context=context), draft_model=draft_model)
    # It would be in the time of a reply.
    engine.compares_rows = False
    return engine


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
    except ContextOverflowError:
        return None
    costs = Costs(times.unit_s, times.costs)
    store.put(_COSTS, costs)
    return costs
