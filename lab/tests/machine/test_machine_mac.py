"""What only `scripts/on_a_mac` makes of the report: tests of the device, other programs, a page."""

import html.parser
import json
import subprocess
import sys

import pytest
from machine_reports import report
from shared_files import ROOT

from akunu_lab.machine import metal, peers
from akunu_lab.machine.asked import ask
from akunu_lab.machine.metal import measure_tests
from akunu_lab.machine.page import KeptReport
from akunu_lab.machine.peers import figures_of, measure_peers
from akunu_lab.machine.planning import CannotBeMeasuredError, PartRun, Subject
from akunu_lab.machine.report import ReportPart
from akunu_lab.pages.forms import html_of_markdown
from akunu_py.api import ConfigError

TESTS = """
import pytest
def test_right(): pass
@pytest.mark.parametrize("rows", [2, 3])
def test_wrong(rows): assert rows == 2, f"/Users/joe/akunu: {rows} <rows>"
def test_absent(): pytest.skip("no")
@pytest.fixture
def broken(): raise OSError("gone")
def test_error(broken): pass
"""


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout with files of tests that are given, on a Mac."""
    monkeypatch.setattr(metal, "_ROOT", tmp_path)
    monkeypatch.setattr(metal, "_FILES", ("test_one.py", "test_two.py"))
    monkeypatch.setattr(sys, "platform", "darwin")
    return tmp_path


def test_tests_of_the_device(checkout):
    """What pytest itself says of them."""
    (checkout / "test_one.py").write_text(TESTS)
    (checkout / "test_two.py").write_text("def test_more(): pass")
    found = measure_tests(Subject(checkout), PartRun(1000.0))
    assert (found.passed, found.skipped, found.finished) == (3, 1, True)
    assert [one.test.split("::")[1] for one in found.failed] == ["test_wrong[3]", "test_error"]
    assert "/Users" not in found.failed[0].said
    assert [(one.severity, "test_wrong[3]" in one.text) for one in found.findings()] == [
        ("error", True)
    ]
    assert list(found.answers()) == ["3 tests passed on this device and 2 failed."]


def test_without_time_the_rest_is_left_out(checkout, monkeypatch):
    (checkout / "test_one.py").write_text("def test_one(): pass")
    (checkout / "test_two.py").write_text("def test_two(): pass")
    real = metal._run_file
    monkeypatch.setattr(
        metal, "_run_file", lambda name, left: real(name, left) if "one" in name else None
    )
    found = measure_tests(Subject(checkout), PartRun(1.0))
    assert (found.passed, found.finished) == (1, False)
    assert list(found.answers()) == [
        "1 tests passed on this device and 0 failed; there was no time for the rest."
    ]


def test_a_file_that_takes_too_long_and_one_that_does_not_run(checkout, monkeypatch):
    assert metal._run_file("test_one.py", 1e-3) is None
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: None)
    assert [one.said for one in metal._run_file("test_one.py", 9.0).failed] == [
        "pytest did not run"
    ]


def test_where_there_is_nothing_to_run(checkout, monkeypatch):
    with pytest.raises(CannotBeMeasuredError, match="come with akunu's sources"):
        measure_tests(Subject(checkout), PartRun(1.0))
    monkeypatch.setattr(sys, "platform", "linux")
    with pytest.raises(CannotBeMeasuredError, match="for Macs"):
        measure_tests(Subject(checkout), PartRun(1.0))
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: name)
    with pytest.raises(CannotBeMeasuredError, match="no time left"):
        measure_peers(Subject(checkout), PartRun(1.0))
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CannotBeMeasuredError, match="pip install xllamacpp"):
        measure_peers(Subject(checkout), PartRun(1.0))
    with pytest.raises(ConfigError, match="took longer than 0 s"):
        ask("doctor", "--no-self-test", limit_s=1e-3)


COMPARED = {
    "arguments": {"max_tokens": 48},
    "timing": {
        "arms": {
            "mlx-lm-plain": {
                "program": "mlx-lm 1", "tokens_per_s": 10.0, "prompt_tokens_per_s": 90.0,
            },
            "llama.cpp-plain": {
                "program": "llama.cpp 2", "tokens_per_s": 12.0, "prompt_tokens_per_s": None,
            },
        },
        "ratios": {"llama.cpp-plain/mlx-lm-plain": {"ratio": 1.2, "low": 1.1, "high": 1.3}},
    },
}  # fmt: skip


def test_other_programs():
    found = figures_of(COMPARED)
    assert [(one.arm, one.tokens_per_s, one.ratio) for one in found.arms] == [
        ("mlx-lm-plain", 10.0, None),
        ("llama.cpp-plain", 12.0, 1.2),
    ]
    assert list(found.answers()) == [
        "llama.cpp-plain decodes 1.20 (1.10 to 1.30) times as fast as mlx-lm."
    ]


class Tags(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found, self.texts = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append(tag)

    def handle_data(self, data):
        self.texts.append(data.strip())


def test_a_page_to_send(tmp_path):
    bad = "<script>alert(1)</script> & [x](javascript:y) | z"
    kept = KeptReport(tmp_path, as_html=True)
    kept.write(report(greedy=ReportPart("failed", note=bad)))
    assert [path.name for path in (kept.page, kept.record)] == [
        "akunu-machine.html",
        "akunu-machine.json",
    ]
    text = kept.page.read_text()
    tags = Tags(text)
    assert tags.found.count("table") > 4
    assert {"h1", "h2", "th", "td"} <= set(tags.found)
    assert not {"script", "a", "img", "link"} & set(tags.found)
    for words in ("Mac16,10", "akunu on Apple M4", "Qwen3-8B-Q4_K_M.gguf"):
        assert words in tags.texts
    assert bad in " ".join(tags.texts)
    assert "default-src 'none'" in text
    assert json.loads(kept.record.read_text())["state"] == "finished"
    assert "<p>&lt;b&gt;</p>" in html_of_markdown("t", "<b>")


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        ([], "--output on-a-mac"),
        (["my folder", "m.gguf", "--minutes", "20"], "--output my folder m.gguf --minutes 20"),
    ],
)
def test_the_script_in_an_environment_without_llama_cpp(tmp_path, given, passed):
    """It goes on without what cannot be installed, and gives its words to the command."""
    (tmp_path / "scripts").mkdir()
    for name in ("on_a_mac", "environment.sh"):
        (tmp_path / "scripts" / name).write_bytes((ROOT / "scripts" / name).read_bytes())
    for name in ("pyproject.toml", "lab/pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name, said in (("akunu", 'echo "$AKUNU_FETCH_MODEL $*"'), ("python", "exit 1")):
        (programs / name).write_text(f"#!/bin/sh\n{said}\n")
        (programs / name).chmod(0o755)
    stamp = f'cat {tmp_path}/pyproject.toml {tmp_path}/lab/pyproject.toml | cksum | tr -d "\\n"'
    made = subprocess.run(["sh", "-c", stamp], capture_output=True, text=True, check=True).stdout
    # In a folder that akunu does not have: nothing may be installed from here.
    nowhere = {"PATH": "/usr/bin:/bin", "PYTHON": str(programs / "python"), "HOME": str(tmp_path)}
    (tmp_path / ".venv" / ".akunu-test").write_text(made)
    done = subprocess.run(
        ["sh", str(tmp_path / "scripts" / "on_a_mac"), *given],
        env=nowhere, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == f"1 bench machine --minutes 10 --html {passed}\n", done.stderr
    assert "llama.cpp cannot be installed, and is left out" in done.stderr
