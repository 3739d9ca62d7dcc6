"""Results next to earlier ones: what counts as the same, what is refused, and the baseline CI holds."""

import json
import platform
import re

import click
import mlx.core as mx
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from result_values import ENVIRONMENT, result
from shared_files import ROOT

from akunu_py.bench.check import check_results
from akunu_py.bench.result_file import Failure, write_result
from akunu_py.cli.bench_check import _defaults, check, command_line
from akunu_py.system.errors import ConfigError

BASELINE = ROOT / "tests" / "golden" / "bench" / "hit-rate.json"


def paths(found):
    return [entry.path for entry in found.differences]


def ratio(value, low=None, high=None):
    return {"ratios": {"speedup": {"ratio": value, "low": low, "high": high, "pairs": 2}}}


def test_a_result_is_the_same_as_itself():
    found = check_results(result(), result())
    assert found.passed
    assert found.checked == 5
    assert (found.context, found.differences) == ((), ())
    assert [one.worse for one in found.ratios] == [False]


def test_each_figure_is_named_with_both_values():
    before = {"total": {"tokens": 12, "hit_rate": None, "per_position": (3, 2)}, "gone": 1}
    after = {"total": {"tokens": 13, "hit_rate": 0.0, "per_position": (3, 2, 0)}, "new": {}}
    found = check_results(result(deterministic=before), result(deterministic=after))
    assert not found.passed
    assert [(one.path, one.baseline, one.now) for one in found.differences] == [
        ("total.tokens", 12, 13),
        ("total.hit_rate", None, 0.0),
        ("gone", 1, "missing"),
        ("total.per_position.2", "missing", 0),
        ("new", "missing", "{}"),
    ]


@given(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_numbers_are_compared_to_the_last_digit(one, other):
    found = check_results(
        result(deterministic={"rate": one}), result(deterministic={"rate": other})
    )
    assert found.passed == (one == other)


def test_true_is_not_one():
    found = check_results(result(deterministic={"same": 1}), result(deterministic={"same": True}))
    assert paths(found) == ["same"]


def test_items_that_fail_now_are_differences():
    found = check_results(result(failures=()), result(failures=(Failure("edit/two", "too long"),)))
    assert paths(found) == ["failures.edit/two"]


@pytest.mark.parametrize(
    ("now", "worse"),
    [
        (ratio(1.2, 1.1, 1.3), False),
        (ratio(1.0, 0.9, 1.09), False),  # the interval reaches the baseline less a tenth: 1.08
        (ratio(1.0, 0.9, 1.07), True),
        (ratio(1.09), False),  # a single pair has no interval
        (ratio(1.07), True),
        (ratio(None), True),
        ({"ratios": {}}, True),
        (ratio(3.0, 2.9, 3.1), False),
    ],
)
def test_a_ratio_is_worse_where_its_interval_lies_below_the_tolerance(now, worse):
    found = check_results(result(timing=ratio(1.2, 1.1, 1.3)), result(timing=now))
    assert [one.worse for one in found.ratios] == [worse]
    assert found.passed == (not worse)
    assert check_results(result(), result(timing=now), deterministic=True).passed


def test_a_ratio_that_had_no_value_cannot_get_worse():
    assert check_results(result(timing=ratio(None)), result(timing=ratio(0.1))).ratios == ()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"command": "speed"}, "of `akunu bench hit-rate`, the result of `akunu bench speed`"),
        ({"finished": False}, "the result is unfinished"),
        ({"arguments": {"drafter": "lookup", "seed": 0}}, "drafter (ngram and lookup)"),
        ({"environment": replace(ENVIRONMENT, device="gpu")}, "device (cpu and gpu)"),
        ({"environment": replace(ENVIRONMENT, blas="OpenBLAS")}, "blas (MLX's own and OpenBLAS)"),
        ({"model": replace(result().model, sha256="1" * 64)}, "model (000"),
        ({"model": replace(result().model, weights="quantized")}, "model weights"),
        ({"model": None}, "model (000"),
        ({"draft_model": result().model}, "draft_model (None and 000"),
    ],
)
def test_what_cannot_be_compared_is_refused(change, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        check_results(result(), result(**change))


def test_an_option_that_the_baseline_does_not_name_was_at_its_default():
    baseline, now = result(), result(arguments={**result().arguments, "lenience": 1.0})
    defaults = {"lenience": 1.0, "seed": 7, "limit": None}
    assert check_results(baseline, now, defaults=defaults).passed
    for arguments in (
        {**result().arguments, "lenience": 0.5},
        {**result().arguments, "beams": 1},  # no option, so no default
        {name: value for name, value in result().arguments.items() if name != "drafter"},
    ):
        with pytest.raises(ConfigError, match="different options"):
            check_results(baseline, result(arguments=arguments), defaults=defaults)


def test_defaults_are_those_of_the_commands_options():
    found = _defaults("hit-rate")
    assert (found["lenience"], found["draft_sampling"], found["adjust_residual"]) == (
        1.0, "coupled", True,
    )  # fmt: skip
    assert (found["context"], found["category"]) == (None, [])
    json.dumps(found)
    assert _defaults("replay")["drafter"] == []
    assert _defaults("no-such-command") == {}


def test_force_compares_other_machines_and_models_and_never_other_commands():
    other = result(environment=replace(ENVIRONMENT, device="gpu"))
    found = check_results(result(), other, force=True)
    assert [one.path for one in found.context] == ["device"]
    assert found.passed
    with pytest.raises(ConfigError, match="results of one command"):
        check_results(result(), result(command="speed"), force=True)


def test_versions_that_differ_are_told_and_no_fault():
    found = check_results(result(), result(environment=replace(ENVIRONMENT, mlx="0.33")))
    assert found.passed
    assert [(one.path, one.baseline, one.now) for one in found.context] == [("mlx", "0.32", "0.33")]


@pytest.mark.parametrize("tolerance", [-0.1, 1.0, float("nan")])
def test_tolerances_out_of_range(tolerance):
    with pytest.raises(ConfigError, match="give 0 or more, below 1"):
        check_results(result(), result(), tolerance=tolerance)


# The command.


def files(tmp_path, **changes):
    write_result(result(), tmp_path / "before.json")
    write_result(result(**changes), tmp_path / "after.json")
    return [str(tmp_path / "before.json"), str(tmp_path / "after.json")]


def test_exit_codes(tmp_path):
    same = CliRunner().invoke(check, files(tmp_path))
    assert same.exit_code == 0
    assert "passed: 0 of 5 figures differ, 0 of 1 ratios worse" in same.stdout
    worse = CliRunner().invoke(check, files(tmp_path, timing=ratio(0.5)))
    assert worse.exit_code == 1
    assert "not passed: 0 of 5 figures differ, 1 of 1 ratios worse" in worse.stdout
    assert (
        CliRunner()
        .invoke(check, [*files(tmp_path, timing=ratio(0.5)), "--deterministic"])
        .exit_code
        == 0
    )
    other = CliRunner().invoke(check, files(tmp_path, deterministic={"total": 1}))
    assert other.exit_code == 1
    assert "total.tokens" in other.stdout


def test_json_has_what_differs(tmp_path):
    found = CliRunner().invoke(check, [*files(tmp_path, deterministic={"total": 1}), "--json"])
    record = json.loads(found.stdout)
    assert record["deterministic"]["differences"]["total.tokens"] == [12, "missing"]
    assert record["deterministic"]["passed"] is False


def test_arguments_become_the_command_line_again():
    @click.command()
    @click.argument("model", required=False)
    @click.option("--drafter", "drafters", multiple=True)
    @click.option("--max-tokens", "--most", type=int)
    @click.option("--reproducible", is_flag=True)
    @click.option("--adjust/--no-adjust", default=True)
    def some(**options):
        pass

    arguments = {
        "model": "-x.gguf", "drafters": ["a", "--b"], "max_tokens": 3, "reproducible": False,
        "adjust": False,
    }  # fmt: skip
    options, positional = command_line(some, arguments)
    assert positional == ["-x.gguf"]
    assert options == ["--drafter=a", "--drafter=--b", "--max-tokens=3", "--no-adjust"]
    parsed = some.make_context("some", [*options, "--", *positional]).params
    assert parsed == {**arguments, "drafters": ("a", "--b")}
    with pytest.raises(ConfigError, match="no option for 'speed'"):
        command_line(some, {"speed": 1})


@pytest.mark.parametrize("command", ["check", "nothing", "--help"])
def test_a_baseline_of_no_measurement_is_not_run(tmp_path, command):
    write_result(result(command=command), tmp_path / "result.json")
    found = CliRunner().invoke(check, [str(tmp_path)])
    assert isinstance(found.exception, ConfigError)
    assert "cannot be run again" in str(found.exception)


@pytest.mark.slow
def test_the_default_model_does_what_it_did():
    """The regression guard: tokens, passes and what is accepted, of the model that ships.

    scripts/record_bench_baseline.py records it anew where a change is meant.
    """
    here = (platform.system(), platform.machine(), mx.default_device() == mx.Device(mx.cpu))
    if here != ("Linux", "x86_64", True):
        pytest.skip("the baseline was recorded on MLX's CPU backend under Linux on x86-64")
    found = CliRunner().invoke(check, [str(BASELINE), "--deterministic"])
    assert found.exit_code == 0, found.output
