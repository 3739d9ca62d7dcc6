"""The engine: text in, text out, with one loaded model."""

import contextlib
import logging
import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Self, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from akunu_py.decoding.shared_passes import SharedPasses
from akunu_py.drafting import AutoState, ReplyMemory, open_memory, vocabulary_fingerprint
from akunu_py.drafting.prediction_head import RowReader
from akunu_py.engine.admission import Admission, ReplyStream, append_line
from akunu_py.engine.drafter_factory import (
    DrafterChoice,
    DrafterFactory,
    DraftingModels,
    Matchers,
    constrained_drafter,
)
from akunu_py.engine.hold import HeldIterator
from akunu_py.engine.lane import CheckedCall, InTurns, Lane, choose_steps, results_as_they_end
from akunu_py.engine.lent_model import LentModel
from akunu_py.engine.memories import Memories
from akunu_py.engine.reasoning import Thinking, answer_tags, end_of_prompt
from akunu_py.engine.reply import Request, Turns
from akunu_py.engine.reply_room import ReplyRoom
from akunu_py.engine.reply_text import MessageReader
from akunu_py.engine.request_checks import (
    ChatPlan,
    Prompt,
    check_chat_length,
    check_length,
    check_reply,
    checked_ids,
    ids_of,
    not_for_embeddings,
    not_for_replies,
    with_options,
)
from akunu_py.model_store.known_models import default_model_path
from akunu_py.model_store.names import resolve_model
from akunu_py.models.cached_rows import BLOCK_ROWS, Progress, usable_context
from akunu_py.models.expansion import num_parameters
from akunu_py.models.joined import JoinedForward
from akunu_py.models.load import LoadedModel, ModelDescription, open_model
from akunu_py.models.load_steps import Steps, finish
from akunu_py.models.memory_check import MemoryNeeds, planned_models
from akunu_py.models.pass_times import ROWS, PassTimes, measure_passes
from akunu_py.models.rank_split import PlannedGroup
from akunu_py.models.session import Session
from akunu_py.protocols import Tokenizer
from akunu_py.system.errors import ConfigError, ContextOverflowError
from akunu_py.system.settings import load_settings
from akunu_py.values.generation_config import GenerationConfig, GenerationOptions
from akunu_py.values.load_options import EngineKeywords, EngineOptions
from akunu_py.values.messages import (
    GivenMessage,
    GivenTool,
    ToolChoice,
    read_messages,
    read_tools,
)
from akunu_py.values.types import GenerationResult, StreamEvent, TokenLogprob

if TYPE_CHECKING:
    # Not before `akunu_py.models`, which loads a fast BLAS first.
    from mlx import nn

    from akunu_py.engine.embedding import CheckedTexts
    from akunu_py.engine.tool_use import ToolUse
    from akunu_py.models.heads import Head
    from akunu_py.models.ranks.link import Link
    from akunu_py.tool_calls.given_reader import GivenReader


_log = logging.getLogger(__name__)

_LATER_CALL = "this reply was ended by a later call on the same engine"


class _PublicNames(type):
    """Has `dir` and `help` of a class leave out what is for akunu's own commands and server."""

    internal: frozenset[str] = frozenset()

    def __dir__(cls) -> list[str]:
        return sorted(set(super().__dir__()) - cls.internal)


class Engine(metaclass=_PublicNames):
    """A model, its tokenizer and the caches of one conversation.

    `Engine.load` makes one. One reply is made at a time, or several by `generate_many`. A second
    call from the same thread ends an unfinished stream; calls of other threads wait for their turn.
    The caches keep the last conversation, so a call whose prompt begins with it prefills only the
    new tail.
    """

    internal = frozenset({
        "append_trace", "check", "check_chat", "check_replies", "check_texts", "choose_steps",
        "drafter_of", "internal", "joined_passes", "lane", "lend", "loading", "measure_drafts",
        "sibling", "stream_forced", "wait",
    })  # fmt: skip

    def __init__(
        self,
        loaded: LoadedModel,
        options: EngineOptions | None = None,
        *,
        draft_model: LoadedModel | None = None,
        head: "Head | None" = None,
        ranks: "Link | None" = None,
    ) -> None:
        options = options or EngineOptions()
        # Rank 0's connection to the others; None on one machine.
        self.ranks = ranks
        # Whether results say if positions of passes are bit-equal (`row_bits`). Once for a model
        # and a length of the text, that takes some passes behind a reply; without it they say
        # "unknown" of a reply with drafts.
        self.compares_rows = True
        # How many replies memory holds at once; one that asks nothing allows any number.
        self.reply_room = ReplyRoom()
        self.reproducible = options.reproducible
        block_rows = BLOCK_ROWS if options.reproducible else None
        context = usable_context(options.context, loaded.description.context, block_rows)
        self._admission = Admission()
        # `close` deletes these parts, and every call asks `_admission` before it uses them.
        self._loaded = loaded
        self.options = options
        self._session = self._new_session(context)
        self._joined: JoinedForward | None = None
        # Why replies that are made together take turns: "" where they share passes, None as long as
        # `joined_passes` has not tried it.
        self.takes_turns: str | None = None
        if not self._session.joins:
            reason = "are reproducible" if options.reproducible else "run on several machines"
            self.takes_turns = f"they {reason}"
            _log.info("replies that are made together take turns, since they %s", reason)
        self.thinking = Thinking(loaded.tokenizer)
        self._vocabulary = ""  # fingerprint, once a trace needs it
        self._drafters = DrafterFactory(
            loaded,
            self._session.vocabulary_size,
            context=self._session.context,
            most=BLOCK_ROWS - 1 if options.reproducible else None,
            draft_model=draft_model,
            head=head,
        )
        if options.kv_bits is not None and isinstance(self._drafters.models.head, RowReader):
            raise ConfigError(
                f"the prediction head of heads {str(options.heads)!r} reads the model's own cache, "
                f"which kv_bits {options.kv_bits} quantizes; leave out heads or kv_bits"
            )
        self._matchers = Matchers(self.tokenizer, self._session.vocabulary_size)
        size = self._session.vocabulary_size
        memory = open_memory(options.memory, self.tokenizer.token_texts, size)
        self._memories = Memories(loaded, ReplyMemory(memory), options.kv_bits, block_rows)
        self.description: ModelDescription = loaded.description
        # How embeddings are made; None for a model that makes none.
        self.pooling = loaded.description.pooling
        if options.pooling is not None:
            from akunu_py.models.pooling import Pooling  # for embeddings alone

            self.pooling = (self.pooling or Pooling("last"))._replace(kind=options.pooling)
        self.draft_model = None if draft_model is None else draft_model.description
        self.has_head = head is not None
        self.context: int = self._session.context

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        options: EngineOptions | None = None,
        *,
        ranks: "Link | None" = None,
        check_ranks: bool | None = None,
        **keywords: Unpack[EngineKeywords],
    ) -> Self:
        """Load a model by any name that commands take; without one, the default model.

        Keywords override fields of the options, which `EngineOptions` describes.

        Args:
            path: a GGUF file or an MLX folder, or a name such as "qwen3:4b", "hf:OWNER/REPO:Q4_K_M"
                or an alias; models that are not on this machine are fetched. A `Path` is always a
                file or folder.
            options: how to load it.
            ranks: rank 0's connection to the others, if the model is split over several machines
                (docs/several-machines.md).
            check_ranks: whether to compare what all ranks compute with the whole model on this one
                first. By default, once for a model and its ranks, if the whole model fits.
            keywords: fields of the options, such as `context` or `draft_model`.

        Raises ConfigError for a path that is not a model or an option out of range,
        ModelFormatError for a damaged or mislabelled file.
        """
        options = replace(options or EngineOptions(), **keywords)
        _call_reader(options.tool_parser)  # a wrong name is said before anything is loaded
        if isinstance(path, str):
            path = resolve_model(path, load_settings())
        if isinstance(options.draft_model, str):
            found = resolve_model(options.draft_model, load_settings())
            options = replace(options, draft_model=found)
        place = default_model_path() if path is None else Path(path)
        if ranks is not None:
            return cls._load_on_ranks(ranks, place, options, check=check_ranks)
        planned = planned_models(place, options)
        # As they were given: messages say what is wrong with them.
        opened = [
            open_model(given, model.options, context=options.context)
            for given, model in zip((path, options.draft_model), planned, strict=False)
        ]
        engine = finish(cls.loading(opened, options))
        needs = MemoryNeeds(planned, context=options.context)
        engine.reply_room = ReplyRoom(needs, options.context)
        return engine

    @classmethod
    def _load_on_ranks(
        cls, ranks: "Link", path: Path, options: EngineOptions, *, check: bool | None
    ) -> Self:
        """Load rank 0's part of a model."""
        # Not at the start of every command.
        from akunu_py.models.ranks.comparison import compare_once, compare_with_one
        from akunu_py.models.ranks.start import load_part

        if options.draft_model is not None:
            raise ConfigError(
                "a draft model does not draft for a model on several ranks; leave it out, and "
                "drafts come from the text"
            )
        if options.heads is not None:
            raise ConfigError(
                "a prediction head does not draft for a model on several ranks; leave heads out, "
                "and drafts come from the text"
            )
        engine = cls(load_part(ranks, path, options), options, ranks=ranks)
        planned = planned_models(path, options, PlannedGroup(ranks.rank, ranks.size))
        needs = MemoryNeeds(planned, context=options.context)
        engine.reply_room = ReplyRoom(needs, options.context, ranks.available_memory)
        session, model, context = engine._session, options.of_model(), engine.context
        if check:
            compare_with_one(session, path, model, context=context, kv_bits=options.kv_bits)
        elif check is None:
            compare_once(ranks, session, path, model, context=context, kv_bits=options.kv_bits)
        return engine

    @classmethod
    def loading(cls, opened: Sequence[Steps[LoadedModel]], options: EngineOptions) -> Steps[Self]:
        """Load an engine in steps, over an opened model and its draft model if there are two.

        Raises as `load` does.
        """
        target, *drafts = opened
        loaded = yield from target
        head = None
        if options.heads is not None:
            from akunu_py.models.heads import wanted_head  # for an engine with a head

            head = wanted_head(loaded, options.heads)
        draft_model = None
        for draft in drafts:
            draft_model = yield from draft
        return cls(loaded, options, draft_model=draft_model, head=head)

    @classmethod
    def of(cls, model: "nn.Module", tokenizer: Tokenizer, *, name: str, context: int) -> Self:
        """Return an engine over a dense model of mlx-lm that is in no file, such as a random one.

        `context` is the most tokens of prompt and reply together.
        """
        parameters = num_parameters(model)
        described = ModelDescription(
            path=Path(name), name=name, architecture=type(model).__module__.rpartition(".")[2],
            parameters=parameters, weights="dense", context=context, file_bytes=4 * parameters,
        )  # fmt: skip
        return cls(LoadedModel(model, tokenizer, described))

    def generate(
        self,
        prompt: Prompt,
        config: GenerationConfig | None = None,
        *,
        progress: Progress | None = None,
        **options: Unpack[GenerationOptions],
    ) -> GenerationResult:
        """Continue a prompt; the chat template is not applied.

        Control tokens written out in the text are parsed, so that a prompt can be laid out by
        hand; in messages of `chat` they are plain text. Options override fields of the
        configuration. `progress` is called with the number of prompt tokens done and in all.

        Raises ConfigError for options or token ids out of range or an empty prompt,
        ContextOverflowError for a prompt that leaves no room for a reply, EngineStateError for a
        closed or busy engine.
        """
        return self.stream(prompt, config, progress=progress, **options).read_to_end()

    def stream(
        self,
        prompt: Prompt,
        config: GenerationConfig | None = None,
        *,
        progress: Progress | None = None,
        **options: Unpack[GenerationOptions],
    ) -> ReplyStream:
        return self._start(self.check(self.prompt_ids(prompt), config, **options), progress)

    def generate_many(
        self,
        prompts: Iterable[Prompt | CheckedCall],
        config: GenerationConfig | None = None,
        *,
        streams: int | None = None,
        **options: Unpack[GenerationOptions],
    ) -> HeldIterator[tuple[int, GenerationResult | Exception]]:
        """Continue many prompts, up to `streams` at once; yield place and result as replies end.

        Without `streams` they are eight, or as many as memory holds. A reply counts there with the
        `context` that the engine was given, else with 4,096 tokens.

        Replies share their passes where the model allows it, and each is the one that `generate`
        makes. A prompt may also be what `check_chat` made of a conversation, with the options given
        there. Prompts are taken as places get free. A reply that fails has its error in place of
        a result, and the others go on. Closing the iterator ends the replies under way, and so does
        another call on this engine.

        Raises ConfigError for options out of range, MemoryLimitError for more streams than memory
        holds, EngineStateError as `generate` does.
        """
        streams = self.reply_room.checked(streams)
        if isinstance(prompts, str):
            raise ConfigError("prompts is one text; give a list of texts")
        config = with_options(config or GenerationConfig(), options)
        if hasattr(config.drafter, "propose") and not isinstance(config.drafter, type):
            raise ConfigError(
                "drafter is an object, which serves one reply at a time; give its class, or a "
                "function that makes one"
            )
        with self._admission.exclusive():
            self._admission.end_reply(_LATER_CALL)
            replies = HeldIterator(self._many(prompts, config, streams), self._admission.check)
            self._admission.admit(replies)
        return replies

    def _many(
        self, prompts: Iterable[Prompt | CheckedCall], config: GenerationConfig, streams: int
    ) -> Generator[tuple[int, GenerationResult | Exception], None, None]:
        shared = self.shared_passes()

        def turns(prompt: Prompt | CheckedCall, lane: Lane) -> Turns:
            if not isinstance(prompt, CheckedCall):
                prompt = self.check(self.prompt_ids(prompt), config)
            learned = self._memories.replies.state
            yield from lane.turns(prompt, learned, threading.Event(), shared=shared)

        try:
            yield from results_as_they_end(
                (partial(turns, prompt) for prompt in prompts), self.lane,
                partial(self.choose_steps, shared), streams,
                lambda running: self.measure_drafts(alone=running == 1),
            )  # fmt: skip
        finally:
            self.measure_drafts(alone=True)

    def stream_forced(
        self, prompt: Sequence[int], text: Sequence[int], config: GenerationConfig
    ) -> ReplyStream:
        """Continue a prompt by the tokens of a text, at the cost of the model's own choices.

        For measurements: passes are real, and how much of a draft is accepted is the text's. Behind
        its end the model's own tokens follow. Raises as `generate` does.
        """
        return self._start(replace(self.check(prompt, config), text=tuple(text)), None)

    def chat(
        self,
        messages: Sequence[GivenMessage],
        config: GenerationConfig | None = None,
        *,
        tools: Sequence[GivenTool] | None = None,
        tool_choice: ToolChoice = "auto",
        continued: bool = True,
        progress: Progress | None = None,
        **options: Unpack[GenerationOptions],
    ) -> GenerationResult:
        """Answer a conversation, laid out by the model's chat template.

        Messages, and the tools that the model may call, are values of `akunu_py.values.messages` or
        mappings in OpenAI's chat format. `tool_choice` says whether it calls any: "auto" leaves
        that to the model, "none" forbids it, "required" demands at least one call, and
        {"name": ...} one call of that tool. The result's `message` has text, reasoning and calls
        apart (docs/tools.md). A last message of the assistant is `continued`: the prompt ends with
        its text, or with its reasoning if it has no text, and the reply has what follows; otherwise
        a new message begins. The options `thinking` and `effort` are passed on to the template,
        if it has a switch for them.

        Raises as `generate` does, and ConfigError for malformed messages or tools, for a model
        without a template, for tool calls that the template writes in an unknown way, and for a
        last message that cannot be continued.
        """
        stream = self.stream_chat(
            messages, config, tools=tools, tool_choice=tool_choice, continued=continued,
            progress=progress, **options,
        )  # fmt: skip
        return stream.read_to_end()

    def stream_chat(
        self,
        messages: Sequence[GivenMessage],
        config: GenerationConfig | None = None,
        *,
        tools: Sequence[GivenTool] | None = None,
        tool_choice: ToolChoice = "auto",
        continued: bool = True,
        progress: Progress | None = None,
        **options: Unpack[GenerationOptions],
    ) -> ReplyStream:
        """Answer a conversation as `chat` does, event by event; events have `deltas`."""
        call = self.check_chat(
            messages, config, tools=tools, tool_choice=tool_choice, continued=continued, **options
        )
        return self._start(call, progress)

    def check_chat(
        self,
        messages: Sequence[GivenMessage],
        config: GenerationConfig | None = None,
        *,
        tools: Sequence[GivenTool] | None = None,
        tool_choice: ToolChoice = "auto",
        continued: bool = True,
        **options: Unpack[GenerationOptions],
    ) -> CheckedCall:
        """Lay out a conversation, and check the options of its reply; raises as `chat` does."""
        self._admission.check()
        plan = self._plan(messages, tools, tool_choice, continued=continued)
        config = with_options(config or GenerationConfig(), options)
        return self.check(self._chat_ids(plan, config), config, plan=plan)

    def chat_ids(
        self,
        messages: Sequence[GivenMessage],
        tools: Sequence[GivenTool] | None = None,
        config: GenerationConfig | None = None,
        *,
        continued: bool = True,
    ) -> list[int]:
        """Return the token ids of a prompt for `chat`; raises as `chat` does."""
        self._admission.check()
        # What may be called does not change how it is laid out.
        plan = self._plan(messages, tools, "none", continued=continued)
        return self._chat_ids(plan, config or GenerationConfig())

    def _chat_ids(self, plan: ChatPlan, config: GenerationConfig) -> list[int]:
        variables = {**config.template_variables, **self.thinking.variables(config)}
        return self.tokenizer.encode_chat(
            plan.messages,
            tools=plan.tools,
            variables=variables,
            continued=plan.continued is not None,
        )

    def _plan(
        self,
        messages: Sequence[GivenMessage],
        tools: Sequence[GivenTool] | None,
        tool_choice: ToolChoice,
        *,
        continued: bool,
    ) -> ChatPlan:
        said, offered = read_messages(messages), read_tools(tools)
        last = said[-1]
        continued = continued and last.role == "assistant"
        if continued and said[1:] and not (last.text or last.reasoning or last.tool_calls):
            said, continued = said[:-1], False  # nothing is said yet
        check_chat_length(said, offered, self.tokenizer, self.context)
        continues = last if continued else None
        called = any(message.tool_calls or message.role == "tool" for message in said)
        if not offered and not called and str(tool_choice) in {"auto", "none"}:
            return ChatPlan(messages=said, continued=continues)
        return self.tool_use.plan(said, offered, tool_choice, continued=continues)

    @cached_property
    def tool_use(self) -> "ToolUse":
        """Plans chats with tools or calls."""
        from akunu_py.engine.tool_use import ToolUse  # for those alone

        return ToolUse(self.tokenizer, _call_reader(self.options.tool_parser))

    def check_texts(
        self,
        texts: Sequence[Prompt],
        *,
        dimensions: int | None = None,
        prompt_name: str | None = None,
        truncate: bool = False,
    ) -> "CheckedTexts":
        """Return the tokens of texts to embed; raises as `embed` does."""
        from akunu_py.engine.embedding import TextChecks  # for embeddings alone

        self._admission.check()
        if self.pooling is None:
            raise not_for_embeddings(self.description.name)
        if self.ranks is not None:
            raise ConfigError("embeddings are made on one machine; start this without mlx.launch")
        checks = TextChecks(self.tokenizer, self.pooling, self.context, self.vocabulary_size)
        return checks.check(texts, dimensions, prompt_name, truncate=truncate)

    def prompt_ids(self, prompt: Prompt) -> list[int]:
        """Return the token ids of a prompt for `generate`; raises as `generate` does."""
        self._admission.check()
        if isinstance(prompt, str) and not prompt:
            raise ConfigError("the prompt is empty; give some text")
        if isinstance(prompt, str):
            # A prompt that is far too long is refused before all of it is tokenized.
            check_length([prompt], self.tokenizer, self.context, parse_special=True)
        return self._ids_of(prompt, parse_special=True)

    def embed(
        self,
        texts: Prompt | Sequence[Prompt],
        *,
        dimensions: int | None = None,
        prompt_name: str | None = None,
        truncate: bool = False,
        progress: Progress | None = None,
    ) -> NDArray[np.float32]:
        """Return embeddings of texts, float32 [texts, width], normalised.

        A text may be token ids, which are used unchanged. To others the model's end token is added,
        and a prompt in front: the one called `prompt_name` in its files, or the one they use by
        default. Texts of similar length share passes. `dimensions` keeps the first numbers of each
        embedding. `truncate` cuts texts that are longer than the context. `progress` is called with
        the number of texts done and in all.

        Raises ConfigError for a model that was not made for embeddings, unless it was loaded with
        `pooling`, for an empty text, an unknown `prompt_name` and `dimensions` out of range,
        ContextOverflowError for a text that is too long, EngineStateError as `generate` does.
        """
        one = isinstance(texts, str) or (len(texts) > 0 and isinstance(texts[0], int | np.integer))
        given = cast("list[Prompt]", [texts] if one else list(texts))
        call = self.check_texts(
            given, dimensions=dimensions, prompt_name=prompt_name, truncate=truncate
        )
        with self._admission.exclusive():
            self._admission.end_reply(_LATER_CALL)
            with self._session.measured():
                from akunu_py.engine.embedding import embedding_steps  # for embeddings alone

                steps = embedding_steps(call, self._session)
                tell = progress or (lambda _done, _total: None)
                try:
                    while True:
                        tell(next(steps), len(given))
                except StopIteration as end:
                    tell(len(given), len(given))
                    found: NDArray[np.float32] = end.value
                    return found

    @contextlib.contextmanager
    def lend(self, reason: str) -> Iterator[LentModel]:
        """Lend the model for work that is not a reply, such as a search with its own caches.

        No reply runs meanwhile; an unfinished stream ends with the reason. The conversation's
        caches stay as they are. Raises EngineStateError as `generate` does.
        """
        if self.ranks is not None:
            raise ConfigError(
                "searches and other work with caches of their own run on one machine; start this "
                "without mlx.launch"
            )
        with self._admission.exclusive():
            self._admission.end_reply(reason)
            with self._session.measured():
                draft = self._drafters.models.draft_model
                yield LentModel(
                    self._loaded.model,
                    context=self.context,
                    shared=self._session.vocabulary_size,
                    kv_bits=self.options.kv_bits,
                    draft_model=None
                    if draft is None
                    else LentModel(draft.model, context=draft.context, shared=draft.common),
                )

    def logits(self, token_ids: Sequence[int], start: int = 0) -> NDArray[np.float32]:
        """Return the model's logits after each token from `start` on, float32 [n - start, vocab].

        With `start` 0 the conversation's caches stay as they are. Otherwise they hold the text
        afterwards, and a beginning that they already hold is not fed again. Raises as `generate`
        does, and ConfigError for a start outside the text.
        """
        self._admission.check()
        ids = checked_ids(token_ids, self.vocabulary_size)
        if len(ids) > self.context:
            raise ContextOverflowError(
                f"{len(ids)} tokens do not fit into the context of {self.context}"
            )
        if not 0 <= start < len(ids):
            raise ConfigError(f"start is {start}; give 0 to {len(ids) - 1}, a place in the text")
        with self._admission.exclusive():
            self._admission.end_reply(_LATER_CALL)
            return self._session.logits(ids, start)

    def score(
        self, prompt: Prompt, *, top: int = 0, progress: Progress | None = None
    ) -> tuple[TokenLogprob, ...]:
        """Return how likely each token of a prompt is after those before it; the first is left out.

        They are computed as the prompt is read, with up to `top` of the likeliest tokens at each
        place. A beginning that was scored before is not read again. Raises as `generate` does.
        """
        config = GenerationConfig(max_tokens=1, drafter="none", logprobs=top)
        call = replace(self.check(self.prompt_ids(prompt), config), scored=top, reads_only=True)
        return self._start(call, progress).read_to_end().prompt_logprobs or ()

    def tune(
        self, prompt: Prompt, *, repeats: int = 7, progress: Progress | None = None
    ) -> PassTimes:
        """Measure the costs of passes after a prompt of this length, and remember them for budgets.

        Costs that cannot be (`PassTimes.doubt`) are not remembered: other work disturbed them.
        Each repeat takes about a hundred plain steps. The conversation is forgotten. `progress` is
        called with the number of rounds done and in all. Raises as `generate` does.
        """
        self._admission.check()
        ids = self._ids_of(prompt)
        if len(ids) + 2 * max(ROWS) > self.context:
            raise ContextOverflowError(
                f"{len(ids)} tokens and a pass of {max(ROWS)} do not fit into the context of "
                f"{self.context}; measure with fewer"
            )
        with self._admission.exclusive():
            self._admission.end_reply("this reply was ended by a measurement on the same engine")
            times = measure_passes(self._session, ids, repeats=repeats, progress=progress)
            if not times.doubt:
                self._memories.learn(times)
        return times

    @property
    def tokenizer(self) -> Tokenizer:
        self._admission.check()
        return self._loaded.tokenizer

    @property
    def vocabulary_size(self) -> int:
        self._admission.check()
        return self._session.vocabulary_size

    def drafter_of(self, config: GenerationConfig) -> DrafterChoice:
        """Return the drafter that replies with this configuration have, and its longest draft."""
        return self._drafters.choose(config)

    def reset(self) -> None:
        """Forget the conversation; the next call prefills its whole prompt."""
        with self._admission.exclusive():
            self._admission.end_reply("this reply was ended by a reset of the engine")
            self._session.reset()

    def remember(self, text: Prompt) -> None:
        """Give the drafter `auto` a text that replies may repeat, such as a file of a project.

        The last 100,000 tokens of a long text are kept, and the newest of all texts and replies.
        Raises ConfigError for token ids out of range, EngineStateError as `generate` does.
        """
        self._admission.check()
        ids = self._ids_of(text)
        with self._admission.exclusive():
            self._admission.unfinished_reply()
            self._memories.replies.remember(ids)

    def forget(self) -> None:
        """Forget what the drafter `auto` learned: earlier replies, remembered texts, weights.

        Raises ConfigError if a memory on disk cannot be emptied.
        """
        with self._admission.exclusive():
            self._admission.end_reply("this reply was ended by forgetting what the engine learned")
            self._memories.replies.forget()

    def sibling(self, *, drafts: bool = False) -> "Engine":
        """Return another engine over the same weights, with caches and memories of its own.

        It has the draft model only if it `drafts` with it. Each is closed by itself. Raises
        EngineStateError for a closed engine.
        """
        self._admission.check()
        engine = type(self)(
            self._loaded,
            replace(self.options, context=self.context, memory=None),
            draft_model=self._drafters.draft_model if drafts else None,
        )
        engine.compares_rows, engine.reply_room = self.compares_rows, self.reply_room
        return engine

    def lane(self) -> Lane:
        """Return a further place for replies, with caches of its own over the same weights.

        A thread that makes several replies in turn needs one for each. It is closed before the
        engine. Raises EngineStateError for a closed engine.
        """
        self._admission.check()
        session = self._new_session(self.context)
        return Lane(session, self._drafters.other_models(), self._request)

    def joined_passes(self) -> JoinedForward | None:
        """Return passes over the positions of several lanes; None where replies have to take turns.

        The first call tries it.
        """
        session = self._session
        if not session.joins:
            return None
        if self._joined is None:
            self._joined = JoinedForward(self._loaded.model)
        self.takes_turns = self._joined.refusal(session)
        return None if self.takes_turns else self._joined

    def shared_passes(self) -> SharedPasses:
        """Return the account of passes that replies of several lanes share."""
        return SharedPasses(self._memories.costs.state.shared_costs)

    def choose_steps(
        self, shared: SharedPasses, replies: Sequence[InTurns]
    ) -> Iterator[tuple[InTurns, StreamEvent | BaseException | None]]:
        """Make the next step of replies of lanes, with one pass; see `lane.choose_steps`."""
        return choose_steps(self.joined_passes, shared, replies)

    def measure_drafts(self, *, alone: bool) -> None:
        """Say whether a reply runs alone; only then are the costs of passes with drafts measured.

        For a thread that makes several replies in turn.
        """
        self._memories.measure_drafts(alone=alone)

    def check(
        self,
        prompt: Sequence[int],
        config: GenerationConfig | None = None,
        *,
        plan: ChatPlan | None = None,
        **options: Unpack[GenerationOptions],
    ) -> CheckedCall:
        """Check token ids and options of a reply; raises as `generate` and `chat` do.

        `plan` is that of a conversation. A reply without one continues the text of the prompt, as
        in `generate`. A call is for one reply. Its constraint is not compiled yet: see
        `CheckedCall.compile`.
        """
        self._admission.check()
        self.check_replies()
        config = with_options(config or GenerationConfig(), options)
        form = config.constraint
        if plan is not None:
            config = replace(config, constraint=plan.constraint_with(form))
        choice = self._drafters.choose(config)
        check_reply(
            prompt,
            choice.config.logit_bias,
            context=self.context,
            vocabulary_size=self.vocabulary_size,
        )
        said = None if plan is None else plan.continued
        matcher = self._matchers.make(
            choice.config,
            prompt,
            continues=plan is None or plan.from_start or bool(said and said.text),
            said=said.reasoning if said else "",
        )
        return CheckedCall(tuple(prompt), choice, plan, matcher, form)

    def check_replies(self) -> None:
        """Raise ConfigError for a model that was made for embeddings alone."""
        if self.description.pooling is not None:
            raise not_for_replies(self.description.name)

    def wait(self) -> None:
        """Wait for the pass that is under way between two steps of a reply, if one is."""
        self._admission.check()
        self._session.wait()

    def append_trace(
        self,
        path: str | Path,
        reply: ReplyStream,
        *,
        category: str = "generate",
        session: str | None = None,
        turn: int | None = None,
    ) -> None:
        """Append a finished reply to a trace file, which `akunu bench replay` reads.

        The replies of a conversation share a `session`, and `turn` counts them. A reply without
        text is not written. Raises ConfigError for a reply without a result, or if the file cannot
        be written.
        """
        if not self._vocabulary:
            self._vocabulary = vocabulary_fingerprint(self.tokenizer.token_texts())
        name = self.description.name
        record = reply.trace_record(name, category, session, turn, self._vocabulary)
        if record["output"]:
            append_line(Path(path), record)

    def close(self) -> None:
        """Release the model's memory. A second call does nothing."""
        if self._admission.closed:
            return
        with self._admission.exclusive():
            self._admission.end_reply("the engine was closed")
            self._memories.close()
            self._admission.closed = True
            self._drafters.close()
            session = self._session
            del self._loaded, self._session, self._drafters, self._memories, self._matchers
            self._joined = None
            # Last, since it also frees the memory that MLX keeps of deleted arrays.
            session.close()
            if self.ranks is not None:
                self.ranks.stop()

    def __repr__(self) -> str:
        state = "closed" if self._admission.closed else f"context {self.context:,}"
        return f"<Engine {self.description.name}, {state}>"

    def __enter__(self) -> Self:
        self._admission.check()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, call: CheckedCall, progress: Progress | None) -> ReplyStream:
        """Make the stream of a checked call; nothing runs before its first event is read."""
        call.compile()
        with self._admission.exclusive():
            self._admission.end_reply(_LATER_CALL)
            # Only now: a reply that was just ended is part of the memory that this one begins with.
            ended = self._memories.begin_reply(call.choice.config)
            request = self._request(call, self._session, self._memories.replies.state)
            reply = ReplyStream(
                replace(
                    request,
                    progress=progress,
                    admit=self._admission.check,
                    ended=ended,
                )
            )
            self._admission.admit(reply)
        return reply

    def _request(
        self,
        call: CheckedCall,
        session: Session,
        auto_state: AutoState,
        models: DraftingModels | None = None,
    ) -> Request:
        """Return what a reply on a session is made from."""
        choice, plan, matcher = call.choice, call.plan, call.compile()
        drafter, most = constrained_drafter(
            self._drafters.make(choice, auto_state, models), choice, matcher
        )
        return Request(
            session=session,
            tokenizer=self.tokenizer,
            prompt=call.prompt,
            config=choice.config,
            drafter=drafter,
            num_draft_tokens=most,
            matcher=matcher,
            text=call.text,
            scored=call.scored,
            reads_only=call.reads_only,
            budgets=self._memories.budgets(choice.config),
            row_bits=partial(self._memories.row_bits, session) if self.compares_rows else None,
            continues=plan is None or plan.continued is not None,
            message=self._message_reader(call.prompt, plan),
            is_chat=plan is not None,
            marks={} if plan is None else plan.marks,
        )

    def _message_reader(self, prompt: Sequence[int], plan: ChatPlan | None) -> MessageReader:
        if plan is None:
            return MessageReader(end_of_prompt(prompt, self.tokenizer), None)
        said = "" if plan.continued is None else plan.continued.text or plan.continued.reasoning
        # A tokenizer may have no template.
        tags = answer_tags(getattr(self.tokenizer, "chat_template", ""))
        return MessageReader(end_of_prompt(prompt, self.tokenizer, said), plan.parser, said, tags)

    def _new_session(self, context: int) -> Session:
        return Session(
            self._loaded.model,
            context=context,
            kv_bits=self.options.kv_bits,
            reproducible=self.reproducible,
            make_passes=self._loaded.make_passes,
            wired=self.options.wired,
        )

    def _ids_of(self, prompt: Prompt, *, parse_special: bool = False) -> list[int]:
        return ids_of(prompt, self.tokenizer, self.vocabulary_size, parse_special=parse_special)


def _call_reader(name: str | None) -> "GivenReader | None":
    """Return the reader of tool calls that the caller chose; raise ConfigError for a wrong name."""
    if name is None:
        return None
    from akunu_py.models.folder_tokenizer import named_parser  # imports transformers

    return named_parser(name)
