"""Engines over random models that can hold an agent's session: with thoughts, calls and much context."""

import contextlib
import functools
from pathlib import Path

import numpy as np
from engine_server import serving
from family_models import Variant, build_family
from inside import session_of

from akunu_py.engine.engine import Engine
from akunu_py.gguf.reader import GGUFFile
from akunu_py.models.load import LoadedModel, ModelDescription
from akunu_py.models.load_steps import finish
from akunu_py.server.disk_tier import DiskTier
from akunu_py.tokenizers.gguf_tokenizer import GGUFTokenizer
from akunu_py.values.generation_config import GenerationConfig
from akunu_py.values.load_options import EngineOptions

CONTEXT = 40_000
_USER_DEFINED = 4
_TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m.role + '|>\n' }}"
    "{% if loop.first and tools %}{% for t in tools %}{{ t | tojson }}\n{% endfor %}{% endif %}"
    "{% if m.role == 'assistant' %}THOUGHTS{% endif %}"
    "{{ m.content }}"
    '{% for c in m.tool_calls %}{{ "<tool_call>\n" }}{"name": "{{ c.function.name }}", '
    '"arguments": {{ c.function.arguments | tojson }}}{{ "\n</tool_call>" }}{% endfor %}'
    "{{ '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}OPENING{% endif %}"
)
KINDS = {
    # The cost of a long prompt is that of attention to all rows: one such layer each.
    "attention": Variant("llama", changes=(("num_hidden_layers", 1),)),
    "window": Variant("llama, sliding", changes=(
        ("num_hidden_layers", 2), ("layer_types", ["sliding_attention", "full_attention"]),)),
    "recurrent": Variant("qwen3_next", changes=(("num_hidden_layers", 2),)),
}  # fmt: skip


@functools.cache
def _metadata(path: Path, thinks: bool):
    with GGUFFile.open(path) as file:
        metadata = dict(file.metadata)
    if not thinks:
        return metadata
    metadata["tokenizer.ggml.tokens"] = [
        *metadata["tokenizer.ggml.tokens"], "<think>", "</think>"
    ]  # fmt: skip
    types = metadata["tokenizer.ggml.token_type"]
    added = np.array([_USER_DEFINED] * 2, types.dtype)
    metadata["tokenizer.ggml.token_type"] = np.concatenate((types, added))
    return metadata


@functools.cache
def _tokenizer(path: Path, thinks: bool):
    opening = "{{ '<think>\n' }}" if thinks else ""
    thoughts = f"{opening}{{{{ m.reasoning_content or '' }}}}</think>" if thinks else ""
    template = _TEMPLATE.replace("THOUGHTS", thoughts).replace("OPENING", opening)
    return GGUFTokenizer(_metadata(path, thinks) | {"tokenizer.chat_template": template})


@functools.cache
def _model(kind: str, vocabulary: int):
    variant = KINDS[kind]
    changes = (*variant.changes, ("vocab_size", vocabulary))
    return build_family(Variant(variant.family, changes=changes))


@contextlib.contextmanager
def agent_server(
    kind: str, vocabulary_of: Path, *, thinks: bool = False, folder: Path | None = None
):
    """A server with such an engine, whose replies are random but the same each time.

    Its rows are kept in the folder, too, if there is one.
    """
    with agent_engine(kind, vocabulary_of, thinks=thinks) as engine:
        disk = None
        if folder is not None:
            disk = DiskTier(folder, 1 << 30, finish(session_of(engine).digest()))
        defaults = GenerationConfig(temperature=1.0, seed=1, logit_bias=readable(engine))
        with serving(engine, defaults=defaults, cache_bytes=1 << 29, disk=disk) as server:
            yield server


def agent_engine(kind: str, vocabulary_of: Path, *, thinks: bool = False) -> Engine:
    """An engine over a random model of a kind, with the vocabulary of a file and two marks more."""
    tokenizer = _tokenizer(vocabulary_of, thinks)
    description = ModelDescription(
        path=vocabulary_of, name=kind, architecture=kind, parameters=1, weights="dense",
        context=CONTEXT, file_bytes=1,
    )  # fmt: skip
    model = _model(kind, tokenizer.vocabulary_size)
    return Engine(LoadedModel(model, tokenizer, description), EngineOptions(context=CONTEXT))


def readable(engine: Engine):
    """Biases that keep replies to plain text.

    Thoughts are short, and have no spaces: those beside the marks would be lost.
    """
    tokenizer = engine.tokenizer
    thinks = "<think>" in tokenizer.token_texts()
    written = [text.decode("ascii", "replace") for text in tokenizer.token_bytes()]
    biases = {
        token: -1e4
        for token, text in enumerate(written)
        if not (text.isascii() and text.isprintable() and text) or (thinks and " " in text)
    }
    marks = {text: token for token, text in enumerate(tokenizer.token_texts())}
    if thinks:
        biases |= {marks["<think>"]: -1e4, marks["</think>"]: 7.0}
    return biases
