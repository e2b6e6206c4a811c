"""The simulated cluster: what can be worked out by hand, and the plan of the same averages."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from trl_mentor.plan_records import PlanInputs
from trl_mentor.planning import predict
from trl_mentor.settings import ScheduleKind

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

from cluster_model import Cluster, Scenario, averages, simulate  # noqa: E402

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
    call_seconds=1.0,
    mentor_slots=1,
)
CLUSTER = PlanInputs(
    ranks=1,
    groups=8,
    num_generations=8,
    completion_tokens=2000,
    policy_tokens_per_second=4000,
    training_seconds=40,
    collapse_share=0.3,
    call_seconds=3.0,
    mentor_deadline=1e6,
    mentor_queue_size=1000,
)


def certain(inputs: PlanInputs, **changes: object) -> Scenario:
    """A scenario in which nothing is left to chance: each group takes three calls."""
    return replace(Scenario(inputs, steps=10, accept_rate=1.0, call_spread=0.0, length_spread=0.0), **changes)


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize(
    "changes",
    [
        *(
            {"schedule": schedule, "mentor_slots": n, "call_seconds": 0.1}
            for n in (1, 3, 9)
            for schedule in ScheduleKind
        ),
        {"mentor_slots": 2, "mentor_max_concurrency": 4},
        {"mentor_deadline": 7.0, "mentor_max_concurrency": 1},
        {"mentor_deadline": 7.0, "mentor_max_concurrency": 4},
    ],
)
def test_where_nothing_is_random_simulation_and_plan_are_equal(changes, ranks):
    inputs = replace(HAND, ranks=ranks, **changes)
    found, plan = simulate(certain(inputs)), predict(averages(certain(inputs)))
    assert found["step"] == pytest.approx(plan.step)
    assert found["wait"] == pytest.approx(plan.mentor_wait)
    assert found["staleness"] == plan.staleness
    assert found["rerolled_share"] * 4 == plan.rerolled


def test_groups_that_repairs_cannot_save_take_nine_calls():
    assert averages(certain(HAND, accept_rate=0.0)).calls_per_group == 9
    assert averages(certain(HAND, accept_rate=1.0)).calls_per_group == 3
    # 1 + 2 calls for sure, 2 more with probability .5, .25 and .125
    assert averages(certain(HAND, accept_rate=0.5)).calls_per_group == pytest.approx(4.75, rel=0.03)


def test_groups_may_be_drawn_from_what_a_journal_recorded():
    steps = Cluster(certain(HAND, recorded=((2.0, 0.5),))).run()
    assert {step.wait for step in steps} == {10}


def test_nothing_waits_ahead_and_a_lesson_is_as_many_steps_old_as_its_calls_took():
    # 30 s a group with eight workers: a lesson is ready in the second step after its group collapsed
    inputs = replace(HAND, schedule=AHEAD, call_seconds=10.0, mentor_slots=8, training_seconds=13.0)
    steps = Cluster(certain(inputs)).run()
    assert {step.wait for step in steps} == {0}
    assert [step.rerolled for step in steps] == [0, 0, 4, 4, 4, 4, 4, 4, 4, 4]
    assert {age for step in steps for age in step.ages} == {2}


def test_a_full_queue_drops_what_waits_and_never_what_is_worked_on():
    # one worker, 30 s a lesson; each step brings as many groups as the queue holds
    inputs = replace(HAND, schedule=AHEAD, call_seconds=10.0, mentor_queue_size=4)
    steps = Cluster(certain(inputs, steps=40)).run()
    assert sum(step.rerolled for step in steps) == pytest.approx(sum(step.seconds for step in steps) / 30, abs=3)
    assert sum(step.dropped + step.rerolled for step in steps) == sum(step.collapsed for step in steps) - 4


@pytest.mark.parametrize(("workers", "size"), [(32, 100), (32, 300), (32, 600), (128, 100)])
def test_the_plan_follows_a_queue_that_overflows(workers, size):
    inputs = replace(
        CLUSTER, ranks=64, groups=512, call_seconds=6.4, schedule=AHEAD, mentor_queue_size=size, mentor_slots=workers
    )
    scenario = Scenario(replace(inputs, mentor_max_concurrency=workers), steps=100)
    found, plan = simulate(scenario), predict(averages(scenario))
    assert plan.step == pytest.approx(found["step"], rel=0.03)
    assert plan.rerolled == pytest.approx(found["rerolled_share"] * plan.collapsed, rel=0.06)
    assert plan.staleness == pytest.approx(found["staleness"], abs=0.5)


def test_the_queue_never_gets_shorter_than_the_largest_batch_left_it():
    # each place that a lesson takes hands over a group of its own
    inputs = replace(HAND, groups=20, collapse_share=0.3, schedule=AHEAD, call_seconds=0.01)
    cluster = Cluster(certain(inputs, steps=100))
    steps = cluster.run()
    assert len(cluster.queue) == max(step.collapsed for step in steps)


def test_the_slowest_rank_decides():
    alone = Cluster(certain(HAND, length_spread=0.5, steps=200)).run()
    many = Cluster(certain(replace(HAND, ranks=64, groups=256), length_spread=0.5, steps=200)).run()
    assert sum(step.first_roll for step in alone) / 200 == pytest.approx(8, rel=0.05)
    assert sum(step.first_roll for step in many) / 200 > 10


@pytest.mark.parametrize("schedule", list(ScheduleKind))
@pytest.mark.parametrize(("ranks", "workers"), [(1, 2), (8, 8), (8, 32), (64, 64)])
def test_the_plan_of_the_averages_is_within_a_tenth_of_the_simulation(schedule, ranks, workers):
    inputs = replace(
        CLUSTER,
        ranks=ranks,
        groups=8 * ranks,
        mentor_slots=workers,
        mentor_max_concurrency=workers,
        schedule=schedule,
    )
    found = simulate(Scenario(inputs, steps=100))
    assert found["planned_step"] == pytest.approx(found["step"], rel=0.1)


def test_the_script_prints_a_table_and_writes_its_figures(tmp_path):
    out = tmp_path / "figures.json"
    command = [sys.executable, str(BENCHMARKS / "simulate_cluster.py"), "--steps", "5", "--json", str(out)]
    words = ["--sweep-ranks", "1", "16", "--sweep-replicas", "2", "--call-seconds", "1"]
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "planned_step" in done.stdout
    rows = json.loads(out.read_text())["results"]
    assert [(row["ranks"], row["replicas"], row["schedule"]) for row in rows] == [
        (1, 2, "inline"),
        (1, 2, "ahead"),
        (16, 2, "inline"),
        (16, 2, "ahead"),
    ]
