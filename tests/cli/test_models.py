"""`akunu models convert`."""

from akunu_runs import run
from gguf_files import write_tiny_llama


def test_convert_says_who_reads_the_folder(tmp_path):
    path = write_tiny_llama(tmp_path / "m.gguf", quantization="Q8_0")
    result = run("models", "convert", path, tmp_path / "folder")
    assert result.exit_code == 0
    assert "akunu and mlx-lm read it" in result.output
    assert (tmp_path / "folder" / "akunu.json").is_file()
    again = run("models", "convert", path, tmp_path / "folder")
    assert again.exit_code == 2
    assert "exists" in again.output
