"""The script that compares servers: its table, and a small run of it."""

import importlib.util
import sys

import pytest
from programs import python
from shared_files import ROOT

SCRIPT = ROOT / "scripts" / "compare_servers.py"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    spec = importlib.util.spec_from_file_location("compare_servers", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def test_no_prompt_continues_another_or_comes_twice(script):
    found = [prompt for some in script.sets(5, 8) for prompt in some]
    assert len({prompt.session for prompt in found}) == len(found) == 48
    with pytest.raises(SystemExit, match=r"4 sets of 8 prompts.*--sets 5"):
        script.sets(4, 8)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="it reads the clock of another process")
def test_a_small_run(default_model):
    small = ["--streams", "2", "--sets", "5", "--prompts", "2", "--max-tokens", "3"]
    done = python(SCRIPT, default_model, "--program", "akunu-plain", *small)
    *_, ours, plain = (line.strip("| ").split(" | ") for line in done.stdout.splitlines())
    assert ours[:2] == ["2", "akunu"]
    assert plain[:2] == ["2", "akunu-plain"]
    # Both have read the same prompts and made the same number of tokens.
    assert ours[-2:] == plain[-2:] == [ours[-2], "30"]
