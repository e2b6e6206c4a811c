"""Hints withheld by lot, through `trainer.train()`: who is re-rolled on what, what is kept of it, and by which lot."""

from __future__ import annotations

import logging
import shutil
import time
from collections import Counter

import pandas as pd
import pytest
import tiny

from trl_mentor import read_journal
from trl_mentor.callback import progress_line
from trl_mentor.counters import Counters
from trl_mentor.errors import ConfigError
from trl_mentor.records import Arm, Assignment, HintOrigin, Lesson, RerollOutcome
from trl_mentor.strategies.resample import ResampleStrategy
from trl_mentor.trial import Trial

STEPS, SIZE = 8, 4
SAVING = {"save_strategy": "steps", "save_steps": 5}
FIXED = "w33 w34"


@pytest.fixture(scope="module")
def tried(tmp_path_factory):
    """A run in whose every batch two of four groups collapse, with half of the hints withheld, and its directory."""
    out = tmp_path_factory.mktemp("tried")
    return tiny.trained(out, max_steps=STEPS, mentor_control_fraction=0.5, log_completions=True, **SAVING), out


def decode(ids):
    return tiny.tokenizer().decode(ids)


def texts(batch):
    """The prompt of each row of a generation batch, as the policy was trained on it."""
    return [decode(prompt) for prompt, _ in tiny.rows(batch)]


def arms(journal):
    return [(item.collapsed_at, item.group.index, item.arm) for item in journal]


def test_a_withheld_hint_is_kept_and_its_group_re_rolled_as_often_on_the_plain_question(tried):
    trainer, out = tried
    journal = read_journal(out)
    assert {item.arm for item in journal} == {Arm.HINT, Arm.CONTROL}
    for item in journal:
        assert (item.guidance.hint, item.guidance.origin) == (tiny.HINT, HintOrigin.ACCEPTED)
        assert len(item.completions) == len(item.successes) == SIZE
        assert item.outcome is RerollOutcome.RESCUED
        rows = [text for text in texts(trainer.batches[item.step]) if text.endswith(item.group.question)]
        assert len(rows) == SIZE
        plain = [text == item.group.question for text in rows]
        assert all(plain) if item.arm is Arm.CONTROL else not any(plain)


def test_rows_of_both_arms_are_trained_alike(tried):
    trainer, _ = tried
    for batch in trainer.batches:
        assert (batch["advantages"].abs() > 0).all()  # rescued in both arms, and the easy groups are mixed
    losses = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == STEPS


def test_the_table_of_completions_shows_only_the_hints_that_were_used(tried):
    _, out = tried
    journal = read_journal(out)
    for step in range(STEPS):
        (file,) = out.glob(f"completions/*{step + 1:05d}.parquet")
        shown = Counter(pd.read_parquet(file)["mentor/hint"])
        used = sum(item.arm is Arm.HINT for item in journal if item.step == step)
        assert shown[tiny.HINT] == SIZE * used
        assert sum(shown.values()) == 4 * SIZE


def test_the_counters_of_the_trial_add_up_with_the_journal(tried):
    trainer, out = tried
    journal, totals = read_journal(out), trainer.mentor_totals
    assert totals.recovery["hint/all"].groups + totals.recovery["control/all"].groups == len(journal) == 2 * STEPS
    assert totals.control_tokens == sum(item.reroll_tokens for item in journal if item.arm is Arm.CONTROL) > 0
    assert totals.reroll_tokens == sum(item.reroll_tokens for item in journal)
    assert totals.padding_tokens == 0  # on one process
    assert journal.totals.recovery == totals.recovery
    assert journal.run.control_fraction == 0.5


def test_logs_and_the_progress_line_have_the_uplift(tried):
    trainer, _ = tried
    last = [entry for entry in trainer.state.log_history if "loss" in entry][-1]
    assert last["mentor/total/recovery_hint"] == last["mentor/total/recovery_control"] == 1
    assert last["mentor/total/uplift_low"] < last["mentor/total/uplift"] == 0 < last["mentor/total/uplift_high"]
    assert last["mentor/total/verdict_first_draft/uplift"] == 0
    counted, recovery = Counters(groups=4, collapsed=2), trainer.mentor_totals.recovery
    assert "; uplift so far +0.0 points [-" in progress_line(8, counted, 1.0, recovery=recovery)
    assert "uplift" not in progress_line(8, counted, 1.0)


def test_the_lot_knows_seed_step_place_and_prompt_alone(tried):
    trainer, out = tried
    lots = Trial(trainer.args.seed, control=0.5)
    for item in read_journal(out):
        assert item.arm is lots.draw(Assignment(item.group, {}, item.collapsed_at))


def test_a_resumed_run_draws_the_same_and_counts_on(tried, tmp_path):
    trainer, out = tried
    shutil.copytree(out, tmp_path / "run")
    resumed = tiny.trainer(tmp_path / "run", max_steps=STEPS, mentor_control_fraction=0.5, **SAVING)
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-5"))
    assert len(resumed.batches) == STEPS - 5
    assert arms(read_journal(tmp_path / "run")) == arms(read_journal(out))
    assert resumed.mentor_totals.recovery == trainer.mentor_totals.recovery


def test_a_run_resumed_with_another_fraction_is_told_that_its_totals_mix(tried, tmp_path, caplog):
    _, out = tried
    shutil.copytree(out, tmp_path / "run")
    resumed = tiny.trainer(tmp_path / "run", max_steps=6, mentor_control_fraction=0.25)
    with caplog.at_level(logging.WARNING, logger="trl_mentor"):
        resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-5"))
    assert "withheld 0.5 of the hints and replaced 0, this run 0.25 and 0" in caplog.text


def test_without_fractions_nothing_is_drawn_and_the_first_roll_is_the_same_as_with_them(tried, tmp_path):
    trainer, _ = tried
    plain = tiny.trained(tmp_path, max_steps=1)
    assert {item.arm for item in read_journal(tmp_path)} == {None}
    assert plain.mentor_totals.recovery.cells == {}
    assert not any("uplift" in name for name in plain.state.log_history[0])
    for easy in ("w0 w0", "w2 w2"):
        rows = [
            sorted(row for row in tiny.rows(made.batches[0]) if decode(row[0]) == easy) for made in (plain, trainer)
        ]
        assert rows[0] == rows[1]
        assert len(rows[0]) == SIZE


def test_the_second_control_is_the_fixed_hint(tmp_path):
    mentor = tiny.mentor(fallback_hint=FIXED)
    trainer = tiny.trained(
        tmp_path, max_steps=4, mentor=mentor, mentor_generic_fraction=0.5, mentor_control_fraction=0.25
    )
    journal = read_journal(tmp_path)
    assert {item.arm for item in journal} >= {Arm.HINT, Arm.GENERIC}
    for item in journal:
        assert item.guidance.hint == tiny.HINT
        rows = [text for text in texts(trainer.batches[item.step]) if text.endswith(item.group.question)]
        used = {Arm.HINT: tiny.HINT, Arm.GENERIC: FIXED}.get(item.arm)
        assert [text != item.group.question if used is None else used not in text for text in rows] == [False] * SIZE
    assert trainer.mentor_totals.control_tokens == sum(
        item.reroll_tokens for item in journal if item.arm is not Arm.HINT
    )


def test_where_the_fixed_hint_does_not_fit_there_is_no_lot_and_the_mentors_own_is_used(tmp_path):
    mentor = tiny.mentor(fallback_hint=" ".join(["w33"] * 300))
    trainer = tiny.trained(tmp_path, mentor=mentor, mentor_generic_fraction=0.9)
    assert [(item.arm, item.outcome) for item in read_journal(tmp_path)] == [(None, RerollOutcome.RESCUED)] * 2
    assert trainer.mentor_totals.recovery.cells == {}


class HintsOfItsOwn(ResampleStrategy):
    """A strategy with hints and without a fixed one."""

    name = "own"
    gives_hints = True

    def prepare(self, groups):
        return [Lesson(prompt=f"w5 {group.prompt}", hint="w5") for group in groups]


def test_hints_of_any_strategy_can_be_withheld(tmp_path):
    tiny.trained(tmp_path, strategy=HintsOfItsOwn(), mentor_control_fraction=0.5, max_steps=4)
    assert Counter(item.arm for item in read_journal(tmp_path)).keys() == {Arm.HINT, Arm.CONTROL}


def test_a_fixed_hint_is_not_asked_of_a_strategy_that_has_none(tmp_path):
    with pytest.raises(ConfigError, match=r"mentor_generic_fraction is 0.2, but strategy 'own' has no method generic"):
        tiny.trainer(tmp_path, strategy=HintsOfItsOwn(), mentor_generic_fraction=0.2)


def test_where_there_are_no_hints_the_fractions_do_nothing(tmp_path):
    tiny.trained(
        tmp_path,
        mentor_strategy="resample",
        mentor_routes=None,
        mentor_control_fraction=0.5,
        mentor_generic_fraction=0.2,
    )
    assert [item.arm for item in read_journal(tmp_path)] == [None, None]


class WaitsForLessons(tiny.Recorder):
    """Lets the background finish before each batch."""

    def _generate_and_score_completions(self, inputs):
        end = time.monotonic() + 60
        while any(entry["lesson"] is None for entry in self.schedule.queue.state()) and time.monotonic() < end:
            time.sleep(0.005)
        return super()._generate_and_score_completions(inputs)


def test_ahead_a_withheld_lesson_takes_the_place_of_a_later_group_on_its_own_plain_question(tmp_path):
    trainer = tiny.trained(
        tmp_path,
        mentor_schedule="ahead",
        mentor_control_fraction=0.5,
        max_steps=6,
        reward=tiny.HardRowsFail(rerolls=False),
        cls=WaitsForLessons,
    )
    lots, journal = (
        Trial(trainer.args.seed, control=0.5),
        [item for item in read_journal(tmp_path) if item.completions],
    )
    assert {item.arm for item in journal} == {Arm.HINT, Arm.CONTROL}
    for item in journal:
        assert item.collapsed_at < item.step
        assert item.arm is lots.draw(Assignment(item.group, {}, item.collapsed_at))
        rows = [text for text in texts(trainer.batches[item.step]) if text.endswith(item.group.question)]
        assert len(rows) == SIZE
        assert all((text == item.group.question) is (item.arm is Arm.CONTROL) for text in rows)
