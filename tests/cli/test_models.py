"""`akunu models convert`."""

from click.testing import CliRunner
from gguf_files import write_tiny_llama

from akunu_py.cli.main import cli


def run(*arguments):
    return CliRunner().invoke(cli, ["models", "convert", *map(str, arguments)])


def test_convert_says_who_reads_the_folder(tmp_path):
    path = write_tiny_llama(tmp_path / "m.gguf", quantization="Q8_0")
    result = run(path, tmp_path / "folder")
    assert result.exit_code == 0
    assert "akunu and mlx-lm read it" in result.output
    assert (tmp_path / "folder" / "akunu.json").is_file()
    again = run(path, tmp_path / "folder")
    assert again.exit_code == 2
    assert "exists" in again.output


def test_convert_of_no_model(tmp_path):
    assert run(tmp_path / "missing.gguf", tmp_path / "folder").exit_code == 2
    (tmp_path / "text.gguf").write_text("this is a text")
    result = run(tmp_path / "text.gguf", tmp_path / "folder")
    assert result.exit_code == 1
    assert "not a GGUF file" in result.output
    assert run(tmp_path / "m.gguf", tmp_path / "folder", "--q6k", "7bit").exit_code == 2


def test_loading_options_reach_the_model(tiny_gguf):
    arguments = ["generate", str(tiny_gguf), "--raw", "-p", "hello", "--max-tokens", "2"]
    runner = CliRunner()
    result = runner.invoke(
        cli, [*arguments, "--pre-tokenizer", "qwen2", "--compute-type", "float32"]
    )
    assert result.exit_code == 0, result.output
    wrong = runner.invoke(cli, [*arguments, "--pre-tokenizer", "nothing"])
    assert wrong.exit_code == 2
    assert "qwen2" in wrong.output
    assert runner.invoke(cli, [*arguments, "--compute-type", "float8"]).exit_code == 2
