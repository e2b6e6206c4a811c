"""The uplift and its interval: against another library, at the edges, in simulated runs, and as it is logged."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

from trl_mentor.bill import Bill
from trl_mentor.counters import Counters
from trl_mentor.metrics import batch_metrics
from trl_mentor.records import Arm, RerollOutcome
from trl_mentor.tallies import Tallies, Tally
from trl_mentor.uplift import compare, difference_text, rate, rate_text, run_metrics, uplift, uplift_table

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

from uplift_coverage import Cell, cover  # a file of the repository, not of the package

PAIRS = [
    (Tally(70, 40), Tally(30, 3)),
    (Tally(7, 7), Tally(3, 0)),
    (Tally(5, 0), Tally(5, 0)),
    (Tally(1, 1), Tally(400, 399)),
    (Tally(20_000, 9_000), Tally(9_000, 4_000)),
]


@pytest.mark.parametrize(("treated", "control"), PAIRS)
def test_the_interval_is_that_of_statsmodels(treated, control):
    found = compare(treated, control)
    counts = (treated.hits, treated.groups, control.hits, control.groups)
    expected = confint_proportions_2indep(*counts, method="newcomb", compare="diff")
    assert (found.low, found.high) == pytest.approx(expected, abs=1e-9)
    assert found.difference == pytest.approx(treated.hits / treated.groups - control.hits / control.groups)
    for side, tally in ((found.treated, treated), (found.control, control)):
        assert (side.low, side.high) == pytest.approx(
            proportion_confint(tally.hits, tally.groups, method="wilson"), abs=1e-9
        )


def test_an_empty_arm_has_no_rate_and_no_interval():
    assert rate(Tally()) is None
    assert compare(Tally(3, 1), Tally()) is compare(Tally(), Tally(3, 1)) is None
    assert uplift(Tallies()) is None


def test_no_interval_leaves_what_is_possible_or_misses_its_own_difference():
    for groups in (1, 2, 9):
        for hits in range(groups + 1):
            for other in (0, 1, 4):
                found = compare(Tally(groups, hits), Tally(4, other))
                assert -1 <= found.low <= found.difference <= found.high <= 1
                assert not any(map(math.isnan, (found.low, found.high)))


@pytest.mark.parametrize(
    "cell",
    [
        Cell("steady", 0.3, 30, hint=0.5, plain=0.5),
        Cell("steady", 0.3, 30, hint=0.6, plain=0.1),
        Cell("steady", 0.3, 60, hint=0.9, plain=0.3),
        Cell("steady", 0.3, 60, hint=0.3, plain=0.05),
        Cell("repeated", 0.3, 60, hint=0.6, plain=0.1),
        Cell("drifting", 0.3, 60, hint=0.6, plain=0.1),
        Cell("feedback", 0.3, 60, hint=0.6, plain=0.1),
    ],
    ids=lambda cell: f"{cell.world}-{cell.groups}-{cell.hint}-{cell.plain}",
)
def test_95_of_100_intervals_hold_what_the_hints_did_in_their_run(cell):
    runs = 2_000
    found = cover(cell, runs=runs)
    assert 0.93 <= found.covered / (runs - found.none) <= 0.97


def test_an_interval_that_errs_near_the_ends_of_the_scale_does_not_flatter_the_hints():
    found = cover(Cell("steady", 0.3, 30, hint=0.97, plain=0.05), runs=2_000)
    assert found.above == 0 < found.below


def recovered(**cells):
    return Tallies({name.replace("__", "/").replace("_is_", ":"): Tally(*cell) for name, cell in cells.items()})


RECOVERY = recovered(
    hint__all=(70, 40),
    control__all=(30, 3),
    generic__all=(10, 2),
    hint__cause_is_knowledge=(50, 35),
    control__cause_is_knowledge=(20, 1),
    hint__cause_is_format=(20, 5),
    hint__verdict_is_first_draft=(70, 40),
    control__verdict_is_first_draft=(30, 3),
)


def test_the_table_has_all_groups_first_and_names_what_cannot_be_compared():
    rows = uplift_table(RECOVERY + recovered(hint__topic_is_algebra=(3, 1), control__topic_is_algebra=(2, 1)))
    assert [(row.kind, row.name) for row in rows] == [
        ("all", ""),
        ("cause", "knowledge"),
        ("cause", "format"),
        ("verdict", "first_draft"),
        ("topic", "algebra"),
    ]
    assert rows[0].comparison == compare(Tally(70, 40), Tally(30, 3))
    assert (rows[2].hint, rows[2].control, rows[2].comparison) == (Tally(20, 5), Tally(), None)
    assert uplift_table(RECOVERY, against=Arm.GENERIC)[0].control == Tally(10, 2)
    assert uplift_table(recovered(hint__all=(3, 1))) == []


def test_a_log_has_the_window_the_run_and_of_the_run_each_cause_and_verdict():
    window = Counters(recovery=recovered(hint__all=(4, 2), control__all=(2, 0)))
    logged = run_metrics(window, Counters(recovery=RECOVERY))
    assert logged["mentor/uplift"] == 0.5
    assert logged["mentor/uplift_low"] < 0 < logged["mentor/uplift_high"]
    assert (logged["mentor/total/recovery_hint"], logged["mentor/total/recovery_control"]) == (4 / 7, 0.1)
    assert logged["mentor/total/uplift_low"] > 0
    knowledge = "mentor/total/cause_knowledge/uplift"
    assert logged[knowledge] == pytest.approx(0.65)
    assert logged[f"{knowledge}_low"] < 0.65 < logged[f"{knowledge}_high"]
    assert "mentor/total/verdict_first_draft/uplift" in logged
    assert not any("format" in name for name in logged)
    assert logged["mentor/total/recovery_generic"] == 0.2
    assert logged["mentor/total/uplift_over_generic_low"] < logged["mentor/total/uplift_over_generic"]


def test_no_name_that_is_logged_is_a_folder_of_another():
    """A tracker on files cannot hold both."""
    answered = Tallies({name: Tally(4, 2) for name in (*RerollOutcome, *(f"arm:{arm}" for arm in Arm))})
    counted = Counters(lessons=1, recovery=RECOVERY, transfer=answered, probed=answered, reliance_count=1)
    names = {
        *batch_metrics(counted, priced=True),
        *run_metrics(counted, counted),
        *Bill.of(counted, priced=True).metrics(),
    }
    assert {"mentor/total/uplift", "mentor/total/cause_knowledge/uplift", "mentor/bill/cost"} <= names
    folders = {"/".join(name.split("/")[:depth]) for name in names for depth in range(1, name.count("/") + 1)}
    assert not names & folders


def test_a_run_without_a_trial_logs_no_uplift():
    assert run_metrics(Counters(batches=1), Counters(batches=9)) == {}


def test_a_difference_is_said_with_its_sign_and_interval():
    assert difference_text(compare(Tally(70, 40), Tally(30, 3))) == "+47.1 points [+27.6, +59.9]"
    assert difference_text(compare(Tally(4, 0), Tally(4, 2))).startswith("-50.0 points [-8")
    assert rate_text(rate(Tally(70, 40))) == "57.1% [45.5%, 68.1%]"
