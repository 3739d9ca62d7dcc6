"""mlx-lm's tokenizers behind akunu's protocol."""

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import mlx_lm
from tokenizers import Tokenizer

from akunu_py.gguf.keys import MAX_SIZE
from akunu_py.models.folder_settings import end_ids, read_json
from akunu_py.models.library_errors import errors_of, from_library
from akunu_py.models.tokenizer_files import (
    TOKENIZER,
    TOKENIZER_CONFIG,
    AddedToken,
    check_tokenizer_files,
    processor_template,
)
from akunu_py.models.whole_mlx_lm import TokenizerWrapper, submodules
from akunu_py.models.whole_mlx_lm import load_tokenizer as mlx_load_tokenizer
from akunu_py.protocols import Detokenizer, TemplateVariable
from akunu_py.system.errors import ChatTemplateError, ConfigError, ModelFormatError
from akunu_py.tokenizers.bpe import decode_alphabet
from akunu_py.tokenizers.chat_template import ChatTemplate, Templates
from akunu_py.tokenizers.gguf_tokenizer import partition
from akunu_py.tokenizers.special_tokens import SpecialTextGuard, find_end_ids
from akunu_py.tokenizers.spm import decode_piece
from akunu_py.tokenizers.template_input import TemplateInput, Value
from akunu_py.tool_calls.given_reader import GivenReader
from akunu_py.values.messages import GivenMessage, GivenTool

_TRIAL = "A word, \u00e9, \u6f22, \U0001f600, \ue000 and 12 \0\n  aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab"
"""Letters of many kinds, one that no vocabulary has, and a trap for expressions."""

_MAX_LENGTH = 10**30
"""Tokens of a text: what transformers writes for no limit."""


class FolderTokenizer:
    """An mlx-lm tokenizer as `akunu_py.protocols.Tokenizer`.

    A chat template is rendered as in GGUF files: in the sandbox, within its limits. Only mlx-lm's
    own renderers (`chat_template_type`) are called directly.

    Raises ModelFormatError for malformed files, end-of-generation ids or chat templates.
    """

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        place = folder / TOKENIZER_CONFIG
        settings = read_json(place) if place.is_file() else {}
        options: dict[str, Any] = {
            # Otherwise transformers would ask on the terminal whether to run the folder's code.
            "trust_remote_code": False,
            # It names a module to import.
            "tool_parser_type": _tool_parser_type(settings),
            # The engine refuses texts that are too long for the loaded context.
            "model_max_length": _MAX_LENGTH,
        }
        _check_template_type(place, settings)
        ends = end_ids(config, folder / "config.json")
        self._path, added = check_tokenizer_files(folder)
        self._failure = f"the tokenizer in {self._path} fails"
        self._wrapper = self._load(folder, options | processor_template(folder), ends)
        with errors_of(f"the tokenizer in {self._path} cannot be loaded"):
            texts = sorted(map(str, self._wrapper.all_special_tokens), key=len, reverse=True)
            self._special = [(text, self._wrapper.convert_tokens_to_ids(text)) for text in texts]
            self._check_vocabulary(added)
            self._leave_nothing_to_chance()
            self.decode(self.encode(_TRIAL))
        self._guard = SpecialTextGuard(texts)
        self._templates = self._read_templates()
        # As in mlx-lm: the model is asked to think if its vocabulary has marks for that.
        thinking = {"enable_thinking": bool(self._wrapper.has_thinking)}
        self._variables = {} if self._has_renderer else thinking

    def _load(
        self, folder: Path, options: dict[str, Any], ends: list[int] | None
    ) -> TokenizerWrapper:
        is_json = self._path.name == TOKENIZER
        try:
            with from_library(folder if is_json else self._path, "tokenizer"):
                return mlx_load_tokenizer(folder, options, eos_token_ids=ends)
        except ModelFormatError:
            # transformers reads several files; the reason may be in this one.
            if is_json:
                with errors_of(f"the tokenizer in {self._path} cannot be loaded"):
                    alone = Tokenizer.from_file(str(self._path))
                    alone.decode(alone.encode(_TRIAL).ids)
            raise

    def _leave_nothing_to_chance(self) -> None:
        """Turn dropout off, which is for training: a text would have other ids each time."""
        model: Any = getattr(getattr(self._wrapper, "backend_tokenizer", None), "model", None)
        if hasattr(model, "dropout"):
            model.dropout = None

    def _check_vocabulary(self, added: Sequence[AddedToken]) -> None:
        """Refuse ids that cannot be those of the model.

        `added` are the tokens that tokenizer.json adds. They get other ids where theirs are not the
        next, or tokenizer_config.json adds others before.
        """
        ids: dict[str, int] = self._wrapper.get_vocab()
        largest = max(ids.values(), default=0)
        if largest >= MAX_SIZE:
            raise self._error(f"has the id {largest}, beyond any vocabulary")
        for token in added:
            found = ids.get(token.content, token.id)
            if found != token.id:
                raise self._error(
                    f"gives {token.content[:80]!r} the id {token.id}, and would make it {found} "
                    f"beside this {TOKENIZER_CONFIG}"
                )
        if ids.keys() <= set(map(str, self._wrapper.added_tokens_decoder.values())):
            raise self._error("has no tokens but special ones")

    def _error(self, problem: str) -> ModelFormatError:
        return ModelFormatError(f"the tokenizer in {self._path} {problem}; download it again")

    def _read_templates(self) -> Templates:
        """Return the folder's templates, whose files are checked."""
        found = self._wrapper.chat_template
        named = found if isinstance(found, dict) else {"default": found}
        named = {name: source for name, source in named.items() if source is not None}
        special_texts = {
            name.removesuffix("_token"): str(text)
            for name, text in self._wrapper.special_tokens_map.items()
            if name.endswith("_token")
        }
        library = _LibraryTemplate(self._wrapper) if self._has_renderer else None
        main, with_tools = named.get("default"), named.get("tool_use")
        return Templates(main, "file", with_tools, special_texts, library)

    @property
    def _has_renderer(self) -> bool:
        return self._wrapper._chat_template is not None  # noqa: SLF001

    @property
    def vocabulary_size(self) -> int:
        return len(self._wrapper)

    @cached_property
    def end_ids(self) -> frozenset[int]:
        """Ids that end a reply by the folder's configs, or by what its template writes there."""
        added = self._wrapper.added_tokens_decoder.items()
        marked = {str(token): id_ for id_, token in added if str(token) in self.chat_template}
        return frozenset(self._wrapper.eos_token_ids) | find_end_ids(marked, {})

    @property
    def chat_template(self) -> str:
        """Return the text of the main chat template; "" for none."""
        return self._templates.main

    @property
    def has_chat_template(self) -> bool:
        return self._templates.has_main

    def encode(self, text: str, *, parse_special: bool = False) -> list[int]:
        return self._ids(text, split_special_tokens=not parse_special)

    def _ids(self, text: str, **options: bool) -> list[int]:
        with errors_of(self._failure):
            return list(self._wrapper.encode(text, **options))

    def encode_chat(
        self,
        messages: Sequence[GivenMessage],
        *,
        tools: Sequence[GivenTool] | None = None,
        variables: Mapping[str, TemplateVariable] | None = None,
        continued: bool = False,
    ) -> list[int]:
        given = self._variables | dict(variables or {})
        text, hidden = self._templates.lay_out(
            messages, tools, given, self._guard, continued=continued
        )
        if hidden.reveal(text) == text:
            return self._ids(text, add_special_tokens=False)
        # In pieces only here: some tokenizers put a space before each piece.
        ids: list[int] = []
        for part in partition(text, self._special):
            if isinstance(part, int):
                ids.append(part)
            else:
                ids += self._ids(
                    hidden.reveal(part), add_special_tokens=False, split_special_tokens=True
                )
        return ids

    def chat_text(
        self, messages: Sequence[GivenMessage], *, tools: Sequence[GivenTool] | None = None
    ) -> str:
        return self._templates.text(messages, tools, self._variables)

    def decode(self, token_ids: Iterable[int], *, with_control: bool = False) -> str:
        ids = list(token_ids)
        if with_control and ids[:1] == [self._wrapper.bos_token_id] == self.encode("")[:1]:
            del ids[0]
        with errors_of(self._failure):
            return str(self._wrapper.decode(ids, skip_special_tokens=not with_control))

    def token_texts(self) -> Sequence[str]:
        ids: dict[str, int] = self._wrapper.get_vocab()
        texts = [""] * (max(ids.values(), default=-1) + 1)
        for text, token in ids.items():
            texts[token] = text
        return texts

    def token_bytes(self) -> Sequence[bytes]:
        # Added tokens are written as they are, those of the model as its decoder reads them.
        added = {id_: str(token) for id_, token in self._wrapper.added_tokens_decoder.items()}
        decode = self._decode_token()
        return [
            b"" if id_ in self._silent else added[id_].encode() if id_ in added else decode(text)
            for id_, text in enumerate(self.token_texts())
        ]

    def _decode_token(self) -> Callable[[str], bytes]:
        """Return the function from a token's text in the vocabulary to its bytes."""
        backend = getattr(self._wrapper, "backend_tokenizer", None)
        steps = "" if backend is None else str(backend.decoder)
        if "ByteLevel" in steps:
            return decode_alphabet
        if "ByteFallback" in steps or backend is None:
            return decode_piece
        raise ConfigError(
            "the bytes of this folder's tokens are not known, so a reply cannot be constrained; "
            "use a GGUF file of the model"
        )

    def control_tokens(self) -> Mapping[int, str]:
        return {id_: text for text, id_ in self._special}

    def call_reader(self) -> GivenReader | None:
        """Return mlx-lm's parser of tool calls, if it has one for this model."""
        wrapper = self._wrapper
        if not wrapper.has_tool_calling:
            return None
        start, end = wrapper.tool_call_start, wrapper.tool_call_end
        return GivenReader("mlx-lm", start, end or "", wrapper.tool_parser)

    def detokenizer(self, *, continues: bool = False) -> Detokenizer:  # noqa: ARG002
        """Return a fresh incremental detokenizer; mlx-lm's own decides about leading spaces."""
        return _FolderDetokenizer(self._wrapper, self._silent, self._failure)

    @cached_property
    def _silent(self) -> frozenset[int]:
        """Ids without text: control tokens, and gaps in the vocabulary."""
        known = self._wrapper.get_vocab().values()
        gaps = set(range(max(known, default=-1) + 1)).difference(known)
        return frozenset(gaps.union(self._wrapper.all_special_ids))


def _tool_parser_type(settings: Mapping[str, Any]) -> str | None:
    """Return mlx-lm's name of the folder's parser of tool calls; None: mlx-lm finds one itself."""
    kind = settings.get("tool_parser_type")
    return kind if isinstance(kind, str) and kind in submodules("tool_parsers") else None


def _check_template_type(path: Path, settings: Mapping[str, Any]) -> None:
    """Refuse a renderer unknown to mlx-lm: its name decides which module is imported."""
    kind = settings.get("chat_template_type")
    known = isinstance(kind, str) and kind in submodules("chat_templates")
    if kind is not None and not known:
        raise ModelFormatError(
            f"{path} names the chat_template_type {str(kind)[:80]!r}, which the installed mlx-lm "
            "does not have; update mlx-lm or use another model"
        )


class _LibraryTemplate(ChatTemplate):
    """mlx-lm's own code that lays out conversations for a model."""

    def __init__(self, wrapper: TokenizerWrapper) -> None:
        self.source = ""
        self.input = TemplateInput(lambda messages, tools: self.render(messages, tools=tools))
        self._wrapper = wrapper

    def render(
        self,
        messages: Sequence[Value],
        *,
        tools: Sequence[Value] | None = None,
        add_generation_prompt: bool = True,  # noqa: ARG002 - it always writes one
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        # Not every renderer takes the argument.
        given: dict[str, Any] = {} if tools is None else {"tools": tools}
        given |= variables or {}
        try:
            return str(
                self._wrapper.apply_chat_template(
                    messages, tokenize=False, add_generation_prompt=True, **given
                )
            )
        except Exception as error:  # it may raise anything for unexpected roles
            raise ChatTemplateError(
                f"mlx-lm cannot lay the conversation out for this model: {error}"
            ) from error


class _FolderDetokenizer:
    """mlx-lm's streaming detokenizer; each property access there makes a fresh one."""

    def __init__(self, wrapper: TokenizerWrapper, silent: frozenset[int], failure: str) -> None:
        self._inner = wrapper.detokenizer
        self._inner.reset()
        self._silent = silent
        self._failure = failure

    def feed(self, token_ids: Iterable[int]) -> str:
        with errors_of(self._failure):
            for token in token_ids:
                if token not in self._silent:
                    self._inner.add_token(token)
            return str(self._inner.last_segment)

    def finish(self) -> str:
        with errors_of(self._failure):
            self._inner.finalize()
            return str(self._inner.last_segment)


_PACKAGE = "tool_parsers"


def named_parser(name: str) -> GivenReader:
    """Return a parser of the installed mlx-lm; raise ConfigError for a name that it lacks."""
    known = submodules(_PACKAGE)
    if name not in known:
        raise ConfigError(
            f"tool_parser is {name!r:.60}; the installed mlx-lm has {', '.join(sorted(known))}"
        )
    module = importlib.import_module(f"{mlx_lm.__name__}.{_PACKAGE}.{name}")
    start, end = module.tool_call_start, module.tool_call_end
    return GivenReader(f"mlx-lm's parser {name}", start, end or "", module.parse_tool_call)
