"""`akunu models show`: a model, what it needs on this machine, and how it is drafted for."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from akunu_py.cli import completing
from akunu_py.cli.command import Command
from akunu_py.cli.input_text import GivenPath
from akunu_py.cli.terminal import printable
from akunu_py.model_store.hub import ask_hub, free_bytes, is_offline
from akunu_py.model_store.hub_cache import cache_folder
from akunu_py.model_store.names import HubName, choose, find_cached, locate, own_names
from akunu_py.model_store.repository_files import models_of
from akunu_py.system.errors import AkunuError, ConfigError
from akunu_py.system.settings import Settings, load_settings
from akunu_py.system.shown_text import size_text
from akunu_py.values.load_options import KVBits, LoadOptions
from akunu_py.values.recommended import Recommended

_USUAL_CONTEXTS = (4096, 32_768)
_CACHE_BITS: tuple[KVBits | None, ...] = (None, 8, 4)


@click.command(cls=Command)
@click.argument("name", required=False, shell_complete=completing.models)
@click.option(
    "--context",
    type=click.IntRange(min=1),
    metavar="N",
    help="Compute the memory for N tokens of context; else for a few sizes.",
)
@click.option(
    "--adapter", type=GivenPath(), metavar="PATH[:SCALE]",
    help="Count this LoRA adapter, and say how it would be applied.",
)  # fmt: skip
@click.option(
    "--ranks",
    type=click.IntRange(min=2, max=64),
    metavar="N",
    help="Show how the model would be split over N machines, and what each needs.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
def show(
    name: str | None,
    context: int | None,
    adapter: str | None,
    ranks: int | None,
    as_json: bool,
) -> None:
    """Show the model NAME: what it is, how it is stored, what it needs and what it can do.

    Weights are not read. Memory is that of weights, caches, the largest pass and the program.
    Without a NAME, it is the model that commands take by default. For a model that is not on this
    machine, the hub is asked for names and sizes, and nothing is fetched.

    \b
    Examples:
      akunu models show
      akunu models show model.gguf --context 2048
      akunu models show hf:unsloth/Qwen3-0.6B-GGUF:Q4_K_M
      akunu models show model.gguf --ranks 2
    """  # noqa: D301 - \b keeps click from wrapping the examples
    if name is not None and (record := remote_model(name, load_settings())) is not None:
        _print(record, remote_lines, as_json=as_json)
        return
    path = _local_path(name)
    record = describe_model(path, context, adapter)
    if ranks is not None:
        record["ranks"] = describe_ranks(path, ranks, context, adapter)
    _print(record, _lines, as_json=as_json)


def _local_path(name: str | None) -> Path:
    from akunu_py.model_store.names import resolve_model  # what --help does not need

    return resolve_model(name, load_settings(), download=False)


def _print(
    record: Mapping[str, Any],
    lines: Callable[[Mapping[str, Any]], Iterator[str]],
    *,
    as_json: bool,
) -> None:
    if as_json:
        click.echo(json.dumps(record, allow_nan=False))
    else:
        click.echo(printable("\n".join(lines(record))))


def describe_model(path: Path, context: int | None, adapter: str | None = None) -> dict[str, Any]:
    """Return the facts of a GGUF file's or an MLX folder's model, as JSON can hold them.

    `context`, in tokens, is what memory is reckoned for, with an `adapter` if one is given. Raises
    as `akunu_py.models.requirements`.
    """
    from akunu_py.model_store.names import friendly_name  # not for --help
    from akunu_py.models.device import memory_limit
    from akunu_py.models.heads.loading import has_own_head  # imports MLX
    from akunu_py.models.memory_check import PROGRAM_BYTES
    from akunu_py.models.requirements import requirements
    from akunu_py.models.sources.source import source_of
    from akunu_py.models.weight_files import by_class

    needs = requirements(path, LoadOptions(adapter=adapter))
    _check_context(context, needs.context)
    stored = source_of(path).describe()
    has_head = has_own_head(path)
    limit = memory_limit()
    sizes = (context,) if context else (*_USUAL_CONTEXTS, needs.context)
    contexts = sorted({min(size, needs.context) for size in sizes})
    memory = []
    for tokens in contexts:
        for bits in _CACHE_BITS:
            if bits is not None and not needs.quantizable:
                continue
            whole = f"{8 * needs.number_bytes if bits is None else bits} bit"
            total = needs.total_bytes(tokens, kv_bits=bits) + PROGRAM_BYTES
            memory.append(
                {
                    "context": tokens,
                    "kv": whole,
                    "kv_bytes": needs.cache_bytes(tokens, kv_bits=bits),
                    "pass_bytes": needs.working_bytes(tokens, kv_bits=bits),
                    "total_bytes": total,
                    "fits": total <= limit,
                }
            )
    return {
        "path": str(path),
        "name": friendly_name(path),
        "kind": stored.kind,
        "tokenizer": stored.tokenizer,
        "vocabulary": stored.vocabulary,
        "chat_template": stored.chat_template,
        "sampling": needs.recommended._asdict(),
        "prediction_head": has_head,
        "heads": _head_sizes(path, contexts) if has_head else None,
        "adapter": None if adapter is None else _adapter(adapter, dense=needs.dense),
        "architecture": needs.architecture,
        "parameters": needs.parameters,
        "context_length": needs.context,
        "file_bytes": needs.file_bytes,
        "quantization": by_class(stored.tensors),
        "weights": "dense" if needs.dense else "quantized",
        "weights_bytes": needs.weights_bytes,
        "program_bytes": PROGRAM_BYTES,
        "memory_limit": limit,
        "memory": memory,
        "rollback": list(needs.rollback),
        "record_row_bytes": needs.shape.record_bytes,
        "drafting": bool(needs.rollback),
    }


def _adapter(given: str, *, dense: bool) -> dict[str, Any]:
    """Return the facts of an adapter that fits a model."""
    from akunu_py.models.adapter_files import open_adapter  # imports MLX

    found = open_adapter(given)
    return {
        "name": found.name,
        "kind": f"{found.kind}, {found.summary}",
        "layers": len(found.changes),
        "way": "merged into them" if dense else "beside them",
    }


def _check_context(given: int | None, most: int) -> None:
    if given is not None and given > most:
        raise ConfigError(f"--context is {given}; this model allows up to {most} tokens")


def _head_sizes(path: Path, contexts: Iterable[int]) -> dict[str, Any] | None:
    """Return the memory of a model's head, or why akunu cannot run it; None without one."""
    from akunu_py.models.requirements import requirements  # imports MLX

    try:
        head = requirements(path, heads="own").head
    except AkunuError as error:
        return {"error": error.message}
    if head is None:
        return None
    return {
        "weights_bytes": head.weights_bytes,
        "kv_bytes": {str(tokens): head.cache_bytes(tokens) for tokens in contexts},
    }


def describe_ranks(
    path: Path, count: int, context: int | None, adapter: str | None = None
) -> dict[str, Any]:
    """Return how a model would be split over machines, and what each needs, as JSON can hold it.

    Raises ConfigError for a model that cannot be split so.
    """
    from akunu_py.models.memory_check import PROGRAM_BYTES, USUAL_CONTEXT
    from akunu_py.models.rank_split import PlannedGroup  # imports MLX
    from akunu_py.models.requirements import requirements

    options = LoadOptions(adapter=adapter)
    found = [requirements(path, options, PlannedGroup(rank, count)) for rank in range(count)]
    tokens = min(context or USUAL_CONTEXT, found[0].context)
    return {
        "way": found[0].way,
        "context": tokens,
        "each": [
            {
                "rank": rank,
                "weights_bytes": needs.weights_bytes,
                "kv_bytes": needs.cache_bytes(tokens),
                "pass_bytes": needs.working_bytes(tokens),
                "total_bytes": needs.total_bytes(tokens) + PROGRAM_BYTES,
            }
            for rank, needs in enumerate(found)
        ],
    }


def _head_text(heads: Mapping[str, Any] | None) -> str:
    if heads is None:
        return "no"
    if "error" in heads:
        return f"yes, but {heads['error']}"
    tokens, kv_bytes = max(heads["kv_bytes"].items(), key=lambda item: int(item[0]))
    return (
        f"yes, --heads own loads it; it adds {size_text(heads['weights_bytes'])} of weights, and "
        f"{size_text(kv_bytes)} of cache with {int(tokens):,} tokens"
    )


def _rank_lines(ranks: Mapping[str, Any]) -> Iterator[str]:
    count = len(ranks["each"])
    way = "a part of every layer" if ranks["way"] == "tensor" else "some of the layers"
    yield f"\non {count} machines: each has {way}; with {ranks['context']:,} tokens"
    for need in ranks["each"]:
        yield (
            f"  rank {need['rank']:<3} weights {size_text(need['weights_bytes']):>8}, "
            f"caches {size_text(need['kv_bytes']):>8}, pass {size_text(need['pass_bytes']):>8}, "
            f"all {size_text(need['total_bytes']):>8}"
        )


def _lines(record: Mapping[str, Any]) -> Iterator[str]:
    shown = {
        "path": record["path"],
        "name": record["name"],
        "kind": record["kind"],
        "architecture": record["architecture"],
        "parameters": f"{record['parameters']:,}",
        "context": f"{record['context_length']:,} tokens",
        "on disk": size_text(record["file_bytes"]),
        "tokenizer": f"{record['tokenizer'] or '-'}, {record['vocabulary']:,} tokens",
        "chat template": "yes" if record["chat_template"] else "no",
    }
    if sampling := str(Recommended(**record["sampling"])):
        shown["sampling"] = sampling
    for name, value in shown.items():
        # A line each, whatever a file says.
        yield f"{name:14s} {value if value.isprintable() else repr(value)}"
    if (adapter := record["adapter"]) is not None:
        layers = f"changes {adapter['layers']:,} layers, {adapter['way']}"
        yield f"adapter        {adapter['name']} ({adapter['kind']}), {layers}"
    yield "\nweights on disk"
    for group in record["quantization"]:
        yield (
            f"  {group['class']:15s} {group['type']:22s} {group['tensors']:5d} tensors "
            f"{size_text(group['bytes']):>9} {group['share']:6.1%}"
        )
    yield (
        f"\nmemory: {size_text(record['weights_bytes'])} for {record['weights']} weights, "
        f"{size_text(record['program_bytes'])} for the program; this machine has "
        f"{size_text(record['memory_limit'])}"
    )
    for need in record["memory"]:
        caches = f"{need['kv']:>6} caches {size_text(need['kv_bytes']):>8}"
        yield (
            f"{need['context']:>9,} tokens, {caches}, pass {size_text(need['pass_bytes']):>8}, "
            f"all {size_text(need['total_bytes']):>8}  {'fits' if need['fits'] else 'too much'}"
        )
    if "ranks" in record:
        yield from _rank_lines(record["ranks"])
    if record["drafting"]:
        held = record["record_row_bytes"]
        more = f"; a drafted row holds {size_text(held)} until its pass is undone" if held else ""
        yield f"\nrollback       {'; '.join(record['rollback'])}{more}"
        yield "drafting       yes, by auto unless --drafter says otherwise"
        yield f"heads          {_head_text(record['heads'])}"
    else:
        yield "\nrollback       none: its caches are of a kind that cannot go back"
        yield "drafting       no: replies are decoded plainly"


def remote_model(name: str, settings: Settings) -> dict[str, Any] | None:
    """Return the hub's facts of a model, as JSON can hold them; of a repository all its models.

    None for a model that is on this machine, and where HF_HUB_OFFLINE forbids to ask. Raises
    ConfigError for a name that means nothing there.
    """
    meant = locate(name, settings)
    if not isinstance(meant, HubName) or is_offline() or find_cached(meant) is not None:
        return None
    from akunu_py.models.device import memory_limit  # imports MLX

    models = models_of(ask_hub(meant.repository).sizes)
    named = list(zip(own_names(meant.repository, models), models, strict=True))
    if not models or meant.quantization or meant.file:
        chosen = choose(meant, models, "on the hub")
        named = [(own, model) for own, model in named if model == chosen]
    limit = memory_limit()
    return {
        "repository": meant.repository,
        "models": [
            {
                "name": str(own),
                "file_bytes": model.num_bytes,
                "files": len(model.files),
                "fits": model.num_bytes < limit,
            }
            for own, model in named
        ],
        "memory_limit": limit,
        "free_bytes": free_bytes(cache_folder()),
    }


def remote_lines(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield the facts that `remote_model` returned as lines."""
    yield f"{record['repository']} is on the hub, not on this machine"
    for model in record["models"]:
        files = f" in {model['files']} files" * (model["files"] > 1)
        note = "" if model["fits"] else "  (larger than this machine's memory)"
        yield f"{size_text(model['file_bytes']):>9}  {model['name']}{files}{note}"
    yield (
        f"this machine has {size_text(record['memory_limit'])} of memory, and "
        f"{size_text(record['free_bytes'])} left where models are kept; after akunu models pull "
        "NAME, show says what it needs"
    )
