"""A run of a study counts the seconds of all its parts, and is continued with the same alone."""

import json
from pathlib import Path

import pytest

from akunu_lab.study.study import Study
from akunu_py.api import ConfigError, Findings


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
