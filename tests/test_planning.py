"""The arithmetic of `trl-mentor plan`: small cases by hand, directions, and what a run says about itself."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise

import pytest
import tiny

from trl_mentor.cli.main import main
from trl_mentor.cli.plan import FLAGS
from trl_mentor.errors import ConfigError
from trl_mentor.journal import JOURNAL_PATH, Journal
from trl_mentor.plan_records import PlanInputs
from trl_mentor.planning import finish_times, needed, predict
from trl_mentor.settings import ScheduleKind

AHEAD = ScheduleKind.AHEAD

# Four groups, all collapse; three calls of a second, one worker. A roll of a group takes 2 s on its GPU.
HAND = PlanInputs(
    ranks=1,
    groups=4,
    num_generations=2,
    completion_tokens=10,
    policy_tokens_per_second=10,
    training_seconds=5,
    collapse_share=1.0,
    calls_per_group=3,
    call_seconds=1.0,
    group_spread=0.0,
    mentor_slots=1,
)
BUSY = replace(HAND, ranks=4, groups=32, collapse_share=0.4, call_seconds=3.0, mentor_slots=2, group_spread=0.3)


def test_one_worker_mentors_four_groups_of_three_one_second_calls_in_twelve_seconds():
    found = predict(HAND)
    assert (found.first_roll, found.mentor_wait, found.reroll, found.training) == (8, 12, 8, 5)
    assert (found.plain_step, found.step) == (13, 33)
    assert found.overhead == pytest.approx(20 / 13)


@pytest.mark.parametrize(
    ("replicas", "slots", "concurrency", "wait"),
    [(2, 1, 8, 6), (3, 1, 8, 4), (3, 1, 3, 6), (4, 1, 8, 3), (1, 4, 8, 3), (4, 1, 2, 6), (100, 100, 100, 3)],
)
def test_groups_beyond_the_concurrency_wait_their_turn_and_calls_beyond_the_slots_take_turns(
    replicas, slots, concurrency, wait
):
    inputs = replace(HAND, replicas=replicas, mentor_slots=slots, mentor_max_concurrency=concurrency)
    assert predict(inputs).mentor_wait == wait


def test_a_deadline_ends_the_wait_and_leaves_the_rest_without_a_reroll():
    found = predict(replace(HAND, mentor_deadline=7.0, mentor_max_concurrency=1))
    assert (found.mentor_wait, found.rerolled, found.reroll) == (7, 2, 4)


def test_groups_that_take_turns_in_too_few_slots_all_miss_the_deadline_together():
    found = predict(replace(HAND, mentor_deadline=7.0, mentor_max_concurrency=4))
    assert (found.mentor_wait, found.rerolled, found.reroll) == (7, 0, 0)


def test_a_batch_in_which_nothing_collapses_costs_nothing():
    found = predict(replace(HAND, collapse_share=0.0))
    assert (found.step, found.overhead) == (13, 0)
    assert needed(replace(HAND, collapse_share=0.0)).workers == 1


def test_a_random_number_of_groups_waits_longer_than_its_mean_and_shorter_than_the_largest():
    # one worker per group: 2 s if any collapses, which of two groups with a share of a half is three times of four
    inputs = replace(HAND, groups=2, collapse_share=0.5, calls_per_group=2, mentor_slots=2)
    assert predict(inputs).mentor_wait == pytest.approx(1.5, abs=0.05)
    assert predict(replace(inputs, collapsed_groups=1)).mentor_wait == 2


def test_nothing_waits_ahead_of_time_and_a_mentor_that_keeps_up_gives_every_place_a_lesson():
    # 12 s of calls in a step of 21 s
    found = predict(replace(HAND, schedule=AHEAD))
    assert (found.mentor_wait, found.step, found.rerolled) == (0, 21, 4)
    assert found.utilisation == pytest.approx(12 / 21)
    assert (found.staleness, found.outstanding) == (1, 4)


def test_a_mentor_that_does_not_keep_up_rerolls_what_it_gets_done_in_a_step():
    # 10 s a group: a step of 13 + 2 n s yields n = (13 + 2 n) / 10 lessons
    found = predict(replace(HAND, schedule=AHEAD, call_seconds=10 / 3))
    assert found.rerolled == pytest.approx(13 / 8, rel=1e-6)
    assert found.step == pytest.approx(13 + 2 * 13 / 8, rel=1e-6)
    assert found.utilisation > 1


def test_lessons_that_take_several_steps_are_that_old():
    # eight workers, 30 s a group, steps of 21 s: ready in the second step after
    found = predict(replace(HAND, schedule=AHEAD, call_seconds=10.0, mentor_slots=8))
    assert (found.rerolled, found.staleness, found.outstanding) == (4, 2, 8)


def test_a_queue_that_is_too_small_bounds_the_lessons_of_a_step_and_the_groups_that_are_worked_on():
    # a hint takes a part of a step, but its group stays in the queue for all of it
    found = predict(replace(HAND, schedule=AHEAD, mentor_slots=8, mentor_queue_size=2))
    assert (found.rerolled, found.reroll, found.staleness, found.outstanding) == (2, 4, 1, 4)
    assert replace(HAND, schedule=AHEAD, mentor_slots=8, mentor_queue_size=2).workers == 2


@pytest.mark.parametrize(
    ("name", "values", "inline", "ahead"),
    [
        ("collapse_share", (0.1, 0.3, 0.6, 1.0), "longer", "longer"),
        ("length_spread", (0.0, 0.5, 1.0), "longer", "longer"),
        ("roll_seconds", (0.0, 1.0, 5.0), "longer", "longer"),
        ("policy_tokens_per_second", (5, 10, 100), "shorter", "shorter"),
        # ahead, a mentor that gets less done costs no time, but re-rolls
        ("call_seconds", (0.1, 1.0, 10.0), "longer", "shorter"),
        ("calls_per_group", (3, 5, 9), "longer", "shorter"),
        ("replicas", (1, 2, 8), "shorter", "longer"),
        ("mentor_max_concurrency", (1, 4, 8), "shorter", "longer"),
        ("group_spread", (0.0, 0.3, 0.8), "longer", "equal"),
    ],
)
def test_a_step_gets_longer_or_shorter_as_its_figures_say(name, values, inline, ahead):
    for schedule, expected in ((ScheduleKind.INLINE, inline), (AHEAD, ahead)):
        steps = [predict(replace(BUSY, schedule=schedule, **{name: value})).step for value in values]
        for before, after in pairwise(steps):
            assert expected == "longer" or after <= before * (1 + 1e-9)
            assert expected == "shorter" or after >= before * (1 - 1e-9)
        assert (steps[0] == steps[-1]) is (expected == "equal")


@pytest.mark.parametrize("schedule", list(ScheduleKind))
def test_the_mentor_that_is_said_to_be_needed_is_enough_and_one_worker_less_is_not(schedule):
    inputs = replace(BUSY, schedule=schedule, training_seconds=100.0, call_seconds=4.0)
    need = needed(inputs, 0.15)
    shares = []
    for workers in (need.workers, need.workers - 1):
        found = predict(replace(inputs, mentor_slots=100, mentor_max_concurrency=workers))
        shares.append(
            found.mentor_wait / found.step / 0.15 if schedule is ScheduleKind.INLINE else found.utilisation / 0.8
        )
    assert shares[0] <= 1 < shares[1]
    assert need.replicas == math.ceil(need.workers / 2)


def test_no_mentor_is_large_enough_if_the_calls_of_one_group_take_too_long():
    assert needed(replace(HAND, call_seconds=100.0)) is None


def test_a_call_takes_its_share_of_a_replica():
    inputs = replace(
        HAND,
        call_seconds=None,
        prompt_tokens_per_call=100,
        completion_tokens_per_call=50,
        mentor_prompt_tokens_per_second=1000,
        mentor_tokens_per_second=100,
        mentor_slots=4,
    )
    assert inputs.seconds_per_call == 4 * 0.1 + 4 * 0.5
    assert replace(inputs, mentor_max_concurrency=1).seconds_per_call == 0.1 + 4 * 0.5


def test_groups_are_taken_in_order_by_the_worker_that_is_free_first():
    assert finish_times([3, 1, 1, 5], 2) == [3, 1, 2, 7]
    assert finish_times([], 2) == []


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("collapse_share", 1.5, "share from 0 to 1"),
        ("ranks", 0, "above 0"),
        ("groups", 2.5, "whole number"),
        ("training_seconds", -1, "at least 0"),
        ("policy_tokens_per_second", 0, "above 0"),
        ("call_seconds", float("nan"), "at least 0"),
        ("collapsed_groups", 5, "more than the 4 groups"),
    ],
)
def test_a_figure_that_cannot_be_is_refused(name, value, complaint):
    with pytest.raises(ConfigError, match=complaint):
        replace(HAND, **{name: value})


def hand_flags(**changes: object) -> list[str]:
    values = {figure.name: getattr(HAND, figure.name) for figure in FLAGS} | changes
    return [
        word
        for name, value in values.items()
        if value is not None
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]


def test_plan_prints_the_parts_of_a_step_and_where_they_come_from(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["plan", *hand_flags()]) == 0
    printed = capsys.readouterr().out
    assert "4 groups x 2 completions x 10 tokens / (1 GPUs x 10 tokens/s)" in printed
    assert "4 groups x (3 calls x 1 s), 1 at once, until the last is done" in printed
    for text in ("mentor wait", "12 s", "33 s", "+153.8%", "Use --schedule ahead"):
        assert text in printed


def test_plan_says_what_is_wrong_with_a_mentor_that_is_too_small(capsys):
    assert main(["plan", *hand_flags(schedule="ahead", call_seconds=10.0)]) == 0
    assert "do not keep up" in capsys.readouterr().out
    assert main(["plan", *hand_flags(mentor_deadline=7.0)]) == 0
    assert "deadline" in capsys.readouterr().out


def test_plan_prints_json(capsys):
    assert main(["plan", *hand_flags(), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["prediction"]["mentor_wait"] == 12
    assert printed["prediction"]["step"] == 33
    assert printed["inputs"]["schedule"] == "inline"


def test_a_plan_without_any_plain_work_is_valid_json(capsys):
    assert main(["plan", *hand_flags(completion_tokens=0, training_seconds=0), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["prediction"]["overhead"] is None


def test_plan_names_the_flags_of_figures_that_are_missing(capsys):
    assert main(["plan", "--ranks", "2", "--groups", "4"]) == 2
    error = capsys.readouterr().err
    assert "--completion-tokens" in error
    assert "--ranks" not in error


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A training without a checkpoint, in which two of four groups collapse in each step."""
    out = tmp_path_factory.mktemp("run")
    return out, tiny.trained(out, max_steps=4)


def test_groups_that_were_skipped_for_their_cause_are_no_load(tmp_path, capsys):
    routes = {"duplicates": "mentor", "cut_off": "skip"}
    trainer = tiny.trained(tmp_path, max_steps=4, mentor_routes=routes)
    capsys.readouterr()
    assert main(["plan", "--from-run", str(tmp_path), "--json"]) == 0
    share = json.loads(capsys.readouterr().out)["inputs"]["collapse_share"]
    totals = trainer.mentor_totals
    assert 0 < totals.not_asked < totals.collapsed
    assert share == (totals.collapsed - totals.not_asked) / totals.groups


def test_plan_reads_its_figures_off_a_run(run, capsys):
    out, trainer = run
    assert main(["plan", "--from-run", str(out), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    inputs = printed["inputs"]
    assert (inputs["ranks"], inputs["groups"], inputs["num_generations"]) == (1, 4, 4)
    assert (inputs["collapse_share"], inputs["calls_per_group"]) == (0.5, 3)
    assert inputs["schedule"] == "inline"
    totals = trainer.mentor_totals
    assert inputs["completion_tokens"] == (totals.policy_tokens - totals.reroll_tokens) / totals.completions
    log = [entry for entry in trainer.state.log_history if "step_time" in entry]
    plain = sorted(entry["step_time"] - entry["mentor/seconds"] - entry["mentor/reroll_seconds"] for entry in log)
    assert plain[0] / 2 < printed["prediction"]["plain_step"] < 2 * plain[-1]
    assert printed["sources"]["training_seconds"] == "run"


def test_a_run_planned_for_more_gpus_keeps_its_groups_per_gpu_and_a_flag_wins(run, capsys):
    out, _ = run
    words = ["plan", "--from-run", str(out), "--json", "--ranks", "8", "--call-seconds", "7"]
    assert main(words) == 0
    eight = json.loads(capsys.readouterr().out)
    assert (eight["inputs"]["groups"], eight["inputs"]["call_seconds"]) == (32, 7)
    assert main(["plan", "--from-run", str(out), "--json"]) == 0
    one = json.loads(capsys.readouterr().out)
    for part in ("first_roll", "training"):
        assert eight["prediction"][part] == pytest.approx(one["prediction"][part])


def test_a_batch_that_serves_several_steps_is_one_step_of_the_plan(tmp_path, capsys):
    shape = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "steps_per_generation": 2}
    trainer = tiny.trained(tmp_path, max_steps=8, save_strategy="steps", save_steps=3, **shape)
    capsys.readouterr()
    assert main(["plan", "--from-run", str(tmp_path), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["inputs"]["groups"] == 4
    steps = [entry["step_time"] for entry in trainer.state.log_history if "step_time" in entry]
    assert printed["prediction"]["plain_step"] > 1.2 * min(steps)


def test_a_run_that_has_not_finished_a_batch_is_refused_with_a_reason(tmp_path, capsys):
    journal = Journal(tmp_path / JOURNAL_PATH)
    journal.begin(0)
    journal.close()
    assert main(["plan", "--from-run", str(tmp_path)]) == 2
    assert "no batch is finished yet" in capsys.readouterr().err


def test_a_place_without_a_run_is_refused_with_a_reason(tmp_path, capsys):
    assert main(["plan", "--from-run", str(tmp_path)]) == 2
    assert "no journal" in capsys.readouterr().err
