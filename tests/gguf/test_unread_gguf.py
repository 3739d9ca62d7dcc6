"""The script for whoever adds an architecture."""

import runpy

import pytest
from shared_files import ROOT
from tiny_architectures.builder import build

from akunu_py.gguf import GGUFFile


@pytest.mark.parametrize(
    ("architecture", "like", "expected"),
    [
        (
            "llama",
            "llama",
            ["keys:", "  llama.new = 7", "tensors:", "  blk.{}.new.weight (3,) in [0, 2]"],
        ),
        ("newer", "llama", ["keys:", "  newer.new = 7"]),
        ("newer", "newer", ["no reader for newer", "keys:", "  newer.block_count = 3"]),
        ("llama", "qwen3moe", ["the reader of qwen3moe says: the metadata has no", "keys:"]),
    ],
)
def test_what_no_reader_asks_for(tmp_path, architecture, like, expected):
    model = build("llama")
    model.architecture = architecture
    model.metadata = {
        key.replace("llama.", f"{architecture}.", 1): value for key, value in model.metadata.items()
    }
    model.key("new", 7)
    for layer in (0, 2):
        model.vector(f"blk.{layer}.new.weight", 3)
    unread = runpy.run_path(ROOT / "scripts" / "unread_gguf.py")["unread"]
    with GGUFFile.open(model.write(tmp_path / "model.gguf")) as file:
        lines = list(unread(file, architecture, like))
    for line, wanted in zip(lines, expected, strict=False):
        assert line.startswith(wanted)
    assert ("  token_embd.weight (336, 64)" in lines) == (like != "llama")
