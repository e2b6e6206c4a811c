from __future__ import annotations

import math

from trl_mentor.counters import Counters, batch_metrics, count_guidances, count_outcomes, count_states
from trl_mentor.records import Call, GroupState, Guidance, HintOrigin, RerollOutcome, Role, Usage


def guidance(origin: HintOrigin) -> Guidance:
    calls = (Call(Role.GENERATION, 0.1, Usage(10, 3)), Call(Role.JUDGMENT, 0.1, error="BackendError: down"))
    return Guidance(hint="h", origin=origin, calls=calls)


def test_the_three_kinds_of_group_are_counted_apart():
    states = [GroupState.COLLAPSED, GroupState.ALL_CORRECT, GroupState.UNSCORABLE, GroupState.MIXED]
    metrics = batch_metrics(count_states(states))
    assert metrics["mentor/frac_collapsed"] == 0.25
    assert metrics["mentor/frac_all_correct"] == 0.25
    assert metrics["mentor/frac_unscorable"] == 0.25


def test_outcomes_of_the_reroll_add_up_to_the_interventions():
    counters = count_outcomes(RerollOutcome)
    assert (counters.rescued, counters.hint_saturated, counters.still_collapsed, counters.skipped) == (1, 1, 1, 1)


def test_calls_tokens_and_errors_of_the_mentor_are_summed():
    counters = count_guidances(map(guidance, HintOrigin))
    assert (counters.accepted, counters.fallback, counters.failed) == (1, 1, 1)
    assert (counters.calls, counters.call_errors) == (8, 4)
    assert (counters.mentor_prompt_tokens, counters.mentor_completion_tokens) == (40, 12)


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
