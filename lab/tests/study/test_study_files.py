"""What a study adds to a result: tables as CSV, and hashes of what was measured."""

import pytest
from bench.result_values import TABLE

from akunu_lab.study.hashes import model_hash
from akunu_lab.study.markdown import markdown_of
from akunu_lab.study.study import csv_of
from akunu_py.api import Column, ConfigError, Table


def test_tables_as_csv():
    assert csv_of(TABLE) == (
        "category,hit_rate,speedup\nedit,0.5,1.25\na|b <i>,,\nall,0.3333333333333333,2\n"
    )
    table = Table("t", "", (Column("x", "x"), Column("y", "y")), ((True, 'a"b,c'), (None, "d\ne")))
    assert csv_of(table) == 'x,y\ntrue,"a""b,c"\n,"d\ne"\n'


def test_hashes_of_models(tmp_path):
    one, two = tmp_path / "m-00001-of-00002.gguf", tmp_path / "m-00002-of-00002.gguf"
    one.write_bytes(b"one")
    two.write_bytes(b"two")
    single = tmp_path / "m.gguf"
    single.write_bytes(b"one")
    # sha256sum of "one".
    of_one = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"
    assert model_hash(single) == of_one
    of_both = model_hash(one)
    assert of_both == model_hash(two) != of_one
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / one.name).write_bytes(b"one")
    (folder / two.name).write_bytes(b"two")
    (folder / ".hidden").write_bytes(b"x")
    assert model_hash(folder) == of_both
    two.write_bytes(b"TWO")
    assert model_hash(one) != of_both
    with pytest.raises(ConfigError, match="cannot read"):
        model_hash(tmp_path / "none.gguf")


def test_tables_as_markdown():
    assert markdown_of(TABLE) == (
        "**Rates**\n\n"
        "| category | hit rate | speedup |\n"
        "| --- | ---: | ---: |\n"
        "| edit | 50% | 1.25x |\n"
        "| a\\|b &lt;i&gt; | - | - |\n"
        "| **all** | **33%** | **2.00x** |\n"
        "\nMeasured.\n"
    )
