"""When training is said to stand still, on histories written by hand, and in training."""

from __future__ import annotations

import logging

import letters
import pytest

from trl_mentor import stall
from trl_mentor.alarms import Alarms
from trl_mentor.counters import Counters
from trl_mentor.rescue import Construction, Rescue, ScoreOn
from trl_mentor.stall import Stall, remedy, stalled

PAPER, ROBUST = Construction(), Construction(Rescue.SINGLE, ScoreOn.ORIGINAL)
COUNTED = (
    "batches",
    "groups",
    "collapsed",
    "hint_saturated",
    "rescued",
    "accepted",
    "reliance_sum",
    "reliance_count",
)


def half(collapsed, *, saturated, rescued=20, reliance=None):
    """Sixteen batches with 160 groups; `reliance` is the mean of ten successes."""
    measured = {} if reliance is None else {"reliance_sum": 10 * reliance, "reliance_count": 10}
    return Counters(
        batches=16, groups=160, collapsed=collapsed, hint_saturated=saturated, rescued=rescued, accepted=20, **measured
    )


def warned(halves, construction=PAPER):
    """Which of these halves, each seen as four windows of a log, ends in a warning of a stall."""
    alarms = Alarms(construction=construction)
    found = []
    for item in halves:
        quarter = Counters(**{name: getattr(item, name) / 4 for name in COUNTED})
        lines = [line for _ in range(4) for line in alarms.check(quarter)]
        found.append(sum("may not reach the plain question" in line for line in lines))
    return found


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (
            half(80, saturated=80),
            half(80, saturated=80),
        ),  # 80 % of those with a success; half collapse before and after
        (half(40, saturated=10, rescued=20), half(48, saturated=90, rescued=20)),  # 100 of 140, 71 %
        (half(80, saturated=80, reliance=-0.5), half(80, saturated=80, reliance=-0.46)),
        (half(80, saturated=80, reliance=-1.0), half(80, saturated=80, reliance=-1.4)),
        (half(80, saturated=80, reliance=-0.5), half(80, saturated=80)),  # measured only once
    ],
)
def test_saturated_hints_and_a_collapse_that_does_not_fall_are_a_stall(older, newer):
    assert stalled(older, newer) is not None
    assert stalled(older, newer) == Stall(
        (older + newer).hint_saturated / ((older + newer).hint_saturated + 40),
        (older.collapsed / 160, newer.collapsed / 160),
        (older.reliance_sum / 10, newer.reliance_sum / 10) if newer.reliance_count else None,
    )


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (half(80, saturated=80), half(79, saturated=80)),  # collapse falls
        (half(80, saturated=46), half(80, saturated=47)),  # 93 of 133, just below 70 %
        (half(80, saturated=80, reliance=-0.5), half(80, saturated=80, reliance=-0.44)),  # the gap closes by 12 %
        (half(80, saturated=80, reliance=0.1), half(80, saturated=80, reliance=0.05)),  # nothing is owed to hints
        (half(0, saturated=80), half(0, saturated=80)),  # lessons of earlier groups; nothing collapses any more
        (Counters(), half(80, saturated=80)),
        (half(80, saturated=0, rescued=0), half(80, saturated=0, rescued=0)),
    ],
)
def test_one_sign_against_it_is_enough(older, newer):
    assert stalled(older, newer) is None


def test_a_stall_is_told_of_once_and_again_when_clearly_more_groups_collapse():
    shares = [80, 80, 80, 100, 112, 140, 140]
    assert warned(half(collapsed, saturated=80) for collapsed in shares) == [0, 1, 0, 0, 1, 0, 0]


def test_the_warning_says_what_was_seen_and_what_to_try():
    alarms, seen = Alarms(construction=PAPER), half(80, saturated=80, reliance=-0.5)
    assert not any("plain question" in line for line in alarms.check(seen))
    (warning,) = [line for line in alarms.check(seen) if "plain question" in line]
    assert warning.startswith("80% of the groups that succeed under their hint succeed completely")
    assert "does not fall (50%, then 50%)" in warning
    assert "(-0.50, then -0.50 nats per token)" in warning
    assert "mentor_preset: robust, or mentor_score_on: original" in warning


def test_few_batches_or_few_successes_say_nothing():
    few = Counters(batches=1, groups=100, collapsed=80, hint_saturated=80, accepted=80)
    assert warned([few] * 4) == [0] * 4
    rare = Counters(batches=16, groups=160, collapsed=8, hint_saturated=4, accepted=4)
    assert warned([rare] * 4) == [0] * 4
    assert warned([rare] * 8) == [0, 0, 0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize("rescue", [Rescue.SINGLE, Rescue.UNION_SUCCESS, Rescue.REPLACE, Rescue.MIXED])
@pytest.mark.parametrize("score_on", ScoreOn)
def test_saturation_alone_is_a_reason_only_where_it_leaves_no_gradient_and_nothing_on_the_question(rescue, score_on):
    construction = Construction(rescue, score_on)
    alone = rescue in (Rescue.REPLACE, Rescue.MIXED) and score_on is ScoreOn.HINTED
    assert warned([half(80, saturated=80)] * 2, construction) == [0, alone]
    measured = half(80, saturated=80, reliance=-0.5)
    best = rescue in (Rescue.SINGLE, Rescue.UNION_SUCCESS) and score_on is ScoreOn.ORIGINAL
    assert warned([measured] * 2, construction) == [0, not best]


def test_what_is_advised_is_not_what_is_done():
    assert remedy(ROBUST) is remedy(Construction(Rescue.ADAPTIVE)) is remedy(None) is None
    assert "mentor_score_on: original" in remedy(Construction(Rescue.SINGLE))[0]
    assert "mentor_rescue: single" in remedy(Construction(score_on=ScoreOn.ORIGINAL))[0]


@pytest.mark.parametrize(
    ("options", "warnings"),
    [
        ({}, 1),
        ({"mentor_preset": "robust"}, 0),
        ({"mentor_strategy": "resample"}, 0),
    ],
    ids=["paper", "robust", "resample"],
)
def test_a_run_in_which_everything_collapses_and_succeeds_under_hints_is_told_once(
    tmp_path, caplog, monkeypatch, options, warnings
):
    monkeypatch.setattr(stall, "HALF_BATCHES", 2)
    monkeypatch.setattr(stall, "HALF_GROUPS", 4)
    rolls = {"first": dict.fromkeys("0123", "c"), "mentor/reroll": dict.fromkeys("0123", "a")}
    with caplog.at_level(logging.WARNING, logger="trl_mentor"):
        letters.trained(tmp_path, rolls, max_steps=6, learning_rate=0.0, **options)
    assert sum("may not reach the plain question" in message for message in caplog.messages) == warnings
