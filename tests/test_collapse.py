from __future__ import annotations

import math
import struct

import pytest

from trl_mentor.collapse import SuccessRule, find_collapsed, group_states, reroll_outcome
from trl_mentor.errors import ConfigError
from trl_mentor.records import GroupState, RerollOutcome

NAN = math.nan


def test_a_group_collapses_only_if_no_scorable_completion_succeeds():
    successes = [*[0, 0, 0, 0], *[0, 0, 0, 1], *[-1, -1, 0, -1], *[1, 1, 1, 1]]
    assert find_collapsed(group_states(successes, 4)) == [0, 2]


def test_rewards_that_sum_to_zero_are_not_a_collapse():
    assert find_collapsed(group_states([1, -1], 2)) == []


def test_a_group_without_variance_may_be_all_correct():
    assert group_states([0.95] * 4, 4) == [GroupState.ALL_CORRECT]


def test_the_threshold_itself_is_a_failure():
    assert find_collapsed(group_states([0.5, 0.2], 2, threshold=0.5)) == [0]


@pytest.mark.parametrize("threshold", [0.1, 0.2, 0.3, -0.7, 1e6])
def test_single_precision_does_not_lift_a_reward_above_its_own_threshold(threshold):
    (stored,) = struct.unpack("f", struct.pack("f", threshold))
    above = threshold + 1e-3 * abs(threshold)
    assert group_states([stored, above], 1, threshold) == [GroupState.COLLAPSED, GroupState.ALL_CORRECT]


def test_a_positive_reward_exceeds_a_threshold_of_zero_and_what_cancels_does_not():
    assert group_states([1e-6], 1) == [GroupState.ALL_CORRECT]
    (a, b, c) = struct.unpack("3f", struct.pack("3f", 0.3, -0.2, -0.1))
    assert group_states([a + b + c], 1) == [GroupState.COLLAPSED]


def test_unscorable_completions_are_not_failures():
    assert group_states([NAN, NAN, NAN, 0.0, NAN, 1.0], 2) == [
        GroupState.UNSCORABLE,
        GroupState.COLLAPSED,
        GroupState.ALL_CORRECT,
    ]


def test_half_a_group_is_refused():
    with pytest.raises(ValueError, match="not a whole number of groups of 4"):
        group_states([0.0] * 6, 4)


def test_by_default_the_weighted_sum_decides():
    rule = SuccessRule.from_names(["right", "format"], weights=[1.0, 0.5])
    assert rule.value([0.0, 1.0]) == 0.5
    assert rule.value([NAN, 1.0]) == 0.5
    assert math.isnan(rule.value([NAN, NAN]))


def test_infinite_rewards_add_up_as_numbers_do():
    rule = SuccessRule((1.0, 1.0))
    assert math.isnan(rule.value([math.inf, -math.inf]))
    assert rule.value([math.inf, 1.0]) == math.inf
    assert rule.succeeded([math.inf, -math.inf]) is None


def test_a_format_reward_does_not_hide_a_collapse_when_the_verifier_is_named():
    rule = SuccessRule.from_names(["format", "right"], weights=[1.0, 1.0], success_rewards=["right"])
    assert not rule.succeeds(rule.value([1.0, 0.0]))
    assert rule.succeeds(rule.value([0.0, 1.0]))


def test_each_of_several_success_rewards_must_exceed_the_threshold_and_unscorable_ones_are_left_out():
    rule = SuccessRule.from_names(["math", "code"], weights=[1.0, 1.0], success_rewards=["math", "code"])
    assert rule.succeeds(rule.value([1.0, NAN]))
    assert not rule.succeeds(rule.value([1.0, 0.0]))
    assert math.isnan(rule.value([NAN, NAN]))


def test_the_threshold_is_in_units_of_the_named_reward_whatever_its_weight():
    rule = SuccessRule.from_names(["right"], weights=[0.1], success_rewards=["right"], threshold=0.5)
    assert rule.succeeds(rule.value([1.0]))


@pytest.mark.parametrize(
    ("names", "chosen", "words"),
    [(["right"], ["wrong"], "'wrong', which is not one of"), (["same", "same"], ["same"], "not unique among")],
)
def test_an_unknown_or_ambiguous_success_reward_is_refused(names, chosen, words):
    with pytest.raises(ConfigError, match=words):
        SuccessRule.from_names(names, weights=[1.0] * len(names), success_rewards=chosen)


@pytest.mark.parametrize(
    ("successes", "outcome"),
    [
        ([0, 1, 0, NAN], RerollOutcome.RESCUED),
        ([1, 1, NAN, 1], RerollOutcome.HINT_SATURATED),
        ([0, 0, 0, NAN], RerollOutcome.STILL_COLLAPSED),
        ([NAN, NAN], RerollOutcome.STILL_COLLAPSED),
    ],
)
def test_only_a_mixed_group_counts_as_rescued(successes, outcome):
    assert reroll_outcome(successes) is outcome
