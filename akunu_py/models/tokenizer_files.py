"""The files of a folder's tokenizer, checked before transformers reads them.

transformers and tokenizers report a malformed value without its file, take some of them in silence,
and put no limit on what a normalizer makes of a text.
"""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from akunu_py.gguf.keys import MAX_SIZE
from akunu_py.models.folder_settings import is_vocabulary, read_file, read_json
from akunu_py.system.errors import ModelFormatError

TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
_PROCESSOR_TEMPLATE = "chat_template.json"
"""Where models with pictures have it; transformers looks there for processors alone."""


_MAX_GROWTH = 1000
"""How many times longer than a text its normalized form may be; usual steps replace letters."""

_Id = Annotated[int, msgspec.Meta(ge=0, lt=MAX_SIZE)]


class _Token(msgspec.Struct):
    content: str
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False
    single_word: bool = False
    special: bool = False


_Name = str | _Token | None


class _Names(msgspec.Struct):
    bos_token: _Name = None
    eos_token: _Name = None
    unk_token: _Name = None
    sep_token: _Name = None
    pad_token: _Name = None
    cls_token: _Name = None
    mask_token: _Name = None
    additional_special_tokens: list[str | _Token] | None = None
    extra_special_tokens: list[str | _Token] | dict[str, str | _Token] | None = None


class _Template(msgspec.Struct):
    name: str
    template: str


class _Config(_Names):
    added_tokens_decoder: dict[_Id, _Token] | None = None
    tokenizer_class: str | None = None
    chat_template: str | list[_Template] | dict[str, str] | None = None
    add_bos_token: bool | None = None
    add_eos_token: bool | None = None
    add_prefix_space: bool | None = None
    clean_up_tokenization_spaces: bool | None = None
    split_special_tokens: bool | None = None


class _Generation(msgspec.Struct):
    eos_token_id: _Id | list[_Id] | None = None


class AddedToken(msgspec.Struct):
    """A token that tokenizer.json adds to its vocabulary."""

    id: _Id
    content: str


class _Model(msgspec.Struct):
    vocab: dict[str, _Id] | list[Any] | None = None


class _Tokenizer(msgspec.Struct):
    model: _Model
    added_tokens: list[AddedToken] = []
    normalizer: Any = None


_KINDS: dict[str, Any] = {
    TOKENIZER_CONFIG: _Config,
    "special_tokens_map.json": _Names,
    "added_tokens.json": dict[str, _Id],
    # mlx-lm would ignore one that is not JSON.
    "generation_config.json": _Generation,
}


def check_tokenizer_files(folder: Path) -> tuple[Path, list[AddedToken]]:
    """Check the files of a folder's tokenizer, but for the vocabulary.

    Returns the file of the vocabulary, and the tokens that tokenizer.json adds to it. Raises
    ModelFormatError, naming the file and the place in it, for a value of another kind, and where
    there is no tokenizer.
    """
    vocabularies = sorted(filter(is_vocabulary, folder.iterdir()))
    if not vocabularies:
        raise ModelFormatError(
            f"{folder} has no tokenizer.json or other tokenizer; download the model again"
        )
    templates = [folder / "chat_template.jinja", *folder.glob("additional_chat_templates/*.jinja")]
    for template in filter(os.path.lexists, templates):
        try:
            read_file(template).decode()
        except UnicodeDecodeError as error:
            raise _malformed(template, error) from None
    for name, kind in _KINDS.items():
        if os.path.lexists(folder / name):
            check_kind(folder / name, read_json(folder / name), kind)
    path = folder / TOKENIZER
    if path not in vocabularies:
        return vocabularies[0], []
    try:
        found = msgspec.json.decode(read_file(path), type=_Tokenizer)
        growth = _growth(found.normalizer)
    except msgspec.ValidationError as error:
        raise _malformed(path, error) from None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ModelFormatError(f"{path} is not JSON ({error}); download it again") from None
    if growth > _MAX_GROWTH:
        raise ModelFormatError(
            f"the normalizer in {path} makes texts more than {_MAX_GROWTH} times longer; download "
            "it again, or use another model"
        )
    if twice := _with_one_id(found.model.vocab, found.added_tokens):
        raise ModelFormatError(f"{path} gives {twice}; download it again")
    return path, found.added_tokens


def processor_template(folder: Path) -> dict[str, Any]:
    """Return the argument for a checked folder's chat template that only a processor would read.

    It is empty where the tokenizer has a template of its own.
    """
    config, path = folder / TOKENIZER_CONFIG, folder / _PROCESSOR_TEMPLATE
    own = read_json(config).get("chat_template") if config.is_file() else None
    if own or (folder / "chat_template.jinja").exists() or not path.exists():
        return {}
    found = {"chat_template": read_json(path).get("chat_template")}
    check_kind(path, found, _Config)
    return found if found["chat_template"] else {}


def _with_one_id(vocabulary: object, added: Sequence[AddedToken]) -> str:
    """Return which two tokens of a vocabulary have one id, which none of those added has; or ""."""
    if not isinstance(vocabulary, dict) or len(set(vocabulary.values())) == len(vocabulary):
        return ""
    taken = {token.id for token in added}
    texts: dict[int, str] = {}
    for text, id_ in vocabulary.items():
        if id_ not in taken and texts.setdefault(id_, text) != text:
            return f"{texts[id_][:80]!r} and {text[:80]!r} the id {id_}"
    return ""


def check_kind(path: Path, content: object, kind: Any) -> None:
    """Raise ModelFormatError, naming the place, where the content of a JSON file does not fit."""
    try:
        msgspec.convert(content, kind, str_keys=True)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise _malformed(path, error) from None


def _malformed(path: Path, error: Exception) -> ModelFormatError:
    return ModelFormatError(f"{path} is malformed: {error}; download it again")


def _growth(step: object) -> float:
    """Return how many times longer a normalizer may make a text, or more."""
    if isinstance(step, list):
        return math.prod(map(_growth, step))
    if not isinstance(step, dict):
        return 1
    replacement = step.get("content", step.get("prepend"))
    own = len(replacement) if isinstance(replacement, str) and replacement else 1
    return own * math.prod(map(_growth, step.values()))
