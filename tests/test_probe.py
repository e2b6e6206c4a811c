"""Probes: remembered prompts asked again in between, without a hint, and without a trace in the training."""

from __future__ import annotations

from dataclasses import replace

import letters
import pandas as pd
import pytest
import tiny
from letters import key, probes

from trl_mentor import read_journal
from trl_mentor.probe import POOL, Candidate, Prober
from trl_mentor.records import RerollOutcome, Return
from trl_mentor.tallies import Tallies, Tally
from trl_mentor.transfer import Past

RESCUED, SATURATED, COLLAPSED, SKIPPED, _ = RerollOutcome

FOUR_A_STEP = {
    "first": {str(number): "c" for number in range(12)},
    "mentor/reroll": {"1": "a", "2": "c", "3": "c", "5": "c", "6": "c", "7": "c", "9": "c", "10": "c"},
    "mentor/probe": {"0": "m", "1": "c", "2": "m", "3": "c"},
}
"""Twelve prompts in three steps: of the first four, 0 is rescued, 1 saturated, 2 and 3 still collapse."""


def asked(trainer):
    return [call for call in trainer.reward_funcs[0].calls if call["kind"] == "mentor/probe"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("probed")
    options = {"rows": 12, "max_steps": 3, "log_completions": True, "mentor_probe_steps": 1}
    return letters.trained(folder, FOUR_A_STEP, mentor_probe_prompts=3, **options), folder


def test_remembered_prompts_are_asked_without_a_hint_half_of_them_rescued_each_once(run):
    trainer, folder = run
    found = probes(folder)
    assert list(found) == [1, 2]
    assert [outcome for _, outcome, _ in found[1]] == [RESCUED, SATURATED, COLLAPSED]
    assert {items[0] for step in found for items in found[step]} <= set(range(8))
    assert len({items[0] for step in found for items in found[step]}) == 6
    expected = {0: 2, 1: 0, 2: 2, 3: 0}
    assert [(number, successes) for number, _, successes in found[1]] == [
        (number, expected[number]) for number, *_ in found[1]
    ]
    for call in asked(trainer):
        assert [call["prompts"].count(prompt) for prompt in call["prompts"]] == [4] * 12
        assert all(prompt in trainer.train_dataset["prompt"] for prompt in call["prompts"])
        assert call["answer"] == [f"answer-{prompt.split()[0].removeprefix('w')}" for prompt in call["prompts"]]


def test_what_probes_took_and_found_is_counted_apart(run):
    trainer, folder = run
    totals = trainer.mentor_totals
    assert totals.probe_tokens == sum(call["tokens"] for call in asked(trainer)) > 0
    assert totals.policy_tokens == sum(call["tokens"] for call in trainer.reward_funcs[0].calls)
    assert (totals.completions, totals.transfer) == (48, Tallies())
    assert totals.probed == read_journal(folder).totals.probed
    assert sum(tally.groups for tally in totals.probed.cells.values()) == 6
    (entry,) = [entry for entry in trainer.state.log_history if entry["step"] == 2 and "loss" in entry]
    solved = [number for number, outcome, successes in probes(folder)[1] if outcome is COLLAPSED and successes]
    assert (entry["mentor/probe_rate"], entry["mentor/probe_rate_saturated"]) == (1.0, 0.0)
    assert entry["mentor/probe_rate_unrescued"] == len(solved)
    assert entry["mentor/probe/rolls"] == 1.0


def test_training_goes_on_as_if_there_had_been_no_probe(run, tmp_path):
    trainer, folder = run
    plain = letters.trained(tmp_path, FOUR_A_STEP, rows=12, max_steps=3, log_completions=True)
    assert [tiny.rows(batch) for batch in trainer.batches] == [tiny.rows(batch) for batch in plain.batches]
    probed, alone = (
        [
            {name: value for name, value in entry.items() if name not in TIMES and not name.startswith("mentor/")}
            for entry in each.state.log_history
            if "loss" in entry
        ]
        for each in (trainer, plain)
    )
    assert probed == alone
    tables = [pd.read_parquet(path / "completions" / "completions_00002.parquet") for path in (folder, tmp_path)]
    assert tables[0].equals(tables[1])


TIMES = {"step_time", "num_tokens"}
"""What differs: a time, and TRL's count of all tokens, which has those of the probes in it."""


def test_a_probed_prompt_counts_nevertheless_when_it_comes_round_again(tmp_path):
    options = {"max_steps": 2, "mentor_probe_steps": 1}
    trainer = letters.trained(tmp_path, {"first": {"1": "ca"}, "mentor/probe": {"1": "c"}}, **options)
    probed = Return(1, key(1), 0, RESCUED, None, 0, 4, probe=True)
    assert read_journal(tmp_path).returns == [probed, replace(probed, successes=4, probe=False)]
    assert trainer.mentor_totals.transfer == Tallies({"rescued": Tally(1, 1)})
    assert trainer.mentor_totals.probed == Tallies({"rescued": Tally(1, 0)})


@pytest.mark.parametrize(
    ("shape", "steps"),
    [
        # Two batches make a step.
        ({"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "steps_per_generation": 1}, [2, 4]),
        # A batch serves four steps, so that the time comes between two batches.
        ({"per_device_train_batch_size": 8, "steps_per_generation": 2, "num_iterations": 2}, [4]),
    ],
)
def test_a_probe_takes_place_once_at_the_first_batch_after_so_many_steps(tmp_path, shape, steps):
    rolls = {"first": {str(number): "c" for number in range(16)}}
    options = {"rows": 16, "max_steps": 6, "mentor_probe_steps": 2, "mentor_probe_prompts": 1, **shape}
    if "gradient_accumulation_steps" not in shape:
        options["gradient_accumulation_steps"] = 1
    letters.trained(tmp_path, rolls, **options)
    assert [step for step, items in probes(tmp_path).items() for _ in items] == steps


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_a_resumed_run_probes_what_an_uninterrupted_one_does(tmp_path, kept):
    options = {"rows": 12, "max_steps": 5, "per_device_train_batch_size": 8, "mentor_probe_prompts": 1}
    options |= {"save_strategy": "steps", "save_steps": 1, "mentor_probe_steps": 2}
    whole = letters.trained(tmp_path / "whole", FOUR_A_STEP, **options)
    checkpoint = tmp_path / "whole" / f"checkpoint-{kept}"
    resumed = letters.trained(tmp_path / "resumed", FOUR_A_STEP, resume=str(checkpoint), **options)
    expected = {step: items for step, items in probes(tmp_path / "whole").items() if step >= kept}
    assert probes(tmp_path / "resumed") == expected
    assert list(expected)[-1] == 4
    assert resumed.books.prober.state() == whole.books.prober.state()
    assert resumed.mentor_totals.probed == whole.mentor_totals.probed


def test_a_data_set_row_that_json_cannot_hold_is_probed_but_not_in_the_checkpoint():
    prober = Prober(every=1, prompts=2, seed=0)
    prober.keep(Candidate("a", Past(0, RESCUED), {"prompt": "p", "answer": b"1"}))
    prober.keep(Candidate("b", Past(0, RESCUED), {"prompt": "q", "answer": "1"}))
    assert [item["key"] for item in prober.state()["pool"]] == ["b"]
    assert {item.key for item in prober.take(1)} == {"a", "b"}


def test_the_pool_is_bounded_and_what_leaves_it_is_drawn_by_lot():
    prober = Prober(every=1, prompts=4 * POOL, seed=0)
    for number in range(3 * POOL):
        prober.keep(Candidate(f"r{number}", Past(number, RESCUED), {}))
        prober.keep(Candidate(f"c{number}", Past(number, COLLAPSED), {}))
    chosen = prober.take(3 * POOL)
    assert [sum(item.past.outcome is outcome for item in chosen) for outcome in (RESCUED, COLLAPSED)] == [POOL] * 2
    ages = [item.past.step for item in chosen]
    assert POOL / 4 < sum(age < POOL for age in ages) < POOL  # of 2 * POOL; about a third of each
    assert prober.take(3 * POOL + 1) == []


def test_without_the_setting_nothing_is_kept(tmp_path):
    trainer = letters.trained(tmp_path, FOUR_A_STEP, rows=12)
    assert trainer.books.prober.state() == {"asked_at": 0, "pool": []}
    assert len(trainer.books.memory) == 4
