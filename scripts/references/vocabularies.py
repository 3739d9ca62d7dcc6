"""Token ids by llama.cpp, for tests/tokenizers. Written to tests/golden/tokenizers:

small/tokens.npz  tokens and merges of three small vocabularies, learnt from this repository's pages and sources and
                  from texts of many scripts (`learn`: what it learns changes with the pages)
small/NAME.npz    ids of the texts of `fuzz_texts.vocabulary_texts` without control tokens ("plain") and, for the
                  first of them, with ("special"); what ends a reply, FIM tokens
NAME.npz          the same for real vocabularies, which are not part of the project (`record_real`)
splits.npz        ids of a made-up vocabulary under every `tokenizer.ggml.pre`, which show the cuts
rules.npz         of each of these names, whether it begins a text and takes whole tokens before it merges
gaps.npz          ids of that vocabulary without tokens for some bytes
spaces.npz        ids of it for white space beyond ASCII, under the names of SPACED
unigram.npz       a small unigram vocabulary with its charsmap, learnt from the pages, and ids (`learn` too)
"""

import io
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import gguf
import numpy as np
from fuzz_texts import (
    digest,
    gapped_vocabulary,
    make_texts,
    pair_vocabulary,
    raw_vocabulary,
    vocabulary_texts,
    white_space_texts,
)
from vocabularies import GOLDEN as SMALL_GOLDEN
from vocabularies import NAMES, small_metadata

from akunu_py.tokenizers.bpe import split_rule_names
from references import llama_cpp

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "tests" / "golden" / "tokenizers"
PLAIN, SPECIAL, SMALL_PLAIN, SMALL_SPECIAL = 1200, 400, 300, 150
SPLITS, GAPS, UNIGRAM, LEARNT = 150, 400, 1000, 1500
RAW_PRE = ("gemma4", "granite-embed-multi-311m", "sarvam-moe")
SPACED = ("deepseek-llm", "deepseek-coder")  # whose ranges of characters hold white space


def concatenate(rows: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Ids one after another, in as few bits as they fit in, and how many each row has."""
    flat = np.array([id_ for row in rows for id_ in row], np.uint32)
    kind = np.uint16 if not len(flat) or flat.max() < 1 << 16 else np.uint32
    return flat.astype(kind), np.array([len(row) for row in rows], np.uint16)


def read_metadata(path: Path) -> dict[str, object]:
    fields = gguf.GGUFReader(path).fields
    return {
        "tokenizer.ggml.tokens": fields["tokenizer.ggml.tokens"].contents(),
        "tokenizer.ggml.token_type": np.array(fields["tokenizer.ggml.token_type"].contents()),
    }


def write_vocabulary(path: Path, metadata: Mapping[str, object]) -> Path:
    """Write metadata as a GGUF file; return its path."""
    writer = gguf.GGUFWriter(str(path), str(metadata.get("general.architecture", "llama")))
    for key, value in metadata.items():
        if key == "general.architecture":
            continue
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, np.ndarray) and value.dtype == np.uint8:
            writer.add_key_value(
                key, value.tobytes(), gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.UINT8
            )
        else:
            writer.add_array(key, value.tolist() if isinstance(value, np.ndarray) else value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def ids_of(
    metadata: Mapping[str, object], texts: Sequence[str], *, special: bool = False
) -> list[list[int]]:
    """Ids that llama.cpp gives texts with a vocabulary."""
    with tempfile.TemporaryDirectory() as folder:
        model = llama_cpp.Model(
            write_vocabulary(Path(folder) / "vocabulary.gguf", metadata), vocab_only=True
        )
        rows = [model.encode(text, special=special) for text in texts]
        model.close()
    return rows


def record_vocabulary(path: Path, out: Path, texts: list[str], num_special: int) -> None:
    model = llama_cpp.Model(path, vocab_only=True)
    plain = concatenate([model.encode(text, special=False) for text in texts])
    special = concatenate([model.encode(text, special=True) for text in texts[:num_special]])
    np.savez_compressed(
        out,
        texts=np.array(digest(texts)),
        plain=plain[0],
        plain_sizes=plain[1],
        special=special[0],
        special_sizes=special[1],
        end_ids=np.array(model.end_ids(), np.int32),
        fim_ids=np.array(model.fim_ids(), np.int32),
        adds_bos=np.array([model.adds_bos()]),
    )
    model.close()


def record_real(folder: Path) -> None:
    for name in NAMES:
        path = folder / f"ggml-vocab-{name}.gguf"
        texts = vocabulary_texts(read_metadata(path), PLAIN)
        record_vocabulary(path, OUT / f"{name}.npz", texts, SPECIAL)
        print(f"  {name}", flush=True)


def record_small() -> None:
    for name in NAMES:
        metadata = small_metadata(name)
        texts = vocabulary_texts(metadata, SMALL_PLAIN)
        with tempfile.TemporaryDirectory() as folder:
            path = write_vocabulary(Path(folder) / "vocabulary.gguf", metadata)
            record_vocabulary(path, SMALL_GOLDEN / f"{name}.npz", texts, SMALL_SPECIAL)
        print(f"  {name}", flush=True)


def corpus() -> list[str]:
    """Lines of this repository's pages and sources, and texts of many scripts."""
    pages = sorted([*ROOT.glob("docs/*.md"), ROOT / "README.md", *ROOT.glob("akunu_py/**/*.py")])
    lines = [line for page in pages for line in page.read_text().splitlines() if line.strip()]
    return [*lines[::4], *make_texts(21, 2000)]


def learn() -> None:
    """Learn the tokens of the small vocabularies, and a unigram vocabulary with its ids."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

    lines = corpus()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=LEARNT, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(lines, trainer)
    arrays = dict(zip(("bytes_tokens", "bytes_merges"), tokens_and_merges(tokenizer), strict=True))

    tokenizer = Tokenizer(models.BPE())
    # Runs of newlines stay together, and every other text is merged whole.
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[^\n]+|[\n]+"), "isolated")
    trainer = trainers.BpeTrainer(
        vocab_size=LEARNT, limit_alphabet=400, max_token_length=12, show_progress=False
    )
    tokenizer.train_from_iterator([line.replace(" ", "▁") for line in lines], trainer)
    found = tokens_and_merges(tokenizer)
    arrays |= dict(zip(("characters_tokens", "characters_merges"), found, strict=True))

    processor = learn_pieces(
        lines, "bpe", "identity", vocab_size=LEARNT, byte_fallback=True, character_coverage=0.98,
        remove_extra_whitespaces=False, split_digits=True,
    )  # fmt: skip
    size = processor.GetPieceSize()
    arrays["pieces_tokens"] = [processor.IdToPiece(i) for i in range(size)]
    arrays["pieces_types"] = piece_types(processor)
    arrays["pieces_scores"] = np.array([processor.GetScore(i) for i in range(size)], np.float32)
    SMALL_GOLDEN.mkdir(exist_ok=True)
    np.savez_compressed(
        SMALL_GOLDEN / "tokens.npz", **{key: np.array(value) for key, value in arrays.items()}
    )
    record_unigram()


def tokens_and_merges(tokenizer) -> tuple[list[str], list[str]]:
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    return tokens, [" ".join(merge) for merge in model["merges"]]


def learn_pieces(lines: list[str], kind: str, normalization: str, **options):
    """Return sentencepiece's processor of a model that is learnt from lines."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type=kind,
        normalization_rule_name=normalization, minloglevel=2, **options,
    )  # fmt: skip
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def piece_types(processor) -> list[int]:
    """Types of sentencepiece's tokens, as GGUF numbers them."""
    kinds = ((processor.IsUnknown, 2), (processor.IsControl, 3), (processor.IsByte, 6))
    return [
        next((type_ for is_kind, type_ in kinds if is_kind(i)), 1)
        for i in range(processor.GetPieceSize())
    ]


def made_up(pre: str, *, gapped: bool = False, further: Sequence[str] = ()) -> dict[str, object]:
    """Metadata of a made-up vocabulary that is split by `pre`, with `further` tokens that nothing merges to."""
    if pre in RAW_PRE:
        tokens, types, merges = raw_vocabulary()
    else:
        tokens, merges = gapped_vocabulary() if gapped else pair_vocabulary()
        types = [1] * len(tokens)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": [*tokens, *further],
        "tokenizer.ggml.token_type": [*types, *[1] * len(further)],
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 0,
    }


def record_made_up() -> None:
    """Record what made-up vocabularies show: cuts and rules of every name, gaps, white space."""
    names = split_rule_names()
    record_splits(names)
    record_rules(names)
    record_gaps()
    record_spaces()


def record_splits(names: Sequence[str]) -> None:
    """Record every name; those with equal ids share them."""
    texts = make_texts(7, SPLITS)
    distinct: list[tuple[np.ndarray, np.ndarray]] = []
    index = []
    for name in names:
        rows = concatenate(ids_of(made_up(name), texts))
        same = (
            position
            for position, known in enumerate(distinct)
            if np.array_equal(known[0], rows[0]) and np.array_equal(known[1], rows[1])
        )
        position = next(same, len(distinct))
        if position == len(distinct):
            distinct.append(rows)
        index.append(position)
        print(f"  {name}: {position}", flush=True)
    arrays = {f"ids{i}": ids for i, (ids, _) in enumerate(distinct)}
    arrays |= {f"sizes{i}": sizes for i, (_, sizes) in enumerate(distinct)}
    np.savez_compressed(
        OUT / "splits.npz",
        texts=np.array(digest(texts)),
        names=np.array(names),
        index=np.array(index, np.uint8),
        **arrays,
    )


def record_rules(names: Sequence[str]) -> None:
    adds_bos, whole = [], []
    for name in names:
        metadata = made_up(name, further=["zqz"])
        with tempfile.TemporaryDirectory() as folder:
            path = write_vocabulary(Path(folder) / "vocabulary.gguf", metadata)
            model = llama_cpp.Model(path, vocab_only=True)
        adds_bos.append(model.adds_bos())
        whole.append(len(model.encode("zqz", special=False)) == 1)
        model.close()
    np.savez_compressed(
        OUT / "rules.npz", names=np.array(names), adds_bos=np.array(adds_bos), whole=np.array(whole)
    )


def record_gaps() -> None:
    texts = make_texts(13, GAPS)
    ids, sizes = concatenate(ids_of(made_up("gpt-2", gapped=True), texts))
    np.savez_compressed(OUT / "gaps.npz", texts=np.array(digest(texts)), ids=ids, sizes=sizes)


def record_spaces() -> None:
    texts = white_space_texts()
    arrays = {}
    for name in SPACED:
        arrays[name], arrays[f"{name}_sizes"] = concatenate(ids_of(made_up(name), texts))
    np.savez_compressed(OUT / "spaces.npz", texts=np.array(digest(texts)), **arrays)


def record_unigram() -> None:
    """Learn a unigram vocabulary from the pages, and record ids."""
    pages = sorted([*ROOT.glob("docs/*.md"), ROOT / "README.md"])
    lines = [line for page in pages for line in page.read_text().splitlines() if line.strip()]
    processor = learn_pieces(
        lines, "unigram", "nmt_nfkc", vocab_size=700, user_defined_symbols=["<sep>"]
    )
    size = processor.GetPieceSize()
    tokens = [processor.IdToPiece(i) for i in range(size)]
    types = piece_types(processor)
    types[tokens.index("<sep>")] = 4
    scores = np.array([processor.GetScore(i) for i in range(size)], np.float32)
    charsmap = charsmap_of(processor.serialized_model_proto())
    texts = make_texts(11, UNIGRAM, tokens)
    arrays = {}
    for clean in (False, True):
        metadata = {
            "general.architecture": "t5",
            "tokenizer.ggml.model": "t5",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": types,
            "tokenizer.ggml.scores": scores.tolist(),
            "tokenizer.ggml.precompiled_charsmap": charsmap,
            "tokenizer.ggml.add_space_prefix": True,
            "tokenizer.ggml.remove_extra_whitespaces": clean,
            "tokenizer.ggml.unknown_token_id": types.index(2),
            "tokenizer.ggml.eos_token_id": tokens.index("</s>"),
        }
        kind = "clean" if clean else "plain"
        arrays[kind], arrays[f"{kind}_sizes"] = concatenate(ids_of(metadata, texts))
    np.savez_compressed(
        OUT / "unigram.npz",
        texts=np.array(digest(texts)),
        tokens=np.array(tokens),
        types=np.array(types, np.int32),
        scores=scores,
        charsmap=charsmap,
        **arrays,
    )


def charsmap_of(data: bytes) -> np.ndarray:
    """The charsmap in a serialised model: the field that follows the text "nmt_nfkc"."""
    start = data.rindex(b"nmt_nfkc") + len(b"nmt_nfkc")
    if data[start] != 0x12:
        raise RuntimeError("the charsmap is not where it was looked for")
    length, shift = 0, 0
    while True:
        start += 1
        length |= (data[start] & 0x7F) << shift
        shift += 7
        if data[start] < 0x80:
            break
    return np.frombuffer(data[start + 1 : start + 1 + length], np.uint8)
