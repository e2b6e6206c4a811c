"""The callback, always on a real `MentorGRPOTrainer` or, for the alarms, on what a run counts."""

from __future__ import annotations

import ast
import json
import logging
import os
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import tiny
from transformers import TrainerCallback
from trl import GRPOTrainer

import trl_mentor
from trl_mentor import Mentor, MentorCallback, ScriptedBackend, read_journal
from trl_mentor.alarms import Alarms
from trl_mentor.callback import progress_line
from trl_mentor.causes import check_routes
from trl_mentor.counters import Counters
from trl_mentor.errors import BackendError, ConfigError
from trl_mentor.records import Cause, RerollOutcome
from trl_mentor.spending import Spending


def lines(printed: str) -> list[str]:
    return [line for line in printed.splitlines() if "groups collapsed" in line]


def warnings_in(caplog) -> list[str]:
    return [record.message for record in caplog.records if record.name == "trl_mentor.callback"]


def test_each_log_prints_one_line_about_its_own_window(tmp_path, capsys):
    tiny.trained(tmp_path, max_steps=4, logging_steps=2)
    printed = lines(capsys.readouterr().out)
    assert [line.partition(";")[0] for line in printed] == [
        "step 2: 4 of 8 groups collapsed, 4 rescued",
        "step 4: 4 of 8 groups collapsed, 4 rescued",
    ]
    assert all(line.endswith("of the time for the mentor") for line in printed)


def test_evaluation_logs_print_no_line(tmp_path, capsys):
    tiny.trained(
        tmp_path, max_steps=2, logging_steps=2, eval_strategy="steps", eval_steps=1, eval_dataset=tiny.dataset(4),
        per_device_eval_batch_size=4, reward=tiny.HardRowsFail(rerolls=False), mentor_strategy="none",
    )  # fmt: skip
    assert [line.partition(";")[0] for line in lines(capsys.readouterr().out)] == ["step 2: 4 of 8 groups collapsed"]


def state_file(checkpoint):
    return json.loads((checkpoint / "trainer_state.json").read_text())


@pytest.mark.parametrize("restore", [False, True])
def test_a_resumed_run_goes_on_counting_where_its_checkpoint_stood(tmp_path, restore):
    whole = tiny.trained(tmp_path / "whole", max_steps=4, save_strategy="steps", save_steps=2)
    assert whole.mentor_totals.collapsed == 8
    saved = state_file(tmp_path / "whole" / "checkpoint-2")["stateful_callbacks"]["MentorCallback"]
    assert (saved["attributes"]["totals"]["batches"], saved["attributes"]["totals"]["collapsed"]) == (2, 4)

    resumed = tiny.trainer(
        tmp_path / "whole",
        max_steps=4,
        save_strategy="steps",
        save_steps=2,
        restore_callback_states_from_checkpoint=restore,
    )
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    seconds = {"seconds": 0.0, "mentor_seconds": 0.0, "reroll_seconds": 0.0}
    sampled = {"policy_tokens": 0, "reroll_tokens": 0, "mentor": Spending()}
    counted = replace(resumed.mentor_totals, **seconds, **sampled)
    assert counted == replace(whole.mentor_totals, **seconds, **sampled)
    assert {name: spent.calls for name, spent in resumed.mentor_totals.mentor.roles.items()} == {
        name: spent.calls for name, spent in whole.mentor_totals.mentor.roles.items()
    }
    assert resumed.mentor_totals.policy_tokens > saved["attributes"]["totals"]["policy_tokens"]
    again = state_file(tmp_path / "whole" / "checkpoint-4")["stateful_callbacks"]["MentorCallback"]
    until_the_end = {name: getattr(resumed.mentor_totals, name) for name in ("seconds", "mentor_seconds")}
    assert again["attributes"]["totals"] | until_the_end == asdict(resumed.mentor_totals)


def test_the_first_line_of_a_resumed_run_leaves_out_what_the_checkpoint_counted(tmp_path, capsys):
    tiny.trained(tmp_path, max_steps=2, save_strategy="steps", save_steps=2)
    capsys.readouterr()
    tiny.trainer(tmp_path, max_steps=3).train(resume_from_checkpoint=True)
    (line,) = lines(capsys.readouterr().out)
    assert line.startswith("step 3: 2 of 4 groups collapsed, 2 rescued;")


def test_a_checkpoint_of_plain_grpo_can_be_continued_and_saved_again(tmp_path):
    def shape(steps):
        return tiny.config(tmp_path, max_steps=steps, save_strategy="steps", save_steps=1)

    GRPOTrainer(
        tiny.model(), reward_funcs=tiny.HardRowsFail(rerolls=False), args=shape(1), train_dataset=tiny.dataset(),
        processing_class=tiny.tokenizer(),
    ).train()  # fmt: skip
    mentored = tiny.trainer(tmp_path, max_steps=2, save_strategy="steps", save_steps=1)
    mentored.train(resume_from_checkpoint=True)
    saved = state_file(tmp_path / "checkpoint-2")["stateful_callbacks"]["MentorCallback"]
    assert saved["attributes"]["totals"]["batches"] == mentored.mentor_totals.batches == 1
    mentored.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
    assert len(counted_records(mentored, tmp_path)) == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [("totals", {"batches": "many"}), ("memory", ["one two"]), ("probes", {"pool": [{}]}), ("hints", ["x"])],
)
def test_an_entry_of_a_checkpoint_that_cannot_be_read_is_told_with_its_place(tmp_path, name, value):
    tiny.trained(tmp_path, max_steps=1, save_strategy="steps", save_steps=1)
    path = tmp_path / "checkpoint-1" / "trainer_state.json"
    state = json.loads(path.read_text())
    state["stateful_callbacks"]["MentorCallback"]["attributes"][name] = value
    path.write_text(json.dumps(state))
    resumed = tiny.trainer(tmp_path, max_steps=2, mentor_probe_steps=1)
    with pytest.raises(ConfigError, match="the checkpoint's MentorCallback entry, under stateful_callbacks in"):
        resumed.train(resume_from_checkpoint=True)


class AtEachSave(TrainerCallback):
    """Keeps what `measure` returns at each save, after the callbacks that were added before."""

    def __init__(self, measure) -> None:
        self.measure, self.values = measure, []

    def on_save(self, args, state, control, **kwargs):
        self.values.append(self.measure())


def test_at_each_save_the_journal_is_complete_and_synced_to_disk(tmp_path, monkeypatch):
    trainer = tiny.trainer(tmp_path, max_steps=2, save_strategy="steps", save_steps=1)
    journal, synced, fsync = tmp_path / "mentor" / "journal.jsonl", [], os.fsync

    def noting_fsync(fd):
        fsync(fd)
        if os.path.samestat(os.fstat(fd), journal.stat()):
            synced.append(journal.stat().st_size)

    monkeypatch.setattr(os, "fsync", noting_fsync)
    watcher = AtEachSave(lambda: (len(read_journal(tmp_path)), synced[-1:] == [journal.stat().st_size]))
    trainer.add_callback(watcher)
    trainer.train()
    assert watcher.values == [(2, True), (4, True)]


def counted_records(trainer, output_dir):
    """The records of the journal, after a check that they are what the trainer's counters count."""
    records, totals = read_journal(output_dir), trainer.mentor_totals
    rescued = [record for record in records if record.outcome is RerollOutcome.RESCUED]
    assert (len(records), len(rescued)) == (totals.collapsed, totals.rescued)
    return records


def test_a_second_train_is_a_new_run_in_the_journal_and_in_the_counters(tmp_path):
    trainer = tiny.trainer(tmp_path, max_steps=2)
    trainer.train()
    assert trainer.mentor_totals.collapsed == 4
    trainer.train()
    records = counted_records(trainer, tmp_path)
    assert (len(records), records.superseded) == (4, 4)
    assert len(read_journal(tmp_path, superseded=True)) == 8


def test_a_new_run_in_an_old_output_dir_shows_its_own_interventions(tmp_path):
    tiny.trained(tmp_path, max_steps=3)
    records = counted_records(tiny.trained(tmp_path, max_steps=2), tmp_path)
    assert ([record.step for record in records], records.superseded) == ([0, 0, 1, 1], 6)


@pytest.mark.parametrize(
    ("batches", "steps", "superseded"),
    [
        ({}, [0, 0, 1, 1, 2, 2, 3, 3], 4),
        # Three optimizer steps share the rollouts of step 0; resumed at step 2, TRL generates for that step anew.
        ({"num_iterations": 3}, [0, 0, 2, 2], 2),
        ({"steps_per_generation": 3, "per_device_train_batch_size": 8}, [0, 0, 0, 2, 2, 2], 3),
    ],
    ids=["a batch each step", "num_iterations", "steps_per_generation"],
)
def test_the_journal_of_a_resumed_run_holds_what_its_counters_count(tmp_path, batches, steps, superseded):
    options = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, **batches}
    tiny.trained(tmp_path, **options)
    resumed = tiny.trainer(tmp_path, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    records = counted_records(resumed, tmp_path)
    assert ([record.step for record in records], records.superseded) == (steps, superseded)


def test_evaluation_supersedes_nothing(tmp_path):
    trainer = tiny.trained(tmp_path, max_steps=2, eval_dataset=tiny.dataset(4), per_device_eval_batch_size=4)
    trainer.evaluate()
    assert len(counted_records(trainer, tmp_path)) == 4


def test_a_callback_that_the_user_passes_is_used_and_no_second_one_added(tmp_path):
    callback = MentorCallback()
    trainer = tiny.trainer(tmp_path)
    assert [type(item) for item in trainer.callback_handler.callbacks].count(MentorCallback) == 1
    own = type(trainer)(
        tiny.model(), reward_funcs=tiny.HardRowsFail(), args=tiny.config(tmp_path), train_dataset=tiny.dataset(),
        processing_class=tiny.tokenizer(), mentor=tiny.mentor(), callbacks=[callback],
    )  # fmt: skip
    own.train()
    assert [item for item in own.callback_handler.callbacks if isinstance(item, MentorCallback)] == [callback]
    assert callback.state()["attributes"]["totals"] == asdict(own.mentor_totals)


def test_on_another_trainer_it_says_where_it_belongs(tmp_path):
    plain = GRPOTrainer(
        tiny.model(), reward_funcs=tiny.HardRowsFail(rerolls=False), args=tiny.config(tmp_path),
        train_dataset=tiny.dataset(), processing_class=tiny.tokenizer(), callbacks=[MentorCallback()],
    )  # fmt: skip
    with pytest.raises(ConfigError, match="belongs to no MentorGRPOTrainer"):
        plain.train()


def test_a_dead_endpoint_is_warned_about_once_with_the_journal_to_look_at(tmp_path, caplog):
    def refuse(role, messages):
        raise BackendError("connection refused")

    with caplog.at_level(logging.WARNING):
        mentor = Mentor(ScriptedBackend(refuse), pause_after=1_000)
        tiny.trained(tmp_path, mentor=mentor, max_steps=6, reward=tiny.HardRowsFail((0.0,)))
    (warning,) = warnings_in(caplog)
    assert warning.startswith("trl-mentor: the mentor failed for 100% of the groups")
    assert "The last time: the backend failed in every attempt" in warning
    assert warning.endswith(f"Journal: {tmp_path / 'mentor' / 'journal.jsonl'}")


def test_an_endpoint_that_is_left_alone_is_warned_about_when_that_begins_and_again_while_it_lasts(tmp_path, caplog):
    def refuse(role, messages):
        raise BackendError("connection refused")

    with caplog.at_level(logging.WARNING):
        mentor = Mentor(ScriptedBackend(refuse), pause_after=1, pause_seconds=0.001)
        tiny.trained(tmp_path, mentor=mentor, max_steps=3, reward=tiny.HardRowsFail((0.0,), rerolls=False))
    said = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert sum("s and then tried again; what is asked meanwhile gets no reply" in line for line in said) == 1
    assert any("still does not work" in line for line in said)
    assert [event.kind for event in read_journal(tmp_path).events] == ["paused"]


def test_hints_that_solve_everything_are_warned_about(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        tiny.trained(tmp_path, reward=tiny.HardRowsFail((1.0,)), max_steps=8)
    (warning,) = warnings_in(caplog)
    assert warning.startswith("trl-mentor: 100% of the re-rolled groups succeed completely")


def test_failures_from_before_an_endpoint_came_back_raise_no_alarm_after_it(tmp_path, caplog):
    working, asked = tiny.backend(), []

    def recovers(role, messages):
        asked.append(role)
        if len(asked) <= 6:
            raise BackendError("connection refused")
        return working.chat(messages, role=role, timeout=1.0)

    with caplog.at_level(logging.INFO):
        mentor = Mentor(ScriptedBackend(recovers), pause_after=6, pause_seconds=0.001)
        tiny.trained(
            tmp_path, mentor=mentor, max_steps=4, logging_steps=4, mentor_routes={"cut_off": "mentor"},
            reward=tiny.HardRowsFail((0.0,), rerolls=False),
        )  # fmt: skip
    assert [event.kind for event in read_journal(tmp_path).events] == ["paused", "resumed"]
    assert any("works again" in record.message for record in caplog.records if record.levelname == "WARNING")
    assert warnings_in(caplog) == []


@pytest.mark.parametrize(
    ("counted", "said"),
    [
        (Counters(skipped=2, not_asked=2), "2 not asked"),
        (Counters(skipped=3, not_asked=3, cause_cut_off=1), "1 cut off, 2 not asked"),
        (
            Counters(skipped=6, not_asked=4, cause_verifier_error=4, failed=1),
            "4 not judged, 1 failed by the mentor, 1 skipped",
        ),
        (Counters(skipped=3, dropped=3), "3 dropped"),
        (Counters(skipped=1, not_asked=1, cause_duplicates=1), "1 all the same"),
        (Counters(skipped=0, cause_duplicates=1, failed=1), ""),
    ],
)
def test_the_line_says_why_groups_were_skipped(counted, said):
    line = progress_line(3, counted + Counters(groups=8, collapsed=6, rescued=1), 10.0)
    assert line == "step 3: 6 of 8 groups collapsed, 1 rescued" + (said and f", {said}")


def test_a_cause_that_the_mentor_is_asked_about_is_no_reason_to_skip():
    counted = Counters(groups=8, skipped=1, not_asked=1, cause_cut_off=1)
    line = progress_line(3, counted, 10.0, check_routes({"cut_off": "mentor"}))
    assert line == "step 3: 0 of 8 groups collapsed, 1 not asked"


def test_every_warning_of_the_package_says_whose_it_is():
    for file in Path(trl_mentor.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            warns = isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "warning"
            if warns and ast.unparse(node.func) == "logger.warning" and isinstance(node.args[0], ast.Constant):
                assert node.args[0].value.startswith("trl-mentor: "), f"{file}:{node.lineno}"


def test_a_healthy_run_warns_about_nothing(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        tiny.trained(tmp_path, max_steps=16, logging_steps=4)
    assert warnings_in(caplog) == []


@pytest.mark.parametrize(
    ("counted", "text"),
    [
        (Counters(groups=40, accepted=3, fallback=13, rescued=16), "81% of the hints are the fallback hint"),
        (Counters(groups=40, failed=2, accepted=2), "failed for 50% of the groups"),
        (Counters(groups=40, accepted=32, still_collapsed=32), "100% of the re-rolled groups fail again"),
        (Counters(groups=40, unscorable=4, cause_unscorable=4), "10% of the groups could not be scored"),
        (Counters(groups=64, all_correct=64), "100% of the groups count as all correct"),
        (Counters(groups=40, cause_cut_off=8), "in 20% of the groups every completion failed and ran into the length"),
        (Counters(groups=40, cause_duplicates=8), "in 20% of the groups every completion failed and all are the same"),
        (Counters(groups=40, cause_format=20), "50% of the groups failed by their form"),
        (Counters(groups=40, cause_verifier_error=1), "the verifier could not judge 2% of the groups"),
    ],
)
def test_each_condition_has_its_own_warning(counted, text):
    (warning,) = Alarms().check(counted)
    assert text in warning


def test_a_share_of_few_groups_says_nothing_until_there_are_more():
    alarms, counted = Alarms(), Counters(groups=8, accepted=1, fallback=3)
    assert [len(alarms.check(counted)) for _ in range(4)] == [0, 0, 0, 1]


def test_a_warning_comes_again_only_when_its_share_has_clearly_grown():
    alarms = Alarms()
    shares = [0.6, 0.6, 0.7, 0.9, 1.0, 0.1, 0.9]
    counts = [round(share * 20) for share in shares]
    said = [bool(alarms.check(Counters(groups=20, accepted=20 - count, fallback=count))) for count in counts]
    assert said == [True, False, False, True, False, False, False]


def test_a_control_run_without_hints_is_not_told_that_its_hints_are_useless():
    assert Alarms().check(Counters(groups=64, still_collapsed=64, collapsed=64)) == []


def test_a_cause_that_the_mentor_is_asked_about_is_no_reason_to_warn():
    counted = Counters(groups=40, cause_cut_off=40, cause_format=40, cause_duplicates=40)
    routes = check_routes({"cut_off": "mentor", "format": "mentor", "duplicates": "mentor"})
    assert Alarms(routes).check(counted) == []


def test_a_warning_about_a_cause_says_what_showed_it_last():
    details = {Cause.VERIFIER_ERROR: "the verifier failed: OSError: no sandbox"}
    (warning,) = Alarms().check(Counters(groups=4, cause_verifier_error=4), details=details)
    assert warning.endswith("The last time, the verifier failed: OSError: no sandbox")
