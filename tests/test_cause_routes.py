"""Causes of collapse through `trainer.train()`: what is called, counted, journaled and said about each."""

from __future__ import annotations

import logging

import pandas as pd
import pytest
import test_ahead
import tiny
from datasets import Dataset
from trl.rewards import accuracy_reward

from trl_mentor import Mentor, read_journal
from trl_mentor.counters import Counters
from trl_mentor.errors import ConfigError
from trl_mentor.records import Cause, HintOrigin, RerollOutcome
from trl_mentor.strategies.resample import ResampleStrategy

EOS = 1
FORMAT_HINT = tiny.mentor().plan.templates.format_hint


class Written(tiny.Recorder):
    """The policy, with the completions of each question written by `write`, and those under a hint by the policy."""

    write = None

    def _generate_single_turn(self, prompt_ids, *args, **kwargs):
        sampled, logprobs = super()._generate_single_turn(prompt_ids, *args, **kwargs)
        texts = self.processing_class.batch_decode(prompt_ids)
        hinted = [text.startswith(("Hint", "<user> Hint")) for text in texts]
        plain = [self.write(i % 4) for i in range(len(texts))]
        return [s if hint else w for s, w, hint in zip(sampled, plain, hinted, strict=True)], logprobs


def written(write):
    return type("Written", (Written,), {"write": staticmethod(write)})


def cut_off(member):
    return [12 + member, 13, 14, 15, 16, 17]


def duplicate(member):
    return [12, 13, EOS]


def empty(member):
    return [EOS]


def distinct(member):
    return [12 + member, 13, EOS]


class Verifier:
    """Odd questions fail in the first roll, with `value` and with what `report` logs about every completion."""

    def __init__(self, value=0.0, report=None):
        self.__name__ = "verifier"
        self.value, self.report = value, report or {}
        self.rolls = 0

    def __call__(self, prompts, completions, hard, log_extra, **kwargs):
        first = not all(hard)
        self.rolls += 1
        for column, value in self.report.items():
            log_extra(column, [value if is_hard and first else None for is_hard in hard])
        return [(self.value if first else i % 2) if is_hard else i % 2 for i, is_hard in enumerate(hard)]


def untidy(completions, hard, **kwargs):
    return [0.0 if is_hard else 1.0 for is_hard in hard]


untidy.__name__ = "format_reward"

CASES = {
    Cause.CUT_OFF: (cut_off, Verifier(), "Raise max_completion_length"),
    Cause.DUPLICATES: (duplicate, Verifier(), "Raise temperature or top_p"),
    Cause.FORMAT: (distinct, Verifier(report={"answer_parsed": "[unparseable]"}), "the verifier found no answer to"),
    Cause.UNSCORABLE: (distinct, Verifier(None), "check the reward function"),
    Cause.VERIFIER_ERROR: (distinct, Verifier(report={"mentor/verifier_error": "no sandbox"}), "no sandbox"),
    Cause.KNOWLEDGE: (distinct, Verifier(), None),
}
SKIPPED = (Cause.CUT_OFF, Cause.DUPLICATES, Cause.UNSCORABLE, Cause.VERIFIER_ERROR)


def run(tmp_path, write, reward, **options):
    options = {"mentor_routes": None, "mentor": tiny.mentor()} | options
    return tiny.trained(tmp_path, cls=written(write), reward=reward, **options)


@pytest.fixture(scope="module", params=CASES)
def trained(request, tmp_path_factory):
    """One run in which groups 1 and 3 of each batch collapse for one cause, 16 groups in 8 batches."""
    cause, folder = request.param, tmp_path_factory.mktemp(request.param)
    write, reward, warning = CASES[cause]
    said = Said()
    logging.getLogger("trl_mentor.callback").addHandler(said)
    backend = tiny.backend()
    trainer = run(folder, write, reward, mentor=Mentor(backend), max_steps=8)
    logging.getLogger("trl_mentor.callback").removeHandler(said)
    return cause, trainer, backend.requests, read_journal(folder), said.lines, warning


class Said(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def test_the_mentor_is_asked_about_knowledge_alone(trained):
    cause, _, requests, _, _, _ = trained
    assert bool(requests) == (cause is Cause.KNOWLEDGE)


def test_each_cause_is_a_metric_and_a_field_of_the_journal(trained):
    cause, trainer, _, journal, _, _ = trained
    for entry in trainer.state.log_history[:8]:
        shares = {name: value for name, value in entry.items() if "frac_cause" in name}
        assert shares == {f"mentor/frac_cause_{other}": 0.5 * (other is cause) for other in Cause}
    assert [item.group.cause for item in journal] == [cause] * 16
    assert [item.group.index for item in journal] == [1, 3] * 8
    assert {bool(item.group.cause_detail) for item in journal} == {cause is not Cause.KNOWLEDGE}
    assert set(journal.to_dataset()["cause"]) == {str(cause)}


def test_skipped_groups_keep_their_rows_and_the_others_are_rerolled_under_their_hint(trained):
    cause, trainer, _, journal, _, _ = trained
    hint = {Cause.FORMAT: FORMAT_HINT, Cause.KNOWLEDGE: tiny.HINT}.get(cause)
    origin = {Cause.FORMAT: HintOrigin.FORMAT, Cause.KNOWLEDGE: HintOrigin.ACCEPTED}.get(cause, HintOrigin.NOT_ASKED)
    outcome = RerollOutcome.SKIPPED if cause in SKIPPED else RerollOutcome.RESCUED
    assert {(item.guidance.origin, item.guidance.hint, item.outcome) for item in journal} == {(origin, hint, outcome)}
    assert all(len(item.group.attempts) == 4 for item in journal)
    plain = [len(prompt) == 2 for prompt, _ in tiny.rows(trainer.batches[0])]
    assert plain == [row // 4 % 2 == 0 or cause in SKIPPED for row in range(16)]
    entry = trainer.state.log_history[0]
    assert entry[f"mentor/frac_hint_{origin}"] == 0.5
    assert entry["mentor/frac_skipped"] == 0.5 * (cause in SKIPPED)


def test_what_is_not_mentored_is_warned_about_once_with_what_to_change(trained):
    cause, _, _, _, said, warning = trained
    assert len(said) == (cause is not Cause.KNOWLEDGE)
    assert all(warning in line and "50% of the groups" in line for line in said)


def test_the_reason_in_the_journal_names_the_cause_and_what_showed_it(trained):
    cause, _, _, journal, _, _ = trained
    if cause in SKIPPED:
        assert {item.guidance.reason for item in journal} == {
            f"{cause}: {item.group.cause_detail}" for item in journal
        }


def test_what_is_reported_to_the_mentor_stays_out_of_the_table_of_completions(tmp_path):
    reward = Verifier(report={"mentor/verifier_error": "no sandbox", "mentor/feedback": "test 3 failed", "own": "x"})
    run(tmp_path, distinct, reward, log_completions=True)
    table = pd.read_parquet(tmp_path / "completions" / "completions_00001.parquet")
    assert set(table.columns) & {"mentor/feedback", "mentor/verifier_error"} == set()
    assert table["own"].notna().tolist() == [row // 4 % 2 == 1 for row in range(16)]
    (attempt, *_) = read_journal(tmp_path)[0].group.attempts
    assert (attempt.reward, attempt.feedback) == (None, "test 3 failed\ncould not be judged: no sandbox")


def test_a_report_that_has_no_text_ends_no_training(tmp_path):
    class Odd:
        def __str__(self):
            raise OSError("gone")

    run(tmp_path, distinct, Verifier(report={"mentor/feedback": Odd()}))
    feedback = read_journal(tmp_path)[0].group.attempts[0].feedback
    assert feedback == "a Odd that has no text: OSError: gone"


def test_evaluations_may_report_too(tmp_path):
    reward = Verifier(report={"mentor/feedback": "test 3 failed"})
    run(
        tmp_path, distinct, reward, max_steps=2, eval_dataset=tiny.dataset(4), per_device_eval_batch_size=4,
        eval_strategy="steps", eval_steps=1, log_completions=True,
    )  # fmt: skip
    table = pd.read_parquet(tmp_path / "completions" / "completions_00002.parquet")
    assert "mentor/feedback" not in table


def test_feedback_reaches_the_attempts_and_is_bounded(tmp_path):
    long = "head " + "x" * 1_000_000 + " tail"
    run(tmp_path, distinct, [Verifier(report={"mentor/feedback": long}), Verifier(report={"mentor/feedback": "and"})])
    feedback = read_journal(tmp_path)[0].group.attempts[0].feedback
    assert feedback.startswith("head ")
    assert " tail\nand" in feedback
    assert len(feedback) < 2100


def test_a_report_of_another_length_is_left_out_and_said(tmp_path, caplog):
    def verifier(completions, log_extra, **kwargs):
        log_extra("mentor/feedback", ["only one"])
        return [0.0] * len(completions)

    run(tmp_path, distinct, verifier)
    assert "got 1 values for 16 completions" in caplog.text
    assert {a.feedback for item in read_journal(tmp_path) for a in item.group.attempts} == {None}


def test_a_text_in_the_place_of_a_report_is_said_once(tmp_path, caplog):
    def verifier(completions, log_extra, **kwargs):
        log_extra("mentor/feedback", "all wrong")
        return [0.0] * len(completions)

    run(tmp_path, distinct, verifier, max_steps=2)
    assert caplog.text.count("log_extra('mentor/feedback', ...) got a text, not a list, for 16 completions") == 1


def test_a_group_of_which_no_format_reward_pays_gets_the_format_hint(tmp_path):
    backend = tiny.backend()
    run(tmp_path, distinct, [untidy, Verifier()], mentor=Mentor(backend), mentor_success_rewards=["verifier"])
    assert {item.guidance.hint for item in read_journal(tmp_path)} == {FORMAT_HINT}
    assert backend.requests == []


def test_without_format_rewards_by_name_a_reward_that_never_pays_is_no_sign(tmp_path):
    run(
        tmp_path, distinct, [untidy, Verifier()], mentor_success_rewards=["verifier"], mentor_format_rewards=[]
    )  # fmt: skip
    assert {item.group.cause for item in read_journal(tmp_path)} == {Cause.KNOWLEDGE}


def test_trls_own_accuracy_reward_tells_form_from_knowledge(tmp_path):
    prompts = [[{"role": "user", "content": f"w{i}"}] for i in range(8)]
    data = Dataset.from_dict({"prompt": prompts, "solution": ["$12$"] * 8})
    run(tmp_path, distinct, accuracy_reward, data=data)
    journal = read_journal(tmp_path)
    assert [item.group.cause for item in journal] == [Cause.FORMAT] * 4
    assert "ends: 'w2 w3'" in journal[0].group.cause_detail


@pytest.mark.parametrize("cause", [Cause.CUT_OFF, Cause.DUPLICATES, Cause.FORMAT])
def test_a_route_sends_any_of_these_to_the_mentor(tmp_path, cause):
    write, _, _ = CASES[cause]
    report = {"answer_parsed": "[unparseable]"} if cause is Cause.FORMAT else {}
    run(tmp_path, write, Verifier(report=report), mentor_routes={cause: "mentor"})
    journal = read_journal(tmp_path)
    assert {(item.group.cause, item.guidance.origin) for item in journal} == {(cause, HintOrigin.ACCEPTED)}


def test_knowledge_may_be_skipped_and_is_then_a_run_without_calls(tmp_path):
    backend = tiny.backend()
    run(tmp_path, distinct, Verifier(), mentor=Mentor(backend), mentor_routes={"knowledge": "skip"})
    assert backend.requests == []
    assert {item.guidance.reason for item in read_journal(tmp_path)} == {"knowledge"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mentor_routes": {"unscorable": "mentor"}}, "can only be 'skip'"),
        ({"mentor_routes": '{"cutoff": "skip"}'}, "'cutoff'; expected one of"),
        ({"mentor_format_rewards": ["form"]}, "'form', which is not one of the reward functions"),
        ({"mentor_format_rewards": ["verifier"], "mentor_success_rewards": ["verifier"]}, "name it in one of them"),
        ({"mentor_format_rewards": "verifier"}, "must be a list of names"),
        ({"mentor_reward_errors": "ignore"}, "mentor_reward_errors must be one of"),
    ],
)
def test_wrong_settings_are_refused_at_construction(tmp_path, options, words):
    with pytest.raises(ConfigError, match=words):
        tiny.trainer(tmp_path, **options)


def test_groups_of_empty_completions_are_skipped_as_duplicates(tmp_path):
    trainer = run(tmp_path, empty, Verifier())
    journal = read_journal(tmp_path)
    assert [item.group.cause for item in journal] == [Cause.DUPLICATES] * 2
    assert [attempt.truncated for attempt in journal[0].group.attempts] == [False] * 4
    assert trainer.mentor_totals.skipped == 2


def test_a_group_of_truncated_rows_is_journaled_as_such_when_their_loss_is_masked(tmp_path):
    trainer = run(tmp_path, cut_off, Verifier(), mask_truncated_completions=True)
    assert all(attempt.truncated for item in read_journal(tmp_path) for attempt in item.group.attempts)
    assert trainer.state.global_step == 1


def test_causes_in_one_batch_are_routed_apart(tmp_path):
    reward = Verifier(report={})

    class Mixed(tiny.Recorder):
        def _generate_single_turn(self, prompt_ids, *args, **kwargs):
            if len(prompt_ids) < 16:
                return super()._generate_single_turn(prompt_ids, *args, **kwargs)
            writers = [distinct, duplicate, distinct, distinct]
            return [writers[i // 4](i % 4) for i in range(16)], None

    trainer = tiny.trained(tmp_path, cls=Mixed, reward=reward, mentor_routes=None)
    first, second = read_journal(tmp_path)
    assert (first.group.cause, first.outcome) == (Cause.DUPLICATES, RerollOutcome.SKIPPED)
    assert (second.group.cause, second.outcome) == (Cause.KNOWLEDGE, RerollOutcome.RESCUED)
    assert [row for row, (prompt, _) in enumerate(tiny.rows(trainer.batches[0])) if len(prompt) > 2] == [
        12,
        13,
        14,
        15,
    ]


@pytest.mark.parametrize("cause", [Cause.CUT_OFF, Cause.UNSCORABLE])
def test_resampling_rerolls_whatever_the_cause_and_records_it(tmp_path, cause):
    write, _, _ = CASES[cause]
    reward = Verifier(None if cause is Cause.UNSCORABLE else 0.0)
    trainer = run(tmp_path, write, reward, mentor_strategy="resample")
    assert [item.group.cause for item in read_journal(tmp_path)] == [cause] * 2
    assert getattr(trainer.mentor_totals, f"cause_{cause}") == 2
    assert trainer.mentor_totals.reroll_completions == (8 if cause is Cause.CUT_OFF else 0)


def test_the_causes_of_groups_that_did_not_collapse_are_not_counted(tmp_path):
    class All(ResampleStrategy):
        name = "all"

        def select(self, states):
            return list(range(len(states)))

    trainer = run(tmp_path, distinct, Verifier(), mentor=None, strategy=All())
    totals = trainer.mentor_totals
    assert (totals.groups, totals.collapsed, totals.unscorable) == (4, 2, 0)
    assert sum(getattr(totals, f"cause_{cause}") for cause in Cause) == 2
    assert (set(trainer.books.newest_causes), len(read_journal(tmp_path))) == ({Cause.KNOWLEDGE}, 2)
    assert totals.other_groups == 2


def test_a_run_that_only_measures_counts_causes_and_journals_no_intervention(tmp_path):
    trainer = run(tmp_path, cut_off, Verifier(), mentor_strategy="none")
    assert trainer.mentor_totals.cause_cut_off == 2
    assert trainer.mentor_totals.skipped == 0
    journal = read_journal(tmp_path)
    assert (len(journal), journal.totals) == (0, trainer.mentor_totals)


def test_ahead_skips_at_once_and_hands_over_what_the_mentor_is_asked_about(tmp_path):
    trainer = run(tmp_path, cut_off, Verifier(), mentor_schedule="ahead", max_steps=2)
    assert [(item.step, item.collapsed_at) for item in read_journal(tmp_path)] == [(0, 0)] * 2 + [(1, 1)] * 2
    totals = trainer.mentor_totals
    assert (totals.handed_over, totals.not_asked, totals.skipped, totals.lessons) == (0, 4, 4, 0)


def test_ahead_uses_a_format_hint_in_the_place_of_its_own_group(tmp_path):
    reward = Verifier(report={"answer_parsed": "[unparseable]"})
    trainer = run(tmp_path, distinct, reward, mentor_schedule="ahead")
    journal = read_journal(tmp_path)
    assert [(item.group.index, item.step, item.outcome) for item in journal] == [
        (1, 0, RerollOutcome.RESCUED),
        (3, 0, RerollOutcome.RESCUED),
    ]
    assert (trainer.mentor_totals.lessons, trainer.mentor_totals.handed_over) == (0, 0)


def test_ahead_gives_the_place_of_a_skipped_group_to_a_lesson_that_is_ready(tmp_path):
    class KnowledgeThenCutOff(test_ahead.WaitsForLessons):
        def _generate_single_turn(self, prompt_ids, *args, **kwargs):
            write = cut_off if self.batches else distinct
            return [write(i % 4) for i in range(len(prompt_ids))], None

    trainer = tiny.trained(
        tmp_path, cls=KnowledgeThenCutOff, reward=Verifier(), mentor_routes=None, mentor_schedule="ahead", max_steps=2
    )
    records = [
        (item.collapsed_at, item.group.index, item.group.cause, item.outcome) for item in read_journal(tmp_path)
    ]
    assert records == [
        (0, 1, Cause.KNOWLEDGE, RerollOutcome.RESCUED),
        (0, 3, Cause.KNOWLEDGE, RerollOutcome.RESCUED),
        (1, 1, Cause.CUT_OFF, RerollOutcome.SKIPPED),
        (1, 3, Cause.CUT_OFF, RerollOutcome.SKIPPED),
    ]
    assert (trainer.mentor_totals.lessons, trainer.mentor_totals.handed_over) == (2, 2)


def test_shares_of_the_causes_add_up_to_the_collapsed_and_the_unscorable(tmp_path):
    totals: Counters = run(tmp_path, distinct, Verifier(None), max_steps=2).mentor_totals
    causes = sum(getattr(totals, f"cause_{cause}") for cause in Cause)
    assert causes == totals.collapsed + totals.unscorable == 4
