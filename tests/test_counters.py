from __future__ import annotations

import math

from trl_mentor.counters import (
    Counters,
    count_causes,
    count_guidances,
    count_outcomes,
    count_states,
)
from trl_mentor.metrics import batch_metrics
from trl_mentor.records import Cause, GroupState, Guidance, HintOrigin, RerollOutcome
from trl_mentor.spending import RoleSpending, Spending


def test_the_three_kinds_of_group_are_counted_apart():
    states = [GroupState.COLLAPSED, GroupState.ALL_CORRECT, GroupState.UNSCORABLE, GroupState.MIXED]
    metrics = batch_metrics(count_states(states))
    assert metrics["mentor/frac_collapsed"] == 0.25
    assert metrics["mentor/frac_all_correct"] == 0.25
    assert metrics["mentor/frac_unscorable"] == 0.25


def test_outcomes_of_the_reroll_add_up_to_the_interventions():
    counters = count_outcomes(RerollOutcome)
    assert (counters.rescued, counters.hint_saturated, counters.still_collapsed, counters.skipped) == (1, 1, 1, 1)


def test_hints_are_counted_by_their_origin():
    counters = count_guidances(Guidance("h", origin) for origin in HintOrigin)
    assert (counters.accepted, counters.fallback, counters.failed, counters.format) == (1, 1, 1, 1)


def test_what_the_roles_of_the_mentor_took_is_summed_in_the_metrics():
    spent = Spending(
        {"generation": RoleSpending(2, 0, 1, 3, 10, 3, 6, 2, 0.5), "judgment": RoleSpending(1, 1, 0, 0, 5, 4)},
        busy_seconds=0.4,
    )
    metrics = batch_metrics(Counters(mentor=spent))
    names = ("calls", "call_errors", "replayed", "prompt_tokens", "completion_tokens", "cached_tokens")
    assert [metrics[f"mentor/{name}"] for name in names] == [3, 1, 3, 15, 7, 6]
    assert metrics["mentor/thinking_tokens"] == 2


def test_groups_for_which_the_mentor_was_not_asked_are_counted_apart():
    guidances = [Guidance("h", HintOrigin.FORMAT), Guidance(None, HintOrigin.NOT_ASKED)]
    counters = count_guidances([*guidances, Guidance(None, HintOrigin.NOT_ASKED)])
    assert (counters.format, counters.not_asked, counters.failed, counters.calls) == (1, 2, 0, 0)


def test_the_shares_of_the_causes_are_of_all_groups():
    counters = Counters(groups=8) + count_causes([Cause.CUT_OFF, Cause.CUT_OFF, Cause.KNOWLEDGE])
    shares = {name: value for name, value in batch_metrics(counters).items() if "frac_cause" in name}
    assert shares.keys() == {f"mentor/frac_cause_{cause}" for cause in Cause}
    assert {name: value for name, value in shares.items() if value} == {
        "mentor/frac_cause_cut_off": 0.25,
        "mentor/frac_cause_knowledge": 0.125,
    }


def test_the_metric_keys_are_the_same_whatever_happened():
    busy = count_states([GroupState.COLLAPSED]) + count_outcomes([RerollOutcome.RESCUED])
    assert batch_metrics(Counters()).keys() == batch_metrics(busy).keys()


def test_every_metric_of_a_batch_in_which_nothing_happened_is_a_number():
    assert all(math.isfinite(value) for value in batch_metrics(Counters()).values())


def test_counters_add_and_subtract():
    a, b = Counters(groups=3, mentor_seconds=1.5), Counters(groups=2, mentor_seconds=0.5)
    assert a + b - b == a


def test_staleness_is_averaged_over_the_lessons_and_left_out_without_any():
    assert batch_metrics(Counters(lessons=2, staleness=5))["mentor/staleness"] == 2.5
    assert "mentor/staleness" not in batch_metrics(Counters(handed_over=3))
