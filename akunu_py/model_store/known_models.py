"""Short names of models that people ask for, as `qwen3:4b`, and what they stand for on the hub.

Repositories, sizes and licences are those that the hub named in November 2026; a size is None
where it was not seen. What a name means is told before anything is fetched.
"""

from dataclasses import dataclass

from akunu_py.system.shown_text import size_text

_APACHE, _MIT = "Apache-2.0", "MIT"
_GEMMA, _LLAMA = "Gemma terms of use", "Llama community licence"


@dataclass(frozen=True, slots=True)
class KnownHead:
    """A prediction head of the hub."""

    repository: str
    num_bytes: int | None
    licence: str

    @property
    def hub_name(self) -> str:
        """Return the name as `akunu_py.model_store.names` reads it."""
        return f"hf:{self.repository}"

    @property
    def description(self) -> str:
        """Return its name, with its size where that is known, and licence."""
        return _described(self.hub_name, self.num_bytes, self.licence)


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A GGUF model of the hub."""

    name: str  # What users give, in lower case.
    repository: str  # OWNER/REPO.
    quantization: str
    num_bytes: int | None
    licence: str

    @property
    def hub_name(self) -> str:
        """Return the name as `akunu_py.model_store.names` reads it."""
        return f"hf:{self.repository}:{self.quantization}"

    @property
    def description(self) -> str:
        """Return what the name stands for, with its size where that is known, and licence."""
        return _described(self.hub_name, self.num_bytes, self.licence)

    @property
    def head(self) -> KnownHead | None:
        """Return a head that drafts for it, None where none is known."""
        return _HEADS.get(self.name)


def _described(hub_name: str, num_bytes: int | None, licence: str) -> str:
    size = [] if num_bytes is None else [size_text(num_bytes)]
    return f"{hub_name} ({', '.join([*size, licence])})"


_ROWS = (
    ("gemma3:1b", "unsloth/gemma-3-1b-it-GGUF", "Q4_K_M", 806_058_272, _GEMMA),
    ("gemma3:4b", "unsloth/gemma-3-4b-it-GGUF", "Q4_K_M", 2_489_894_016, _GEMMA),
    ("gemma3:12b", "unsloth/gemma-3-12b-it-GGUF", "Q4_K_M", 7_300_778_336, _GEMMA),
    ("gpt-oss:20b", "ggml-org/gpt-oss-20b-GGUF", "MXFP4", 12_109_566_560, _APACHE),
    ("llama3.1:8b", "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF", "Q4_K_M", 4_920_739_232, _LLAMA),
    ("llama3.2:1b", "bartowski/Llama-3.2-1B-Instruct-GGUF", "Q4_K_M", 807_694_464, _LLAMA),
    ("llama3.2:3b", "bartowski/Llama-3.2-3B-Instruct-GGUF", "Q4_K_M", None, _LLAMA),
    ("mistral:7b", "bartowski/Mistral-7B-Instruct-v0.3-GGUF", "Q4_K_M", None, _APACHE),
    ("phi4-mini", "unsloth/Phi-4-mini-instruct-GGUF", "Q4_K_M", 2_491_874_272, _MIT),
    ("qwen2.5-coder:7b", "bartowski/Qwen2.5-Coder-7B-Instruct-GGUF", "Q4_K_M", None, _APACHE),
    ("qwen3:0.6b", "unsloth/Qwen3-0.6B-GGUF", "Q4_K_M", 396_705_472, _APACHE),
    ("qwen3:1.7b", "unsloth/Qwen3-1.7B-GGUF", "Q4_K_M", 1_107_409_472, _APACHE),
    ("qwen3:4b", "Qwen/Qwen3-4B-GGUF", "Q4_K_M", 2_497_280_256, _APACHE),
    ("qwen3:8b", "Qwen/Qwen3-8B-GGUF", "Q4_K_M", 5_027_783_488, _APACHE),
    ("qwen3:14b", "Qwen/Qwen3-14B-GGUF", "Q4_K_M", 9_001_752_960, _APACHE),
    (
        "qwen3:30b", "unsloth/Qwen3-30B-A3B-Instruct-2507-GGUF", "Q4_K_M", 18_556_686_752, _APACHE,
    ),
    ("smollm3:3b", "ggml-org/SmolLM3-3B-GGUF", "Q4_K_M", 1_915_305_312, _APACHE),
)  # fmt: skip

_UNSEEN = "licence: see its page"
_HEADS = {
    "gpt-oss:20b": KnownHead("RedHatAI/gpt-oss-20b-speculator.eagle3", None, _UNSEEN),
    "qwen3:4b": KnownHead("RedHatAI/Qwen3-4B-speculator.dflash2", None, _APACHE),
    "qwen3:8b": KnownHead("deepseek-ai/dspark_qwen3_8b_block7", None, "no licence named"),
    "qwen3:14b": KnownHead("deepseek-ai/dspark_qwen3_14b_block7", None, "no licence named"),
    "qwen3:30b": KnownHead("RedHatAI/Qwen3-30B-A3B-Instruct-2507-speculator.eagle3", None, _UNSEEN),
}
"""Short name of a model -> a head for it, of a kind that akunu reads."""

KNOWN_MODELS = {row[0]: KnownModel(*row) for row in _ROWS}
"""The models by their short names."""


def known_model(name: str) -> KnownModel | None:
    """Return the model of a short name, in any case of letters; None for another name."""
    return KNOWN_MODELS.get(name.casefold())


def known_target(hub_name: str) -> KnownModel | None:
    """Return the model that has a short name beside this one of the hub; None for no such."""
    return next((one for one in KNOWN_MODELS.values() if one.hub_name == hub_name), None)


def find_known(words: str) -> list[KnownModel]:
    """Return the models whose name or repository has each of some words."""
    wanted = words.casefold().split()
    return [
        model
        for model in KNOWN_MODELS.values()
        if all(word in f"{model.name} {model.repository}".casefold() for word in wanted)
    ]
