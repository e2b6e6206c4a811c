"""Exceptions in reward functions that count as "could not be scored", through `trainer.train()`."""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import tiny
import torch

from trl_mentor import read_journal
from trl_mentor.records import Cause, RerollOutcome

UNSCORABLE = {"mentor_reward_errors": "unscorable", "max_steps": 3}


class Sandbox(tiny.HardRowsFail):
    """The tiny verifier, which raises in the calls `broken`, after it has logged what it always logs or before."""

    def __init__(self, broken=(1,), *, error=None, logs_first=False):
        super().__init__(rerolls=False)
        self.broken, self.error, self.logs_first = broken, error or OSError("no sandbox"), logs_first
        self.number = -1

    def __call__(self, **given):
        self.number += 1
        if self.number in self.broken and not self.logs_first:
            raise self.error
        values = super().__call__(**given)
        if self.number in self.broken:
            raise self.error
        return values


def lazy(inner):
    def verifier(**given):
        return (value for value in inner(**given))

    return verifier


def asynchronous(inner):
    async def verifier(**given):
        return inner(**given)

    return verifier


class AsyncObject:
    def __init__(self, inner):
        self.inner = inner

    async def __call__(self, **given):
        return self.inner(**given)


def plain(inner):
    return inner


@pytest.mark.parametrize("form", [plain, lazy, asynchronous, AsyncObject, functools.partial])
def test_what_a_reward_function_raises_costs_the_groups_of_its_call_and_no_others(tmp_path, form):
    # Calls: first roll and re-roll of step 1, first roll of step 2, then both of step 3.
    trainer = tiny.trained(tmp_path, reward=form(Sandbox(broken=(2,))), **UNSCORABLE)
    assert trainer.state.global_step == 3
    failed = [(item.step, item.group.cause is Cause.VERIFIER_ERROR) for item in read_journal(tmp_path)]
    assert failed == [(0, False)] * 2 + [(1, True)] * 4 + [(2, False)] * 2
    log = trainer.state.log_history
    assert [entry["mentor/reward_errors"] for entry in log[:3]] == [0.0, 1.0, 0.0]
    assert [entry["mentor/frac_cause_verifier_error"] for entry in log[:3]] == [0.0, 1.0, 0.0]
    assert math.isfinite(log[1]["loss"])


def test_the_journal_and_a_warning_say_what_was_raised(tmp_path, caplog):
    tiny.trained(tmp_path, reward=Sandbox(broken=(0, 1, 2)), **UNSCORABLE)
    journal = read_journal(tmp_path)
    assert len(journal) == 12
    for item in journal:
        assert item.outcome is RerollOutcome.SKIPPED
        assert item.guidance.reason == "verifier_error: the verifier failed: verifier raised OSError: no sandbox"
        assert [attempt.reward for attempt in item.group.attempts] == [None] * 4
        assert item.group.attempts[0].feedback == "could not be judged: verifier raised OSError: no sandbox"
    once = [line for line in caplog.messages if line.startswith("trl-mentor: verifier raised OSError: no sandbox at ")]
    assert len(once) == 1
    assert f"{__file__}:" in once[0]
    alarms = [line for line in caplog.messages if "could not judge 100% of the groups" in line]
    assert len(alarms) == 1
    assert "The last time, the verifier failed: verifier raised OSError: no sandbox" in alarms[0]


def test_by_default_an_exception_ends_the_run_as_in_trl(tmp_path):
    with pytest.raises(OSError, match="no sandbox"):
        tiny.trained(tmp_path, reward=Sandbox(), max_steps=3)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_an_interrupt_is_no_error_of_a_reward(tmp_path, error):
    with pytest.raises(type(error)):
        tiny.trained(tmp_path, reward=Sandbox(error=error), **UNSCORABLE)


class Odd:
    def __float__(self):
        raise OSError("no number")


@pytest.mark.parametrize(
    ("form", "wrong", "said"),
    [
        (plain, lambda values: values[:-1], "15 values for 16 completions; expected one for each"),
        (asynchronous, lambda values: [*values, 0.0], "17 values for 16 completions; expected one for each"),
        (plain, lambda values: [*values[:-1], "0.5"], "a value of type str; expected a number or None"),
        (plain, lambda values: [*values[:-1], 10**400], "a value of type int; expected a number or None"),
        (asynchronous, lambda values: [*values[:-1], Odd()], "a value of type Odd; expected a number or None"),
    ],
)
def test_values_that_are_no_scores_cost_the_groups_of_their_call_like_an_exception(tmp_path, form, wrong, said):
    inner = tiny.HardRowsFail(rerolls=False)

    def verifier(**given):
        values = inner(**given)
        return wrong(values) if len(inner.calls) == 1 else values

    trainer = tiny.trained(tmp_path, reward=form(verifier), **UNSCORABLE | {"max_steps": 2})
    assert trainer.mentor_totals.reward_errors == 1
    first = [item for item in read_journal(tmp_path) if item.step == 0]
    assert {item.guidance.reason for item in first} == {
        f"verifier_error: the verifier failed: verifier returned {said}"
    }


def test_numbers_of_any_kind_are_scores(tmp_path):
    def verifier(completions, **kwargs):
        kinds = [1, True, 0.5, None, math.nan, np.float32(0.5), torch.tensor(0.5), Fraction(1, 2)]
        return (kinds * len(completions))[: len(completions)]

    trainer = tiny.trained(tmp_path, reward=verifier, **UNSCORABLE | {"max_steps": 1})
    assert trainer.mentor_totals.reward_errors == 0


def test_by_default_a_list_of_another_length_ends_the_run_as_in_trl(tmp_path):
    with pytest.raises(ValueError, match="returned 1 rewards, but 16 were expected"):
        tiny.trained(tmp_path, reward=lambda completions, **kwargs: [0.0], max_steps=3)


def test_a_reroll_that_cannot_be_scored_leaves_its_groups_collapsed(tmp_path):
    trainer = tiny.trained(tmp_path, reward=Sandbox(broken=(1,)), **UNSCORABLE | {"max_steps": 1})
    assert {item.outcome for item in read_journal(tmp_path)} == {RerollOutcome.STILL_COLLAPSED}
    assert trainer.mentor_totals.reward_errors == 1


def test_the_other_rewards_go_on_and_only_what_decides_success_leaves_a_group_unjudged(tmp_path):
    def tidy(completions, **kwargs):
        raise ValueError("not my day")

    trainer = tiny.trained(
        tmp_path, reward=[tidy, tiny.HardRowsFail()], mentor_success_rewards=["verifier"], **UNSCORABLE
    )
    totals = trainer.mentor_totals
    assert (totals.rescued, totals.collapsed, totals.cause_verifier_error) == (6, 6, 0)
    assert totals.reward_errors == 6
    assert trainer.reward_func_names == ["tidy", "verifier"]


def test_of_a_sum_each_part_decides(tmp_path):
    def tidy(completions, **kwargs):
        raise ValueError("not my day")

    trainer = tiny.trained(tmp_path, reward=[tidy, Sandbox(broken=())], **UNSCORABLE)
    assert trainer.mentor_totals.cause_verifier_error == trainer.mentor_totals.collapsed == 6


@pytest.mark.parametrize("logs_first", [True, False])
def test_the_table_of_completions_stays_aligned(tmp_path, logs_first):
    reward = Sandbox(broken=(2,), logs_first=logs_first)
    tiny.trained(tmp_path, reward=reward, log_completions=True, **UNSCORABLE)
    table = pd.read_parquet(tmp_path / "completions" / "completions_00002.parquet")
    assert len(table) == 16
    assert table["seen"].notna().tolist() == [logs_first] * 16


def test_a_function_that_raises_in_the_middle_of_its_columns_leaves_the_rest_empty(tmp_path):
    def verifier(completions, log_extra, **kwargs):
        for number in range(len(completions)):
            log_extra("number", [number])
            if number == 5:
                raise OSError("no sandbox")
        return [0.0] * len(completions)

    tiny.trained(tmp_path, reward=verifier, log_completions=True, **UNSCORABLE)
    table = pd.read_parquet(tmp_path / "completions" / "completions_00001.parquet")
    assert table["number"].notna().tolist() == [True] * 6 + [False] * 10


def test_exceptions_in_evaluations_do_not_end_the_run(tmp_path):
    def verifier(completions, hard, **kwargs):
        if len(completions) == 4:
            raise OSError("no sandbox")
        return [float(i % 2) for i in range(len(completions))]

    trainer = tiny.trained(
        tmp_path, reward=verifier, eval_dataset=tiny.dataset(4), per_device_eval_batch_size=4, eval_strategy="steps",
        eval_steps=1, **UNSCORABLE,
    )  # fmt: skip
    assert trainer.state.global_step == 3
