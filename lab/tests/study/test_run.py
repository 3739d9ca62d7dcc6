"""A run of a study counts the seconds of all its parts, and is continued with the same alone."""

import json
from pathlib import Path

import pytest
from bench.result_values import result
from click.testing import CliRunner

from akunu_lab.study.study import Study
from akunu_py.api import ConfigError, Findings
from akunu_py.cli.main import cli


def test_a_run_that_goes_on_counts_the_seconds_of_all_its_parts(tmp_path):
    study = Study(command="replay", output=tmp_path)
    arguments = {"limit": 2, "traces": (Path("t.jsonl"),)}
    with study.study(arguments, inputs={"hash": "1"}) as run:
        run.store.put("row", {"n": 1})
    path = tmp_path / "items.jsonl"
    kept = json.loads(path.read_text().splitlines()[1])
    assert kept["seconds"] > 0
    path.write_text(path.read_text().replace(f'"seconds":{kept["seconds"]!r}', '"seconds":99.5'))
    with study.study(arguments, inputs={"hash": "1"}) as run:
        assert run.result(Findings(deterministic={})).seconds > 99.5
    with pytest.raises(ConfigError, match="another run: hash was '1' and is '2'"):
        study.study(arguments, inputs={"hash": "2"})


@pytest.mark.fast_every(2)
@pytest.mark.parametrize("kept", ["items.jsonl", "result.json"])
@pytest.mark.parametrize("command", ["compare", "alpha"])
def test_a_folder_of_a_study_is_for_one_command(tmp_path, command, kept):
    """As observed: versions and arguments were listed, and the command among them."""
    with Study(command="sweep", output=tmp_path).study({}):
        pass
    result(command="sweep").write(tmp_path / "result.json")
    for path in tmp_path.iterdir():
        if path.name != kept:
            path.unlink()
    before = (tmp_path / kept).read_bytes()
    other = CliRunner().invoke(cli, ["bench", command, "--output", str(tmp_path)])
    assert other.exit_code == 2
    said = " ".join(other.output.split())
    assert f"holds a run of `akunu bench sweep`, and this is `akunu bench {command}`" in said
    assert said.endswith("give --output another folder")
    assert (tmp_path / kept).read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1
