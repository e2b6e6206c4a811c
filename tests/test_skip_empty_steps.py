"""Optimizer steps without a gradient leave the weights alone if one wants that, on all ranks alike."""

from __future__ import annotations

import letters
import pytest
import tiny
import torch
from transformers import TrainerCallback

from trl_mentor.callback import progress_line
from trl_mentor.counters import Counters
from trl_mentor.empty_steps import refuse_skipping
from trl_mentor.errors import ConfigError

NONE = {"mentor_strategy": "none", "mentor_routes": None, "weight_decay": 0.1}


class Snapshots(TrainerCallback):
    """Weights and optimizer state after each step."""

    def __init__(self):
        self.weights = []
        self.optimizer = []

    def on_step_end(self, args, state, control, model=None, optimizer=None, **kwargs):
        self.weights.append({name: value.detach().clone() for name, value in model.named_parameters()})
        self.optimizer.append(
            [{k: torch.as_tensor(v).clone() for k, v in entry.items()} for entry in optimizer.state.values()]
        )


def equal(before, after):
    return all(torch.equal(before[name], after[name]) for name in before)


def run(out, answers, **options):
    """A run in which the letters say for each step whether all four groups have an advantage, and its snapshots."""
    made = letters.trainer(out, {"first": {str(i): answers for i in range(4)}}, **{**NONE, **options})
    seen = Snapshots()
    made.add_callback(seen)
    made.train()
    return made, seen


@pytest.mark.parametrize("skip", [True, False])
def test_an_empty_step_leaves_weights_and_optimizer_as_they_are_and_without_the_setting_momentum_moves_them(
    tmp_path, skip
):
    made, seen = run(tmp_path, "mcam", max_steps=4, mentor_skip_empty_steps=skip)
    logged = [entry for entry in made.state.log_history if "grad_norm" in entry]
    assert [entry["grad_norm"] > 0 for entry in logged] == [True, False, False, True]
    unmoved = [equal(*pair) for pair in zip(seen.weights, seen.weights[1:], strict=False)]
    assert unmoved == [skip, skip, False]
    states = [all(map(equal, *pair)) for pair in zip(seen.optimizer, seen.optimizer[1:], strict=False)]
    assert states == [skip, skip, False]
    assert made.mentor_totals.skipped_steps == (2 if skip else 0)
    assert [entry.get("mentor/skipped_steps") for entry in logged] == ([None, 1, 1, None] if skip else [None] * 4)
    assert logged[-1].get("mentor/total/skipped_steps") == (2 if skip else None)
    assert made.state.global_step == 4
    assert len({entry["learning_rate"] for entry in logged}) == 4  # the schedule goes on


def test_a_run_without_empty_steps_is_the_same_with_the_setting(tmp_path):
    runs = [run(tmp_path / str(skip), "m", max_steps=2, mentor_skip_empty_steps=skip)[1] for skip in (True, False)]
    assert all(equal(*pair) for pair in zip(*(seen.weights for seen in runs), strict=True))


def test_the_first_steps_of_a_run_may_be_empty(tmp_path):
    made, seen = run(tmp_path, "ccm", max_steps=3, mentor_skip_empty_steps=True)
    assert equal(dict(tiny.model().named_parameters()), seen.weights[1])
    assert seen.optimizer[:2] == [[], []]
    assert not equal(seen.weights[1], seen.weights[2])
    assert made.mentor_totals.skipped_steps == 2


def test_a_resumed_run_goes_on_counting(tmp_path):
    options = {"max_steps": 3, "mentor_skip_empty_steps": True, "save_strategy": "steps", "save_steps": 2, **NONE}
    rolls = {"first": {str(i): "mcc" for i in range(4)}}
    whole = letters.trained(tmp_path, rolls, **options)
    resumed = letters.trained(tmp_path, rolls, resume=str(tmp_path / "checkpoint-2"), **options)
    assert resumed.mentor_totals.skipped_steps == whole.mentor_totals.skipped_steps == 2


def test_where_the_optimizer_would_step_nevertheless_the_setting_is_refused(tmp_path):
    args = tiny.config(tmp_path, mentor_skip_empty_steps=True)
    refuse_skipping(args, scaled=False, deepspeed=False)
    with pytest.raises(ConfigError, match="under DeepSpeed, which steps by itself; leave it out"):
        refuse_skipping(args, scaled=False, deepspeed=True)
    with pytest.raises(ConfigError, match="with fp16, whose gradient scaler fails without gradients; use bf16"):
        refuse_skipping(args, scaled=True, deepspeed=False)
    with pytest.raises(ConfigError, match="with optim='galore_adamw_layerwise', which steps while gradients are"):
        letters.trainer(tmp_path, {}, **NONE, mentor_skip_empty_steps=True, optim="galore_adamw_layerwise")


def test_the_progress_line_says_how_many_steps_were_left_out():
    assert progress_line(3, Counters(groups=4, skipped_steps=2), 1.0) == (
        "step 3: 0 of 4 groups collapsed; 2 steps left out"
    )
