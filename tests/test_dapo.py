"""DAPO's dynamic sampling: places without an advantage are filled anew until they have one, or the rounds are over."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
import tiny
from datasets import Dataset
from letters import VALUES

from trl_mentor import read_journal
from trl_mentor.counters import outcomes
from trl_mentor.errors import ConfigError
from trl_mentor.records import CollapsedGroup, GroupState, RerollOutcome
from trl_mentor.refill import Refill
from trl_mentor.strategies.dapo import DapoStrategy

DAPO = {"mentor_strategy": "dapo", "mentor_routes": None}


class ByPrompt:
    """Letters say how each row of the data set is answered each time: all wrong, all right or mixed."""

    __name__ = "verifier"

    def __init__(self, *letters: str) -> None:
        """`letters` of row i are those of the number of the roll, of which the last goes on."""
        self.letters = letters
        self.rolls: list[list[int]] = []

    def __call__(self, completions, answer, **kwargs):
        numbers = [int(name.removeprefix("answer-")) for name in answer]
        self.rolls.append(numbers[::4])
        letters = self.letters[min(len(self.rolls), len(self.letters)) - 1]
        return [VALUES[letters[number]][place % 2] for place, number in enumerate(numbers)]


def dapo(out, *answers, **options):
    """A trainer after one step of four groups, which ask the rows 0 to 3."""
    reward = ByPrompt(*answers)
    return tiny.trained(out, reward=reward, data=tiny.dataset(len(answers[0])), **{**DAPO, **options}), reward


def asked(trainer, step=0):
    """The data set row that each place of a batch was trained on."""
    words = [tuple(trainer.processing_class(f"w{i} w{i}").input_ids) for i in range(16)]
    return [words.index(prompt) for prompt, _ in tiny.rows(trainer.batches[step])[::4]]


def advantages(trainer, step=0):
    """Whether each group of a batch has any."""
    values = trainer.batches[step]["advantages"].reshape(4, 4)
    return [bool((group != 0).any()) for group in values]


def test_all_wrong_and_all_right_groups_give_their_places_to_fresh_questions_until_all_have_an_advantage(tmp_path):
    answers = "camm" + "cacamamc"
    trainer, reward = dapo(tmp_path, answers, log_completions=True)
    places = asked(trainer)
    assert places[2:] == [2, 3]
    assert [answers[number] for number in places] == ["m"] * 4
    assert advantages(trainer) == [True] * 4
    rolls = reward.rolls
    assert rolls[0] == [0, 1, 2, 3]
    for before, after in pairwise(rolls):  # only what has no advantage is drawn again
        assert len(after) == sum(answers[number] != "m" for number in before)
    assert len(rolls[1]) == 2
    assert sorted(rolls[-1]) == sorted(set(rolls[-1]))
    drawn = [number for roll in rolls[1:] for number in roll]
    assert len(set(drawn)) == len(drawn)
    assert not {0, 1, 2, 3} & set(drawn)
    totals = trainer.mentor_totals
    assert (totals.collapsed, totals.all_correct, totals.groups) == (1, 1, 4)
    assert (totals.refilled, totals.other_groups, totals.skipped, totals.another_round) == (2, 1, 1, 0)
    assert outcomes(totals)["places of groups that other questions were sampled in"] == 2
    assert (totals.rescued, totals.still_collapsed, totals.hint_saturated) == (0, 0, 0)
    assert totals.reroll_completions == 4 * len(drawn)
    assert totals.policy_tokens == trainer.generated
    assert list(trainer._logs["prompt"])[::4] == [f"w{number} w{number}" for number in places]


def test_the_journal_tells_of_a_refilled_group_once_and_without_the_completions_of_other_questions(tmp_path):
    _, reward = dapo(tmp_path, "caamcacmmmmm")
    assert len(reward.rolls) > 1
    (record,) = read_journal(tmp_path)
    assert (record.outcome, record.group.question, record.completions) == (RerollOutcome.SKIPPED, "w0 w0", ())
    assert (record.strategy, record.round, record.group.index) == ("dapo", 1, 0)


def test_rounds_end_and_what_is_left_is_trained_without_an_advantage(tmp_path):
    trainer, reward = dapo(tmp_path, "c" * 16)
    assert len(reward.rolls) == 11
    assert [len(roll) for roll in reward.rolls] == [4] * 11
    assert trainer.batches[0]["advantages"].abs().sum() == 0
    totals = trainer.mentor_totals
    assert (totals.refilled, totals.skipped, totals.still_collapsed, totals.reroll_completions) == (4, 4, 0, 160)
    assert len(read_journal(tmp_path)) == 4


def test_a_strategy_object_has_the_rounds_of_the_paper_as_well(tmp_path):
    reward = ByPrompt("c" * 4)
    tiny.trained(tmp_path, reward=reward, data=tiny.dataset(4), strategy=DapoStrategy(), mentor_routes=None)
    assert reward.rolls == [[0, 1, 2, 3]] * 11


def test_rounds_can_be_fewer(tmp_path):
    _, reward = dapo(tmp_path, "c" * 16, mentor_max_rounds=3)
    assert len(reward.rolls) == 4


def test_a_data_set_that_is_no_larger_than_the_batch_is_drawn_from_nevertheless(tmp_path):
    trainer, reward = dapo(tmp_path, "cccm")
    assert {number for roll in reward.rolls for number in roll} == {0, 1, 2, 3}
    assert trainer.mentor_totals.refilled == 3
    assert asked(trainer)[3] == 3


def test_places_are_filled_from_the_start_step_on_and_what_had_not_collapsed_is_not_counted_before(tmp_path):
    trainer, reward = dapo(tmp_path, "camm" + "mmmm" + "cmmm", max_steps=2, mentor_start_step=1)
    assert reward.rolls[:2] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    totals = trainer.mentor_totals
    assert (totals.collapsed, totals.held_back, totals.skipped, totals.not_asked, totals.refilled) == (1, 1, 1, 1, 0)
    (record,) = read_journal(tmp_path)
    assert (record.group.index, record.outcome) == (0, RerollOutcome.SKIPPED)


def test_without_refill_a_group_samples_its_own_prompt_again(tmp_path):
    # Row 0 is mixed on its second re-roll, row 1 on its first, row 3 never.
    trainer, reward = dapo(tmp_path, "camc", "cmmc", "mmmc", mentor_dapo_refill=False, mentor_max_rounds=4)
    assert reward.rolls == [[0, 1, 2, 3], [0, 1, 3], [0, 3], [3], [3]]
    assert asked(trainer) == [0, 1, 2, 3]
    assert advantages(trainer) == [True, True, True, False]
    totals = trainer.mentor_totals
    assert (totals.rescued, totals.still_collapsed, totals.skipped) == (1, 1, 0)
    assert (totals.another_round, totals.refilled, totals.other_groups) == (1 + 3, 0, 1)
    records = read_journal(tmp_path)
    assert Counter(item.group.index for item in records) == {0: 2, 3: 4}


def test_the_same_rows_are_drawn_again_and_others_in_another_batch(tmp_path):
    answers = "ccmm" + "camcamcamcam"
    runs = [dapo(tmp_path / str(i), answers)[1].rolls for i in range(2)]
    other = dapo(tmp_path / "other", answers, seed=8)[1].rolls
    assert runs[0] == runs[1]
    assert runs[0] != other


def test_a_resumed_run_draws_as_the_first_one_did(tmp_path):
    answers = "cmmm" * 4
    options = {"max_steps": 3, "save_strategy": "steps", "save_steps": 2}
    whole, _ = dapo(tmp_path / "run", answers, **options)
    resumed = tiny.trainer(tmp_path / "run", reward=ByPrompt(answers), data=tiny.dataset(16), **{**DAPO, **options})
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    assert asked(resumed, 0) == asked(whole, 2)
    assert resumed.mentor_totals.refilled == whole.mentor_totals.refilled == 3


def group(index, prompt):
    return CollapsedGroup(question="", attempts=(), prompt=prompt, index=index)


def test_draws_depend_on_seed_step_place_and_prompt_and_leave_out_the_prompts_of_the_batch():
    rows = [{"prompt": f"q{i}"} for i in range(1000)]
    seen = set()
    for seed, step, index, prompt in [(0, 0, 0, "a"), (1, 0, 0, "a"), (0, 1, 0, "a"), (0, 0, 1, "a"), (0, 0, 0, "b")]:
        refill = Refill(rows, seed=seed)
        refill.begin([], step=step)
        seen.add(refill(group(index, prompt))["prompt"])
    assert len(seen) == 5
    refill = Refill(rows[:10], seed=0)
    refill.begin([f"q{i}" for i in range(8)], step=0)
    assert {refill(group(0, "q0"))["prompt"] for _ in range(2)} == {"q8", "q9"}
    assert refill(group(0, "q0"))["prompt"] in {f"q{i}" for i in range(10)}  # none is left that the batch has not had


def test_a_stream_is_refused_and_its_own_prompts_can_be_sampled_again(tmp_path):
    stream = tiny.dataset(16).to_iterable_dataset()
    with pytest.raises(ConfigError, match=r"is a stream.*mentor_dapo_refill=false"):
        tiny.trainer(tmp_path, reward=ByPrompt("c" * 16), data=stream, **DAPO)
    _, reward = dapo(tmp_path, "camm" * 4, mentor_dapo_refill=False, mentor_max_rounds=1)
    assert reward.rolls == [[0, 1, 2, 3], [0, 1]]
    reward = ByPrompt("camm" * 4)
    tiny.trained(
        tmp_path / "stream", reward=reward, data=stream, **DAPO, mentor_dapo_refill=False, mentor_max_rounds=1
    )
    assert reward.rolls == [[0, 1, 2, 3], [0, 1]]


def test_places_in_the_background_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="where strategy 'dapo' puts new rows among"):
        tiny.config(tmp_path, **DAPO, mentor_schedule="ahead", mentor_max_rounds=1)


def test_only_groups_without_an_advantage_are_selected():
    states = [GroupState.COLLAPSED, GroupState.MIXED, GroupState.ALL_CORRECT, GroupState.UNSCORABLE]
    assert DapoStrategy().select(states) == [0, 2]


def test_a_fresh_question_is_held_to_its_own_length_and_not_to_that_of_the_group_it_stands_for(tmp_path):
    long = "w9 " * 124  # longer than the context leaves beside six tokens, as such a question may be in a first roll
    rows = [{**row, "prompt": long} if i > 3 else row for i, row in enumerate(tiny.dataset(6).to_list())]
    reward = ByPrompt("cmmmmm")
    trainer = tiny.trained(tmp_path, reward=reward, data=Dataset.from_list(rows), **DAPO)
    assert trainer.mentor_totals.refilled == 1
    assert len(tiny.rows(trainer.batches[0])[0][0]) == 124
