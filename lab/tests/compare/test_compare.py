"""`akunu bench compare` with arms that are written down: its figures, and programs' processes."""

import os
from pathlib import Path

import compare_fakes
import numpy as np
import pytest
from bench.fake_arms import END, FakeArm, item, runs_of
from bench.test_figures import logits, reply
from msgspec.structs import replace

from akunu_lab.compare.arm import ComparedModel, Skipped
from akunu_lab.compare.peer import PeerError, start_peers
from akunu_lab.compare.report import compare, compare_findings, deterministic, tables, timing
from akunu_py.bench.reply import MeasuredReply
from akunu_py.bench.result_file import Failure
from akunu_py.bench.rows import typed
from akunu_py.bench.runner import Item, Runs


def some_runs(times=1):
    """Two items, `times` times: mlx-lm-draft failed on the second one."""
    plain = reply((1, 2, 3), decode_s=2.0)
    first = {
        "akunu-plain": plain,
        "akunu-auto": reply((1, 2, 3), decode_s=1.0, steps=2, drafted=4, accepted=1),
        "mlx-lm-plain": reply((1, 2, 3), decode_s=4.0),
        "mlx-lm-draft": reply((1, 2, 9), decode_s=8.0, steps=2, drafted=2, accepted=1),
    }
    second = {"akunu-plain": plain, "akunu-auto": plain, "mlx-lm-plain": plain}
    return runs_of(*[first, second] * times)


def some_arms():
    return (
        FakeArm("akunu-plain", ()),
        FakeArm("akunu-auto", (), plain="akunu-plain", steady=False),
        FakeArm("mlx-lm-plain", ()),
        FakeArm("mlx-lm-draft", (), plain="mlx-lm-plain"),
        FakeArm("llama.cpp-plain", ()),
    )


def rows_of(table):
    """Return a table's rows by their first cell, each by the names of its columns."""
    names = [column.name for column in table.columns]
    return {row[0]: dict(zip(names, row, strict=True)) for row in table.rows}


class TestResult:
    def test_tables(self):
        runs = some_runs(5)
        comparison = compare(some_arms(), runs, logits)
        found = tables(comparison, [Skipped("x-plain", "is | away")], runs)
        by_name = {table.name: table for table in found}
        assert list(by_name) == ["speed", "prompt", "output", "by_category", "programs", "skipped"]
        speed = rows_of(by_name["speed"])
        # An arm that decoded nothing has no row.
        assert list(speed) == ["akunu-plain", "akunu-auto", "mlx-lm-plain", "mlx-lm-draft"]
        assert speed["akunu-auto"]["tokens_per_s"] == pytest.approx(4 / 3)
        assert speed["akunu-auto"]["of_own_plain"] == pytest.approx(4 / 3)
        assert speed["akunu-auto"]["of_mlx_lm"] == pytest.approx(2.0)
        low, high = (speed["akunu-auto"][f"of_mlx_lm_{end}"] for end in ("low", "high"))
        assert 1 < low < 2 < high < 4
        assert speed["akunu-auto"]["of_mlx_lm_range"] == f"{low:.2f}-{high:.2f}"
        assert speed["akunu-plain"]["of_own_plain"] is None
        assert speed["akunu-plain"]["of_own_plain_range"] is None
        assert speed["mlx-lm-plain"]["of_mlx_lm"] is None
        assert speed["mlx-lm-draft"]["of_own_plain"] == speed["mlx-lm-draft"]["of_mlx_lm"] == 0.5
        prompt = rows_of(by_name["prompt"])
        assert prompt["akunu-plain"]["first_ms"] == 1000.0
        assert prompt["akunu-plain"]["prompt_tokens_per_s"] == 3.0
        assert prompt["akunu-plain"]["prompt_of_mlx_lm"] == 1.0
        assert prompt["mlx-lm-plain"]["prompt_of_mlx_lm"] is None
        assert prompt["akunu-plain"]["end_to_end"] == pytest.approx(4 / 3)
        output = rows_of(by_name["output"])
        auto, draft = output["akunu-auto"], output["mlx-lm-draft"]
        assert (auto["as_own_plain"], auto["as_akunu"]) == ("10/10", "10/10")
        assert auto["own_margin"] is auto["akunu_first_difference"] is None
        assert (draft["as_own_plain"], draft["own_first_difference"]) == ("0/5", 2)
        assert draft["own_margin"] == draft["akunu_margin"] == pytest.approx(0.5)
        category = {row[1]: row for row in by_name["by_category"].rows}
        assert category["mlx-lm-draft"][:5] == (
            "edit", "mlx-lm-draft", "mlx-lm-plain", 0.5, "0.50-0.50",
        )  # fmt: skip
        assert category["akunu-plain"][2:4] == ("mlx-lm-plain", pytest.approx(1.5))
        assert category["akunu-auto"][-1] == 10
        assert "mlx-lm-plain" not in category
        assert by_name["skipped"].rows == (("x-plain", "is | away"),)

    def test_too_few_items_have_no_ratio_in_any_table(self):
        """As observed: a ratio from a single item of each category."""
        runs = [*some_runs(5), *runs_of(*[run.replies for run in some_runs()])]
        runs[-2:] = [replace(run, item=item(90 + n, "prose")) for n, run in enumerate(runs[-2:])]
        comparison = compare(some_arms(), runs, logits)
        _, _, _, category, *_ = tables(comparison, [], runs)
        rows = {(row[0], row[1]): row[3:] for row in category.rows}
        nothing = (None, "not enough items", None, None)
        assert rows["prose", "akunu-auto"] == (*nothing, 2)
        assert rows["edit", "akunu-auto"][0] == pytest.approx(4 / 3)
        assert not category.detail
        few = some_runs()
        speed, prompt, _, category, *_ = tables(compare(some_arms(), few, logits), [], few)
        for table in (speed, prompt):
            for row in rows_of(table).values():
                for name, cell in row.items():
                    if name.startswith(("of_", "end_to_end", "prompt_of")):
                        assert cell in {None, "not enough items"}
        # Nothing but that sentence: files have it, a terminal does without.
        assert {row[4] for row in category.rows} == {"not enough items"}
        assert category.detail

    def test_every_ratio_on_a_terminal_has_its_interval_beside_it(self):
        runs = some_runs(5)
        for table in tables(compare(some_arms(), runs, logits), [], runs):
            names = [column.name for column in table.on_terminal().columns]
            for name in {"of_own_plain", "of_mlx_lm", "prompt_of_mlx_lm", "end_to_end"} & set(
                names
            ):
                assert names[names.index(name) + 1] == f"{name}_range"

    def test_what_times_decide_is_not_called_deterministic(self):
        comparison = compare(some_arms(), some_runs(), logits)
        found = deterministic(comparison, some_runs())
        assert set(found["total"]) == {"akunu-plain", "mlx-lm-plain", "mlx-lm-draft"}
        assert found["total"]["akunu-plain"]["tokens"] == 6
        drafting = found["total"]["mlx-lm-draft"]
        assert drafting["hit_rate"] == 0.5
        assert drafting["differing_from_own_plain"] == drafting["differing_from_akunu"] == 1
        assert found["categories"]["edit"] == found["total"]

    def test_ratios_by_name(self):
        found = timing(compare(some_arms(), some_runs(5), logits))
        ratios = found["ratios"]
        assert ratios["akunu-auto/akunu-plain"].ratio == pytest.approx(4 / 3)
        assert ratios["akunu-auto/mlx-lm-plain"].ratio == pytest.approx(2.0)
        assert "akunu-plain/akunu-plain" not in ratios
        assert "mlx-lm-draft/mlx-lm-plain end to end" in ratios
        assert ratios["akunu-auto/mlx-lm-plain prompt"].ratio == 1.0
        assert found["arms"]["akunu-auto"]["tokens_per_s"] == pytest.approx(4 / 3)
        assert found["arms"]["akunu-auto"]["program"] == "akunu-auto 1.0"

    def test_rows_and_failures(self):
        runs = [*some_runs(), *runs_of({})]
        runs[1] = replace(runs[1], errors={"mlx-lm-draft": "out of rows"})
        comparison = compare(some_arms(), runs, logits)
        earlier = Failure("line 3", "not JSON")
        done = Runs(tuple(runs), finished=False)
        found = compare_findings(
            comparison,
            done.answered,
            skipped=[],
            failures=[earlier, *done.failures],
            costs=None,
            finished=False,
        )
        # An item that no arm decoded has no row.
        first, second = found.items
        assert (first["id"], first["category"], first["item"]["prompt"]) == (
            "i1",
            "edit",
            [1, 5, 6],
        )
        assert (
            typed(first["replies"]["akunu-auto"], MeasuredReply, "it")
            == runs[0].replies["akunu-auto"]
        )
        assert second["errors"] == {"mlx-lm-draft": "out of rows"}
        assert found.failures == (earlier, Failure("i2, mlx-lm-draft", "out of rows"))
        differing = found.timing["arms"]["mlx-lm-draft"]["differs_from_own_plain"]
        assert differing["i1"]["index"] == 2
        assert found.timing["arms"]["akunu-auto"]["differs_from_akunu"] == {}
        assert not found.finished


def asking(*prompt):
    return Item("i", "edit", "s", prompt)


class TestPeers:
    """Programs in processes of their own; what they are made of is in compare_fakes."""

    subject = ComparedModel(
        path=Path("x.gguf"), longest=9, max_tokens=9, end_ids=END, probe=(1,),
        logits=np.zeros((1, 8), "f4"),
    )  # fmt: skip

    def test_an_arm_answers_from_its_own_process(self):
        (arm, other), skipped = start_peers([compare_fakes.GOOD], self.subject)
        assert skipped == (Skipped("good-draft", "no draft model"),)
        assert (arm.name, arm.plain, arm.steady) == ("good-plain", "good-plain", True)
        assert (other.name, other.plain, arm.version) == (
            "good-pid",
            "good-plain",
            "good-plain 1.0",
        )
        assert arm.reply(asking(1, 5, 6)).token_ids == (5, 6)
        (there,) = other.reply(
            asking(
                1,
            )
        ).token_ids
        assert there != os.getpid()
        # What fails there fails here, and the program goes on.
        with pytest.raises(PeerError, match="ContractError: the arm returned no token"):
            arm.reply(
                asking(
                    1,
                )
            )
        assert arm.reply(asking(1, 5)).token_ids == (5,)
        arm.close()
        with pytest.raises(ProcessLookupError):
            os.kill(there, 0)
        with pytest.raises(PeerError, match="has ended"):
            other.reply(
                asking(
                    1,
                )
            )

    def test_what_cannot_be_made_is_skipped_with_the_reason(self):
        arms, skipped = start_peers(
            [compare_fakes.ABSENT, compare_fakes.BROKEN, compare_fakes.CRASHING], self.subject
        )
        assert arms == ()
        assert skipped == (
            Skipped("absent-plain", "it is not installed"),
            Skipped("absent-lookup", "it is not installed"),
            Skipped("broken-plain", "could not be set up: RuntimeError: no such device"),
            Skipped("crashing-plain", "its process ended with exit code 3"),
        )

    def test_what_is_not_akunu_does_not_load_its_libraries(self):
        (arm,), _ = start_peers([compare_fakes.MODULES], self.subject)
        # Ids that say whether MLX and mlx-lm were imported.
        assert arm.reply(
            asking(
                1,
            )
        ).token_ids == (7, 7)
        arm.close()
