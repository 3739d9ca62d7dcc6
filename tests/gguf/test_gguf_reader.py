"""The reader: sound files read exactly, unsound ones refused with a place and an advice."""

import gc
import os
import re
import struct
import time
import tracemalloc

import gguf
import numpy as np
import pytest
from gguf_bytes import ARRAY, STRING, array, build, pair, scalar, small, string, tensor
from gguf_files import write_tiny_llama
from hypothesis import given, settings
from hypothesis import strategies as st
from malformed_files import MALFORMED

from akunu_py.gguf import BLOCK_TYPES, GGUFFile
from akunu_py.system.errors import ConfigError, ModelFormatError, UnsupportedQuantizationError


def read(path, raw):
    path.write_bytes(raw)
    return GGUFFile.open(path)


def test_block_table_equals_the_gguf_package():
    # Not by the keys of the package's table, to which `gguf_files` adds types that it lacks.
    for kind in gguf.GGMLQuantizationType:
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        block = BLOCK_TYPES[int(kind)]
        assert (block.name, block.block_elements, block.block_bytes) == (kind.name, elements, size)


def test_version_2_reads_the_same(tmp_path):
    raw = bytearray(small())
    raw[4] = 2
    with read(tmp_path / "m.gguf", bytes(raw)) as file:
        assert file.version == 2
        assert len(file.metadata) == 9


def test_alignment_of_the_file_is_followed(tmp_path):
    keys, tensors = [pair("general.alignment", 4, scalar(4, 1))], [tensor("t", (2,), 1, 0)]
    raw = build(keys, tensors, b"abcd", alignment=1)
    with read(tmp_path / "m.gguf", raw) as file:
        assert bytes(file.tensor_bytes("t").ravel()) == b"abcd"


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_files_are_refused(tmp_path, name):
    raw, words, at = MALFORMED[name]
    path = tmp_path / "bad.gguf"
    path.write_bytes(raw)
    started = time.thread_time()
    tracemalloc.start()
    try:
        with pytest.raises(ModelFormatError, match=words) as info:
            GGUFFile.open(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert time.thread_time() - started < 1
    assert peak < 100_000 + 20 * len(raw)
    message = str(info.value)
    assert str(path) in message
    place = re.search(r"at byte (\d+)", message)
    assert place is not None
    assert 0 <= int(place[1]) <= len(raw)
    assert at in ([], [int(place[1])])
    assert ";" in message  # what to do
    assert len(message) < 400 + len(str(path))


def test_messages_cut_long_keys(tmp_path):
    raw = build([pair("k" * 60_000, 13, bytes(8))])
    with pytest.raises(ModelFormatError, match="'kkk") as info:
        read(tmp_path / "bad.gguf", raw)
    assert len(str(info.value)) < 1000


def test_sound_files_at_the_limits(tmp_path):
    longest = [pair("k" * 65535, 4, scalar(4, 1)), pair("\0\n", STRING, string(""))]
    tensors = [tensor("n" * 63, (1, 1, 1, 2), 0, 0), tensor("../x", (1,), 24, 1 << 20)]
    raw = build(
        [*longest, pair("general.alignment", 10, scalar(10, 1 << 20))],
        tensors, bytes((1 << 20) + 1), alignment=1 << 20,
    )  # fmt: skip
    with read(tmp_path / "m.gguf", raw) as file:
        assert file.nbytes == len(raw)
        assert file.paths == (tmp_path / "m.gguf",)
        assert [info.offset for info in file.tensors.values()] == [1 << 20, 2 << 20]
    with read(tmp_path / "m.gguf", build([pair("x", ARRAY, array(10, []))])) as file:
        assert file.metadata["x"].size == 0


def test_a_file_that_shrinks_while_it_is_open(tmp_path):
    """Reading on would end the process: the operating system sends it a bus error."""
    path = tmp_path / "m.gguf"
    with read(path, small()) as file:
        os.truncate(path, 100)
        with pytest.raises(ModelFormatError, match=r"'second' at byte \d+ .*was cut from"):
            file.tensor_bytes("second")


def test_unknown_type_is_its_own_error(tmp_path):
    with pytest.raises(UnsupportedQuantizationError, match="'t'"):
        read(tmp_path / "bad.gguf", MALFORMED["unknown type 9999"][0])


def test_truncation_at_every_byte(tmp_path):
    raw = small()
    path = tmp_path / "cut.gguf"
    for size in range(len(raw)):
        with pytest.raises(ModelFormatError, match=r"at byte \d+ .*; the file is trunc"):
            read(path, raw[:size])
    read(path, raw).close()


@settings(max_examples=settings.default.max_examples * 7)
@given(data=st.data())
def test_mutations_are_read_or_refused(tmp_path_factory, data):
    raw = bytearray(small())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(4, len(raw) - 1))
        if data.draw(st.booleans()):
            raw[place] = data.draw(st.integers(0, 255))
        else:
            number = data.draw(
                st.sampled_from([0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, 2**64 - 32])
            )
            raw[place : place + 8] = struct.pack("<Q", number)[: len(raw) - place]
    path = tmp_path_factory.getbasetemp() / "mutated.gguf"
    try:
        with read(path, bytes(raw)) as file:
            for name, info in file.tensors.items():
                assert file.tensor_bytes(name).nbytes == info.nbytes
    except ModelFormatError:
        pass


@pytest.mark.parametrize("kind", ["missing", "folder", "fifo", "loop", "forbidden", "a\0b"])
def test_paths_that_cannot_be_read(tmp_path, kind):
    path = tmp_path / (kind if "\0" in kind else "m.gguf")
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "forbidden":
        path.write_bytes(small())
        path.chmod(0)
        if os.access(path, os.R_OK):
            pytest.skip("this user may read everything")
    with pytest.raises(ConfigError, match="path"):
        GGUFFile.open(path)


def test_close_is_harmless_with_views_alive(tmp_path):
    file = read(tmp_path / "m.gguf", small())
    view = file.tensor_bytes("first")
    file.close()
    file.close()
    assert view[0, 1] == 1
    del view
    gc.collect()
    with pytest.raises(ConfigError, match="closed"):
        file.tensor_bytes("first")


def test_unknown_tensor_name(tmp_path):
    with read(tmp_path / "m.gguf", small()) as file, pytest.raises(ModelFormatError, match="third"):
        file.tensor_bytes("third")


def test_large_string_arrays_are_fast(tmp_path):
    texts = [f"token{i}" for i in range(150_000)]
    path = tmp_path / "m.gguf"
    path.write_bytes(build([pair("t", ARRAY, array(STRING, texts))]))
    started = time.thread_time()
    with GGUFFile.open(path) as file:
        assert file.metadata["t"] == texts
    assert time.thread_time() - started < 2  # measured: 0.1


def test_agrees_with_the_gguf_package(tmp_path):
    path = write_tiny_llama(tmp_path / "m.gguf", quantization="Q4_1", vocabulary="spm")
    theirs = gguf.GGUFReader(path)
    with GGUFFile.open(path) as file:
        assert list(file.tensors) == [tensor.name for tensor in theirs.tensors]
        for tensor_ in theirs.tensors:
            info = file.tensors[tensor_.name]
            assert info.shape_ggml == tuple(tensor_.shape)
            assert info.offset == tensor_.data_offset
            assert np.array_equal(
                file.tensor_bytes(info.name).ravel(), tensor_.data.view(np.uint8).ravel()
            )
        for name, field in theirs.fields.items():
            if not name.startswith("GGUF."):
                ours = file.metadata[name]
                expected = field.contents()
                assert (ours.tolist() if isinstance(ours, np.ndarray) else ours) == expected


@pytest.mark.parametrize("raw", [b"\xc3", b"caf\xe9", b"\xed\xa0\x80", b"\xc0\x80"])
def test_a_text_in_another_encoding_is_no_damage(tmp_path, raw):
    """Quantizers write paths of the command line into files."""
    file = build([pair("quantize.imatrix.file", STRING, string(raw))])
    with read(tmp_path / "m.gguf", file) as opened:
        assert "\ufffd" in opened.metadata["quantize.imatrix.file"]
