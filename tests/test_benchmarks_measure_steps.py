"""The comparison of measured and predicted step times: it trains for real, and calibrates on what it is given."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from trl_mentor.planning import predict
from trl_mentor.reroll import rows_per_rank

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

from measure_steps import CALIBRATION, LARGE, SMALL, calibrated, launch, scenario, typical  # noqa: E402
from measure_steps_run import GROUP_SIZE, Setup  # noqa: E402


def step(seconds: float, rerolled: int = 0) -> dict[str, float]:
    return {"step_time": seconds, "mentor/reroll_completions": float(rerolled)}


@pytest.mark.parametrize("ranks", [1, 2])
def test_plain_steps_and_two_rerolls_say_what_any_number_of_groups_costs(ranks):
    def seconds(groups: int) -> float:
        rows = rows_per_rank(groups, group_size=GROUP_SIZE, world_size=ranks)
        return 2.0 + (0.3 + 0.01 * rows if rows else 0.0)

    steps = {setup.name: [step(seconds(count))] for setup, count in zip(CALIBRATION, (0, SMALL, LARGE), strict=True)}
    base = calibrated(steps, ranks)
    for count in (0, 2, 4, 8):
        inputs = scenario(Setup("", collapsed=count, call_seconds=0.0), base).inputs
        assert predict(inputs).step == pytest.approx(seconds(count))


def test_a_step_is_typical_as_a_median_unless_only_some_steps_reroll():
    assert typical([step(1), step(2), step(90)], "step_time") == 2
    assert typical([step(1), step(4, 4)], "step_time") == 2.5


def test_a_launch_times_every_counted_step_of_every_set_up():
    plain = Setup("plain", strategy="none", steps=2)
    waiting = Setup("waiting", collapsed=2, call_seconds=0.3, call_spread=0.0, max_concurrency=1, steps=2)
    ahead = Setup("ahead", schedule="ahead", collapsed=2, call_seconds=0.01, steps=3)
    found = launch([plain, waiting, ahead], ranks=1, seed=0)
    assert {name: len(steps) for name, steps in found.items()} == {"plain": 2, "waiting": 2, "ahead": 3}
    assert all(entry["mentor/seconds"] > 6 * 0.3 for entry in found["waiting"])
    assert all(entry["mentor/reroll_completions"] == 2 * GROUP_SIZE for entry in found["waiting"])
    assert all(entry["step_time"] > entry["mentor/seconds"] for entry in found["waiting"])
    assert any(entry["mentor/lessons"] for entry in found["ahead"])
    assert not any(entry["mentor/reroll_completions"] for entry in found["plain"])
