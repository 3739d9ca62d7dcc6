"""What a server's models are loaded from, and what is known of them before."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from akunu_py.engine.engine import Engine
from akunu_py.model_store.choice import model_name
from akunu_py.model_store.inventory import quantization_at
from akunu_py.model_store.names import friendly_name
from akunu_py.models.load import open_model
from akunu_py.models.load_steps import Steps
from akunu_py.models.loaded_model import ModelDescription
from akunu_py.models.memory_check import (
    MemoryNeeds,
    PlannedModel,
    check_memory,
)
from akunu_py.models.requirements import Requirements
from akunu_py.server.backend import ServedModel, StoredFacts
from akunu_py.system.errors import AkunuError
from akunu_py.tokenizers.gguf_tokenizer import GGUFTokenizer
from akunu_py.values.load_options import EngineOptions

_log = logging.getLogger(__name__)


class ModelFile:
    """A GGUF file or an MLX folder that can be loaded again and again, and its engine's options.

    `id` is its name in requests, one word. `planned` are the models that this takes, with a draft
    model two. With `checked` False it is loaded, and replies, whether memory holds that or not.
    """

    def __init__(
        self,
        id_: str,
        planned: Sequence[PlannedModel],
        options: EngineOptions,
        *,
        checked: bool = True,
    ) -> None:
        self.id = id_
        self._planned = planned
        self._options = options
        self._checked = checked
        self._needs = MemoryNeeds(planned, context=options.context)

    @property
    def path(self) -> Path:
        return self._planned[0].path

    def describe(self) -> ServedModel:
        """Return the facts in the files' headers; raises as `load_model` does for such files."""
        return ServedModel(
            id=self.id, name=friendly_name(self.path), context=self._needs.context,
            trained=self._needs.trained, created=_created(self.path), loaded=False,
            stored=_stored(self.path, self._needs.first),
            recommended=self._needs.first.recommended,
            replies=self._needs.first.pooling is None,
            embeds=(self._needs.first.pooling or self._options.pooling) is not None,
        )  # fmt: skip

    @property
    def context(self) -> int | None:
        """Return the context asked for, as far as the model has one; None if nobody asked."""
        return None if self._options.context is None else self._needs.context

    def loading(self) -> int:
        """Return the bytes of memory that loading takes."""
        return self._needs.loading()

    def rows(self, tokens: int) -> int:
        """Return the bytes of the KV entries of `tokens` tokens; 0 where memory limits no reply."""
        return self._asked(lambda: self._needs.rows(tokens))

    def largest_pass(self, tokens: int, replies: int) -> int:
        """Return the working memory of one pass over `replies`, in bytes; 0 as for `rows`."""
        return self._asked(lambda: self._needs.largest_pass(tokens, replies))

    def _asked(self, question: Callable[[], int]) -> int:
        """Return an answer; 0 from now on for files whose needs cannot be told."""
        try:
            return question() if self._checked else 0
        except AkunuError as error:
            _log.warning("the memory of replies of %s is not checked: %s", self.id, error)
            self._checked = False
            return 0

    def open(self, available: int) -> Steps[Engine]:
        """Open the model's files if it fits into `available` bytes; return the steps that load it.

        Any thread may call it; the thread that owns MLX takes the steps. Both raise AkunuError.
        """
        context = self.context
        if self._checked:
            check_memory(self._planned, context=context, available=available)
        opened = [open_model(one.path, one.options, context=context) for one in self._planned]
        return Engine.loading(opened, replace(self._options, context=context))


def readable(sources: Iterable[ModelFile], leave_out: Callable[[str], None]) -> list[ModelFile]:
    """Return the sources whose files can be served; `leave_out` is told what the others lack."""
    found = []
    for source in sources:
        try:
            source.describe()
        except AkunuError as error:
            said = error.message
            leave_out(said if str(source.path) in said else f"{source.path}: {said}")
        else:
            found.append(source)
    return found


def served_model(engine: Engine) -> ServedModel:
    """Return the description of an engine's model; its id is made of its file's name."""
    description, tokenizer = engine.description, engine.tokenizer
    path = description.path
    thinks = len(tokenizer.encode("<think>", parse_special=True)) - len(tokenizer.encode(""))
    return ServedModel(
        id=model_name(path),
        name=description.name,
        context=engine.context,
        trained=description.context,
        created=_created(path),
        replies=description.pooling is None,
        embeds=engine.pooling is not None,
        thinks=thinks == 1,
        heeds=engine.thinking.supported,
        holds_grammars=_holds_grammars(engine),
        unwritten=engine.tool_use.unwritten,
        takes_turns=lambda: engine.takes_turns,
        template=getattr(tokenizer, "chat_template", ""),
        stored=_stored(path, description),
        recommended=description.recommended,
        fills_in=isinstance(tokenizer, GGUFTokenizer)
        and {"pre", "suf", "mid"} <= tokenizer.fim_ids.keys(),
    )


def _holds_grammars(engine: Engine) -> bool:
    """Return what the model's template allows; of one that fails each chat tells the reason."""
    try:
        return engine.tool_use.holds_grammars
    except AkunuError:
        return True


def _stored(path: Path, figures: ModelDescription | Requirements) -> StoredFacts:
    return StoredFacts(
        storage="safetensors" if path.is_dir() else "gguf",
        num_bytes=figures.file_bytes,
        architecture=figures.architecture,
        parameters=figures.parameters,
        quantization=quantization_at(path),
    )


def _created(path: Path) -> int:
    try:
        return int(path.stat().st_mtime)
    except OSError:
        return 0
