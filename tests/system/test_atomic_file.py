"""Files replaced whole: who may read them, and what is left where it fails."""

import os
import stat

import pytest

from akunu_py.system.files import replace_file


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

    def full(_handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
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
