"""Hint reliance: the log-probabilities are those that a forward pass written out by hand gives."""

from __future__ import annotations

import functools
import statistics

import letters
import pytest
import tiny
from by_hand import assert_close, measured, reliances
from peft import LoraConfig

from trl_mentor import read_journal
from trl_mentor.records import Arm

ROLLS = {"first": {"1": "c", "3": "c"}, "mentor/reroll": {"1": "m", "3": "a"}}


class Checked(letters.Announcer):
    """The shipped trainer, which also measures each batch by hand."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.by_hand = []

    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        self.model.eval()
        self.by_hand.append(measured(self.model, tiny.rows(output), self.args.temperature))
        self.model.train()
        return output


def adapted(dropout):
    lora = LoraConfig(r=8, lora_alpha=32, target_modules="all-linear", init_lora_weights=False, lora_dropout=dropout)
    return functools.partial(Checked, peft_config=lora)


@pytest.mark.parametrize("cls", [Checked, adapted(0.5)], ids=["the whole policy", "an adapter with dropout"])
@pytest.mark.parametrize("per_device", [16, 2], ids=["at once", "in chunks"])
def test_reliance_is_the_difference_of_the_two_log_probabilities_per_token(tmp_path, cls, per_device):
    shape = {"per_device_train_batch_size": per_device, "gradient_accumulation_steps": 16 // per_device}
    options = {"temperature": 0.1, "max_steps": 2, "mentor_hint_reliance": True, "cls": cls, **shape}
    trainer = letters.trained(tmp_path, ROLLS, **options)
    for step in range(2):
        by_hand = [row for row in trainer.by_hand[step] if row is not None]
        assert len(by_hand) == 8
        assert_close(reliances(tmp_path, step), [statistics.fmean(ratios) for ratios, _, _ in by_hand])
        # Of group 1 every second completion succeeds, of group 3 all do.
        successes = [by_hand[row][0] for row in (1, 3, 4, 5, 6, 7)]
        hinted, plain = (statistics.fmean(value for row in by_hand for value in row[kind]) for kind in (1, 2))
        (entry,) = [entry for entry in trainer.state.log_history if entry["step"] == step + 1 and "loss" in entry]
        for name, value in {
            "hint_reliance": statistics.fmean(map(statistics.fmean, successes)),
            "hint_reliance_token_min": statistics.fmean(map(min, successes)),
            "hint_reliance_row_sum": statistics.fmean(map(sum, successes)),
            "reroll_entropy_hinted": hinted,
            "reroll_entropy_plain": plain,
        }.items():
            assert entry[f"mentor/{name}"] == pytest.approx(value, abs=2e-4)
        assert abs(hinted - plain) > 1e-3
    assert trainer.mentor_totals.reliance_count == 12


def test_measuring_changes_nothing_about_the_training(tmp_path):
    options = {"max_steps": 2, "cls": adapted(0.5)}
    plain, measured = (
        letters.trained(tmp_path / str(on), ROLLS, mentor_hint_reliance=on, **options) for on in (False, True)
    )
    assert [tiny.rows(batch) for batch in measured.batches] == [tiny.rows(batch) for batch in plain.batches]
    losses = [[entry["loss"] for entry in each.state.log_history if "loss" in entry] for each in (plain, measured)]
    assert losses[0] == losses[1]
    assert reliances(tmp_path / "False", 0) == []


def test_rows_whose_hint_was_withheld_have_no_reliance(tmp_path):
    rows = 8
    rolls = {"first": {str(number): "c" for number in range(rows)}}
    options = {"rows": rows, "per_device_train_batch_size": 32, "mentor_control_fraction": 0.5}
    trainer = letters.trained(tmp_path, rolls, mentor_hint_reliance=True, **options)
    measured = {arm: set() for arm in (Arm.HINT, Arm.CONTROL)}
    for item in read_journal(tmp_path):
        measured[item.arm].add(sum(value is not None for value in item.reliances))
    assert measured == {Arm.HINT: {4}, Arm.CONTROL: {0}}
    hinted = sum(item.arm is Arm.HINT for item in read_journal(tmp_path))
    assert trainer.mentor_totals.reliance_count == 2 * hinted


def test_the_row_without_a_hint_in_a_mixed_re_roll_is_not_measured(tmp_path):
    trainer = letters.trained(tmp_path, ROLLS, cls=Checked, mentor_rescue="mixed", mentor_hint_reliance=True)
    by_hand = [row for row in trainer.by_hand[0] if row is not None]
    assert len(by_hand) == 6
    found = reliances(tmp_path, 0)
    assert [found[3], found[7]] == [None, None]
    assert_close([value for value in found if value is not None], [statistics.fmean(row[0]) for row in by_hand])
    totals = trainer.mentor_totals
    assert totals.reliance_count == 4  # of group 1 the second, of group 3 the first three
    assert totals.entropy_tokens == sum(len(row[0]) for row in by_hand)


def test_a_second_roll_without_any_hint_is_not_measured(tmp_path):
    trainer = letters.trained(tmp_path, ROLLS, mentor_strategy="resample", mentor_hint_reliance=True)
    assert trainer.mentor_totals.reliance_count == 0
    assert not any("reliance" in name or "reroll_entropy" in name for name in trainer.state.log_history[0])
