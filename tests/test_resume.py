"""Killed runs go on: from the newest complete checkpoint, with counters, journal and lessons in agreement."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import pytest
import said
import tiny
from transformers import TrainerCallback
from trl import GRPOConfig

from trl_mentor import Mentor, ScriptedBackend, read_journal
from trl_mentor.checkpoints import last_complete_checkpoint, why_incomplete
from trl_mentor.cli.grpo import resume_point
from trl_mentor.errors import ConfigError
from trl_mentor.journal import JOURNAL_PATH
from trl_mentor.records import Role

HERE = Path(__file__).parent
SAVING = {"save_strategy": "steps", "save_steps": 1}
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "PYTHONPATH": str(HERE)}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The directory of a run with the checkpoints 1, 2 and 3; tests work on copies."""
    out = tmp_path_factory.mktemp("finished")
    tiny.trained(out, max_steps=3, **SAVING)
    return out


@pytest.fixture
def run(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def counted(trainer, output_dir):
    """The records of the journal, after a check that their outcomes are what the trainer counts."""
    records, totals = read_journal(output_dir), asdict(trainer.mentor_totals)
    outcomes = Counter(record.outcome.value for record in records)
    names = ("rescued", "hint_saturated", "still_collapsed", "skipped")
    assert {name: outcomes[name] for name in names} == {name: totals[name] for name in names}
    return records


def logged_steps(trainer):
    return [entry["step"] for entry in trainer.state.log_history if "loss" in entry]


def test_training_with_true_resumes_from_the_newest_complete_checkpoint(run):
    (run / "checkpoint-3" / "optimizer.pt").unlink()  # transformers would begin with a new optimizer
    resumed = tiny.trainer(run, max_steps=4, **SAVING)
    resumed.train(resume_from_checkpoint=True)
    assert logged_steps(resumed) == [1, 2, 3, 4]
    records = counted(resumed, run)
    assert ([record.step for record in records], records.superseded) == ([0, 0, 1, 1, 2, 2, 3, 3], 2)
    assert why_incomplete(run / "checkpoint-3") is None


def test_training_with_true_says_why_none_of_the_checkpoints_will_do(run):
    for step, name in enumerate(["optimizer.pt", "trainer_state.json", "model.safetensors"], start=1):
        (run / f"checkpoint-{step}" / name).write_bytes(b"")
    with pytest.raises(ConfigError, match=r"no checkpoint to resume from.*checkpoint-3: model.safetensors is torn; "):
        tiny.trainer(run).train(resume_from_checkpoint=True)


def test_checkpoints_of_save_only_model_are_refused_with_the_reason(tmp_path):
    tiny.trained(tmp_path, save_only_model=True, **SAVING)
    with pytest.raises(ConfigError, match="save_only_model"):
        tiny.trainer(tmp_path).train(resume_from_checkpoint=True)


class FullDisk(tiny.Recorder):
    """The shipped trainer on a disk that has no room for the weights."""

    def save_model(self, *args, **kwargs):
        raise OSError(28, "No space left on device")


def test_a_save_that_fails_over_an_older_checkpoint_of_the_same_step_leaves_none_that_looks_complete(run):
    with pytest.raises(OSError, match="No space left"):
        tiny.trainer(run, cls=FullDisk, max_steps=3, **SAVING).train()
    assert why_incomplete(run / "checkpoint-1") is not None
    assert why_incomplete(run / "checkpoint-2") is None


@pytest.mark.parametrize(
    ("setting", "meaning"),
    [
        (None, False),
        ("false", False),
        ("true", True),
        (True, True),
        ("auto", "auto"),
        ("out/checkpoint-7", "out/checkpoint-7"),
    ],
)
def test_the_words_of_a_recipe_and_of_a_command_line_mean_the_same(setting, meaning):
    assert resume_point(setting) == meaning


def test_auto_resumes_where_something_was_saved(run):
    resumed = tiny.trainer(run, max_steps=4)
    resumed.train(resume_from_checkpoint="auto")
    assert logged_steps(resumed) == [1, 2, 3, 4]
    assert [record.step for record in counted(resumed, run)] == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("killed", [False, True], ids=["in an empty folder", "after a kill in the first save"])
def test_auto_begins_a_run_of_which_nothing_was_saved(tmp_path, killed):
    if killed:
        (tmp_path / "checkpoint-1").mkdir()
        (tmp_path / "checkpoint-1" / "model.safetensors").touch()
    begun = tiny.trainer(tmp_path)
    begun.train(resume_from_checkpoint="auto")
    assert logged_steps(begun) == [1]


def test_auto_does_not_begin_anew_over_checkpoints_that_are_incomplete(run):
    for step in (1, 2, 3):
        (run / f"checkpoint-{step}" / "scheduler.pt").unlink()
    with pytest.raises(ConfigError, match=r"checkpoint-3: scheduler.pt is missing; .*; to begin anew, empty the"):
        tiny.trainer(run).train(resume_from_checkpoint="auto")


def test_without_its_journal_a_resumed_run_begins_a_new_one_and_goes_on_counting(run):
    (run / JOURNAL_PATH).unlink()
    resumed = tiny.trainer(run, max_steps=4)
    resumed.train(resume_from_checkpoint=True)
    assert [record.step for record in read_journal(run)] == [3, 3]
    assert resumed.mentor_totals.collapsed == 8


def test_a_journal_that_cannot_be_opened_ends_the_run_before_it_begins(run):
    (run / JOURNAL_PATH).unlink()
    (run / JOURNAL_PATH).mkdir()
    with pytest.raises(IsADirectoryError, match=r"journal\.jsonl"):
        tiny.trainer(run)


def test_a_checkpoint_of_another_directory_is_continued_with_its_counts_and_a_journal_of_its_own(run, tmp_path):
    other = tiny.trainer(tmp_path / "other", max_steps=4, **SAVING)
    other.train(resume_from_checkpoint=str(run / "checkpoint-3"))
    assert [record.step for record in read_journal(tmp_path / "other")] == [3, 3]
    assert (other.mentor_totals.batches, other.mentor_totals.collapsed) == (4, 8)
    assert len(read_journal(run)) == 6


def test_a_resumed_run_that_does_not_skip_data_counts_and_journals_alike(run):
    resumed = tiny.trainer(run, max_steps=5, ignore_data_skip=True)
    resumed.train(resume_from_checkpoint=True)
    assert logged_steps(resumed) == [1, 2, 3, 4, 5]
    assert [record.step for record in counted(resumed, run)] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


@pytest.mark.parametrize("step", [1, 2, 3, 4, 5])
def test_in_the_middle_of_a_generation_batch_the_rest_of_it_is_generated_and_scored_once_more(tmp_path, step):
    # Three optimizer steps share a generation batch of 24 rows: groups of 4 for the prompts 0-5, then 6, 7, 0-3, ...
    shape = {"max_steps": 6, "steps_per_generation": 3, "gradient_accumulation_steps": 1}
    shape |= {"per_device_train_batch_size": 8, **SAVING}
    tiny.trained(tmp_path, **shape)
    for later in range(step + 1, 7):
        shutil.rmtree(tmp_path / f"checkpoint-{later}")
    reward = tiny.HardRowsFail()
    resumed = tiny.trainer(tmp_path, reward=reward, **shape)
    resumed.train(resume_from_checkpoint=True)
    assert logged_steps(resumed) == [1, 2, 3, 4, 5, 6]
    begun = [*range(0, step, 3), *range(step, 6, 3)]
    assert sorted({record.step for record in counted(resumed, tmp_path)}) == begun
    assert resumed.mentor_totals.batches == len(begun)
    rolls = [call["roll"] for call in reward.calls]
    assert rolls == ["first", "second"] * len(range(step, 6, 3))


class WaitForLessons(TrainerCallback):
    """Holds up the training at the beginning and the end of a step until every queued lesson is written."""

    def __init__(self, trainer) -> None:
        self.trainer = trainer

    def on_step_begin(self, args, state, control, **kwargs):
        end = time.monotonic() + 60
        while any(entry["lesson"] is None for entry in self.trainer.schedule.queue.state()):
            assert time.monotonic() < end
            time.sleep(0.01)

    on_step_end = on_step_begin


def ahead(output_dir, mentor, *, wait, **options):
    """A trainer with `mentor_schedule="ahead"` and a checkpoint at every step; re-rolls fail."""
    reward = tiny.HardRowsFail((0.0,), rerolls=False)
    made = tiny.trainer(output_dir, mentor=mentor, reward=reward, mentor_schedule="ahead", **{**SAVING, **options})
    if wait:
        made.add_callback(WaitForLessons(made))
    return made


def test_lessons_that_are_still_to_be_written_are_written_and_used_by_the_resumed_run(tmp_path):
    gate = threading.Event()
    ahead(tmp_path, Mentor(ScriptedBackend(lambda role, messages: gate.wait(60) and "")), wait=False).train()
    gate.set()
    resumed = ahead(tmp_path, tiny.mentor(), wait=True, max_steps=3)
    resumed.train(resume_from_checkpoint=True)
    records, totals = counted(resumed, tmp_path), resumed.mentor_totals
    assert [(record.collapsed_at, record.step) for record in records] == [(0, 1), (0, 1), (1, 2), (1, 2)]
    assert {record.guidance.hint for record in records} == {tiny.HINT}
    assert (totals.handed_over, totals.lessons, totals.staleness) == (6, 4, 4)


def test_lessons_that_are_written_are_used_by_the_resumed_run_without_asking_again(tmp_path):
    def refuse(role, messages):
        raise ConnectionError("no route to mentor")

    ahead(tmp_path, tiny.mentor(), wait=True).train()
    resumed = ahead(tmp_path, Mentor(ScriptedBackend(refuse)), wait=False, max_steps=2)
    resumed.train(resume_from_checkpoint=True)
    used = [record for record in counted(resumed, tmp_path) if record.completions]
    assert [(record.collapsed_at, record.step, record.guidance.hint) for record in used] == [(0, 1, tiny.HINT)] * 2


def test_no_lesson_is_begun_before_the_budget_knows_what_the_run_has_spent(tmp_path):
    gate = threading.Event()
    ahead(tmp_path, Mentor(ScriptedBackend(lambda role, messages: gate.wait(60) and "")), wait=False).train()
    gate.set()
    backend, asked = tiny.backend(), []

    class Late(Mentor):
        def resume_spending(self, *spent):
            time.sleep(0.3)
            asked.append(len(backend.requests))
            super().resume_spending(*spent)

    ahead(tmp_path, Late(backend), wait=True, max_steps=2).train(resume_from_checkpoint=True)
    assert (asked, len(backend.requests) > 0) == ([0], True)


class AskToStop(TrainerCallback):
    """Has SIGTERM come at a moment of the step after `step` optimizer steps."""

    def __init__(self, trainer, moment: str, step: int) -> None:
        self.trainer, self.moment, self.step = trainer, moment, step

    def _send(self, moment, state):
        if (moment, state.global_step) == (self.moment, self.step):
            ask_to_stop(self.trainer)

    def on_step_begin(self, args, state, control, **kwargs):
        self._send("before the rollouts", state)

    def on_substep_end(self, args, state, control, **kwargs):
        self._send("after the rollouts", state)

    def on_step_end(self, args, state, control, **kwargs):
        self._send("after the step", state)


def ask_to_stop(trainer):
    """Send this process SIGTERM and wait until transformers, which does so in a thread, has taken note of it."""
    (manager,) = (item.jit_manager for item in trainer.callback_handler.callbacks if hasattr(item, "jit_manager"))
    manager.kill_wait = 0.0
    os.kill(os.getpid(), signal.SIGTERM)
    end = time.monotonic() + 60
    while not manager.is_checkpoint_requested:
        assert time.monotonic() < end
        time.sleep(0.01)


with_jit = pytest.mark.skipif(not hasattr(GRPOConfig, "enable_jit_checkpoint"), reason="new in transformers 5")


@with_jit
@pytest.mark.parametrize(
    ("moment", "steps"),
    [("before the rollouts", 1), ("after the rollouts", 1), ("after the step", 2)],
)
def test_after_sigterm_the_jit_checkpoint_is_resumed_with_counters_and_journal_in_agreement(tmp_path, moment, steps):
    shape = {"max_steps": 3, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 2}
    shape |= {"enable_jit_checkpoint": True}
    stopped = tiny.trainer(tmp_path, **shape)
    stopped.add_callback(AskToStop(stopped, moment, steps))
    stopped.train()
    checkpoint = last_complete_checkpoint(tmp_path)
    assert checkpoint is not None
    resumed = tiny.trainer(tmp_path, **shape)
    resumed.train(resume_from_checkpoint=True)
    assert logged_steps(resumed) == [1, 2, 3]
    assert resumed.mentor_totals.batches == 3
    assert [record.step for record in counted(resumed, tmp_path)] == [0, 0, 1, 1, 2, 2]


@with_jit
def test_a_save_in_the_middle_of_a_step_holds_the_lessons_from_before_it(tmp_path):
    shape = {"max_steps": 3, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 2}
    shape |= {"enable_jit_checkpoint": True, "save_strategy": "no"}
    stopped = ahead(tmp_path, tiny.mentor(), wait=True, **shape)
    stopped.add_callback(AskToStop(stopped, "after the rollouts", 1))
    stopped.train()
    assert last_complete_checkpoint(tmp_path) == tmp_path / "checkpoint-1"
    resumed = ahead(tmp_path, tiny.mentor(), wait=True, **shape)
    resumed.train(resume_from_checkpoint=True)
    records, totals = counted(resumed, tmp_path), resumed.mentor_totals
    assert [(record.collapsed_at, record.step) for record in records] == [(0, 1), (0, 1), (1, 2), (1, 2)]
    assert (totals.batches, totals.handed_over, len(resumed.schedule.queue)) == (3, 6, 2)


@with_jit
def test_sigterm_while_a_step_waits_for_its_hints_leaves_the_step_its_hints_and_saves_then(tmp_path):
    def reply(role, messages):
        if not (tmp_path / "asked").exists():
            (tmp_path / "asked").touch()
            ask_to_stop(stopped)
        return {Role.ATTRIBUTION: said.diagnosis("w1"), Role.GENERATION: tiny.HINT}.get(role, said.verdict("HIGH"))

    stopped = tiny.trainer(
        tmp_path, mentor=Mentor(ScriptedBackend(reply)), max_steps=3, enable_jit_checkpoint=True, **SAVING
    )
    stopped.train()
    assert {record.guidance.hint for record in read_journal(tmp_path)} == {tiny.HINT}
    assert why_incomplete(tmp_path / "checkpoint-0") is None
    resumed = tiny.trainer(tmp_path, max_steps=3)
    resumed.train(resume_from_checkpoint=True)
    assert logged_steps(resumed) == [1, 2, 3]
    assert len(counted(resumed, tmp_path)) == 6


def launch(out: Path, steps: int, *, processes: int) -> None:
    """Train to `steps` on so many ranks, from the newest complete checkpoint."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
    script = [str(HERE.parent / "benchmarks" / "kill_resume_run.py"), str(out), str(steps), "inline"]
    done = subprocess.run(
        [sys.executable, *launcher, *script], env=ENVIRONMENT, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]


def test_a_run_goes_on_with_another_number_of_processes(tmp_path):
    launch(tmp_path, 2, processes=2)
    launch(tmp_path, 4, processes=1)
    launch(tmp_path, 6, processes=2)
    ending = json.loads((tmp_path / "ending.json").read_text())
    assert (ending["processes"], ending["steps"], ending["logged_steps"]) == (2, 6, [1, 2, 3, 4, 5, 6])
    assert ending["totals"]["batches"] == 6
    assert len(read_journal(tmp_path)) == ending["totals"]["collapsed"]


def test_runs_that_are_killed_at_random_moments_pass_every_check_of_the_benchmark(tmp_path):
    result = tmp_path / "result.json"
    script = [str(HERE.parent / "benchmarks" / "kill_resume.py"), "--kills", "2", "--steps", "8", "--reach", "3"]
    kinds = ["--processes", "1", "--schedules", "inline", "--json", str(result)]
    environment = ENVIRONMENT | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, *script, *kinds], env=environment, capture_output=True, text=True, timeout=590, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(result.read_text())
    assert (found["kills"], found["failed_runs"]) == (2, 0)
    assert all(run["steps"] == 8 for run in found["runs"])
