"""Files that are files, opened without waiting for anybody."""

import os
import socket
import stat

import pytest

from akunu_py.system.files import open_to_append, open_to_read


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
