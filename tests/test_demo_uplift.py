"""The control arm in the world of the demo: it tells good hints from hints that are meant for other questions."""

from __future__ import annotations

import io
import random

import pytest
from rich.console import Console

from trl_mentor import read_journal
from trl_mentor.demo import run as demo
from trl_mentor.demo.training import Budget, train
from trl_mentor.demo.tutor import ShuffledTutor, Tutor
from trl_mentor.demo.world import sample_problems
from trl_mentor.records import Arm
from trl_mentor.trial import recovery
from trl_mentor.uplift import difference_text, uplift, uplift_table

TINY = Budget(tokens=7_000, train_per_family=10, held_out_per_family=1, samples=1)


@pytest.fixture(scope="module")
def problems():
    return sample_problems(random.Random(demo.WORLD_SEED), TINY.train_per_family, held_out=False)


def test_hints_that_fit_have_an_interval_above_zero_which_the_demo_prints(tmp_path):
    screen = io.StringIO()
    console = Console(file=screen, width=80, force_terminal=False)
    result = demo.run_demo([0], short=True, budget=TINY, output_dir=tmp_path, control_fraction=0.3, console=console)
    journal = read_journal(tmp_path / "seed0" / "MENTOR")
    found = uplift(recovery(journal))
    assert found.low > 0.3
    assert f"uplift {difference_text(found)}" in " ".join(screen.getvalue().split())
    assert result["settings"]["control_fraction"] == 0.3
    assert {row.name for row in uplift_table(recovery(journal)) if row.kind == "topic"} >= {"range", "last"}
    assert read_journal(tmp_path / "seed0" / "GRPO").totals.recovery.cells == {}


def test_hints_meant_for_other_questions_have_an_interval_that_does_not_lie_above_zero(problems, tmp_path):
    run = train(
        "MENTOR",
        seed=0,
        budget=TINY,
        problems=problems,
        held_out=[next(iter(problems.values()))],
        output_dir=tmp_path,
        on_batch=lambda tokens, collapsed: None,
        control_fraction=0.3,
        tutor=ShuffledTutor,
    )
    found = uplift(run.totals.recovery)
    assert found.low <= 0
    hinted = [item for item in read_journal(tmp_path) if item.arm is Arm.HINT]
    assert len(hinted) > 20  # accepted and used, though beside the point


def test_the_shuffled_tutor_writes_the_same_sound_hint_each_time_for_a_question_that_shares_no_concept(problems):
    right, shuffled = Tutor(problems), ShuffledTutor(problems)
    for problem in problems.values():
        said = shuffled.diagnose(problem.question, [problem.naive])
        assert said == ShuffledTutor(problems).diagnose(problem.question, [])
        assert said
        assert not set(said) & {*right.diagnose(problem.question, [problem.naive]), *problem.concepts}
