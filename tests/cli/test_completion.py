"""Tab in real shells: what `akunu completion` prints, taken in by bash, zsh and fish.

A shell that is not installed is left out.
"""

import os
import shutil
import stat
import sys

import click
import pytest
from click.testing import CliRunner
from programs import python
from pty_child import PtyChild

from akunu_py.cli import completing
from akunu_py.cli import completion as shell_scripts
from akunu_py.cli.completing import DRAFTERS
from akunu_py.cli.main import cli
from akunu_py.drafting.registry import BUILT_IN, ENTRY_POINT_GROUP

MAIN = "from akunu_py.cli.main import main; main()"
PROMPT = "ready>"

START = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], f"PS1='{PROMPT}'; . ./script"),
    "zsh": (["zsh", "-f", "-i"], f"PS1='{PROMPT}'; autoload -Uz compinit && compinit; . ./script"),
    "fish": (
        ["fish", "--no-config", "--interactive"],
        f"function fish_prompt; printf '{PROMPT}'; end; . ./script",
    ),
}


class Shell(PtyChild):
    """A shell that has taken the script in."""

    def __init__(self, name, folder):
        self.program, setup = START[name]
        (folder / "script").write_text(shell_scripts.script(name))
        super().__init__(
            home=folder, columns=200, AKUNU_CONFIG=str(folder / "config.toml"), HISTFILE="",
            HF_HUB_OFFLINE="1", HF_HUB_CACHE=str(folder / "hub"),
            PATH=f"{folder / 'bin'}:{os.environ['PATH']}",
        )  # fmt: skip
        # What is printed when the script is in differs from what is typed for it.
        self.type(f"cd '{folder}'; {setup}; echo taken''in\r")
        self.until("takenin")
        self.until(PROMPT)

    def tab(self, typed, added):
        """Press Tab behind what is typed; wait for what is added to it."""
        self.type(f"{typed}\t")
        self.until(added)
        self.type("\x15")


@pytest.fixture
def folder(tmp_path):
    """A home with aliases, files, and akunu in PATH."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "akunu"
    program.write_text(f"#!{sys.executable}\nimport sys\nsys.path[:0] = {sys.path!r}\n{MAIN}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "config.toml").write_text("")
    (tmp_path / "aliases.toml").write_text(
        '[aliases]\nqwen-small = "hf:owner/repo:Q4_K_M"\n"team:large" = "/models/large.gguf"\n'
    )
    snapshot = tmp_path / "hub" / "models--owner--repo" / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    (snapshot / "repo-Q4_K_M.gguf").write_bytes(b"GGUF")
    (tmp_path / "hub" / "models--owner--repo" / "refs").mkdir()
    (tmp_path / "hub" / "models--owner--repo" / "refs" / "main").write_text("0123")
    (tmp_path / "my model.gguf").write_bytes(b"")
    (tmp_path / "notes.txt").write_bytes(b"")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("name", START)
def test_tab(name, folder):
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    with Shell(name, folder) as shell:
        shell.tab("akunu gen", "erate ")
        shell.tab("akunu models pa", "th ")
        shell.tab("akunu generate --max-t", "okens ")
        shell.tab("akunu generate --reasoning fo", "ld ")
        shell.tab("akunu generate --drafter recy", "cling ")
        shell.tab("akunu chat qwen", "-small ")
        shell.tab("akunu chat team:", "large ")
        shell.tab("akunu chat hf:ow", "ner/repo:Q4_K_M ")
        shell.tab("akunu models show my", "\\ model.gguf ")
        shell.tab("akunu generate --file no", "tes.txt ")
        shell.tab("akunu config show bench sp", "eed ")
        shell.tab("akunu config set temp", "erature ")
        shell.tab("akunu chat smol", "lm2 ")
        if name == "bash":
            shell.tab("akunu generate --reasoning=fo", "ld ")
            shell.tab("akunu generate --file=no", "tes.txt ")


@pytest.fixture
def offered(monkeypatch, capsys):
    """Returns what is offered behind words, as the scripts' programs are asked."""

    def offer(*words, incomplete=""):
        monkeypatch.setenv("_AKUNU_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_LINE", " ".join(["akunu", *words, incomplete]))
        shell_scripts.install()
        with pytest.raises(SystemExit) as ended:
            cli([], prog_name="akunu")
        assert not ended.value.code
        written = capsys.readouterr()
        assert written.err == ""
        return [tuple(line.split(",", 1)) for line in written.out.splitlines()]

    return offer


@pytest.mark.lab
def test_drafters_are_those_of_the_registry():
    assert tuple(DRAFTERS) == tuple(BUILT_IN)
    assert completing.ENTRY_POINTS == ENTRY_POINT_GROUP
    context = click.Context(cli)
    names = [item.value for item in completing.drafters(context, None, "ngram")]
    assert names == ["ngram", "ngram-window", "ngram-assisted", "ngram-draft-model"]


def test_akunus_own_models_are_offered(offered, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "none"))
    for line in ("chat", "generate --model", "models show", "demo", "serve --models"):
        words = line.split()
        assert offered(*words, incomplete="smol") == [("plain", "smollm2"), ("file", "smol")]
        assert ("plain", "akunu-tiny") in offered(*words)
    for command in ("pull", "rm"):
        found = offered("models", command, incomplete="smoll")
        assert found == [("plain", "smollm2"), ("plain", "smollm3:3b")]
        assert offered("models", command, incomplete="akunu") == [("",)]


def test_keys_of_settings_are_offered(offered, tmp_path, monkeypatch):
    def keys(command, incomplete=""):
        found = offered("config", command, incomplete=incomplete)
        return [value for kind, *value in found if kind for value in value]

    assert {"model", "model-folders", "temperature", "context"} <= set(keys("set"))
    assert not any("." in key for key in keys("set"))
    assert keys("set", "temp") == ["temperature"]
    assert keys("set", "chat.temp") == ["chat.temperature"]
    assert "bench.speed.quick" in keys("set", "bench.sp")
    assert keys("unset") == []
    monkeypatch.setenv("AKUNU_CONFIG", str(tmp_path / "config.toml"))
    (tmp_path / "config.toml").write_text("seed = 1\n[bench.speed]\nquick = true\n")
    assert keys("unset") == ["seed", "bench.speed.quick"]
    (tmp_path / "config.toml").write_text("seed =")
    assert keys("unset") == []


def test_values_are_those_of_the_option(offered, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "none"))
    for key in ("model", "chat.model"):
        assert ("plain", "smollm2") in offered("config", "set", key, incomplete="smol")
    assert offered("config", "set", "serve.drafter", incomplete="ngram-w") == [
        ("plain", "ngram-window")
    ]
    assert offered("config", "set", "q6k", incomplete="8") == [("plain", "8bit")]
    assert offered("config", "set", "nothing", incomplete="x") == [("",)]


def test_each_key_that_is_offered_can_be_set(offered, monkeypatch, tmp_path):
    monkeypatch.setenv("AKUNU_CONFIG", str(tmp_path / "config.toml"))
    (tmp_path / "config.toml").touch()
    keys = [key for _, key in offered("config", "set", incomplete="generate.")]
    assert "generate.temperature" in keys
    for key in keys:
        done = CliRunner().invoke(cli, ["config", "set", key, "-no-such-value-"])
        assert "is no option" not in done.stderr


def test_words_of_other_programs_lead_to_the_same_offers(offered):
    assert ("file", "x") in offered("run", incomplete="x")
    assert offered("show") == offered("models", "show")
    # What is refused when it is typed has neither offers nor a message.
    nothing = [("",)]
    assert offered("ps", incomplete="x") == nothing
    assert offered("chat", "-ngl", incomplete="--no-such") == nothing


def test_summaries_are_whole_and_spellings_of_others_are_not_offered(offered):
    (config,) = cli.shell_complete(click.Context(cli), "config")
    assert config.help.endswith(".")
    assert "..." not in config.help
    assert ("plain", "--temperature") in offered("chat", incomplete="--temp")
    assert ("plain", "--temp") not in offered("chat", incomplete="--temp")


def test_a_damaged_file_of_aliases_offers_less(offered, tmp_path, monkeypatch):
    monkeypatch.setenv("AKUNU_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "none"))
    (tmp_path / "config.toml").write_text("a =")
    (tmp_path / "aliases.toml").write_text("[aliases\n")
    assert offered("chat") == [("file", "")]


IMPORTED = """
import sys
from akunu_py.cli.main import main
try:
    main()
except SystemExit:
    print(*sys.modules, file=sys.stderr)
"""


@pytest.mark.parametrize(
    "line",
    [
        "akunu ",
        "akunu generate --dr",
        "akunu generate --drafter ",
        "akunu chat ",
        "akunu config set chat.",
    ],
)
def test_a_tab_imports_nothing_heavy(line):
    variables = {"_AKUNU_COMPLETE": "bash_complete", "COMP_LINE": line}
    done = python("-c", IMPORTED, variables=variables)
    assert done.stdout
    assert not {"mlx", "mlx_lm", "numpy", "transformers", "rich"} & set(done.stderr.split())
