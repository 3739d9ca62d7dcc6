"""What goes wrong with downloads: the real library against a hub that misbehaves."""

import errno
import hashlib
import os
import threading
from types import SimpleNamespace

import pytest
from hub_server import COMMIT, TOKEN

from akunu_py.model_store.hub_cache import (
    cached_repositories,
    cached_repository,
    delete_files,
    delete_repository,
)
from akunu_py.model_store.names import fetch, find_cached, parse_hub_name, resolve_model
from akunu_py.system.errors import ConfigError, HubError
from akunu_py.system.settings import load_settings

MEGABYTE = 2**20
LARGE = os.urandom(MEGABYTE)
FOLDER = {
    "tokenizer.json": b"{}", "config.json": b"{}", "tokenizer.model": b"pieces",
    "model-00001-of-00002.safetensors": b"one", "model-00002-of-00002.safetensors": b"two",
    "model.safetensors.index.json": b"{}", "generation_config.json": b"{}",
}  # fmt: skip


def pull(name):
    return fetch(parse_hub_name(name))


def refusal(name):
    with pytest.raises(ConfigError) as caught:
        pull(name)
    return str(caught.value)


def failure(name):
    """Why nothing could be fetched, which is nobody's wrong name."""
    with pytest.raises(HubError) as caught:
        pull(name)
    return str(caught.value)


def unfinished(hub_cache):
    return [path.stat().st_size for path in hub_cache.glob("*/blobs/*.incomplete")]


@pytest.fixture
def small_pieces(monkeypatch):
    """What came is written a tenth of a megabyte at a time, not ten megabytes."""
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", MEGABYTE // 10)


@pytest.mark.parametrize("linked", [True, False])
def test_a_fetch_is_taken_up_where_it_was_left(hub, hub_cache, small_pieces, linked):
    hub.add("o/r", {"m.gguf": LARGE}, linked=linked)
    # As often as the library tries by itself.
    hub.breaks["m.gguf"] = [MEGABYTE // 2, *[0] * 5]
    text = failure("hf:o/r")
    assert "o/r cannot be fetched" in text
    assert "the fetched part is kept" in text
    kept = unfinished(hub_cache)
    assert len(kept) == 1
    assert MEGABYTE // 4 < kept[0] <= MEGABYTE // 2
    assert find_cached(parse_hub_name("hf:o/r")) is None
    hub.forget()
    assert pull("hf:o/r").read_bytes() == LARGE
    assert hub.sent == {"m.gguf": MEGABYTE - kept[0]}
    assert [asked.range for asked in hub.asked_for("m.gguf")] == [f"bytes={kept[0]}-"]
    assert unfinished(hub_cache) == []


def test_a_short_break_is_not_noticed(hub, small_pieces):
    hub.add("o/r", {"m.gguf": LARGE})
    hub.breaks["m.gguf"] = [MEGABYTE // 3, MEGABYTE // 3]
    assert pull("hf:o/r").read_bytes() == LARGE
    assert len(hub.asked_for("m.gguf")) == 3


def test_a_hub_without_ranges(hub, hub_cache, small_pieces):
    hub.add("o/r", {"m.gguf": LARGE})
    hub.breaks["m.gguf"] = [MEGABYTE // 2, *[0] * 5]
    failure("hf:o/r")
    hub.without_ranges = True
    assert pull("hf:o/r").read_bytes() == LARGE


@pytest.mark.parametrize(
    "left", [b"x" * 100, LARGE + b"x", LARGE], ids=["too short", "too long", "whole"]
)
def test_leftovers_of_another_attempt(hub, hub_cache, left):
    """Whatever lies there, what comes out is what was promised, or nothing."""
    hub.add("o/r", {"m.gguf": LARGE})
    blobs = hub_cache / "models--o--r" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / f"{hashlib.sha256(LARGE).hexdigest()}.incomplete").write_bytes(left)
    if left == b"x" * 100:
        assert "arrived with another hash than the hub stated" in failure("hf:o/r")
        assert unfinished(hub_cache) == []
    assert pull("hf:o/r").read_bytes() == LARGE


@pytest.mark.parametrize("linked", [True, False])
def test_content_that_is_not_what_was_promised(hub, hub_cache, linked):
    hub.add("o/r", {"m.gguf": LARGE}, linked=linked).corrupt.add("m.gguf")
    assert "m.gguf arrived with another hash than the hub stated" in failure("hf:o/r")
    assert not list(hub_cache.rglob("*.gguf"))
    assert unfinished(hub_cache) == []
    hub.repositories["o/r"].corrupt.clear()
    assert pull("hf:o/r").read_bytes() == LARGE


@pytest.mark.parametrize("disabled", [False, True])
def test_files_in_xet_are_left_to_the_library(hub, hub_cache, monkeypatch, disabled):
    """Its own downloader is asked, with a stand-in for the storage; switched off, it is HTTP."""
    hub.add("o/r", {"m.gguf": LARGE}, xet={"m.gguf"})
    asked = []

    def xet_get(*, incomplete_path, xet_file_data, expected_size, **_):
        asked.append((threading.current_thread(), xet_file_data.file_hash, expected_size))
        incomplete_path.write_bytes(LARGE)

    monkeypatch.setattr("huggingface_hub.file_download.xet_get", xet_get)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", disabled)
    assert pull("hf:o/r").read_bytes() == LARGE
    if disabled:
        assert asked == []
        assert hub.sent == {"m.gguf": MEGABYTE}
    else:
        # Only there does Ctrl-C end it at once.
        assert asked == [(threading.main_thread(), "e" * 64, MEGABYTE)]
        assert hub.sent == {}


def test_gated(hub, monkeypatch):
    hub.add("o/r", {"m.gguf": LARGE}, gated=True)
    text = refusal("hf:o/r")
    assert f"accept its terms: do so at {hub.url}/o/r" in text
    assert "HF_TOKEN" in text
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert pull("hf:o/r").read_bytes() == LARGE


def test_private(hub, monkeypatch):
    hub.add("o/r", {"m.gguf": LARGE}, private=True)
    for name in ("hf:o/r", "hf:o/absent"):
        assert "or it is private" in refusal(name)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert pull("hf:o/r").read_bytes() == LARGE
    # The hub is told who asks, the host of the contents is not.
    assert {
        asked.authorization for asked in hub.asked_for("resolve/" + COMMIT + "/m.gguf", "HEAD")
    } == {f"Bearer {TOKEN}"}
    assert {asked.authorization for asked in hub.asked if asked.path.startswith("/content/")} == {
        ""
    }


def test_a_file_that_is_announced_and_not_there(hub):
    hub.add("o/r", {"m.gguf": LARGE})
    hub.absent.add("m.gguf")
    assert "o/r cannot be fetched: 404 Client Error" in failure("hf:o/r")


@pytest.mark.parametrize(
    "body", [b"<html>hello", b"[]", b'{"id": "o/r"}', b'{"id": "o/r", "sha": "../../x"}', b"{}"]
)
def test_something_else_than_a_hub(hub, hub_cache, body):
    hub.add("o/r", {"m.gguf": LARGE})
    hub.answers["/api/models/o/r"] = body
    text = failure("hf:o/r")
    assert "does not answer as the hub does" in text or "cannot be fetched" in text
    assert not hub_cache.exists()


@pytest.mark.parametrize(
    "name",
    ["../../evil-Q4_0.gguf", "/abs-Q4_0.gguf", "a/../../b-Q4_0.gguf", "a\x1b[2J-Q4_0.gguf", "..\\b-Q4_0.gguf",
     "a//b-Q4_0.gguf", "./b-Q4_0.gguf", "x\n-Q4_0.gguf"],
)  # fmt: skip
def test_names_of_files_that_lead_elsewhere(hub, hub_cache, name):
    hub.add("o/r", {name: LARGE, "good-Q8_0.gguf": LARGE})
    assert "o/r has no Q4_0 on the hub" in refusal("hf:o/r:Q4_0")
    assert pull("hf:o/r").name == "good-Q8_0.gguf"
    assert [path.name for path in hub_cache.parent.rglob("*.gguf")] == ["good-Q8_0.gguf"]


def test_an_etag_that_leads_elsewhere(hub, hub_cache):
    hub.add("o/r", {"m.gguf": LARGE}, hashes={"m.gguf": "../../../../evil"})
    assert "does not answer as the hub does" in failure("hf:o/r")
    assert not list(hub_cache.parent.rglob("evil*"))
    assert not list(hub_cache.rglob("*.gguf"))


def test_a_disk_without_room(hub, hub_cache, monkeypatch):
    hub.add("o/r", {"m.gguf": LARGE})
    disk = SimpleNamespace(free=MEGABYTE - 1)
    monkeypatch.setattr("shutil.disk_usage", lambda _path: disk)
    text = failure("hf:o/r")
    assert "the files take 1 MB" in text
    assert "HF_HUB_CACHE" in text
    assert hub.fetched == []
    disk.free = MEGABYTE
    pull("hf:o/r")
    # Of what is there nothing more is needed.
    disk.free = 0
    pull("hf:o/r")


def test_a_disk_that_fills_up(hub, hub_cache, monkeypatch, small_pieces):
    hub.add("o/r", {"m.gguf": LARGE})

    def full(_url, stream, **_options):
        stream.write(LARGE[: MEGABYTE // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("huggingface_hub.file_download.http_get", full)
        assert f"the disk of {hub_cache} is full" in failure("hf:o/r")
    assert unfinished(hub_cache) == [MEGABYTE // 2]
    hub.forget()
    assert pull("hf:o/r").read_bytes() == LARGE
    assert hub.sent == {"m.gguf": MEGABYTE // 2}


@pytest.mark.fast_every(2)
@pytest.mark.parametrize("last", sorted(FOLDER))
def test_a_folder_is_no_model_before_all_of_it_is_there(hub, hub_cache, last):
    hub.add("o/r", FOLDER)
    hub.statuses[f"/{last}"] = 404
    assert "cannot be fetched" in failure("hf:o/r")
    assert find_cached(parse_hub_name("hf:o/r")) is None
    hub.statuses.clear()
    folder = pull("hf:o/r")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == FOLDER
    assert find_cached(parse_hub_name("hf:o/r")) == folder


def test_an_update_that_ends_early_leaves_what_was_there(hub, hub_cache):
    hub.add("o/r", FOLDER)
    before = pull("hf:o/r")
    hub.add(
        "o/r",
        FOLDER | {"tokenizer.json": b"[]", "model-00002-of-00002.safetensors": b"new"},
        commit="d" * 40,
    )
    hub.statuses["/model-00002-of-00002.safetensors"] = 404
    failure("hf:o/r")
    assert resolve_model("hf:o/r", load_settings()) == before
    hub.statuses.clear()
    hub.forget()
    after = pull("hf:o/r")
    assert after != before
    assert resolve_model("hf:o/r", load_settings()) == after
    # Files that did not change are the contents that are there.
    assert hub.sent == {"model-00002-of-00002.safetensors": 3, "tokenizer.json": 2}


def test_what_was_fetched_in_part_can_be_deleted(hub, hub_cache, small_pieces):
    hub.add("o/r", {"m.gguf": LARGE})
    hub.breaks["m.gguf"] = [MEGABYTE // 2, *[0] * 5]
    failure("hf:o/r")
    (found,) = cached_repositories()
    assert found == cached_repository("o/r")
    assert found.name == "o/r"
    assert found.unfinished_bytes == unfinished(hub_cache)[0]
    delete_repository(found)
    assert cached_repositories() == []
    assert not (hub_cache / "models--o--r").exists()


def test_contents_that_repositories_share(hub_cache):
    """As huggingface_hub 2 keeps what came through Xet: the repository's blob is a link, too."""
    from huggingface_hub.utils import _shared_blobs

    (hub_cache / "scratch").mkdir(parents=True)
    xet = "e" * 64
    for repository in ("o/one", "o/two"):
        folder = hub_cache / f"models--{repository.replace('/', '--')}"
        snapshot = folder / "snapshots" / COMMIT
        for part in (folder / "blobs", folder / "refs", snapshot):
            part.mkdir(parents=True)
        (folder / "refs" / "main").write_text(COMMIT)
        blob = folder / "blobs" / hashlib.sha256(LARGE).hexdigest()
        if repository == "o/one":
            blob.write_bytes(LARGE)
            assert _shared_blobs.publish_blob_to_shared_store(
                blob_path=str(blob), xet_hash=xet, cache_dir=hub_cache, expected_size=MEGABYTE
            )
        else:
            assert _shared_blobs.try_link_from_shared_store(
                blob_path=str(blob), xet_hash=xet, cache_dir=hub_cache, expected_size=MEGABYTE
            )
        (snapshot / "m-Q4_0.gguf").symlink_to(f"../../blobs/{blob.name}")
        (snapshot / "m-Q8_0.gguf").write_bytes(b"8")
    store = hub_cache / "blobs" / xet[:2] / xet
    assert store.read_bytes() == LARGE
    delete_files(cached_repository("o/one"), {"m-Q4_0.gguf"})
    assert store.read_bytes() == LARGE
    assert find_cached(parse_hub_name("hf:o/two:Q4_0")).read_bytes() == LARGE
    delete_files(cached_repository("o/two"), {"m-Q4_0.gguf"})
    assert not store.exists()
    assert find_cached(parse_hub_name("hf:o/two:Q8_0")).read_bytes() == b"8"
