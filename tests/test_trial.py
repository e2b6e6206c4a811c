"""Who is in the trial, in which arm, and what is counted of it."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from trl_mentor.records import (
    Arm,
    Assignment,
    Cause,
    CollapsedGroup,
    Draft,
    Guidance,
    HintOrigin,
    Intervention,
    RerollOutcome,
    Role,
)
from trl_mentor.tallies import Tally
from trl_mentor.trial import Trial, recovery, verdict_path


def assignment(prompt="how many?", *, step=3, index=0):
    return Assignment(CollapsedGroup("how many?", (), prompt=prompt, index=index), {"prompt": prompt}, step)


def draws(trial, number=10_000):
    return [trial.draw(assignment(f"q{i % 100}", step=i // 100, index=i % 16)) for i in range(number)]


def record(arm, outcome=RerollOutcome.RESCUED, *, cause=Cause.KNOWLEDGE, guidance=None, topic=None):
    group = CollapsedGroup("q", (), cause=cause, topic=topic)
    return Intervention(1, "mentor", group, guidance, outcome, arm=arm)


def test_the_shares_of_the_arms_are_those_asked_for():
    shares = Counter(draws(Trial(seed=1, control=0.3, generic=0.1)))
    assert shares[Arm.CONTROL] == pytest.approx(3_000, abs=140)  # three standard deviations
    assert shares[Arm.GENERIC] == pytest.approx(1_000, abs=90)
    assert sum(shares.values()) == 10_000


def test_without_a_share_there_is_no_trial():
    assert set(draws(Trial(seed=1), 100)) == {None}


def test_a_draw_depends_on_seed_step_place_and_prompt_and_on_nothing_else():
    trial, same = Trial(4, control=0.5), Trial(4, control=0.5)
    conversation = [{"role": "user", "content": "q"}]
    for prompt in ("q", conversation):
        assert [trial.draw(assignment(prompt, step=step)) for step in range(50)] == [
            same.draw(assignment(prompt, step=step)) for step in range(50)
        ]
    base = [trial.draw(assignment(step=i)) for i in range(200)]
    others = {
        "seed": [Trial(5, control=0.5).draw(assignment(step=i)) for i in range(200)],
        "place": [trial.draw(assignment(step=i, index=1)) for i in range(200)],
        "prompt": [trial.draw(assignment("how much?", step=i)) for i in range(200)],
        "step": [trial.draw(assignment(step=i + 1)) for i in range(200)],
    }
    for name, drawn in others.items():
        agree = sum(a is b for a, b in zip(base, drawn, strict=True))
        assert 70 < agree < 130, name


def test_a_prompt_that_collapses_again_and_again_is_now_in_one_arm_and_now_in_the_other():
    trial = Trial(0, control=0.5)
    sequence = [trial.draw(assignment(step=step)) is Arm.CONTROL for step in range(2_000)]
    followed = Counter(pairwise(sequence))
    assert min(followed.values()) > 430  # of 1,999 pairs, each of the four kinds comes up about 500 times


def test_the_first_draws_of_small_seeds_are_not_alike():
    controls = sum(Trial(seed, control=0.3).draw(assignment()) is Arm.CONTROL for seed in range(1_000))
    assert controls == pytest.approx(300, abs=45)


def test_what_recovers_is_counted_by_arm_cause_verdict_and_topic():
    accepted = Guidance("h", HintOrigin.ACCEPTED, drafts=(Draft("h", Role.GENERATION, 1),))
    records = [
        record(Arm.HINT, guidance=accepted, topic="algebra"),
        record(Arm.HINT, RerollOutcome.STILL_COLLAPSED, cause=Cause.FORMAT),
        record(Arm.CONTROL, RerollOutcome.HINT_SATURATED, guidance=accepted),
        record(Arm.GENERIC, RerollOutcome.STILL_COLLAPSED, topic="a/b: c"),
        record(None),
    ]
    found = recovery(records)
    assert (found["hint/all"], found["control/all"], found["generic/all"]) == (Tally(2, 1), Tally(1, 1), Tally(1, 0))
    assert found["hint/cause:format"] == Tally(1, 0)
    assert found["hint/verdict:first_draft"] == found["control/verdict:first_draft"] == Tally(1, 1)
    assert (found["hint/topic:algebra"], found["generic/topic:a/b: c"]) == (Tally(1, 1), Tally(1, 0))
    assert sum(tally.groups for name, tally in found.cells.items() if name.endswith("/all")) == 4


def test_totals_stay_small_however_many_topics_a_data_set_has():
    records = [record(Arm.HINT, topic=f"topic {i}") for i in range(10_000)]
    assert len(recovery(records).cells) == 10_002
    assert set(recovery(records, topics=False).cells) == {"hint/all", "hint/cause:knowledge"}


def test_the_path_through_the_reviews_is_what_led_to_the_hint():
    def accepted(*drafts):
        return verdict_path(Guidance("h", HintOrigin.ACCEPTED, drafts=drafts))

    first, repaired = Draft("h", Role.GENERATION, 1), Draft("h", Role.REPAIR, 1)
    assert accepted(first) == "first_draft"
    assert accepted(first, repaired) == "repaired"
    assert accepted(first, repaired, Draft("h", Role.GENERATION, 2)) == "retried"
    assert accepted() == "accepted"
    assert verdict_path(Guidance("h", HintOrigin.FALLBACK, drafts=(first,))) == "fallback"
    assert verdict_path(Guidance("h", HintOrigin.FORMAT)) == "format"
