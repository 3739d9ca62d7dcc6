"""One comparison: a model, prompts and programs to a result."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low

from akunu_py.bench.compare.akunu_arms import AKUNU
from akunu_py.bench.compare.arm import Program, Subject, gather
from akunu_py.bench.compare.llama_cpp_arms import LLAMA_CPP
from akunu_py.bench.compare.mlx_lm_arms import MLX_LM
from akunu_py.bench.compare.result import compare, deterministic, item_records, tables, timing
from akunu_py.bench.compare.runner import Item, run_items
from akunu_py.bench.compare.transformers_arms import TRANSFORMERS
from akunu_py.bench.environment import Environment
from akunu_py.bench.measured_model import Model, model_hash
from akunu_py.bench.record import Record
from akunu_py.bench.result_file import BenchResult, Costs, Failure, utc_now
from akunu_py.bench.resume import ItemStore
from akunu_py.bench.workloads import Prompt
from akunu_py.drafting.registry import WITH_DRAFT_MODEL, make_drafter
from akunu_py.engine.engine import Engine
from akunu_py.errors import AkunuError, ConfigError, ContextOverflowError
from akunu_py.models.load import LoadedModel
from akunu_py.types import DraftBudget, Tokenizer

PROGRAMS = {program.name: program for program in (AKUNU, MLX_LM, LLAMA_CPP, TRANSFORMERS)}
"""All programs by name; akunu's arms are always there."""

_PROBE_TOKENS = 128
_REPEATS = 5
_COSTS = "costs of passes"
"""What they are kept as, among the finished items; no id of a prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions:
    """What is compared, and how.

    Attributes:
        drafters: akunu's, by name.
        programs: akunu and those it is compared with.
        max_tokens: most tokens of a reply.
        num_draft_tokens: most tokens of a draft, of all arms; None: each has its own number.
        draft_budget: of akunu's arms.

    """

    drafters: tuple[str, ...] = ("auto", "ngram")
    programs: tuple[Program, ...] = tuple(PROGRAMS.values())
    max_tokens: int = 96
    num_draft_tokens: int | None = None
    draft_budget: DraftBudget = "auto"


def run_compare(
    loaded: LoadedModel,
    prompts: Sequence[Prompt],
    options: CompareOptions,
    *,
    context: int | None = None,
    draft_model: LoadedModel | None = None,
    arguments: Mapping[str, object],
    open_store: Callable[[Mapping[str, object]], ItemStore],
    progress: Callable[[int, int], None] | None = None,
) -> BenchResult:
    """Decode each prompt with each arm of each program, greedily, and compare.

    `context` bounds akunu's, in tokens. `arguments` are the command's, for the result; `open_store`
    opens the finished items of the run with the fingerprint it is given. The costs of akunu's
    passes are measured first, and remembered as `akunu tune` does. An interrupt gives the result of
    the items that are finished.

    Raises ConfigError where no prompt can be used, for an unknown drafter, and for a store that
    cannot be used.
    """
    for name in options.drafters:
        if name not in WITH_DRAFT_MODEL:
            make_drafter(name)
    started, clock = utc_now(), time.perf_counter()
    context = context or loaded.description.context
    items, failures = encode_items(loaded.tokenizer, prompts, context - options.max_tokens)
    if not items:
        reason = failures[0].error if failures else "there are none"
        raise ConfigError(f"there are no prompts to compare with: {reason}")
    environment = Environment.current()
    with Engine(loaded, context=context) as engine:
        subject = Subject(
            loaded=loaded,
            draft_model=draft_model,
            context=context,
            longest=max(len(item.prompt) for item in items) + options.max_tokens,
            vocabulary_size=engine.vocabulary_size,
            drafters=options.drafters,
            draft_budget=options.draft_budget,
            num_draft_tokens=options.num_draft_tokens,
            num_threads=environment.cpu_count,
            on_gpu=environment.device == "gpu",
            probe=items[0].prompt[:_PROBE_TOKENS],
            logits=engine.logits,
        )
        arms, skipped = gather(options.programs, subject)
        try:
            model = _described(loaded)
            draft = None if draft_model is None else _described(draft_model)
            fingerprint = {
                "command": "compare",
                "arguments": dict(arguments),
                "model": model.sha256,
                "draft_model": "" if draft is None else draft.sha256,
                "arms": {arm.name: arm.version for arm in arms},
                "blas": environment.blas,
            }
            with open_store(fingerprint) as store:
                costs = _costs(engine, items, store)
                runs = run_items(
                    arms,
                    items,
                    store,
                    max_tokens=options.max_tokens,
                    end_ids=loaded.tokenizer.end_ids,
                    progress=progress,
                )
            comparison = compare(arms, runs.items, engine.logits)
        finally:
            for arm in arms:
                arm.close()
    failures += [
        Failure(f"{run.item.id}, {name}", error)
        for run in runs.items
        for name, error in run.errors.items()
    ]
    before = sum(run.took_s for run in runs.items[: runs.resumed])
    measured = [run for run in runs.items if run.replies]
    return BenchResult(
        command="compare",
        arguments=arguments,
        environment=environment,
        model=model,
        draft_model=draft,
        costs=costs,
        deterministic=deterministic(comparison, measured),
        timing=timing(comparison, measured),
        tables=tables(comparison, skipped, measured),
        items=item_records(comparison, measured),
        failures=tuple(failures),
        started=started,
        seconds=time.perf_counter() - clock + before,
        finished=runs.finished,
    )


def encode_items(
    tokenizer: Tokenizer, prompts: Sequence[Prompt], most: int
) -> tuple[list[Item], list[Failure]]:
    """Return prompts in token ids, once for all arms, and those that are none or over `most`."""
    items: list[Item] = []
    failures: list[Failure] = []
    for prompt in prompts:
        try:
            if prompt.kind == "chat" and tokenizer.has_chat_template:
                ids = tokenizer.encode_chat(prompt.messages)
            else:
                ids = tokenizer.encode(prompt.last_user_text)
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
    """Return what passes cost behind a prompt of the usual length, as this run measured it.

    None where the context has no room for it.
    """
    kept = store.get(_COSTS)
    if kept is not None:
        return Costs.from_dict(Record(kept, f"the kept {_COSTS}"))
    usual = median_low(sorted((item.prompt for item in items), key=len))
    try:
        times = engine.tune(usual, repeats=_REPEATS)
    except ContextOverflowError:
        return None
    costs = Costs(times.unit_s, times.costs)
    store.put(_COSTS, costs.to_dict())
    return costs


def _described(loaded: LoadedModel) -> Model:
    description = loaded.description
    path = Path(description.path)
    return Model(
        path=str(path),
        name=description.name,
        architecture=description.architecture,
        parameters=description.parameters,
        weights=description.weights,
        context=description.context,
        sha256=model_hash(path) if path.exists() else "",
    )
