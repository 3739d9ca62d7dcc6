"""What passes cost, learned from times: medians, how fast the machine is; and costs on disk."""

import itertools
import json
import os
import random
import statistics
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akunu_py.decoding.pass_costs import PassCosts, _never_falling, context_bucket, roofline
from akunu_py.models.budget_memory import RememberedCosts
from akunu_py.models.measured_file import MeasuredFile
from akunu_py.system.settings import cache_folder
from akunu_py.values.cost_curve import CostCurve

STEEP = CostCurve({1: 1.0, 65: 65.0})


def measured(passes, *, unit_s=0.02, prior=STEEP, context=10, repeats=5):
    costs = PassCosts(prior)
    costs.begin(context)
    for _ in range(5):
        costs.add_plain(unit_s)
    for rows, cost in passes.items():
        for _ in range(repeats):
            costs.add_pass(context, rows, unit_s * cost)
    return costs


def test_the_roofline():
    curve = roofline(4.0)
    assert [curve.cost(m) for m in (1, 2, 6, 11)] == pytest.approx([1, 1.2, 2, 3])


def test_buckets_of_context():
    lengths = [0, 511, 512, 1023, 1024, 2047, 2048, 100_000]
    assert [context_bucket(length) for length in lengths] == [0, 0, 1, 1, 2, 2, 3, 8]


def test_before_anything_is_measured_the_prior_holds():
    costs = PassCosts(STEEP)
    assert costs.unit_s is None
    assert [costs.cost(0, m) for m in (1, 5, 65)] == pytest.approx([1, 5, 65])
    costs.add_pass(0, 5, 0.1)  # without a unit it says nothing
    assert costs.cost(0, 5) == 5
    assert costs.to_dict() == {}


def test_what_was_measured_and_what_lies_between():
    costs = measured({3: 1.2, 5: 2.0})
    assert costs.unit_s == pytest.approx(0.02)
    assert [costs.cost(10, m) for m in (1, 2, 3, 4, 5)] == pytest.approx([1, 1.1, 1.2, 1.6, 2.0])


def test_up_to_twice_as_many_rows_are_hoped_to_cost_no_more_than_so_far():
    costs = measured({3: 1.2})
    assert costs.cost(10, 6) == pytest.approx(1.5)
    assert costs.cost(10, 7) == pytest.approx(1.2 * 7 / 3)  # beyond, as the prior rises
    assert measured({3: 2.4}, prior=CostCurve({1: 1.0})).cost(10, 6) == pytest.approx(2.4)


def test_outliers_of_ten_times_do_not_count():
    rng = random.Random(3)
    costs = PassCosts(STEEP)
    costs.begin(0)
    for _ in range(60):
        for rows in (0, 3, 5):
            slow = 10 if rng.random() < 0.2 else 1
            if rows:
                costs.add_pass(0, rows, 0.02 * slow * {3: 1.3, 5: 1.9}[rows])
            else:
                costs.add_plain(0.02 * slow)
    assert costs.unit_s == pytest.approx(0.02, rel=0.05)
    assert costs.cost(0, 3) == pytest.approx(1.3, rel=0.1)
    assert costs.cost(0, 5) == pytest.approx(1.9, rel=0.1)


def test_the_first_pass_of_a_size_may_compile_its_kernels():
    costs = measured({}, prior=CostCurve({1: 1.0}))
    costs.add_pass(10, 4, 0.02 * 40)
    assert costs.cost(10, 4) == 1
    costs.add_pass(10, 4, 0.02 * 1.5)
    costs.add_pass(10, 4, 0.02 * 1.5)
    assert costs.cost(10, 4) == pytest.approx(1.5)


def test_one_dear_sample_counts_half_and_one_cheap_one_counts():
    assert measured({4: 9.0}, repeats=1).cost(10, 4) == pytest.approx(6.0)  # of 4 and 9
    assert measured({4: 1.1}, repeats=1).cost(10, 4) == pytest.approx(1.1)
    assert measured({4: 9.0}, repeats=2).cost(10, 4) == pytest.approx(9.0)


def test_a_first_sample_does_not_drag_down_a_size_that_is_known():
    """It is weighed against what the known sizes say of it, not against a prior that is too low."""
    costs = measured({9: 6.2}, prior=roofline(3.0), repeats=5)
    costs.add_pass(10, 12, 0.02 * 7.9)
    assert costs.cost(10, 9) == pytest.approx(6.2, rel=0.01)
    assert 6.2 < costs.cost(10, 12) <= 7.9


def test_a_machine_that_slows_down_leaves_the_costs_as_they_are():
    costs = measured({5: 1.5}, repeats=9)
    for _ in range(9):
        costs.add_pass(10, 5, 0.04 * 1.5)  # everything takes twice as long now, no plain step tells
    assert costs.unit_s == pytest.approx(0.04, rel=0.05)
    assert costs.plain_s == 0.02
    for _ in range(9):
        costs.add_pass(10, 5, 0.04 * 1.5)
    assert costs.cost(10, 5) == pytest.approx(1.5, rel=0.05)


def test_contexts_have_costs_of_their_own_and_lend_them():
    costs = measured({5: 1.5}, context=100)
    assert costs.cost(5000, 5) == pytest.approx(1.5)  # lent by the nearest
    for _ in range(3):
        costs.add_pass(5000, 5, 0.02 * 4.0)  # as with latent attention
    assert costs.cost(5000, 5) == pytest.approx(4.0)
    assert costs.cost(100, 5) == pytest.approx(1.5)
    assert costs.cost(900, 5) == pytest.approx(1.5)
    assert costs.cost(20_000, 5) == pytest.approx(4.0)


def test_a_reply_of_another_length_measures_the_unit_anew():
    costs = measured({5: 1.5})
    costs.begin(400)
    assert costs.unit_s is not None
    costs.begin(4000)
    assert costs.unit_s is None
    assert costs.plain_s is None
    assert costs.cost(4000, 5) == pytest.approx(1.5)


def test_remembered_costs_are_outvoted_by_new_ones():
    record = measured({3: 1.2, 5: 2.0}).to_dict()
    assert record == {"0": {"3": 1.2, "5": 2.0}}
    costs = PassCosts(STEEP)
    costs.remember({0: {3: 1.2, 5: 2.0}})
    assert costs.cost(0, 5) == 2.0
    assert costs.to_dict() == record
    assert costs.num_samples == 0
    costs.begin(0)
    for _ in range(3):
        costs.add_plain(0.02)
    for _ in range(4):
        costs.add_pass(0, 5, 0.02 * 1.4)
    assert costs.cost(0, 5) == pytest.approx(1.4)


def test_costs_that_fall_are_shared():
    costs = measured({2: 1.5, 4: 1.2})
    assert costs.cost(10, 2) == costs.cost(10, 4) == pytest.approx(1.35)


@given(st.lists(st.floats(0.1, 20), max_size=12))
def test_more_rows_never_cost_less(costs):
    found = _never_falling(costs)
    assert len(found) == len(costs)
    assert all(a <= b + 1e-12 for a, b in itertools.pairwise(found))
    assert all(cost >= 1 for cost in found)
    floored = [max(1.0, cost) for cost in costs]
    if floored == sorted(floored):
        assert found == floored
    elif floored:
        assert statistics.fmean(found) == pytest.approx(statistics.fmean(floored))


def test_what_a_restart_waits_for():
    costs = measured({})
    assert costs.prepaid == 0
    for factor, expected in ((1.1, 0.1), (2.0, 1.0), (3.0, 1.0), (0.9, 0.0)):
        for _ in range(5):
            costs.add_restart(0.02 * factor)
        assert costs.prepaid == pytest.approx(expected)


def test_a_check_has_a_cost_of_its_own():
    costs = measured({})
    assert costs.check_cost(10) == pytest.approx(1.02)
    for _ in range(3):
        costs.add_check(10, 0.03)
    assert costs.check_cost(10) == pytest.approx(1.5)
    assert costs.cost(10, 1) == 1.0
    assert set(costs.curve(10, 8).points) == set(range(1, 9))


KEY = {"model": "m", "device": "d", "mlx": "1"}
COSTS = {"0": {"3": 1.2, "5": 2.0}, "2": {"5": 4.5}}


def cost_file(key, folder):
    return MeasuredFile("costs", RememberedCosts, key, folder)


def holding(**content):
    return RememberedCosts(key=KEY, **content)


def test_what_is_saved_comes_back(tmp_path):
    file = cost_file(KEY, tmp_path)
    assert file.load() == holding()
    file.save(format=1, costs=COSTS)
    assert cost_file(dict(reversed(KEY.items())), tmp_path).load() == holding(
        costs={0: {3: 1.2, 5: 2.0}, 2: {5: 4.5}}
    )
    file.save(format=1, costs={"0": {"4": 1.5}}, bit_equal={17: 0, 33: 400})
    assert file.load() == holding(costs={0: {4: 1.5}}, bit_equal={17: 0, 33: 400})
    file.save(shared={"8": {"2": 1.1}})
    assert file.load() == holding(shared={8: {2: 1.1}})
    assert [path.name for path in file.path.parent.iterdir()] == [file.path.name]


@pytest.mark.parametrize("change", ["model", "device", "mlx"])
def test_others_have_files_of_their_own(tmp_path, change):
    file = cost_file(KEY, tmp_path)
    file.save(format=1, costs=COSTS)
    other = cost_file(KEY | {change: "other"}, tmp_path)
    assert not other.load().costs
    # Even under the same name: two keys may share a digest, and people copy files.
    file.path.rename(other.path)
    assert not other.load().costs


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"\xff\xfe", b"null", b"[]", b"[" * 100_000, b'{"a": 1}' * 20_000,
        b'{"format": 1}', b'{"format": 2, "key": {}, "costs": {}}',
    ],
)  # fmt: skip
def test_files_that_are_none(tmp_path, content):
    file = cost_file(KEY, tmp_path)
    file.path.parent.mkdir(parents=True)
    file.path.write_bytes(content)
    assert file.load() == holding()
    file.save(format=1, costs=COSTS)
    assert file.load().costs


@pytest.mark.parametrize(
    "costs",
    [
        None, [], 3, {"0": []}, {"x": {}}, {"-1": {}}, {"99": {}}, {"0": {"": 1.0}},
        {"0": {"999": 1.0}}, {"0": {"9" * 5000: 1.0}}, {"0": {"3": 0}},
        {"0": {"3": -1}}, {"0": {"3": "1"}}, {"0": {"3": None}},
        {"0": {"3": float("nan")}}, {"0": {"3": float("inf")}}, {"0": {"3": 10**400}},
    ],
)  # fmt: skip
def test_costs_that_are_none(tmp_path, costs):
    check_that_nothing_is_read(tmp_path, costs=costs)
    if costs != {"99": {}}:
        check_that_nothing_is_read(tmp_path, shared=costs)


def check_that_nothing_is_read(folder, **entries):
    file = cost_file(KEY, folder)
    file.path.parent.mkdir(parents=True, exist_ok=True)
    file.path.write_text(json.dumps({"format": 1, "key": KEY, "costs": COSTS, **entries}))
    assert file.load() == holding()


@pytest.mark.parametrize(
    "equal", [None, 1, "yes", [], {"17": None}, {"17": -1}, {"x": 4}, {"999": 4}]
)
def test_texts_in_which_rows_are_bit_equal_that_are_none(tmp_path, equal):
    check_that_nothing_is_read(tmp_path, bit_equal=equal)


def test_a_place_that_cannot_be_written_or_read(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    file = cost_file(KEY, blocked)
    file.save(format=1, costs=COSTS)
    assert file.load() == holding()
    file = cost_file(KEY, tmp_path)
    file.path.mkdir(parents=True)
    file.save(format=1, costs=COSTS)
    assert file.load() == holding()
    assert list(file.path.parent.iterdir()) == [file.path]


def test_the_folder_of_the_platform(monkeypatch, tmp_path):
    monkeypatch.setenv("AKUNU_CACHE_DIR", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("AKUNU_CACHE_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    if sys.platform == "darwin":
        assert cache_folder() == tmp_path / "Library" / "Caches" / "akunu"
    elif os.name == "posix":
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        assert cache_folder() == tmp_path / "xdg" / "akunu"
        monkeypatch.setenv("XDG_CACHE_HOME", "relative")
        assert cache_folder() == tmp_path / ".cache" / "akunu"
