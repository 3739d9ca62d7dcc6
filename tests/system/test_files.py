"""Files: replaced whole, and opened without waiting for anybody."""

import os
import socket
import stat
from unittest.mock import Mock

import pytest

from akunu_py.system.files import open_to_append, open_to_read, replace_file


@pytest.fixture
def umask():
    """Set the umask of this process, until the test is over."""
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077])
@pytest.mark.parametrize("old", [False, True])
def test_the_umask_says_who_may_read_what_is_not_private(tmp_path, umask, mask, old):
    umask(mask)
    for private in (False, True):
        path = tmp_path / f"file-{private}"
        if old:
            path.write_text("before")
        replace_file(path, b"content", private=private)
        assert path.read_bytes() == b"content"
        assert mode(path) == (0o600 if private else 0o666 & ~mask)


def test_the_content_is_on_disk_before_the_name(tmp_path, monkeypatch):
    order = []
    replace = os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: order.append("fsync"))
    monkeypatch.setattr(os, "replace", lambda a, b: (order.append("replace"), replace(a, b)))
    replace_file(tmp_path / "file", b"content", private=False)
    assert order == ["fsync", "replace"]


def test_what_fails_leaves_the_old_file_alone(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_text("before")
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, b"after", private=False)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_no_link_is_followed_to_the_file_beside(tmp_path, monkeypatch):
    monkeypatch.setattr("secrets.token_hex", lambda _: "known")
    other = tmp_path / "other"
    other.write_text("not ours")
    (tmp_path / ".file.known").symlink_to(other)
    with pytest.raises(FileExistsError):
        replace_file(tmp_path / "file", b"content", private=True)
    assert other.read_text() == "not ours"
    assert (tmp_path / ".file.known").is_symlink()


@pytest.mark.parametrize("linked", [False, True])
def test_a_device_or_a_pipe_is_not_replaced(tmp_path, linked):
    """As observed: with the null device for settings, root lost it to a file."""
    path = pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    if linked:
        path = tmp_path / "link"
        path.symlink_to(pipe)
    with pytest.raises(OSError, match="it is not a regular file"):
        replace_file(path, b"content", private=True)
    assert path.is_fifo()
    assert len(list(tmp_path.iterdir())) == 1 + linked


def others(folder):
    """Paths of all that is no regular file."""
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    (folder / "link").symlink_to(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
    return {
        folder / "pipe": "it is not a regular file",
        folder / "link": "it is not a regular file",
        folder / "socket": "it is not a regular file",
        folder / "folder": "older|irectory",
        folder / "missing" / "file": "No such file",
    }


@pytest.mark.parametrize("open_it", [open_to_read, open_to_append])
def test_nothing_else_is_opened_nor_waited_for(tmp_path, open_it):
    for path, reason in others(tmp_path).items():
        with pytest.raises(OSError, match=reason) as error:
            open_it(path)
        assert error.value.filename == str(path)


def test_reading(tmp_path):
    (tmp_path / "file").write_bytes(b"a" * 100_000)
    with open_to_read(tmp_path / "file") as stream:
        assert stream.read() == b"a" * 100_000


def test_a_new_file_is_its_owner_s_and_another_keeps_its_mode(tmp_path):
    before = os.umask(0)
    try:
        for text in (b"a", b"b"):
            handle = open_to_append(tmp_path / "new")
            os.write(handle, text)
            os.close(handle)
        (tmp_path / "old").touch(mode=0o644)
        os.close(open_to_append(tmp_path / "old"))
    finally:
        os.umask(before)
    assert (tmp_path / "new").read_bytes() == b"ab"
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "old").stat().st_mode) == 0o644
