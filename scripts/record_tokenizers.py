#!/usr/bin/env python3
"""Record llama.cpp's token ids as golden files for tests/tokenizers.

    python scripts/record_tokenizers.py VOCABS [--only NAME ...]

VOCABS is a folder with ggml-vocab-NAME.gguf and pre_tokenizers.json. Needs llama-cpp-python and
gguf in the environment it runs in; akunu itself is not imported. Written to tests/golden/tokenizers:

    NAME.npz      ids of the texts of `fuzz_texts.vocabulary_texts` without control tokens ("plain")
                  and, for the first of them, with ("special"); what ends a reply, FIM tokens
    splits.npz    ids of a made-up vocabulary under every `tokenizer.ggml.pre`, which show the cuts
    gaps.npz      ids of that vocabulary without tokens for some bytes
    spaces.npz    ids of it for white space beyond ASCII, under the names of SPACED
    unigram.npz   a small unigram vocabulary with its charsmap, learnt from this repository's pages by
                  the sentencepiece package, which this one needs too, and ids
"""

import argparse
import contextlib
import ctypes
import io
import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "tokenizers"))

try:
    import gguf
    import llama_cpp
    import numpy as np
except ImportError as error:
    sys.exit(
        f"{error.name} is missing: run this in an environment with llama-cpp-python, gguf and numpy"
    )

from fuzz_texts import (
    digest,
    gapped_vocabulary,
    make_texts,
    pair_vocabulary,
    raw_vocabulary,
    vocabulary_texts,
    white_space_texts,
)

PLAIN, SPECIAL, SPLITS, GAPS, UNIGRAM = 1200, 400, 150, 400, 1000
NAMES = (
    "llama-spm", "phi-3", "llama-bpe", "qwen2", "deepseek-coder", "gpt-2", "starcoder", "gemma-4",
)  # fmt: skip
RAW_PRE = ("gemma4", "granite-embed-multi-311m", "sarvam-moe")
SPACED = ("deepseek-llm", "deepseek-coder")  # whose ranges of characters hold white space
WITHOUT = ("whitespace",)  # llama.cpp aborts on it in a vocabulary of the kind "gpt2"
FIM = ("pre", "suf", "mid", "pad", "rep", "sep")


class Reference:
    """llama.cpp's view of one vocabulary."""

    def __init__(self, path: Path) -> None:
        options = llama_cpp.llama_model_default_params()
        options.vocab_only = True
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), options)
        if not self._model:
            raise RuntimeError(f"llama.cpp does not load {path}")
        self._vocab = llama_cpp.llama_model_get_vocab(self._model)
        self.size = llama_cpp.llama_vocab_n_tokens(self._vocab)

    def close(self) -> None:
        llama_cpp.llama_model_free(self._model)

    def encode(self, text: str, *, special: bool) -> list[int]:
        data = text.encode()
        room = len(data) * 2 + 16
        ids = (llama_cpp.llama_token * room)()
        count = llama_cpp.llama_tokenize(self._vocab, data, len(data), ids, room, False, special)
        if count < 0:
            raise RuntimeError(f"llama.cpp makes more ids than fit of {text!r}")
        return list(ids[:count])

    def facts(self) -> dict[str, np.ndarray]:
        ends = [i for i in range(self.size) if llama_cpp.llama_vocab_is_eog(self._vocab, i)]
        fim = [getattr(llama_cpp, f"llama_vocab_fim_{name}")(self._vocab) for name in FIM]
        adds = [llama_cpp.llama_vocab_get_add_bos(self._vocab)]
        return {
            "end_ids": np.array(ends, np.int32),
            "fim_ids": np.array(fim, np.int32),
            "adds_bos": np.array(adds, bool),
        }


def packed(rows: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
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


def record_vocabulary(path: Path, out: Path) -> None:
    texts = vocabulary_texts(read_metadata(path), PLAIN)
    reference = Reference(path)
    plain = packed([reference.encode(text, special=False) for text in texts])
    special = packed([reference.encode(text, special=True) for text in texts[:SPECIAL]])
    np.savez_compressed(
        out,
        texts=np.array(digest(texts)),
        plain=plain[0],
        plain_sizes=plain[1],
        special=special[0],
        special_sizes=special[1],
        **reference.facts(),
    )
    reference.close()


def made_up_ids(pre: str, texts: list[str], *, gapped: bool = False) -> list[list[int]]:
    """Ids of a made-up vocabulary that is split by `pre`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vocabulary.gguf"
        write_vocabulary(path, pre, gapped=gapped)
        reference = Reference(path)
        rows = [reference.encode(text, special=False) for text in texts]
        reference.close()
    return rows


def write_vocabulary(path: Path, pre: str, *, gapped: bool) -> None:
    writer = gguf.GGUFWriter(str(path), "llama")
    if pre in RAW_PRE:
        tokens, types, merges = raw_vocabulary()
    else:
        tokens, merges = gapped_vocabulary() if gapped else pair_vocabulary()
        types = [1] * len(tokens)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def record_splits(names: list[str], out: Path) -> None:
    texts = make_texts(7, SPLITS)
    distinct: list[tuple[np.ndarray, np.ndarray]] = []
    index = []
    for name in names:
        rows = packed(made_up_ids(name, texts))
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
        out,
        texts=np.array(digest(texts)),
        names=np.array(names),
        index=np.array(index, np.uint8),
        **arrays,
    )


def record_gaps(out: Path) -> None:
    texts = make_texts(13, GAPS)
    ids, sizes = packed(made_up_ids("gpt-2", texts, gapped=True))
    np.savez_compressed(out, texts=np.array(digest(texts)), ids=ids, sizes=sizes)


def record_spaces(out: Path) -> None:
    texts = white_space_texts()
    arrays = {}
    for name in SPACED:
        arrays[name], arrays[f"{name}_sizes"] = packed(made_up_ids(name, texts))
    np.savez_compressed(out, texts=np.array(digest(texts)), **arrays)


def train_unigram() -> tuple[list[str], list[int], list[float], np.ndarray]:
    """Tokens, types, scores and charsmap of a unigram model."""
    import sentencepiece

    pages = sorted([*ROOT.glob("docs/*.md"), ROOT / "README.md"])
    lines = [line for page in pages for line in page.read_text().splitlines() if line.strip()]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type="unigram",
        vocab_size=700,
        user_defined_symbols=["<sep>"],
        normalization_rule_name="nmt_nfkc",
        minloglevel=2,
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    size = processor.GetPieceSize()
    types = [
        2 if processor.IsUnknown(i) else 3 if processor.IsControl(i) else 1 for i in range(size)
    ]
    types[processor.PieceToId("<sep>")] = 4
    # What follows the text "nmt_nfkc" in the serialised specification is the charsmap's field.
    data = model.getvalue()
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
    charsmap = np.frombuffer(data[start + 1 : start + 1 + length], np.uint8)
    return (
        [processor.IdToPiece(i) for i in range(size)],
        types,
        [processor.GetScore(i) for i in range(size)],
        charsmap,
    )


def record_unigram(out: Path) -> None:
    tokens, types, scores, charsmap = train_unigram()
    texts = make_texts(11, UNIGRAM, tokens)
    arrays = {}
    for clean in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "vocabulary.gguf"
            writer = gguf.GGUFWriter(str(path), "t5")
            writer.add_tokenizer_model("t5")
            writer.add_token_list(tokens)
            writer.add_token_types(types)
            writer.add_token_scores(scores)
            writer.add_precompiled_charsmap(charsmap.tobytes())
            writer.add_add_space_prefix(True)
            writer.add_remove_extra_whitespaces(clean)
            writer.add_unk_token_id(types.index(2))
            writer.add_eos_token_id(tokens.index("</s>"))
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.close()
            reference = Reference(path)
            ids, sizes = packed([reference.encode(text, special=False) for text in texts])
            reference.close()
        kind = "clean" if clean else "plain"
        arrays |= {kind: ids, f"{kind}_sizes": sizes}
    np.savez_compressed(
        out,
        texts=np.array(digest(texts)),
        tokens=np.array(tokens),
        types=np.array(types, np.int32),
        scores=np.array(scores, np.float32),
        charsmap=charsmap,
        **arrays,
    )


@contextlib.contextmanager
def silent():
    """Keep llama.cpp's log off the terminal."""
    callback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
    quiet = callback(lambda *_: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    with contextlib.redirect_stderr(io.StringIO()):
        yield quiet


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("vocabs", type=Path)
    parser.add_argument("--only", nargs="*")
    arguments = parser.parse_args()
    out = ROOT / "tests" / "golden" / "tokenizers"
    out.mkdir(parents=True, exist_ok=True)
    wanted = arguments.only or [*NAMES, "splits", "gaps", "spaces", "unigram"]
    with silent():
        for name in (name for name in NAMES if name in wanted):
            print(name, flush=True)
            path = arguments.vocabs / f"ggml-vocab-{name}.gguf"
            record_vocabulary(path, out / f"{name}.npz")
        if "splits" in wanted:
            names = json.loads((arguments.vocabs / "pre_tokenizers.json").read_text())
            record_splits([name for name in names if name not in WITHOUT], out / "splits.npz")
        if "gaps" in wanted:
            record_gaps(out / "gaps.npz")
        if "spaces" in wanted:
            record_spaces(out / "spaces.npz")
        if "unigram" in wanted:
            record_unigram(out / "unigram.npz")


if __name__ == "__main__":
    main()
