"""The `ahead` schedule through `trainer.train()`: lessons take the places of groups that collapse later."""

from __future__ import annotations

import json
import threading
import time

import pandas as pd
import pytest
import said
import tiny

from trl_mentor import Mentor, ScriptedBackend, read_journal
from trl_mentor.errors import ConfigError
from trl_mentor.plain import plain_json
from trl_mentor.records import Assignment, HintOrigin, RerollOutcome, Role

REPLIES = {
    Role.ATTRIBUTION: said.diagnosis("confuses w1 with w2"),
    Role.GENERATION: tiny.HINT,
    Role.JUDGMENT: said.verdict("HIGH"),
    Role.REPAIR: said.repaired(tiny.HINT),
}


class Rewards(tiny.HardRowsFail):
    """Hard rows fail on the plain question; under a hint, which shows in the number of calls, half of them succeed."""

    def __init__(self, hinted_calls=()):
        super().__init__(rerolls=False)
        self.hinted_calls = set(hinted_calls)

    def __call__(self, prompts, completions, hard, answer, **kwargs):
        number = len(self.calls)
        values = super().__call__(prompts, completions, hard, answer, **kwargs)
        if number in self.hinted_calls:
            self.calls[-1]["roll"] = "second"
            return [float(i % 2 == 0) for i in range(len(values))]
        return values


class WaitsForLessons(tiny.Recorder):
    """Lets the background finish before each batch after the first, so that a test knows which lessons are ready."""

    def _generate_and_score_completions(self, inputs):
        if self.model.training and self.batches:
            end = time.monotonic() + 60
            while any(entry["lesson"] is None for entry in self.schedule.queue.state()):
                assert time.monotonic() < end
                time.sleep(0.005)
        return super()._generate_and_score_completions(inputs)


def run(tmp_path, *, steps=2, hard=lambda i: i in (1, 3, 4, 6), hinted_calls=(2,), cls=WaitsForLessons, **options):
    options = {"mentor_schedule": "ahead", "max_steps": steps, "log_completions": True} | options
    reward = Rewards(hinted_calls)
    return tiny.trained(tmp_path, reward=reward, data=tiny.dataset(8, hard=hard), cls=cls, **options), reward


def test_a_lesson_takes_the_place_of_a_group_that_collapses_later(tmp_path):
    # Groups 1 and 3 of the first batch collapse; in the second batch groups 0 (row 4) and 2 (row 6) do.
    trainer, reward = run(tmp_path)
    first, second = (tiny.rows(batch) for batch in trainer.batches)
    assert all(len(prompt) == 2 for prompt, _ in first)
    words = trainer.processing_class
    prompts = [words.decode(prompt) for prompt, _ in second]
    assert all(prompts[row].endswith("w1 w1") and tiny.HINT in prompts[row] for row in range(4))
    assert prompts[4:8] == ["w5 w5"] * 4
    assert all(prompts[row].endswith("w3 w3") and tiny.HINT in prompts[row] for row in range(8, 12))
    assert prompts[12:] == ["w7 w7"] * 4
    # Scored with the columns of its own row, under its own plain prompt.
    assert reward.calls[2]["answer"] == ["answer-1"] * 4 + ["answer-3"] * 4
    assert reward.calls[2]["prompts"] == ["w1 w1"] * 4 + ["w3 w3"] * 4
    totals = trainer.mentor_totals
    assert (totals.collapsed, totals.handed_over, totals.lessons, totals.staleness) == (4, 4, 2, 2)
    assert (totals.rescued, totals.skipped, totals.dropped) == (2, 0, 0)
    assert len(trainer.schedule.queue) == 2  # rows 4 and 6 wait


def test_the_table_and_the_journal_show_the_lesson_under_its_own_prompt(tmp_path):
    run(tmp_path)
    table = pd.read_parquet(tmp_path / "completions" / "completions_00002.parquet")
    assert all(prompt.endswith("w1 w1") for prompt in table["prompt"][:4])
    assert table["mentor/hint"].tolist() == [tiny.HINT] * 4 + [""] * 4 + [tiny.HINT] * 4 + [""] * 4
    assert table["seen"].tolist()[:4] == ["first answer-1"] * 4
    records = read_journal(tmp_path)
    assert [(r.group.answer, r.collapsed_at, r.step) for r in records] == [("answer-1", 0, 1), ("answer-3", 0, 1)]
    assert all(r.outcome is RerollOutcome.RESCUED and r.successes == (1.0, 0.0, 1.0, 0.0) for r in records)


def test_staleness_and_the_queue_are_metrics(tmp_path):
    trainer, _ = run(tmp_path)
    log = [entry for entry in trainer.state.log_history if "mentor/lessons" in entry]
    assert [entry["mentor/lessons"] for entry in log] == [0.0, 2.0]
    assert [entry["mentor/handed_over"] for entry in log] == [2.0, 2.0]
    assert log[1]["mentor/staleness"] == 1.0
    assert "mentor/staleness" not in log[0]


def test_training_goes_on_while_the_mentor_hangs(tmp_path):
    release = threading.Event()

    def hang(role, messages):
        release.wait(300)
        return REPLIES[role]

    before = time.monotonic()
    trainer, _ = run(
        tmp_path, steps=4, hinted_calls=(), cls=tiny.Recorder, mentor=Mentor(ScriptedBackend(hang), deadline=600)
    )
    release.set()
    assert trainer.state.global_step == 4
    assert time.monotonic() - before < 240
    totals = trainer.mentor_totals
    assert (totals.handed_over, totals.lessons, totals.reroll_completions) == (8, 0, 0)
    assert totals.mentor_seconds < 5


def test_a_mentor_that_fails_ends_its_groups_in_the_journal_and_leaves_the_batch_alone(tmp_path):
    def refuse(role, messages):
        raise ConnectionError("no route to mentor")

    trainer, _ = run(tmp_path, hinted_calls=(), mentor=Mentor(ScriptedBackend(refuse)))
    assert all(len(prompt) == 2 for batch in trainer.batches for prompt, _ in tiny.rows(batch))
    totals = trainer.mentor_totals
    assert (totals.skipped, totals.failed, totals.lessons) == (2, 2, 0)
    records = read_journal(tmp_path)
    assert [record.guidance.origin for record in records] == [HintOrigin.FAILED] * 2
    assert "no route to mentor" in trainer.books.last_failure


def test_a_full_queue_drops_the_oldest_that_nobody_works_on_into_the_journal(tmp_path):
    release = threading.Event()

    def hang(role, messages):
        release.wait(300)
        return REPLIES[role]

    trainer, _ = run(
        tmp_path,
        steps=3,
        hinted_calls=(),
        cls=tiny.Recorder,
        mentor=Mentor(ScriptedBackend(hang), deadline=600, max_concurrency=2),
        mentor_queue_size=3,
    )
    release.set()
    totals = trainer.mentor_totals
    assert (totals.handed_over, totals.dropped, totals.skipped) == (6, 3, 3)
    records = read_journal(tmp_path)
    # The two groups of the first batch are being worked on, so later ones make room.
    assert [(record.collapsed_at, record.step) for record in records] == [(1, 1), (1, 2), (2, 2)]
    assert all("mentor_queue_size" in record.guidance.reason for record in records)


def test_lessons_survive_a_checkpoint(tmp_path):
    options = {"save_strategy": "steps", "save_steps": 1}
    run(tmp_path, steps=1, hinted_calls=(), **options)
    saved = json.loads((tmp_path / "checkpoint-1" / "trainer_state.json").read_text())
    assert len(saved["stateful_callbacks"]["MentorCallback"]["attributes"]["lessons"]) == 2

    reward = Rewards(hinted_calls=(1,))
    resumed = tiny.trainer(
        tmp_path,
        reward=reward,
        data=tiny.dataset(8, hard=lambda i: i in (1, 3, 4, 6)),
        cls=WaitsForRestored,
        mentor_schedule="ahead",
        max_steps=2,
        **options,
    )
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
    assert reward.calls[1]["answer"] == ["answer-1"] * 4 + ["answer-3"] * 4
    totals = resumed.mentor_totals
    assert (totals.handed_over, totals.lessons, totals.staleness, totals.rescued) == (4, 2, 2, 2)


class WaitsForRestored(tiny.Recorder):
    """Lets the lessons of the checkpoint be finished before the first batch."""

    def _generate_and_score_completions(self, inputs):
        while any(entry["lesson"] is None for entry in self.schedule.queue.state()):
            time.sleep(0.005)
        return super()._generate_and_score_completions(inputs)


def test_a_new_run_of_the_same_trainer_begins_with_an_empty_queue(tmp_path):
    trainer, _ = run(tmp_path, steps=1, hinted_calls=())
    assert len(trainer.schedule.queue) == 2
    trainer.train()
    assert trainer.mentor_totals.handed_over == 2
    assert trainer.mentor_totals.lessons == 0


def test_resampling_ahead_rolls_the_plain_prompt_later(tmp_path):
    trainer, reward = run(tmp_path, mentor_strategy="resample")
    assert reward.calls[2]["answer"] == ["answer-1"] * 4 + ["answer-3"] * 4
    assert trainer.mentor_totals.lessons == 2


def test_a_lesson_from_a_data_set_with_other_columns_ends_and_says_why(tmp_path):
    trainer, _ = run(tmp_path, steps=1, hinted_calls=())
    queue = trainer.schedule.queue
    while any(entry["lesson"] is None for entry in queue.state()):
        time.sleep(0.005)
    old = queue.next_finished()
    group = old.assignment.group
    now = Assignment(group, {**old.assignment.example, "new_column": 1}, 5)
    queue.restore([{"assignment": plain_json(old.assignment), "lesson": plain_json(old.lesson)}])
    planned = trainer.schedule.plan([now], lambda prepared: prepared)
    assert planned.places == [None]
    assert "other columns" in planned.unused[0].lesson.guidance.reason


def test_after_an_interrupt_the_mentor_begins_no_further_group(tmp_path):
    class Interrupts(tiny.Recorder):
        def _generate_and_score_completions(self, inputs):
            if self.batches:
                raise KeyboardInterrupt
            return super()._generate_and_score_completions(inputs)

    gate = threading.Event()

    def hang(role, messages):
        gate.wait(300)
        return REPLIES[role]

    backend = ScriptedBackend(hang)
    trainer = tiny.trainer(
        tmp_path,
        reward=Rewards(),
        data=tiny.dataset(8, hard=lambda i: i in (1, 3)),
        cls=Interrupts,
        mentor_schedule="ahead",
        max_steps=2,
        mentor=Mentor(backend, max_concurrency=1, deadline=600),
    )
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    gate.set()
    end = time.monotonic() + 60
    while trainer.schedule.queue.state()[0]["lesson"] is None:
        assert time.monotonic() < end
        time.sleep(0.005)
    time.sleep(0.1)
    assert len({str(request.messages[-1]) for request in backend.requests if request.role is Role.ATTRIBUTION}) == 1


def test_when_training_ends_the_mentor_makes_no_further_call_for_a_lesson_under_way(tmp_path):
    gate = threading.Event()

    def hang(role, messages):
        gate.wait(300)
        return REPLIES[role]

    backend = ScriptedBackend(hang)
    trainer = tiny.trainer(
        tmp_path,
        reward=Rewards(),
        data=tiny.dataset(8, hard=lambda i: i == 1),
        mentor_schedule="ahead",
        max_steps=2,
        mentor=Mentor(backend, deadline=600, call_timeout=600),
    )
    trainer.train()
    end = time.monotonic() + 60
    while trainer.schedule.queue.state()[0]["lesson"] is None:  # although the call hangs
        assert time.monotonic() < end
        time.sleep(0.005)
    assert trainer.schedule.queue.state()[0]["lesson"]["guidance"]["reason"] == "the training ended"
    gate.set()
    while any(thread.name == "trl-mentor" for thread in threading.enumerate()):
        assert time.monotonic() < end
        time.sleep(0.005)
    assert {request.role for request in backend.requests} == {Role.ATTRIBUTION}


def test_a_checkpoint_of_another_strategy_gives_its_groups_and_not_its_lessons(tmp_path):
    options = {"save_strategy": "steps", "save_steps": 1}
    run(tmp_path, steps=1, hinted_calls=(), **options)
    reward = Rewards(hinted_calls=(1,))
    resumed = tiny.trainer(
        tmp_path,
        reward=reward,
        data=tiny.dataset(8, hard=lambda i: i in (1, 3, 4, 6)),
        cls=WaitsForRestored,
        mentor_schedule="ahead",
        mentor_strategy="resample",
        max_steps=2,
        **options,
    )
    resumed.train(resume_from_checkpoint=True)
    assert reward.calls[1]["answer"] == ["answer-1"] * 4 + ["answer-3"] * 4
    assert [record.guidance for record in read_journal(tmp_path) if record.strategy == "resample"] == [None, None]


def test_a_queue_smaller_than_a_batch_is_warned_about(tmp_path, caplog):
    tiny.trainer(tmp_path / "a", mentor_schedule="ahead", mentor_queue_size=4)
    assert "mentor_queue_size" not in caplog.text
    tiny.trainer(tmp_path / "b", mentor_schedule="ahead", mentor_queue_size=3)
    assert "Set mentor_queue_size to 4 or more" in caplog.text


def test_the_deadline_of_a_mentor_that_nobody_waits_for_may_exceed_ddp_timeout(tmp_path):
    tiny.config(tmp_path, mentor_schedule="ahead", mentor_deadline=5000.0)
    with pytest.raises(ConfigError, match="ddp_timeout"):
        tiny.config(tmp_path, mentor_schedule="inline", mentor_deadline=5000.0)


@pytest.mark.parametrize("value", ["later", ""])
def test_an_unknown_schedule_is_refused_with_the_known_ones(tmp_path, value):
    with pytest.raises(ValueError, match=r"mentor_schedule must be one of \['inline', 'ahead'\]"):
        tiny.config(tmp_path, mentor_schedule=value)
