"""Runs one comparison of programs on a model and prompts."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median_low

from akunu_py.bench.environment import Environment
from akunu_py.bench.measured_model import model_from
from akunu_py.bench.result_file import BenchResult, Costs, Failure
from akunu_py.bench.resume import ItemStore
from akunu_py.bench.run import BenchRun
from akunu_py.bench.workloads import Prompt
from akunu_py.cpu.blas import fix_threads
from akunu_py.drafting.registry import kind_of, make_drafter
from akunu_py.engine.engine import Engine
from akunu_py.lab.compare import akunu_arms
from akunu_py.lab.compare.arm import Arm, Program, Subject
from akunu_py.lab.compare.llama_cpp_arms import LLAMA_CPP
from akunu_py.lab.compare.mlx_lm_arms import MLX_LM
from akunu_py.lab.compare.peer import start_peers
from akunu_py.lab.compare.report import compare, compare_findings
from akunu_py.lab.compare.runner import Item, run_items
from akunu_py.lab.compare.transformers_arms import TRANSFORMERS
from akunu_py.models.load import LoadOptions, draft_options, load_model
from akunu_py.protocols import Tokenizer
from akunu_py.system.errors import AkunuError, ConfigError, ContextOverflowError
from akunu_py.values.load_options import EngineOptions
from akunu_py.values.types import DraftBudget

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
        programs: the other programs, by name.
        max_tokens: most tokens of a reply.
        draft_budget: budget of akunu's arms.
        num_threads: threads of every program that computes on the CPU.

    """

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
    load_options: LoadOptions,
    context: int | None = None,
    draft_path: Path | None = None,
    begin: Callable[..., BenchRun],
    failures: Sequence[Failure] = (),
    progress: Callable[[int, int], None] | None = None,
) -> BenchResult:
    """Decode each prompt with each arm of each program, greedily, and compare.

    The costs of akunu's passes are measured first, and remembered as by `akunu tune`. After an
    interrupt the result covers the finished items.

    Args:
        path: of the model.
        prompts: to decode.
        options: of the comparison.
        load_options: for the model, in every process that loads it.
        context: akunu's limit of prompt and reply, in tokens; None: the model's.
        draft_path: of a smaller model with the same vocabulary, for the arms that ask one.
        begin: opens the run, given its `model`, `draft_model` and `inputs`.
        failures: prompts that could not be read, for the result.
        progress: called with finished and all replies.

    Raises ConfigError if no prompt can be used, for an unknown drafter, and for an unusable store;
    and as `load_model` does.
    """
    for name in options.drafters:
        if kind_of(name).needs != "draft model":
            make_drafter(name)
    loaded = load_model(path, load_options, context=context)
    draft_model = None
    if draft_path is not None:
        draft_model = load_model(draft_path, draft_options(draft_path, load_options))
    bound = context or loaded.description.context
    items, unfit = encode_items(loaded.tokenizer, prompts, bound - options.max_tokens)
    if not items:
        reason = unfit[0].error if unfit else "there are none"
        raise ConfigError(f"there are no prompts to compare with: {reason}")
    fix_threads(options.num_threads)
    with Engine(loaded, EngineOptions(context=bound)) as engine:
        probe = items[0].prompt[:_PROBE_TOKENS]
        subject = Subject(
            path=loaded.description.path,
            options=asdict(load_options),
            context=context,
            draft_path=draft_path,
            longest=max(len(item.prompt) for item in items) + options.max_tokens,
            num_threads=options.num_threads,
            on_gpu=Environment.current().device == "gpu",
            probe=probe,
            logits=engine.logits(probe),
        )
        own, missing = akunu_arms.make_arms(
            loaded,
            draft_model,
            context=bound,
            drafters=options.drafters,
            draft_budget=options.draft_budget,
        )
        arms: list[Arm] = [*own]
        try:
            peers, absent = start_peers(options.programs, subject)
            arms += peers
            skipped = [*missing, *absent]
            model = model_from(loaded.description)
            draft = None if draft_model is None else model_from(draft_model.description)
            inputs = {"arms": {arm.name: arm.version for arm in arms}}
            with begin(model=model, draft_model=draft, inputs=inputs) as bench:
                costs = _costs(engine, items, bench.store)
                runs = run_items(
                    arms,
                    items,
                    bench.store,
                    max_tokens=options.max_tokens,
                    end_ids=loaded.tokenizer.end_ids,
                    progress=progress,
                )
            comparison = compare(arms, runs.items, engine.logits)
        finally:
            for arm in arms:
                arm.close()
    return bench.result(
        compare_findings(
            comparison, runs, skipped=skipped, failures=(*failures, *unfit), costs=costs
        )
    )


def encode_items(
    tokenizer: Tokenizer, prompts: Sequence[Prompt], most: int
) -> tuple[list[Item], list[Failure]]:
    """Return prompts in ids, and failures of prompts that are empty or longer than `most`."""
    items: list[Item] = []
    failures: list[Failure] = []
    for prompt in prompts:
        try:
            ids = prompt.encode(tokenizer)
        except AkunuError as error:
            failures.append(Failure(prompt.id, str(error)))
            continue
        if 0 < len(ids) <= most:
            items.append(Item(prompt.id, prompt.category, prompt.session, tuple(ids)))
        else:
            failures.append(
                Failure(prompt.id, f"it has {len(ids)} tokens; 1 to {most} leave room for a reply")
            )
    return items, failures


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
