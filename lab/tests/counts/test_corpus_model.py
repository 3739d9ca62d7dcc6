"""Counts of a corpus: fitting piece by piece, the model they make, and its file."""

import itertools
import json
import os
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from akunu_lab.counts import fitting
from akunu_lab.counts.corpus_model import CorpusCounts, CorpusModel
from akunu_lab.counts.drafter import CountDrafter
from akunu_lab.counts.fitting import CorpusCounter, fit_counts, id_pieces, text_pieces
from akunu_lab.counts.model_file import MAGIC, load_counts, read_counts, save_counts
from akunu_lab.counts.ngram_model import NgramModel
from akunu_py.system.errors import AkunuError, ConfigError

PIECES = st.lists(st.lists(st.integers(0, 9), max_size=20), max_size=8)
FINGERPRINT = "0123abcd"


def as_dicts(counts):
    return (
        dict(zip(counts.tokens.tolist(), counts.counts.tolist(), strict=True)),
        {
            (pair >> 32, pair & 0xFFFFFFFF): count
            for pair, count in zip(counts.pairs.tolist(), counts.pair_counts.tolist(), strict=True)
        },
    )


def by_definition(pieces):
    tokens = Counter(itertools.chain(*pieces))
    return tokens, Counter(pair for piece in pieces for pair in itertools.pairwise(piece))


@pytest.mark.parametrize("pending", [1, 7, 1 << 20])
@given(pieces=PIECES)
def test_a_corpus_is_counted_piece_by_piece(pending, pieces):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "_PENDING_PAIRS", pending)
        counts = fit_counts(pieces, 10)
        assert as_dicts(counts) == by_definition(pieces)
        assert as_dicts(fit_counts(pieces, 10, order=1)) == (by_definition(pieces)[0], {})


def test_counting_may_go_on_after_a_look():
    counter = CorpusCounter(10)
    counter.add([1, 2, 3])
    first = as_dicts(counter.counts())
    counter.add(np.array([1, 2], dtype=np.uint16))
    assert first == by_definition([[1, 2, 3]])
    assert as_dicts(counter.counts()) == by_definition([[1, 2, 3], [1, 2]])


@given(st.lists(st.integers(0, 9), max_size=60), st.sampled_from([1, 2]), st.integers(0, 11))
def test_the_model_is_that_of_the_same_counts_in_memory(tokens, order, last):
    """Two implementations, one over arrays and one over dictionaries, and one formula."""
    fitted = CorpusModel(fit_counts([tokens], 12), order=order, discount=0.6)
    growing = NgramModel(12, order=order, discount=0.6)
    growing.observe(tokens)
    for context in ([], [last], [3, last]):
        expected = growing.distribution(context).dense()
        np.testing.assert_allclose(fitted.distribution(context).dense(), expected, atol=1e-15)
        assert abs(expected.sum() - 1) < 1e-12


def test_a_drafter_over_a_corpus_does_not_change_it():
    model = CorpusModel(fit_counts([[1, 2, 3, 1, 2, 3, 1, 2, 4]], 6))
    drafter = CountDrafter(model)
    drafter.observe([5, 1])
    assert drafter.propose(2).tokens == (2, 3)
    drafter.observe([4, 4, 4, 4, 1])
    assert drafter.propose(2).tokens == (2, 3)


def test_huge_counts_sum_to_one():
    many = np.array([2**60, 1, 2**60], np.int64)
    counts = CorpusCounts(
        150_000,
        2,
        np.array([3, 5, 9]),
        many,
        np.array([3 << 32 | 5, 9 << 32 | 3]),
        many[1:] - 1 + 1,
    )
    row = CorpusModel(counts).distribution([3]).dense()
    assert abs(row.sum() - 1) < 1e-12
    assert (row > 0).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": [2, 1]}, "ascending"),
        ({"tokens": [1, 1]}, "ascending"),
        ({"tokens": [1, 9]}, "outside 0 to 4"),
        ({"tokens": [-1, 2]}, "outside 0 to 4"),
        ({"tokens": [1]}, "counts of them"),
        ({"counts": [3, 0]}, "below 1"),
        ({"counts": [2**62, 2**62]}, "too large"),
        ({"pairs": [1 << 32 | 3]}, "do not occur"),
        ({"pairs": [3 << 32 | 1]}, "do not occur"),
        ({"pairs": [-5]}, "negative"),
        ({"pair_counts": [4]}, "more pairs"),
        ({"order": 1}, "order is 1"),
        ({"order": 3}, "order is 3"),
    ],
)
def test_arrays_that_are_no_counts_are_refused(changes, message):
    fields = {
        "vocabulary_size": 5, "order": 2, "tokens": [1, 2], "counts": [3, 3],
        "pairs": [1 << 32 | 2], "pair_counts": [3],
    }  # fmt: skip

    def made(fields):
        return CorpusCounts(
            **{k: np.array(v, np.int64) if isinstance(v, list) else v for k, v in fields.items()}
        )

    made(fields)
    with pytest.raises(ValueError, match=message):
        made(fields | changes)


def test_types_other_than_int64_are_refused():
    wide = np.array([1], np.int64)
    with pytest.raises(ValueError, match="int64"):
        CorpusCounts(5, 1, wide, wide.astype(np.int32), wide[:0], wide[:0])


def test_ids_outside_the_vocabulary_are_refused():
    for ids in ([5], [-1], [2**70]):
        with pytest.raises(ConfigError, match="corpus has ids"):
            CorpusCounter(5).add(ids)


class Words:
    """A tokenizer of a few words that puts a begin token before each text, as many do."""

    def __init__(self):
        self.longest = 0

    def encode(self, text, *, parse_special=False):
        self.longest = max(self.longest, len(text))
        return [1, *(2 + len(word) for word in text.split())]


def test_text_is_read_in_pieces_without_begin_tokens(tmp_path, monkeypatch):
    monkeypatch.setattr(fitting, "PIECE_CHARACTERS", 20)
    text = "a bb ccc dddd\neeeee f gg\n" * 9 + "hhh " * 30 + "ö\r\nend"
    (tmp_path / "corpus.txt").write_bytes(text.encode())
    words = Words()
    pieces = list(text_pieces(tmp_path / "corpus.txt", words))
    assert list(itertools.chain(*pieces)) == words.encode(text)[1:]
    assert len(pieces) > 10
    (tmp_path / "empty").write_text("")
    assert as_dicts(fit_counts(text_pieces(tmp_path / "empty", words), 9)) == ({}, {})


@pytest.mark.parametrize("space", [" ", "\n", "\t", "\r\n"])
def test_ids_are_read_in_pieces(tmp_path, monkeypatch, space):
    monkeypatch.setattr(fitting, "PIECE_CHARACTERS", 20)
    ids = [*range(90, 130), 4_000_000_000]
    (tmp_path / "ids.txt").write_bytes(space.join(map(str, ids)).encode())
    assert list(itertools.chain(*id_pieces(tmp_path / "ids.txt"))) == ids


@pytest.mark.parametrize("text", ["1 2 x", "-1", "1.5", "²", "99999999999", "1,2"])
def test_files_that_hold_no_ids_are_refused(tmp_path, text):
    (tmp_path / "ids.txt").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="not a file of token ids"):
        list(id_pieces(tmp_path / "ids.txt"))


def test_files_that_cannot_be_read_are_reported(tmp_path):
    (tmp_path / "latin").write_bytes(b"caf\xe9 ")
    with pytest.raises(ConfigError, match="UTF-8"):
        list(text_pieces(tmp_path / "latin", Words()))
    with pytest.raises(ConfigError, match="cannot be read"):
        list(text_pieces(tmp_path / "absent", Words()))
    with pytest.raises(ConfigError, match="cannot be read"):
        load_counts(tmp_path / "absent", FINGERPRINT)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_counts(tmp_path, FINGERPRINT)


COUNTS = fit_counts([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], [2, 7, 1, 8]], 10)


@pytest.fixture
def saved(tmp_path):
    save_counts(COUNTS, tmp_path / "counts.bin", FINGERPRINT)
    return tmp_path / "counts.bin"


@pytest.mark.parametrize("order", [1, 2])
def test_what_is_saved_comes_back(tmp_path, order):
    counts = fit_counts([[3, 1, 3], [2]], 10, order=order)
    path = tmp_path / "counts.bin"
    save_counts(counts, path, FINGERPRINT)
    loaded = load_counts(path, FINGERPRINT)
    assert as_dicts(loaded) == as_dicts(counts)
    assert (loaded.vocabulary_size, loaded.order) == (10, order)
    empty = fit_counts([], 10)
    save_counts(empty, path, FINGERPRINT)
    assert (
        CorpusModel(load_counts(path, FINGERPRINT)).distribution([1]).dense().tolist() == [0.1] * 10
    )


def test_a_model_may_pad_its_vocabulary(saved):
    padded = load_counts(saved, FINGERPRINT, 16)
    assert CorpusModel(padded).distribution([1]).dense().size == 16
    assert as_dicts(padded) == as_dicts(COUNTS)
    with pytest.raises(ConfigError, match="outside 0 to 8"):
        load_counts(saved, FINGERPRINT, 9)


def test_another_vocabulary_is_refused(saved):
    with pytest.raises(ConfigError, match=r"another vocabulary .0123abcd.* ffff"):
        load_counts(saved, "ffff")
    with pytest.raises(ConfigError, match="fingerprint"):
        save_counts(COUNTS, saved, "../x")


def test_a_write_that_fails_leaves_the_old_file(saved, monkeypatch):
    before = saved.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        save_counts(fit_counts([[1]], 10), saved, FINGERPRINT)
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


def with_header(content, **changes):
    line, body = content[len(MAGIC) :].split(b"\n", 1)
    return MAGIC + json.dumps(json.loads(line) | changes).encode() + b"\n" + body


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: b"", "begin"),
        (lambda content: b"GGUF" + content, "begin"),
        (lambda content: content.replace(b"counts 1", b"counts 2", 1), "begin"),
        (lambda content: MAGIC + b"{" * 9000, "no end"),
        (lambda content: MAGIC + b"[" * 4000 + b"\n", "holds no counts"),
        (lambda content: MAGIC + b"[]\n", "not a JSON object"),
        (lambda content: MAGIC + b"{}\n", "no text 'vocabulary'"),
        (lambda content: MAGIC + b"\xff\n", "holds no counts"),
        (lambda content: content[:-1], "bytes follow"),
        (lambda content: content + b"\0", "bytes follow"),
        (lambda content: content[:-1] + b"\1", "checksum"),
        (lambda content: with_header(content, order=True), "'order'"),
        (lambda content: with_header(content, num_pairs=-1), "'num_pairs'"),
        (lambda content: with_header(content, num_pairs=1e9), "'num_pairs'"),
        (lambda content: with_header(content, num_pairs=2**32), "bytes follow"),
        (lambda content: with_header(content, vocabulary_size=2**40), "'vocabulary_size'"),
        (lambda content: with_header(content, vocabulary_size=9), "outside 0 to 8"),
        (lambda content: with_header(content, order=1), "order is 1"),
        (lambda content: with_header(content, sha256=None), "no text 'sha256'"),
    ],
)
def test_damaged_files_are_refused(saved, damage, message):
    saved.write_bytes(damage(saved.read_bytes()))
    with pytest.raises(ConfigError, match=message):
        load_counts(saved, FINGERPRINT)


def test_numbers_are_checked_where_the_checksum_is_right(saved):
    """Whoever writes a file can write its checksum, too."""
    import hashlib

    content = saved.read_bytes()
    header, body = content[len(MAGIC) :].split(b"\n", 1)
    rng = random.Random(4)
    refused = 0
    for _ in range(300):
        damaged = bytearray(body)
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(len(damaged))] = rng.choice([0, 1, 255, rng.randrange(256)])
        digest = hashlib.sha256(damaged).hexdigest()
        saved.write_bytes(with_header(MAGIC + header + b"\n" + bytes(damaged), sha256=digest))
        try:
            counts = load_counts(saved, FINGERPRINT)
        except ConfigError:
            refused += 1
        else:
            row = CorpusModel(counts).distribution([int(counts.tokens[0])]).dense()
            assert abs(row.sum() - 1) < 1e-12
    assert 200 < refused < 300


def test_random_bytes_are_refused(saved):
    content = saved.read_bytes()
    rng = random.Random(5)
    for _ in range(200):
        damaged = bytearray(content)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(damaged))
            damaged[at : at + rng.randint(0, 3)] = rng.randbytes(rng.randint(0, 3))
        if bytes(damaged) == content:
            continue
        saved.write_bytes(damaged)
        try:
            loaded = load_counts(saved, FINGERPRINT)
        except AkunuError:
            continue
        # A change of white space within the header changes nothing.
        assert as_dicts(loaded) == as_dicts(COUNTS)


def test_reading_tells_how_far_it_is(tmp_path):
    path = tmp_path / "ids"
    path.write_text("1 2 3\n" * 40_000)
    told = []
    for _ in id_pieces(path, lambda *progress: told.append(progress)):
        pass
    size = path.stat().st_size
    assert len(told) == 4
    assert sorted(told) == told
    assert {whole for _, whole in told} == {size}
    assert told[0][0] < told[-1][0] == size


def test_counts_are_read_whatever_their_vocabulary(saved):
    counts, vocabulary = read_counts(saved)
    assert vocabulary == FINGERPRINT
    assert as_dicts(counts) == as_dicts(COUNTS)
