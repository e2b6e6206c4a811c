"""From which step on collapsed groups are mentored, and how many of them: the schedule alone, and in training."""

from __future__ import annotations

import logging
import shutil
from collections import Counter

import letters
import pytest
import tiny
from test_ahead import WaitsForLessons
from trl import GRPOTrainer

from trl_mentor import Mentor, MentorGRPOTrainer, read_journal
from trl_mentor.callback import progress_line
from trl_mentor.counters import Counters, count_held_back
from trl_mentor.dosage import Decay, Dosage
from trl_mentor.errors import ConfigError
from trl_mentor.records import Arm, Assignment, Cause, CollapsedGroup, HintOrigin, RerollOutcome
from trl_mentor.settings import MentorArguments
from trl_mentor.trial import Trial

SKIPPED, RESCUED = RerollOutcome.SKIPPED, RerollOutcome.RESCUED
ALL_COLLAPSE = {"first": dict.fromkeys("0123", "c")}
STEPS = 8
DECAY = {"max_steps": STEPS, "mentor_start_step": 2, "mentor_decay": "linear"}


def assignment(prompt="how many?", *, step=3, index=0):
    return Assignment(CollapsedGroup("how many?", (), prompt=prompt, index=index), {"prompt": prompt}, step)


def held_back(dosage, step, number=10_000):
    """How many of as many different groups the schedule holds back after this many steps."""
    groups = (assignment(f"q{i}", step=step, index=i % 16) for i in range(number))
    return sum(dosage.objection(item) is not None for item in groups)


def by_step(journal, what):
    return {step: [what(item) for item in journal if item.step == step] for step in {item.step for item in journal}}


def mentored(dosage, item):
    """Whether the schedule alone says so of the group of this record."""
    return dosage.objection(Assignment(item.group, {}, item.collapsed_at)) is None


@pytest.mark.parametrize(
    ("start", "decay", "shares"),
    [
        (0, "none", [1, 1, 1, 1, 1]),
        (2, "none", [0, 0, 1, 1, 1]),
        (0.5, "none", [0, 0, 1, 1, 1]),
        (0, "linear", [1, 0.75, 0.5, 0.25, 0]),
        (2, "linear", [0, 0, 1, 0.5, 0]),
        (0.25, "linear", [0, 1, 2 / 3, 1 / 3, 0]),
        (4, "linear", [0, 0, 0, 0, 0]),
    ],
)
def test_the_share_of_the_mentored_by_steps_done_of_four(start, decay, shares):
    dosage = Dosage(start=start, decay=Decay(decay), total=4)
    assert [dosage.share(step) for step in range(5)] == pytest.approx(shares)


def test_the_exemption_of_scaf_grpo_is_a_share_of_whatever_length_the_run_has():
    assert [Dosage(start=0.15, total=total).first_step for total in (20, 100, 1000)] == [3, 15, 150]


def test_the_lot_holds_back_the_rest_of_the_share():
    dosage = Dosage(seed=1, start=20, decay=Decay.LINEAR, total=100)
    assert [held_back(dosage, step, 200) for step in (0, 19, 20, 100)] == [200, 200, 0, 200]
    assert held_back(dosage, 60) == pytest.approx(5_000, abs=150)  # three standard deviations
    assert held_back(dosage, 92) == pytest.approx(9_000, abs=90)


def test_the_lot_depends_on_seed_step_place_and_prompt_and_on_nothing_else():
    def drawn(seed=0, *, prompt="q", index=0):
        dosage = Dosage(seed, decay=Decay.LINEAR, total=10**6)  # so that the share stays next to one half
        return [dosage.objection(assignment(prompt, step=500_000 + step, index=index)) is None for step in range(200)]

    assert drawn() == drawn()
    for other in (drawn(1), drawn(prompt="r"), drawn(index=1), [*drawn()[1:], True]):
        assert 70 < sum(a is b for a, b in zip(drawn(), other, strict=True)) < 130


def test_the_control_arm_has_its_share_among_those_that_are_mentored():
    dosage, trial = Dosage(4, decay=Decay.LINEAR, total=100), Trial(4, control=0.3)
    asked = [item for i in range(5_000) if dosage.objection(item := assignment(f"q{i}", step=80)) is None]
    assert len(asked) == pytest.approx(1_000, abs=85)
    assert sum(trial.draw(item) is Arm.CONTROL for item in asked) == pytest.approx(300, abs=45)


@pytest.mark.parametrize("value", [-1, 1.5, 100.2, float("nan"), float("inf"), True, "0.15"])
def test_a_start_that_is_no_number_of_steps_and_no_share_is_refused(value):
    with pytest.raises(ConfigError, match="mentor_start_step must be a whole number of optimizer steps, or a share"):
        MentorArguments(mentor_start_step=value)


def test_an_unknown_decay_is_refused():
    with pytest.raises(ConfigError, match=r"mentor_decay must be one of \['none', 'linear'\], got 'cosine'"):
        MentorArguments(mentor_decay="cosine")


def test_before_the_start_training_is_that_of_plain_trl_and_nothing_is_asked_or_re_rolled(tmp_path, caplog):
    backend = tiny.backend()

    def train(cls, name, **extra):
        trainer = cls(
            tiny.model(),
            reward_funcs=tiny.HardRowsFail(rerolls=False),
            args=tiny.config(tmp_path / name, max_steps=3, mentor_start_step=3),
            train_dataset=tiny.dataset(),
            processing_class=tiny.tokenizer(),
            **extra,
        )
        trainer.train()
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        return losses, [parameter.tolist() for parameter in trainer.model.parameters()], trainer

    plain = train(GRPOTrainer, "plain")
    with caplog.at_level(logging.WARNING, logger="trl_mentor"):
        held = train(MentorGRPOTrainer, "mentor", mentor=Mentor(backend))
    assert held[:2] == plain[:2]
    totals = held[2].mentor_totals
    assert (totals.collapsed, totals.held_back, totals.skipped, totals.not_asked) == (6, 6, 6, 6)
    assert (len(backend.requests), totals.reroll_tokens) == (0, 0)
    assert {entry["mentor/seconds"] for entry in held[2].state.log_history if "loss" in entry} == {0}
    assert "mentor_start_step=3 is not reached in the 3 steps of this run" in caplog.text


@pytest.mark.parametrize("strategy", ["mentor", "resample"])
def test_from_the_start_on_every_group_is_re_rolled_and_the_journal_tells_why_not_before(tmp_path, strategy):
    backend = tiny.backend()
    options = {"mentor_start_step": 0.5, "max_steps": 4, "mentor_strategy": strategy, "mentor": Mentor(backend)}
    trainer = letters.trained(tmp_path, ALL_COLLAPSE, **options)
    journal, totals = read_journal(tmp_path), trainer.mentor_totals
    assert by_step(journal, lambda item: item.outcome) == {
        **dict.fromkeys((0, 1), [SKIPPED] * 4),
        **dict.fromkeys((2, 3), [RESCUED] * 4),
    }
    early = [item.guidance for item in journal if item.step < 2]
    assert {(item.hint, item.origin, item.calls) for item in early} == {(None, HintOrigin.NOT_ASKED, ())}
    assert early[-1].reason == "mentor_start_step: no group is mentored before step 2, and 1 are done"
    assert len(backend.requests) == (24 if strategy == "mentor" else 0)  # three for each of eight groups
    assert (totals.held_back, totals.not_asked, totals.skipped, totals.rescued) == (8, 8, 8, 8)
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert [entry["mentor/frac_held_back"] for entry in logged] == [1, 1, 0, 0]
    assert [call["kind"] for call in trainer.reward_funcs[0].calls] == [
        *["first"] * 2,
        *["first", "mentor/reroll"] * 2,
    ]


def test_a_share_counts_the_steps_of_epochs_too(tmp_path):
    # Two batches of four prompts make an epoch.
    options = {"max_steps": -1, "num_train_epochs": 2, "mentor_start_step": 0.75}
    trainer = tiny.trained(tmp_path, reward=tiny.HardRowsFail(rerolls=False), **options)
    assert trainer.state.global_step == 4
    assert by_step(read_journal(tmp_path), lambda item: bool(item.completions)) == {
        **dict.fromkeys((0, 1, 2), [False] * 2),
        3: [True] * 2,
    }


@pytest.fixture(scope="module")
def decayed(tmp_path_factory):
    """A run with a decay in whose every batch all four groups collapse, and its directory."""
    out = tmp_path_factory.mktemp("decayed")
    return letters.trained(out, ALL_COLLAPSE, save_strategy="steps", save_steps=5, **DECAY), out


def test_exactly_the_groups_of_the_lot_are_mentored_as_the_share_falls(decayed):
    trainer, out = decayed
    journal, dosage = read_journal(out), Dosage(trainer.args.seed, 2, Decay.LINEAR, STEPS)
    assert len(journal) == 4 * STEPS
    for item in journal:
        assert item.outcome is (RESCUED if mentored(dosage, item) else SKIPPED)
        assert item.guidance.origin is (HintOrigin.ACCEPTED if mentored(dosage, item) else HintOrigin.NOT_ASKED)
    held = [sum(reroll is SKIPPED for reroll in batch) for batch in by_step(journal, lambda r: r.outcome).values()]
    assert held[:3] == [4, 4, 0]  # the start, when the share is 1
    assert 0 < sum(held[3:]) < 20
    assert trainer.mentor_totals.held_back == journal.totals.held_back == sum(held)
    last = [item.guidance.reason for item in journal if item.step == 7 and item.outcome is SKIPPED]
    assert set(last) == {"mentor_decay: the lot leaves 83% of the groups after 7 of 8 steps"}


def test_groups_that_are_held_back_keep_their_rows_among_others_that_do_not(decayed):
    trainer, out = decayed
    words = trainer.processing_class
    for step, batch in enumerate(trainer.batches):
        outcomes = {item.group.index: item.outcome for item in read_journal(out) if item.step == step}
        for place, (prompt, _) in enumerate(tiny.rows(batch)):
            assert (tiny.HINT in words.decode(prompt)) is (outcomes[place // 4] is RESCUED)
            assert (batch["advantages"][place] != 0).item() is (outcomes[place // 4] is RESCUED)


def test_a_resumed_run_continues_the_schedule(decayed, tmp_path):
    trainer, out = decayed
    shutil.copytree(out, tmp_path / "run")
    checkpoint = str(tmp_path / "run" / "checkpoint-5")
    resumed = letters.trained(tmp_path / "run", ALL_COLLAPSE, resume=checkpoint, **DECAY)
    assert len(resumed.batches) == STEPS - 5
    told = [
        [(item.step, item.group.index, item.outcome, item.guidance.reason) for item in read_journal(run)]
        for run in (tmp_path / "run", out)
    ]
    assert told[0] == told[1]
    assert resumed.mentor_totals.held_back == trainer.mentor_totals.held_back


def test_ahead_hands_over_and_uses_no_lesson_before_the_start_nor_for_those_held_back(tmp_path):
    reward = tiny.HardRowsFail(rerolls=False)  # rerolls fail as well
    options = {"data": tiny.dataset(4, hard=lambda i: True), "mentor_schedule": "ahead", **DECAY}
    trainer = tiny.trained(tmp_path, reward=reward, cls=WaitsForLessons, **options)
    dosage, totals = Dosage(trainer.args.seed, 2, Decay.LINEAR, STEPS), trainer.mentor_totals
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    held = [round(4 * entry["mentor/frac_held_back"]) for entry in logged]
    assert [entry["mentor/handed_over"] for entry in logged] == [4 - number for number in held]
    assert [entry["mentor/lessons"] for entry in logged[:3]] == [0, 0, 0]
    assert all(entry["mentor/lessons"] <= 4 - number for entry, number in zip(logged, held, strict=True))
    left = [item for item in read_journal(tmp_path) if item.guidance.origin is HintOrigin.NOT_ASKED]
    assert len(left) == sum(held) == totals.held_back
    assert not any(mentored(dosage, item) for item in left)
    used = [item for item in read_journal(tmp_path) if item.completions]
    assert used
    assert all(mentored(dosage, item) for item in used)


def test_prompts_that_are_held_back_are_remembered_until_they_return(tmp_path):
    letters.trained(tmp_path, {"first": {"1": "ca"}}, max_steps=2, mentor_start_step=1)
    assert read_journal(tmp_path).returns == [letters.returned(1, 1, 0, SKIPPED, 4)]


def test_groups_that_are_held_back_are_not_counted_again_by_their_cause():
    held = count_held_back([Cause.CUT_OFF, Cause.CUT_OFF, Cause.KNOWLEDGE])
    skipped = Counters(groups=9, collapsed=7, skipped=7, not_asked=6, failed=1, cause_cut_off=3, cause_knowledge=4)
    line = progress_line(4, skipped + held, 1.0)
    assert "7 of 9 groups collapsed, 3 held back, 1 cut off, 2 not asked, 1 failed by the mentor" in line


def test_a_run_counts_the_causes_of_the_groups_that_it_holds_back(tmp_path):
    trainer = letters.trained(tmp_path, ALL_COLLAPSE, max_steps=2, mentor_start_step=1)
    early = [str(item.group.cause) for item in read_journal(tmp_path) if item.step == 0]
    found = trainer.mentor_totals.held_back_causes
    assert {name: tally.groups for name, tally in found.cells.items()} == Counter(early)


@pytest.mark.parametrize(
    ("start", "total", "said"),
    [
        (20, 20, "mentor_start_step=20 is not reached in the 20 steps of this run"),
        (
            0.99,
            20,
            "mentor_start_step=0.99 is, rounded, all 20 steps of this run, so that no group is mentored",
        ),
        (0.97, 20, None),  # 19 steps
        (0, 20, None),
        (5, 0, None),  # not known yet
    ],
)
def test_a_start_that_leaves_no_step_is_warned_about_as_it_was_given(start, total, said):
    warning = Dosage(start=start, total=total).warning()
    assert warning is None if said is None else warning.startswith(said)
    assert "share" not in (warning or "") or start >= 1


@pytest.mark.parametrize(
    ("start", "decay", "said"),
    [
        (0, "none", ""),
        (0.15, "none", "from 15% of the steps on"),
        (300, "linear", "from step 300 on, linear decay"),
        (0, "linear", "linear decay"),
    ],
)
def test_a_dosage_is_said_where_it_is_not_the_default(start, decay, said):
    assert str(Dosage(start=start, decay=Decay(decay), total=1000)) == said


def test_the_progress_line_says_how_many_groups_were_held_back():
    counted = Counters(groups=8, collapsed=5, skipped=4, not_asked=4, held_back=3, rescued=1)
    assert "5 of 8 groups collapsed, 1 rescued, 3 held back, 1 not asked" in progress_line(4, counted, 1.0)
