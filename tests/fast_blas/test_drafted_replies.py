"""Drafted replies are the plain ones to the last token, with OpenBLAS, where engines are reproducible."""

import gguf
import pytest
from fast_blas import needs_fast_blas
from shared_files import REAL, ROOT, path_of
from trained_prompts import SMOLLM2

from akunu_py import Engine, GenerationConfig
from akunu_py.drafting import vocabulary_fingerprint
from akunu_py.drafting.registry import BUILT_IN, DrafterKind

pytestmark = needs_fast_blas
lab_counts = pytest.importorskip("akunu_lab.counts")

# These models have no prediction head.
DRAFTERS = [name for name in DrafterKind.names() if name not in {"mtp", "none"}]
PENALTIES = {"repetition_penalty": 1.15, "presence_penalty": 0.2, "frequency_penalty": 0.1}
SETTINGS = [
    {"temperature": temperature, **penalties}
    for temperature in (0.0, 0.7, 1.2)
    for penalties in ({}, PENALTIES)
]
TOKENS = 24


def write_first_layers(source, target, count):
    """A draft model with the vocabulary of `source`: its embedding, first layers and last norm."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind = field.types[0]
        sub = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        value = count if field.name.endswith(".block_count") else field.contents()
        writer.add_key_value(field.name, value, kind, sub)
    for tensor in reader.tensors:
        if not tensor.name.startswith("blk.") or int(tensor.name.split(".")[1]) < count:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def reproducible_engine(path, draft, folder):
    """An engine that every drafter can draft for."""
    counts = folder / "readme.counts"
    with Engine.load(draft) as small:
        pieces = lab_counts.text_pieces(ROOT / "README.md", small.tokenizer)
        fitted = lab_counts.fit_counts(pieces, small.tokenizer.vocabulary_size, order=2)
        lab_counts.save_counts(
            fitted, counts, vocabulary_fingerprint(small.tokenizer.token_texts())
        )
    return Engine.load(path, reproducible=True, draft_model=draft), counts


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    engine, counts = reproducible_engine(path_of("akunu-tiny"), path_of("akunu-tiny-draft"), folder)
    with engine:
        yield Replies(engine, counts)


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    folder = tmp_path_factory.mktemp("real")
    draft = write_first_layers(path_of(REAL), folder / "draft.gguf", 2)
    engine, counts = reproducible_engine(path_of(REAL), draft, folder)
    with engine:
        yield Replies(engine, counts)


class Replies:
    """Replies of one engine; the plain ones are made once."""

    def __init__(self, engine, counts):
        self._engine, self._counts = engine, counts
        self._ids = engine.tokenizer.encode_chat(SMOLLM2["rename"])
        self._plain = {}

    def plain(self, number):
        if number not in self._plain:
            self._plain[number] = self.made(number, "none").token_ids
        return self._plain[number]

    def made(self, number, drafter):
        config = GenerationConfig(max_tokens=TOKENS, seed=7 + number, **SETTINGS[number])
        if drafter == "corpus":
            config = config.with_values({"counts": self._counts})
        return self._engine.generate(self._ids, config, drafter=drafter, draft_budget="always")


def check(replies, drafter, numbers):
    accepted = tested = 0
    for number in numbers:
        result = replies.made(number, drafter)
        assert result.token_ids == replies.plain(number), SETTINGS[number]
        accepted += result.stats.accepted
        tested += result.stats.tested
    return accepted, tested


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_every_drafter(tiny, drafter):
    accepted, tested = check(tiny, drafter, [DRAFTERS.index(drafter) % len(SETTINGS)])
    # Else nothing was drafted, or nothing refused.
    assert accepted < tested


# The engine's own, and two that read the model's candidates: a chain of them and a tree.
@pytest.mark.slow
@pytest.mark.parametrize("drafter", [*(d for d in DRAFTERS if d in BUILT_IN), "recycling", "tree"])
def test_drafters_at_each_temperature(real, drafter):
    """With penalties at one or two of the three temperatures, at the others for the next drafter."""
    first = DRAFTERS.index(drafter) % 2
    accepted, tested = check(real, drafter, [first, 3 - first, 4 + first])
    # Else nothing was tested: drafts were both right and wrong.
    assert 0 < accepted < tested
