"""`akunu models show --metadata`: what it says, how fast, and that a bad file is explained."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from gguf_files import write_tiny_llama

from akunu_py.cli.gguf_header import describe, header_lines
from akunu_py.cli.main import cli
from akunu_py.gguf.reader import GGUFFile

gguf = pytest.importorskip("gguf")


def run(*arguments):
    result = CliRunner().invoke(cli, ["models", "show", "--metadata", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


def record_of(*arguments):
    result = run(*arguments, "--json")
    assert result.exit_code == 0
    (line,) = result.stdout.splitlines()
    return json.loads(line)


def write(path, pairs=(), tensors=(), **options):
    """A file with these (key, value, type[, element type]) pairs and (name, array) tensors."""
    writer = gguf.GGUFWriter(path, "llama", **options)
    for key, *value in pairs:
        writer.add_key_value(key, *value)
    for name, array in tensors:
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_the_fields_of_a_model(tmp_path):
    path = write_tiny_llama(tmp_path / "m.gguf", quantization="Q8_0", tied=False)
    record = record_of(path)
    with GGUFFile.open(path) as file:
        tensors = list(file.tensors.values())
        tokens = file.metadata["tokenizer.ggml.tokens"]
    sizes = {
        kind: sum(t.nbytes for t in tensors if t.type.name == kind) for kind in ("Q8_0", "F32")
    }
    assert record["path"] == str(path)
    assert record["parts"] == ["m.gguf"]
    assert record["parameters"] == sum(t.rows * t.cols for t in tensors)
    assert record["file_bytes"] == path.stat().st_size
    assert record["gguf_version"] == 3
    assert record["num_tensors"] == len(tensors)
    assert [group["type"] for group in record["quantization"]] == ["Q8_0", "F32"]
    for group in record["quantization"]:
        kind = group["type"]
        mine = [t for t in tensors if t.type.name == kind]
        assert group["tensors"] == len(mine)
        assert group["parameters"] == sum(t.rows * t.cols for t in mine)
        assert group["bytes"] == sizes[kind]
        assert group["share"] == pytest.approx(sizes[kind] / sum(sizes.values()))
    assert record["metadata"]["llama.block_count"] == 2
    assert record["metadata"]["tokenizer.ggml.tokens"] == {
        "length": len(tokens),
        "first": tokens[:4],
    }
    assert record["metadata"]["tokenizer.ggml.token_type"]["first"] == [1, 1, 1, 1]
    assert record["metadata"]["tokenizer.ggml.add_bos_token"] is True
    assert "tensors" not in record
    table = record_of(path, "--tensors")["tensors"]
    assert table[0] == {
        "name": "token_embd.weight", "type": "Q8_0", "shape": [len(tokens), 64],
        "bytes": len(tokens) * 68, "part": 0,
    }  # fmt: skip
    assert len(table) == len(tensors)


def test_the_text_for_people(tmp_path):
    path = write_tiny_llama(tmp_path / "m.gguf", quantization="Q4_0", vocabulary="spm")
    text = run(path).output
    for line in ("GGUF version  3",):
        assert line in text
    assert re.search(r"\n  general.architecture +'llama'\n", text)
    assert re.search(r"\n  llama.context_length +256\n", text)
    assert " items)" in text
    assert max(map(len, text.splitlines())) < 160
    assert "blk.0.attn_q.weight" not in text
    assert (
        "  blk.0.attn_q.weight       Q4_0                64x64     2.3 kB\n"
        in run(path, "--tensors").output
    )


def test_a_split_model_is_shown_as_one(tmp_path):
    arrays = [(f"blk.{index}.x", np.zeros((2, 32), np.float32)) for index in range(4)]
    write(tmp_path / "m", tensors=arrays, split_max_tensors=2, small_first_shard=True)
    path = tmp_path / "m-00002-of-00003.gguf"
    record = record_of(path, "--tensors")
    assert record["parts"] == [f"m-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    assert record["file_bytes"] == sum(part.stat().st_size for part in tmp_path.iterdir())
    assert [tensor["part"] for tensor in record["tensors"]] == [1, 1, 2, 2]
    text = run(path, "--tensors").output
    assert "in 3 files" in text
    assert text.count("part 3") == 2
    (tmp_path / "m-00003-of-00003.gguf").unlink()
    result = run(path)
    assert result.exit_code == 1
    assert "missing: m-00003-of-00003.gguf" in result.output


def test_hostile_metadata_stays_on_its_line(tmp_path):
    kinds = gguf.GGUFValueType
    path = write(
        tmp_path / "m.gguf",
        [
            ("general.name", "a\x1b[31m\nb", kinds.STRING),
            ("a\nkey\x1b[2J", "x" * 5000, kinds.STRING),
            ("nan", float("nan"), kinds.FLOAT32),
            ("infinite", [1.0, float("inf")], kinds.ARRAY, kinds.FLOAT32),
            ("llama.context_length", "many", kinds.STRING),
            ("llama.block_count", True, kinds.BOOL),
            ("tokenizer.ggml.tokens", [1, 2], kinds.ARRAY, kinds.UINT32),
            ("tokenizer.ggml.eos_token_id", 10**6, kinds.UINT32),
            ("tokenizer.ggml.bos_token_id", "x", kinds.STRING),
            ("tokenizer.chat_template", 5, kinds.UINT32),
            ("direction\u202e", "\u202eevil", kinds.STRING),
        ],
        [("name\n\x1b[0m", np.zeros((1, 2), np.float32))],
    )
    text = run(path, "--tensors").output
    assert all(character == "\n" or character.isprintable() for character in text)
    assert re.search(r"\n  general.name +'a\\x1b\[31m\\nb'\n", text)
    assert "(5,000 characters)" in text
    assert "[1.0, 'inf'] (2 items)" in text
    record = record_of(path, "--tensors")
    assert record["metadata"]["general.name"] == "a\x1b[31m\nb"
    assert record["metadata"]["nan"] == "nan"
    assert record["metadata"]["infinite"] == {"length": 2, "first": [1.0, "inf"]}


def test_a_file_of_a_vocabulary_alone(tmp_path):
    path = write(tmp_path / "m.gguf")
    assert "none  the file has no tensors" in run(path).output
    with GGUFFile.open(path) as file:
        assert sum(line.startswith("\n") for line in header_lines(describe(file))) == 3


def test_neither_weights_nor_mlx_are_touched(tmp_path):
    """Only the header is read: pages of the weights are never looked at, MLX is not imported."""
    path = write_tiny_llama(tmp_path / "m.gguf")
    heavy = {"mlx", "mlx_lm", "transformers", "rich", "jinja2", "sentencepiece", "tokenizers"}
    code = f"""
import sys
from akunu_py.cli.main import cli
try:
    cli(["models", "show", "--help"])
except SystemExit:
    assert "numpy" not in sys.modules
from akunu_py.gguf.reader import MappedFile
MappedFile.tensor_bytes = None
try:
    cli(["models", "show", {str(path)!r}, "--tensors"])
except SystemExit as end:
    assert not end.code, end.code
print(sorted({heavy!r} & set(sys.modules)))
"""
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    )
    assert output.stdout.endswith("[]\n")


def test_a_model_that_cannot_be_run_is_shown_with_the_reason(tmp_path):
    path = write(
        tmp_path / "m.gguf", [("general.architecture", "nonesuch", gguf.GGUFValueType.STRING)]
    )
    result = CliRunner().invoke(cli, ["models", "show", str(path)])
    assert result.exit_code == 1
    assert "general.architecture  'nonesuch'" in result.stdout
    assert "nonesuch" in result.stderr
    assert run(path).exit_code == 0
