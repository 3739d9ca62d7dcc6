"""The command that installs an extra: for each way to install akunu, what works there."""

import json
import shlex
import sys
from importlib import metadata

import pytest

from akunu_py.system import extras
from akunu_py.system.extras import install_command


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Installs akunu, as far as its records go; returns the folder of the environment."""

    def install(record, *, tool=None, pip=True, active=True):
        prefix = tmp_path / "environment"
        prefix.mkdir()

        class Distribution:
            def read_text(self, name):
                assert name == "direct_url.json"
                return None if record is None else json.dumps(record)

        monkeypatch.setattr(metadata, "distribution", lambda name: Distribution())
        monkeypatch.setattr(extras, "find_spec", lambda name: object() if pip else None)
        monkeypatch.setattr(sys, "prefix", str(prefix))
        monkeypatch.setattr(sys, "executable", str(prefix / "bin" / "python"))
        if active:
            monkeypatch.setenv("VIRTUAL_ENV", str(prefix))
        else:
            monkeypatch.delenv("VIRTUAL_ENV", raising=False)
        if tool == "uv tool":
            (prefix / "uv-receipt.toml").write_text("")
        if tool == "uvx":
            (tmp_path / "CACHEDIR.TAG").write_text("")
        return prefix

    return install


def folder(path, **info):
    path.mkdir(exist_ok=True)
    return {"url": path.as_uri(), "dir_info": info}


def words(extra="bench"):
    return shlex.split(install_command(extra))


def test_a_checkout(installed, tmp_path):
    source = tmp_path / "my akunu"
    installed(folder(source, editable=True))
    assert words() == ["pip", "install", "-e", f"{source}[bench]"]
    assert words("compare")[-1] == f"{source}[compare]"


def test_pip_install_of_a_folder(installed, tmp_path):
    installed(folder(tmp_path / "src"))
    assert words() == ["pip", "install", f"{tmp_path / 'src'}[bench]"]


def test_an_environment_that_is_not_active_is_named(installed, tmp_path):
    prefix = installed(folder(tmp_path / "src"), active=False)
    assert words()[:4] == [f"{prefix}/bin/python", "-m", "pip", "install"]


def test_an_environment_of_uv_has_no_pip(installed, tmp_path):
    prefix = installed(folder(tmp_path / "src", editable=True), pip=False)
    python = f"{prefix}/bin/python"
    source = f"{tmp_path / 'src'}[bench]"
    assert words() == ["uv", "pip", "install", "--python", python, "-e", source]


@pytest.mark.parametrize("info", [{}, {"editable": True}])
def test_uv_tool(installed, tmp_path, info):
    installed(folder(tmp_path / "src", **info), tool="uv tool", pip=False, active=False)
    edit = ["-e"] if info else []
    source = f"{tmp_path / 'src'}[bench]"
    assert words() == ["uv", "tool", "install", "--force", *edit, source]


def test_uvx(installed, tmp_path):
    installed(folder(tmp_path / "src"), tool="uvx", pip=False, active=False)
    assert words() == ["uvx", "--from", f"{tmp_path / 'src'}[bench]", "akunu"]


def test_a_repository(installed):
    url, commit = "https://example.org/akunu", "0" * 40
    installed({"url": url, "vcs_info": {"vcs": "git", "commit_id": commit}})
    assert words() == ["pip", "install", f"akunu-py[bench] @ git+{url}@{commit}"]


def test_an_archive(installed):
    installed({"url": "https://example.org/akunu.whl", "archive_info": {}})
    assert words() == ["pip", "install", "akunu-py[bench] @ https://example.org/akunu.whl"]


def test_an_index(installed):
    installed(None)
    assert words() == ["pip", "install", "akunu-py[bench]"]


def test_a_folder_that_is_gone(installed, tmp_path, monkeypatch):
    installed({"url": (tmp_path / "gone").as_uri(), "dir_info": {}}, tool="uv tool")
    listed = [
        "numpy>=1.26",
        "matplotlib>=3.9; extra == 'bench'",
        "torch>=2.6; extra == 'compare'",
        'mlx[cuda13]>=0.32.2; (sys_platform == "linux") and extra == "cuda"',
    ]
    monkeypatch.setattr(metadata, "requires", lambda name: listed)
    assert words() == ["pip", "install", "matplotlib>=3.9"]
    assert words("cuda") == ["pip", "install", "mlx[cuda13]>=0.32.2"]


def test_run_from_its_source(installed, monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    installed(None)
    monkeypatch.setattr(metadata, "distribution", missing)
    *_, source = words()
    root = source.removesuffix("[bench]")
    assert extras.__file__ == f"{root}/akunu_py/system/extras.py"
