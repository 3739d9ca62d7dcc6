"""Split models: any part opens the whole; a part that is missing, lies or does not belong is named."""

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from gguf_bytes import I32, STRING, U16, U32, build, pair, scalar, string, tensor
from gguf_files import finish, split_file, write_tiny_llama

from akunu_py.gguf import GGUFFile
from akunu_py.system.errors import ConfigError, ModelFormatError

# Each file has 8 floats a tensor.
NAMES = {0: (), 1: ("a", "b"), 2: ("c",)}


def part(
    index,
    *,
    count=3,
    number=None,
    total=3,
    names=None,
    architecture=None,
    extra=(),
    without=(),
    kind=U16,
):
    """Bytes of part `index`, counted from 0, as llama-gguf-split writes it."""
    keys = {
        "split.no": (kind, index if number is None else number),
        "split.count": (kind, count),
        "split.tensors.count": (I32, total),
    }
    pairs = [pair(key, *_value(*value)) for key, value in keys.items() if key not in without]
    if index == 0:
        pairs.insert(0, pair("answer", U32, scalar(U32, 42)))
        architecture = architecture or "llama"
    if architecture is not None:
        pairs.insert(0, pair("general.architecture", STRING, string(architecture)))
    names = NAMES[index] if names is None else names
    tensors = [tensor(name, (4, 2), 0, 32 * place) for place, name in enumerate(names)]
    data = b"".join(np.full(8, 10 * index + place, "<f4").tobytes() for place in range(len(names)))
    return build([*pairs, *extra], tensors, data)


def _value(kind, value):
    return kind, scalar(kind, value) if kind != STRING else string(value)


def name(index, count=3):
    return f"m-{index + 1:05d}-of-{count:05d}.gguf"


def write(folder, **changed):
    """Write all three parts; `part_1=bytes` replaces one, `part_1=None` leaves it out."""
    for index in range(3):
        raw = changed.get(f"part_{index}", part(index))
        if raw is not None:
            (folder / name(index)).write_bytes(raw)
    return [folder / name(index) for index in range(3)]


@pytest.mark.parametrize("given", range(3))
def test_any_part_opens_the_whole(tmp_path, given):
    paths = write(tmp_path)
    with GGUFFile.open(paths[given]) as file:
        assert file.path == paths[given]
        assert file.paths == tuple(paths)
        assert file.nbytes == sum(path.stat().st_size for path in paths)
        assert dict(file.metadata) == {"general.architecture": "llama", "answer": 42}
        assert [(info.name, info.part) for info in file.tensors.values()] == [
            ("a", 1), ("b", 1), ("c", 2),
        ]  # fmt: skip
        values = {key: file.tensor_bytes(key).view("<f4") for key in file.tensors}
        found = {key: float(value[0, 0]) for key, value in values.items()}
        assert found == {"a": 10, "b": 11, "c": 20}
        assert all((value == value[0, 0]).all() for value in values.values())
        del values
    with pytest.raises(ConfigError, match="closed"):
        file.tensor_bytes("a")


@pytest.mark.parametrize("count", [0, 1])
def test_a_model_in_one_part_is_a_plain_file(tmp_path, count):
    """`llama-gguf-split --merge` leaves split.count 0 behind."""
    path = tmp_path / "merged.gguf"
    path.write_bytes(part(0, count=count, names=("a",), total=99))
    with GGUFFile.open(path) as file:
        assert list(file.tensors) == ["a"]
        assert file.metadata["split.count"] == count


def test_the_files_of_the_gguf_package(tmp_path):
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(tmp_path / "m", "llama", split_max_tensors=2, small_first_shard=True)
    writer.add_name("split in three")
    arrays = {f"t{index}": np.full((2, 32), index, np.float32) for index in range(4)}
    for key, value in arrays.items():
        writer.add_tensor(key, value)
    finish(writer)
    with GGUFFile.open(tmp_path / name(1)) as file:
        assert file.metadata["general.name"] == "split in three"
        for key, value in arrays.items():
            assert np.array_equal(file.tensor_bytes(key).view("<f4"), value)


def test_parts_may_lie_elsewhere_behind_links(tmp_path):
    """As in a cache of downloads, whose files have hashes for names."""
    store, folder = tmp_path / "store", tmp_path / "snapshot"
    store.mkdir()
    folder.mkdir()
    for index, path in enumerate(write(store)):
        path.rename(store / f"hash{index}")
        (folder / name(index)).symlink_to(store / f"hash{index}")
    with GGUFFile.open(folder / name(2)) as file:
        assert len(file.tensors) == 3
    with pytest.raises(ModelFormatError, match="restore the name of the file"):
        GGUFFile.open(store / "hash2")


def test_prefixes_are_taken_as_they_are(tmp_path):
    """Dots, dashes, a newline and a pattern inside the prefix."""
    prefix = "a.b-00007-of-00009*[x]\n"
    for index, path in enumerate(write(tmp_path)):
        path.rename(tmp_path / f"{prefix}-{index + 1:05d}-of-00003.gguf")
    with GGUFFile.open(tmp_path / f"{prefix}-00002-of-00003.gguf") as file:
        assert len(file.paths) == 3


LIES = {
    "split.count of part 1": ({"part_0": part(0, count=4)}, 0, "split.count", 0),
    "split.count of part 3": ({"part_2": part(2, count=2)}, 0, "split.count", 2),
    "split.count 2**16 - 1": ({"part_0": part(0, count=65535)}, 0, "split.count", 0),
    "split.count 2**32 - 1": ({"part_0": part(0, count=2**32 - 1, kind=U32)}, 0, "65535", 0),
    "split.count is negative": ({"part_0": part(0, count=-3, kind=I32)}, 0, "is -3", 0),
    "split.count is text": (
        {"part_0": part(0, without=("split.count",), extra=[pair("split.count", STRING, string("3"))])},
        0, "is '3', not a whole", 0,
    ),
    "split.count is true": (
        {"part_0": part(0, without=("split.count",), extra=[pair("split.count", 7, b"\1")])},
        0, "is True, not a whole", 0,
    ),
    "split.no of part 1": ({"part_0": part(0, number=1)}, 1, "split.no", 0),
    "split.no of part 2": ({"part_1": part(1, number=2)}, 2, "split.no", 1),
    "split.no counts from 1": ({"part_1": part(1, number=2)}, 0, "counted from 0", 1),
    "a plain file in place of part 2": (
        {"part_1": part(1, without=("split.no", "split.count", "split.tensors.count"))},
        0, "'split.count' at byte 24 is missing, so this is not part", 1,
    ),
    "part 3 has no number": ({"part_2": part(2, without=("split.no",))}, 0, "split.no", 2),
    "part 1 has no total": (
        {"part_0": part(0, without=("split.tensors.count",))}, 0, "split.tensors.count", 0,
    ),
    "split.tensors.count is too high": (
        {f"part_{i}": part(i, total=4) for i in range(3)}, 0, "is 4, but the parts hold 3", 0,
    ),
    "split.tensors.count is too low": (
        {f"part_{i}": part(i, total=2) for i in range(3)}, 2, "is 2, but the parts hold 3", 0,
    ),
    "split.tensors.count is negative": (
        {f"part_{i}": part(i, total=-1) for i in range(3)}, 0, "is -1", 0,
    ),
    "split.tensors.count of part 2": ({"part_1": part(1, total=5)}, 0, "is 5, but 3", 1),
    "a tensor in two parts": ({"part_2": part(2, names=("b",))}, 0, "'b' at byte", 2),
    "another architecture": ({"part_2": part(2, architecture="qwen2")}, 0, "'qwen2'", 2),
    "a part that is damaged": ({"part_1": part(1)[:60]}, 0, "truncated", 1),
    "a part that is empty": ({"part_1": b""}, 2, "empty", 1),
    "a part that is no GGUF": ({"part_1": b"<html>not found</html>"}, 0, "not a GGUF", 1),
    "a tensor past the end of its part": ({"part_1": part(1)[:-1]}, 2, "past the end", 1),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_lies_are_found_and_named(tmp_path, lie):
    changed, given, words, guilty = LIES[lie]
    paths = write(tmp_path, **changed)
    with pytest.raises(ModelFormatError, match=words) as info:
        GGUFFile.open(paths[given])
    message = str(info.value)
    assert message.startswith(f"{paths[guilty]}: ")
    assert re.search(r" at byte \d+ .*; ", message)


@pytest.mark.parametrize("given", [0, 2])
def test_a_missing_part_is_named(tmp_path, given):
    paths = write(tmp_path, part_1=None)
    words = f"at byte .* 1 is missing: {name(1)}; download the missing parts into {tmp_path}"
    with pytest.raises(ModelFormatError, match=words):
        GGUFFile.open(paths[given])
    paths[1].symlink_to(tmp_path / "gone")  # as a cache does whose download was broken off
    with pytest.raises(ModelFormatError, match=words):
        GGUFFile.open(paths[given])


@pytest.mark.slow
def test_many_missing_parts_are_named_in_short(tmp_path):
    path = tmp_path / name(0, 65535)
    path.write_bytes(part(0, count=65535))
    with pytest.raises(ModelFormatError, match="65534 are missing") as info:
        GGUFFile.open(path)
    assert name(1, 65535) in str(info.value)
    assert len(str(info.value)) < 1500


@pytest.mark.parametrize("kind", ["folder", "fifo"])
def test_parts_that_are_no_files(tmp_path, kind):
    paths = write(tmp_path, part_1=None)
    paths[1].mkdir() if kind == "folder" else os.mkfifo(paths[1])
    with pytest.raises(ConfigError, match=r"of-00003\.gguf: it is"):
        GGUFFile.open(paths[0])


RENAMED = {
    "model.gguf": "restore the name of the file",
    "m-1-of-3.gguf": "restore the name of the file",
    "m-00001-of-00003.bin": "restore the name of the file",
    "m-00001-of-00003.gguf.part": "restore the name of the file",
    "m-٠٠٠٠١-of-00003.gguf": "restore the name of the file",
    "m-000001-of-000003.gguf": "restore the name of the file",
    "m-00004-of-00003.gguf": "the file's name says part 4",
    "m-00000-of-00003.gguf": "the file's name says part 0",
    "m-00001-of-00004.gguf": "the file's name says 4 parts",
}


@pytest.mark.parametrize("wrong", RENAMED)
def test_a_renamed_part_is_refused(tmp_path, wrong):
    path = shutil.copy(write(tmp_path)[0], tmp_path / wrong)
    with pytest.raises(ModelFormatError, match=rf"'split.count' at byte \d+ .*{RENAMED[wrong]}"):
        GGUFFile.open(path)


def test_no_path_from_a_file_is_followed(tmp_path):
    """Names of parts come from the given name alone, whatever the keys say."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    write(elsewhere)
    extra = [pair("split.prefix", STRING, string(str(elsewhere / "m")))]
    path = tmp_path / name(0)
    path.write_bytes(part(0, extra=extra))
    with pytest.raises(ModelFormatError, match="2 are missing"):
        GGUFFile.open(path)


@pytest.mark.slow
def test_truncation_of_each_part_at_every_byte(tmp_path):
    paths = write(tmp_path)
    for index, path in enumerate(paths):
        raw = path.read_bytes()
        for size in range(len(raw)):
            path.write_bytes(raw[:size])
            with pytest.raises(ModelFormatError, match=r"of-00003\.gguf: .* at byte \d+"):
                GGUFFile.open(paths[(index + 1) % 3])
        path.write_bytes(raw)
    GGUFFile.open(paths[0]).close()


def open_files():
    return sum(1 for _ in Path("/dev/fd").iterdir())


def test_nothing_stays_open_after_a_refusal(tmp_path):
    """Not even while the errors are kept, whose frames know the files."""
    before = open_files()
    errors = []
    for lie in ("split.no of part 2", "a tensor in two parts", "a part that is damaged"):
        changed, given, *_ = LIES[lie]
        paths = write(tmp_path, **changed)
        with pytest.raises(ModelFormatError) as info:
            GGUFFile.open(paths[given])
        errors.append(info.value)
    assert open_files() <= before
    del errors
    with GGUFFile.open(write(tmp_path)[0]) as file:
        assert open_files() > before
        file.close()
        assert open_files() <= before


def test_too_many_open_files_are_explained(tmp_path):
    resource = pytest.importorskip("resource")
    paths = write(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files(), hard))
    try:
        with pytest.raises(ConfigError, match="ulimit -n"):
            GGUFFile.open(paths[0])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_split_model_loads(tmp_path):
    """Split by hand from a whole one: the same model comes out."""
    load = pytest.importorskip("akunu_py.models.load")
    mx = pytest.importorskip("mlx.core")
    whole = write_tiny_llama(tmp_path / "whole.gguf")
    parts = split_file(whole, 3)
    expected, loaded = load.load_model(whole), load.load_model(parts[1])
    assert loaded.description.parameters == expected.description.parameters
    ids = mx.array([[1, 2, 3]])
    assert mx.array_equal(loaded.model(ids), expected.model(ids))
