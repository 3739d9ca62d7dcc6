"""How to install an extra of the laboratory, for the way it was installed."""

import json
import os
import shlex
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

_PACKAGE = "akunu-lab"


def install_command(extra: str) -> str:
    """Return the command that installs an extra where akunu runs.

    Installers record in direct_url.json (PEP 610) which folder, repository or archive they
    installed; without that record the laboratory came from an index. A folder that is gone has no
    extras to offer any more: then the command names the packages of the extra.
    """
    try:
        source = _source(extra)
    except FileNotFoundError:
        return " ".join((_pip(), *map(shlex.quote, _packages(extra))))
    prefix = Path(sys.prefix)
    # uv marks the root of its cache with this file, and uvx makes its environments there.
    if any((parent / "CACHEDIR.TAG").is_file() for parent in prefix.parents):
        return f"uvx --from {shlex.quote(source[-1])} akunu"
    tool = "uv tool install --force" if (prefix / "uv-receipt.toml").is_file() else _pip()
    return " ".join((tool, *map(shlex.quote, source)))


def _source(extra: str) -> tuple[str, ...]:
    """Return the source to install, as arguments of `pip install`.

    Raises FileNotFoundError if the laboratory was installed from a folder or a file that is gone.
    """
    record = _record()
    url = record.get("url")
    if not isinstance(url, str):
        return (f"{_PACKAGE}[{extra}]",)
    if isinstance(version := record.get("vcs_info"), dict):
        return (f"{_PACKAGE}[{extra}] @ {version['vcs']}+{url}@{version['commit_id']}",)
    address = urlsplit(url)
    if address.scheme != "file":
        return (f"{_PACKAGE}[{extra}] @ {url}",)
    path = Path(url2pathname(address.path))
    if not path.exists():
        raise FileNotFoundError(path)
    folder = record.get("dir_info")
    is_editable = isinstance(folder, dict) and folder.get("editable") is True
    return (*(("-e",) if is_editable else ()), f"{path}[{extra}]")


def _record() -> dict[str, object]:
    """Return direct_url.json; an empty one where the installer wrote none."""
    try:
        text = metadata.distribution(_PACKAGE).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        # Run from its source: Python found the folder without an installer.
        folder = Path(__file__).resolve().parents[1]
        return {"url": folder.as_uri(), "dir_info": {"editable": True}}
    found = {} if text is None else json.loads(text)
    return found if isinstance(found, dict) else {}


def _packages(extra: str) -> list[str]:
    listed = (line.partition(";") for line in metadata.requires(_PACKAGE) or ())
    wanted = {f"extra=='{extra}'", f'extra=="{extra}"'}
    return [
        name.strip()
        for name, _, marker in listed
        if any(part in marker.replace(" ", "") for part in wanted)
    ]


def _pip() -> str:
    if find_spec("pip") is None:
        return f"uv pip install --python {shlex.quote(sys.executable)}"
    if os.environ.get("VIRTUAL_ENV") == sys.prefix:
        return "pip install"
    # The pip that a shell finds first may belong to another Python.
    return f"{shlex.quote(sys.executable)} -m pip install"
