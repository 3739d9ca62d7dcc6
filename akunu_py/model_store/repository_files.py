"""The files of a repository that make up a model, by their names.

A GGUF model is one file, or all parts PREFIX-00001-of-00003.gguf (`akunu_py.gguf.reader`). A
repository often has several, one for each quantization. An MLX model is a whole repository:
weights, config and tokenizer. Other files, such as pickled weights and code, are never taken.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

_PART = re.compile(r"(.*)-([0-9]{5})-of-([0-9]{5})(\.gguf|\.safetensors)", re.DOTALL)
_MOST_PARTS = 65535
_QUANTIZATION = re.compile(
    r"(?:^|(?<=[-._/]))"
    r"((?:UD-)?(?:I?Q[1-8](?:_[0-9A-Z]+)*|TQ[12]_0|BF16|F(?:P)?(?:16|32)|MXFP4(?:_MOE)?|NVFP4))"
    r"(?=$|[-._/])",
    re.IGNORECASE,
)
# Parts of vision or audio models, and quantizers' data: not language models by themselves.
_NO_MODEL = re.compile(r"(^|[-._])(mmproj|imatrix)([-._]|$)", re.IGNORECASE)

_CONVERTED = "akunu.json"
_FOLDER_FILES = (
    "config.json", "generation_config.json", "model*.safetensors", "model.safetensors.index.json",
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "*.tiktoken",
    "chat_template.json", "chat_template.jinja", "hf_quant_config.json",
    _CONVERTED, "akunu.safetensors", "metadata.gguf",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The files of one model of a repository."""

    # From the names, such as "Q4_K_M"; the file's name if that has none, "" for an MLX model.
    quantization: str
    files: tuple[str, ...]  # Paths in the repository, parts in order.
    main: str | None  # The file to open; None for an MLX model, which is opened as a folder.
    num_bytes: int  # Of all files that are there.
    missing: tuple[str, ...] = ()


def is_gguf_name(base: str) -> bool:
    """Return whether a file without its folder is called like a GGUF file."""
    # macOS keeps what other drives cannot hold of NAME in ._NAME.
    return base.endswith(".gguf") and not base.startswith("._")


def quantization_of(name: str) -> str:
    """Return the quantization in a file's name or its folder's, or ""."""
    match = _PART.fullmatch(name)
    stem = match[1] if match else name.removesuffix(".gguf")
    found = _QUANTIZATION.findall(stem)
    return found[-1] if found else ""


def gguf_models(sizes: Mapping[str, int]) -> list[ModelFiles]:
    """Return the GGUF models among files (path -> bytes), sorted by name; split files as one."""
    wholes: dict[str, list[str]] = {}
    for name in sorted(sizes):
        base = PurePosixPath(name).name
        if not is_gguf_name(base) or _NO_MODEL.search(base) or _CONVERTED in sizes:
            continue
        wholes.setdefault(_whole(name), []).append(name)
    return [_model(quantization_of(files[0]), files, sizes) for files in wholes.values()]


def folder_model(sizes: Mapping[str, int]) -> ModelFiles | None:
    """Return the MLX model of a repository, None if it has no config or no weights."""
    names = [name for name in sorted(sizes) if any(fnmatchcase(name, p) for p in _FOLDER_FILES)]
    if _CONVERTED not in sizes:
        names = [name for name in names if name not in {"metadata.gguf", "akunu.safetensors"}]
    weights = [name for name in names if fnmatchcase(name, "model*.safetensors")]
    if "config.json" not in sizes or not weights:
        return None
    found = _model("", names, sizes)
    return ModelFiles("", found.files, None, found.num_bytes, _missing_parts(weights))


def models_of(sizes: Mapping[str, int]) -> list[ModelFiles]:
    """Return all models of a repository: its GGUF models, else the MLX one."""
    found = gguf_models(sizes)
    if found:
        return found
    folder = folder_model(sizes)
    return [] if folder is None else [folder]


def with_quantization(models: Iterable[ModelFiles], quantization: str) -> list[ModelFiles]:
    """Return the models of a quantization, ignoring case; "UD-" is optional."""
    wanted = quantization.casefold()
    models = list(models)
    exact = [model for model in models if model.quantization.casefold() == wanted]
    return exact or [
        model for model in models if model.quantization.casefold().removeprefix("ud-") == wanted
    ]


def part_names(file: str) -> tuple[str, ...]:
    """Return the names of all parts of a file's model, only the file's name if it is not split."""
    match = _PART.fullmatch(file)
    if match is None or not 1 <= int(match[2]) <= int(match[3]) <= _MOST_PARTS:
        return (file,)
    return tuple(
        f"{match[1]}-{number:05d}-of-{match[3]}{match[4]}" for number in range(1, int(match[3]) + 1)
    )


def _whole(name: str) -> str:
    """Return the name of the first part, which identifies the model of a file."""
    return part_names(name)[0]


def _model(quantization: str, files: Collection[str], sizes: Mapping[str, int]) -> ModelFiles:
    names = tuple(files)
    main = part_names(names[0])[0]
    label = quantization or PurePosixPath(main).name.removesuffix(".gguf")
    size = sum(sizes[name] for name in names)
    return ModelFiles(label, names, main, size, _missing_parts(names))


def _missing_parts(files: Collection[str]) -> tuple[str, ...]:
    there = frozenset(files)
    wholes = dict.fromkeys(_whole(name) for name in files)
    return tuple(part for whole in wholes for part in part_names(whole) if part not in there)
