"""The command that installs an extra: for each way to install the laboratory, what works there."""

import json
import shlex
import sys
from importlib import metadata

import pytest

from akunu_lab import install
from akunu_lab.install import install_command


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Installs akunu, as far as its records go; returns the folder of the environment."""

    def installing(record, *, tool=None, pip=True, active=True):
        prefix = tmp_path / "environment"
        prefix.mkdir()

        class Distribution:
            def read_text(self, name):
                assert name == "direct_url.json"
                return None if record is None else json.dumps(record)

        monkeypatch.setattr(metadata, "distribution", lambda name: Distribution())
        monkeypatch.setattr(install, "find_spec", lambda name: object() if pip else None)
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

    return installing


def folder(path, **info):
    path.mkdir(exist_ok=True)
    return {"url": path.as_uri(), "dir_info": info}


def words(extra="bench"):
    return shlex.split(install_command(extra))


URL, COMMIT = "https://example.org/akunu", "0" * 40
TOOL = {"pip": False, "active": False}
# The folder that akunu was installed from, as its record says, or a record of another kind; how it was
# installed; the command, with {source} for the folder and {python} for the environment's.
WAYS = {
    "a checkout": ({"editable": True}, {}, "pip install -e {source}"),
    "a folder": ({}, {}, "pip install {source}"),
    "an environment that is not active": ({}, {"active": False}, "{python} -m pip install {source}"),
    "uv's, without pip": ({"editable": True}, {"pip": False}, "uv pip install --python {python} -e {source}"),
    "uv tool": ({}, {"tool": "uv tool", **TOOL}, "uv tool install --force {source}"),
    "uv tool, a checkout": ({"editable": True}, {"tool": "uv tool", **TOOL}, "uv tool install --force -e {source}"),
    "uvx": ({}, {"tool": "uvx", **TOOL}, "uvx --from {source} akunu"),
    "a repository": (
        {"url": URL, "vcs_info": {"vcs": "git", "commit_id": COMMIT}}, {},
        f"pip install 'akunu-lab[bench] @ git+{URL}@{COMMIT}'",
    ),
    "an archive": ({"url": f"{URL}.whl", "archive_info": {}}, {}, f"pip install 'akunu-lab[bench] @ {URL}.whl'"),
    "an index": (None, {}, "pip install 'akunu-lab[bench]'"),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_the_command_of_each_way_to_install(installed, tmp_path, way):
    record, options, command = WAYS[way]
    source = tmp_path / "my akunu"
    if record is not None and "url" not in record:
        record = folder(source, **record)
    prefix = installed(record, **options)
    expected = command.format(source=shlex.quote(f"{source}[bench]"), python=f"{prefix}/bin/python")
    assert words() == shlex.split(expected)


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
    assert install.__file__ == f"{root}/akunu_lab/install.py"
