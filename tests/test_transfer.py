"""Prompts that collapsed come round again in training: whether they are solved without a hint then is written down."""

from __future__ import annotations

import time
from dataclasses import replace

import letters
import pytest
import tiny
from datasets import Dataset, concatenate_datasets
from letters import key, returned
from transformers import TrainerCallback

from trl_mentor import read_journal
from trl_mentor.records import Arm, RerollOutcome
from trl_mentor.tallies import Tallies, Tally
from trl_mentor.transfer import CAPACITY, Memory, Past
from trl_mentor.trial import prompt_key
from trl_mentor.uplift import compare

RESCUED, SATURATED, COLLAPSED, SKIPPED, _ = RerollOutcome


def metrics(trainer, step, name):
    (entry,) = [entry for entry in trainer.state.log_history if entry["step"] == step and "loss" in entry]
    prefix = f"mentor/{name}"
    return {key.removeprefix("mentor/"): value for key, value in entry.items() if key.startswith(prefix)}


FIRST_STEP = {"first": {"0": "cm", "1": "ca", "2": "cm", "3": "cc"}, "mentor/reroll": {"1": "a", "2": "c", "3": "c"}}
"""All four prompts collapse; the re-roll rescues 0, saturates 1 and leaves 2 and 3; then all but 3 are solved."""

SECOND_STEP = [
    returned(1, 0, 0, RESCUED, 2),
    returned(1, 1, 0, SATURATED, 4),
    returned(1, 2, 0, COLLAPSED, 2),
    returned(1, 3, 0, COLLAPSED, 0),
]


@pytest.mark.parametrize("kind", ["plain", "conversations", "a stream"])
def test_each_collapsed_prompt_is_looked_at_once_when_it_comes_round_again(tmp_path, kind):
    conversational = kind == "conversations"
    data = tiny.dataset(4, conversational=conversational)
    data = data.to_iterable_dataset() if kind == "a stream" else data
    trainer = letters.trained(tmp_path, FIRST_STEP, data=data, max_steps=3)
    after = returned(2, 3, 1, COLLAPSED, 0)  # it collapsed again in the second step
    expected = [replace(item, prompt_key=key(n, conversational=conversational)) for n, item in enumerate(SECOND_STEP)]
    journal = read_journal(tmp_path)
    assert journal.returns == [*expected, replace(after, prompt_key=key(3, conversational=conversational))]
    tallies = {"rescued": Tally(1, 1), "hint_saturated": Tally(1, 1), "still_collapsed": Tally(3, 1)}
    assert trainer.mentor_totals.transfer == journal.totals.transfer == Tallies(tallies)
    assert metrics(trainer, 2, "transfer") == {
        "transfer_rate": 1.0,
        "transfer_rate_unrescued": 0.5,
        "transfer_rate_saturated": 1.0,
    }
    assert metrics(trainer, 3, "transfer") == {"transfer_rate_unrescued": 0.0}
    assert metrics(trainer, 3, "total/transfer")["total/transfer_rate_unrescued"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(("strategy", "outcome"), [("none", SKIPPED), ("resample", RESCUED)])
def test_other_strategies_have_the_same_measure(tmp_path, strategy, outcome):
    letters.trained(tmp_path, {"first": {"1": "ca"}}, mentor_strategy=strategy, max_steps=2)
    assert read_journal(tmp_path).returns == [returned(1, 1, 0, outcome, 4)]


def test_evaluation_does_not_count_as_a_return(tmp_path):
    options = {"eval_strategy": "steps", "eval_steps": 1, "eval_dataset": tiny.dataset(4)}
    letters.trained(tmp_path, FIRST_STEP, max_steps=2, per_device_eval_batch_size=16, **options)
    assert read_journal(tmp_path).returns == SECOND_STEP


def test_without_an_optimizer_step_in_between_nothing_was_learnt_and_nothing_returns(tmp_path):
    # Two batches of the same two prompts make a step.
    shape = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2, "steps_per_generation": 1}
    letters.trained(tmp_path, {"first": {"0": "cm", "1": "cc"}}, rows=2, max_steps=2, **shape)
    assert read_journal(tmp_path).returns == [returned(1, 0, 0, RESCUED, 2), returned(1, 1, 0, RESCUED, 0)]


def test_a_prompt_that_is_there_twice_returns_once(tmp_path):
    data = concatenate_datasets([tiny.dataset(1), tiny.dataset(1), tiny.dataset(2)])
    letters.trained(tmp_path, {"first": {"0": "cm"}}, data=data, max_steps=2)
    assert read_journal(tmp_path).returns == [returned(1, 0, 0, RESCUED, 2)]


def test_the_same_words_with_another_answer_are_another_question(tmp_path):
    rows = {"prompt": ["w0 w0"] * 4, "answer": [f"answer-{i}" for i in range(4)], "hard": [True] * 4}
    letters.trained(tmp_path, FIRST_STEP, data=Dataset.from_dict(rows), max_steps=2)
    assert read_journal(tmp_path).returns == [replace(item, prompt_key=key(0)) for item in SECOND_STEP]


def test_what_could_not_be_scored_is_neither_remembered_nor_a_return(tmp_path):
    rolls = {"first": {"0": "ua", "1": "cua", "2": "cn"}, "mentor/reroll": {"1": "c"}}
    letters.trained(tmp_path, rolls, max_steps=3)
    assert read_journal(tmp_path).returns == [
        returned(1, 2, 0, RESCUED, 0, completions=2),
        returned(2, 1, 0, COLLAPSED, 4),
        returned(2, 2, 1, RESCUED, 0, completions=2),
    ]


class WaitForLessons(TrainerCallback):
    """Holds up the training at the beginning of a step until every queued lesson is written."""

    def __init__(self, trainer) -> None:
        self.trainer = trainer

    def on_step_begin(self, args, state, control, **kwargs):
        end = time.monotonic() + 60
        while any(entry["lesson"] is None for entry in self.trainer.schedule.queue.state()):
            assert time.monotonic() < end
            time.sleep(0.01)


def test_a_lesson_that_ends_in_a_later_groups_place_counts_from_there(tmp_path):
    # One prompt a step, in turn: the lesson of 0 takes the place of 1, whose own takes that of 0.
    rolls = {"first": {"0": "cccca", "1": "c"}, "mentor/reroll": {"0": "a", "1": "c"}}
    options = {"per_device_train_batch_size": 4, "mentor_schedule": "ahead"}
    trainer = letters.trainer(tmp_path, rolls, rows=2, max_steps=6, **options)
    trainer.add_callback(WaitForLessons(trainer))
    trainer.train()
    assert read_journal(tmp_path).returns == [
        returned(2, 0, 1, SATURATED, 0),
        returned(3, 1, 2, COLLAPSED, 0),
        returned(4, 0, 3, SATURATED, 4),
        returned(5, 1, 3, SKIPPED, 0),
    ]


def test_a_prompt_whose_lesson_is_still_to_come_counts_as_one_that_was_not_helped(tmp_path):
    options = {"mentor_schedule": "ahead", "mentor_strategy": "mentor", "max_steps": 2}
    letters.trained(tmp_path, {"first": {"1": "cm"}}, **options)
    assert read_journal(tmp_path).returns == [returned(1, 1, 0, SKIPPED, 2)]


def test_arms_that_were_drawn_by_lot_are_compared_with_an_interval(tmp_path):
    rows = 16
    rolls = {"first": {str(n): "ca" if n % 3 else "cc" for n in range(rows)}}
    options = {"per_device_train_batch_size": 64, "mentor_control_fraction": 0.5, "max_steps": 2}
    trainer = letters.trained(tmp_path, rolls, rows=rows, **options)
    journal = read_journal(tmp_path)
    drawn = {prompt_key(item.group.prompt): item.arm for item in journal if item.step == 0}
    assert set(drawn.values()) == {Arm.HINT, Arm.CONTROL}
    assert {item.prompt_key: item.arm for item in journal.returns} == drawn
    solved = {arm: [key(n) for n in range(rows) if n % 3 and drawn[key(n)] is arm] for arm in (Arm.HINT, Arm.CONTROL)}
    hint, control = (Tally([*drawn.values()].count(arm), len(solved[arm])) for arm in (Arm.HINT, Arm.CONTROL))
    expected = compare(hint, control)
    found = metrics(trainer, 2, "total/transfer_uplift")
    names = ("total/transfer_uplift", "total/transfer_uplift_low", "total/transfer_uplift_high")
    assert found == dict(zip(names, (expected.difference, expected.low, expected.high), strict=True))


@pytest.mark.parametrize("kept", [1, 2])
def test_a_resumed_run_remembers_what_an_uninterrupted_one_does(tmp_path, kept):
    saving = {"save_strategy": "steps", "save_steps": 1, "max_steps": 4, "per_device_train_batch_size": 8}
    # Two prompts a step: 0 and 1, then 2 and 3.
    rolls = {"first": {"0": "ccm", "1": "cca", "2": "ccccc", "3": "ccca"}, "mentor/reroll": {"1": "a", "3": "c"}}
    whole = letters.trained(tmp_path / "whole", rolls, **saving)
    checkpoint = tmp_path / "whole" / f"checkpoint-{kept}"
    resumed = letters.trained(tmp_path / "resumed", rolls, resume=str(checkpoint), **saving)
    assert read_journal(tmp_path / "whole").returns == [
        returned(2, 0, 0, RESCUED, 2),
        returned(2, 1, 0, SATURATED, 4),
        returned(3, 2, 1, RESCUED, 0),
        returned(3, 3, 1, COLLAPSED, 4),
    ]
    assert read_journal(tmp_path / "resumed").returns == read_journal(tmp_path / "whole").returns
    assert resumed.books.memory.state() == whole.books.memory.state() != []
    assert resumed.mentor_totals.transfer == whole.mentor_totals.transfer


def test_the_oldest_prompts_are_forgotten_first_also_after_a_checkpoint():
    memory, restored = Memory(), Memory()
    for number in range(CAPACITY):
        memory.remember(f"{CAPACITY - number:06}", Past(number, SKIPPED))
    restored.restore(memory.state())
    assert restored.state() == memory.state()
    restored.remember("new", Past(CAPACITY, RESCUED, Arm.CONTROL))
    assert len(restored) == CAPACITY
    assert restored.recall(f"{CAPACITY:06}") is None
    assert restored.recall("new") == Past(CAPACITY, RESCUED, Arm.CONTROL)
