"""Several re-rolls of one group, through `trainer.train()`: what the mentor sees, what is trained, what is counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from io import StringIO

import pytest
import said
import tiny
from letters import VALUES
from rich.console import Console

from trl_mentor import Mentor, ScriptedBackend, read_journal
from trl_mentor.cli.run_figures import read_run
from trl_mentor.cli.show import show_intervention
from trl_mentor.errors import BackendError, ConfigError
from trl_mentor.records import Arm, HintOrigin, RerollOutcome, Role
from trl_mentor.report.figures import report_figures
from trl_mentor.rounds import by_group, ended
from trl_mentor.settings import MentorArguments
from trl_mentor.strategies.luffy import LuffyStrategy
from trl_mentor.strategies.resample import ResampleStrategy
from trl_mentor.templating import read_blocks

RESCUED, SATURATED, COLLAPSED, SKIPPED, ANOTHER = RerollOutcome


class Rolls:
    """A verifier of one batch: its n-th roll says by number of the prompt how it is answered (`letters.VALUES`)."""

    __name__ = "verifier"

    def __init__(self, *rolls: dict[int, str]) -> None:
        self.rolls = rolls
        self.shown: list[list[str]] = []

    def __call__(self, prompts, completions, answer, **kwargs):
        letters = self.rolls[len(self.shown)]
        self.shown.append(prompts)
        kwargs["log_extra"]("roll", [len(self.shown)] * len(answer))
        numbers = [int(name.removeprefix("answer-")) for name in answer]
        return [VALUES[letters.get(number, "m")][place % 2] for place, number in enumerate(numbers)]


FAILING = {1: "c", 3: "c"}


def hint(round_: int) -> str:
    return f"w3{round_} w30"


def mentor(*, fails_from: int = 9, **options) -> tuple[Mentor, ScriptedBackend]:
    """A mentor whose hint counts those that failed; it is out of order once it has seen so many of them."""

    def answers(role, messages):
        seen = read_blocks(messages[-1]["content"], "earlier_hint")
        if role is Role.ATTRIBUTION:
            return said.diagnosis("confuses w1 with w2")
        if role is Role.GENERATION and len(seen) >= fails_from:
            raise BackendError("out of order")
        return {Role.GENERATION: hint(len(seen) + 1)}.get(role, said.verdict("HIGH"))

    backend = ScriptedBackend(answers)
    return Mentor(backend, max_retry=1, **options), backend


def trained(folder, *rolls, asked=None, rounds=2, **options):
    options.setdefault("mentor", asked or mentor()[0])
    return tiny.trained(folder, reward=Rolls(*rolls), data=tiny.dataset(4), mentor_max_rounds=rounds, **options)


def prompts(trainer, group: int) -> list[str]:
    words = tiny.tokenizer()
    return [words.decode(prompt) for prompt, _ in tiny.rows(trainer.batches[0])[4 * group : 4 * group + 4]]


def ends(folder):
    return [(item.group.index, item.round, item.outcome) for item in read_journal(folder)]


def identity(totals):
    return totals.rescued + totals.hint_saturated + totals.still_collapsed + totals.skipped == totals.collapsed


def test_a_group_that_fails_again_gets_another_hint_which_is_written_with_the_first_in_view(tmp_path):
    asked, backend = mentor()
    trainer = trained(tmp_path, FAILING, {1: "c", 3: "m"}, {1: "m"}, asked=asked, log_completions=True)
    assert ends(tmp_path) == [(1, 1, ANOTHER), (3, 1, RESCUED), (1, 2, RESCUED)]
    drafted = [request for request in backend.requests if request.role is Role.GENERATION]
    seen = [read_blocks(request.messages[-1]["content"], "earlier_hint") for request in drafted]
    assert sorted(seen) == [[], [], [hint(1)]]
    assert [set(prompts(trainer, group)) for group in (1, 3)] == [{p} for p in map(normal, (hint(2), hint(1)), (1, 3))]
    first, _, second = read_journal(tmp_path)
    assert [len(item.group.attempts) for item in (first, second)] == [4, 4]
    assert [attempt.text for attempt in second.group.attempts] == list(first.completions)
    assert (first.group.earlier_hints, second.group.earlier_hints) == ((), (hint(1),))
    assert first.successes == (0.0,) * 4
    assert second.successes == (0.0, 1.0, 0.0, 1.0)
    assert trainer.batches[0]["advantages"][4:8].tolist() == pytest.approx([-0.866, 0.866] * 2, abs=1e-3)
    assert [len(shown) for shown in trainer.reward_funcs[0].shown] == [16, 8, 4]


def normal(text: str, number: int) -> str:
    """A hinted prompt as the tiny tokenizer decodes it, which lacks some of its words."""
    words = tiny.tokenizer()
    return words.decode(words(f"Hint: {text}\n\nOriginal question: w{number} w{number}").input_ids)


def test_every_collapsed_group_ends_once_and_what_rounds_took_is_counted(tmp_path):
    trainer = trained(tmp_path, FAILING, {1: "c", 3: "c"}, {1: "a", 3: "c"})
    totals = trainer.mentor_totals
    assert (totals.collapsed, totals.another_round, totals.hint_saturated, totals.still_collapsed) == (2, 2, 1, 1)
    assert identity(totals)
    assert (totals.reroll_completions, totals.reroll_successes) == (16, 4)
    assert totals.reroll_tokens == sum(item.reroll_tokens for item in read_journal(tmp_path))
    assert totals.policy_tokens == trainer.generated
    assert totals.accepted == 4
    (log,) = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert (log["mentor/another_round"], log["mentor/frac_hint_saturated"]) == (2.0, 0.25)
    assert read_journal(tmp_path).totals == totals


def test_rounds_stop_at_the_limit_and_a_rescued_group_gets_no_other(tmp_path):
    trainer = trained(tmp_path, FAILING, {1: "c", 3: "m"}, {1: "c"}, {1: "c"}, {1: "m"}, rounds=3)
    assert ends(tmp_path) == [(1, 1, ANOTHER), (3, 1, RESCUED), (1, 2, ANOTHER), (1, 3, COLLAPSED)]
    assert len(trainer.reward_funcs[0].shown) == 4
    assert set(prompts(trainer, 1)) == {normal(hint(3), 1)}
    assert read_journal(tmp_path)[-1].group.earlier_hints == (hint(1), hint(2))


def test_one_round_is_the_default(tmp_path):
    trainer = trained(tmp_path, FAILING, FAILING, rounds=None)
    assert ends(tmp_path) == [(1, 1, COLLAPSED), (3, 1, COLLAPSED)]
    assert trainer.mentor_totals.another_round == 0


def test_a_mentor_that_fails_in_the_second_round_leaves_the_rows_of_the_first(tmp_path):
    asked, _ = mentor(fails_from=1)
    trainer = trained(tmp_path, FAILING, {1: "c", 3: "m"}, asked=asked)
    assert ends(tmp_path) == [(1, 1, ANOTHER), (3, 1, RESCUED), (1, 2, COLLAPSED)]
    last = read_journal(tmp_path)[-1]
    assert (last.guidance.origin, last.completions, last.reroll_tokens) == (HintOrigin.FAILED, (), 0)
    assert "out of order" in last.guidance.reason
    assert set(prompts(trainer, 1)) == {normal(hint(1), 1)}
    totals = trainer.mentor_totals
    assert identity(totals)
    assert (totals.skipped, totals.still_collapsed, totals.failed) == (0, 1, 1)


def test_what_a_batch_may_spend_holds_for_all_its_rounds(tmp_path):
    asked, backend = mentor(budget={"batch_calls": 8})
    trained(tmp_path, FAILING, {1: "c", 3: "c"}, asked=asked)
    assert len(backend.requests) == 6  # three calls for each hint: the two that are left are too few for another
    assert ends(tmp_path) == [(1, 1, ANOTHER), (3, 1, ANOTHER), (1, 2, COLLAPSED), (3, 2, COLLAPSED)]
    assert "batch_calls" in read_journal(tmp_path)[-1].guidance.reason


def test_a_group_that_is_held_back_gets_no_round(tmp_path):
    trainer = trained(tmp_path, FAILING, mentor_start_step=5)
    assert ends(tmp_path) == [(1, 1, SKIPPED), (3, 1, SKIPPED)]
    assert trainer.mentor_totals.held_back == 2


@pytest.mark.parametrize("fails_from", [9, 1])
def test_a_group_keeps_its_arm_in_every_round_whatever_the_mentor_does(tmp_path, fails_from):
    # Of the eight groups, the lot gives two to each control; all fail in every round.
    asked, _ = mentor(fails_from=fails_from)
    failing = dict.fromkeys(range(8), "c")
    options = {"mentor_control_fraction": 0.1, "mentor_generic_fraction": 0.1, "per_device_train_batch_size": 32}
    trainer = tiny.trained(
        tmp_path,
        reward=Rolls(failing, failing, failing),
        data=tiny.dataset(8),
        mentor=asked,
        mentor_max_rounds=2,
        **options,
    )
    journal = read_journal(tmp_path)
    groups = by_group(journal)
    assert [len(group) for group in groups] == [2] * 8
    assert {group[0].arm for group in groups} == set(Arm)
    assert all(group[0].arm is group[1].arm for group in groups)
    rows = {group[0].group.index: prompts(trainer, group[0].group.index)[0] for group in groups}
    for first, second in groups:
        plain = rows[first.group.index] == first.group.question
        assert plain == (first.arm is Arm.CONTROL)
        if first.arm is Arm.CONTROL:
            assert second.group.earlier_hints == ()
            assert second.guidance.hint == hint(1)
    cells = trainer.mentor_totals.recovery.cells
    arms = Counter(str(group[0].arm) for group in groups)
    assert {arm: cells[f"{arm}/all"].groups for arm in arms} == arms
    assert sum(tally.groups for name, tally in cells.items() if name.endswith("/all")) == 8


def test_a_group_is_compared_by_what_was_known_before_its_lot(tmp_path):
    trained(tmp_path, FAILING, {1: "c", 3: "m"}, {1: "m"})
    journal = read_journal(tmp_path)
    assert [[item.round for item in group] for group in by_group(journal)] == [[1, 2], [1]]
    assert [(item.group.index, item.outcome) for item in ended(journal)] == [(1, RESCUED), (3, RESCUED)]
    assert ended(journal[:1]) == []
    first = replace(journal[0], group=replace(journal[0].group, cause="cut_off"))
    assert [item.group.cause for item in ended([first, journal[2]])] == ["cut_off"]


def test_the_report_counts_groups_once_and_every_hint(tmp_path):
    trained(tmp_path, FAILING, {1: "c", 3: "m"}, {1: "m"})
    figures = report_figures(read_journal(tmp_path))
    ended_so = figures.counts.ended
    assert (ended_so.groups, ended_so.rescued, ended_so.still_collapsed) == (2, 2, 0)
    assert [(row.outcomes.groups, row.outcomes.rescued) for row in figures.causes] == [(2, 2)]
    by_hint = {row.text: (row.outcomes.groups, row.outcomes.still_collapsed) for row in figures.hints}
    assert by_hint == {hint(1): (2, 1), hint(2): (1, 0)}
    assert (figures.recovery.hinted.groups, figures.recovery.hinted.hits) == (2, 2)


def test_a_group_whose_second_hint_never_came_counts_as_hinted(tmp_path):
    trained(tmp_path, FAILING, {1: "c", 3: "m"}, asked=mentor(fails_from=1)[0])
    recovery = report_figures(read_journal(tmp_path)).recovery
    assert (recovery.hinted.groups, recovery.hinted.hits, recovery.plain.groups) == (2, 1, 0)


def test_a_plan_counts_the_calls_of_a_group_in_all_its_rounds(tmp_path):
    trained(tmp_path, FAILING, {1: "c", 3: "m"}, {1: "m"})
    assert read_run(tmp_path)["calls_per_group"] == 4.5


def test_a_record_of_a_later_round_says_so_on_the_terminal(tmp_path):
    trained(tmp_path, FAILING, {1: "c", 3: "m"}, {1: "m"})
    printed = []
    for record in read_journal(tmp_path):
        console = Console(file=StringIO(), width=100)
        show_intervention(record, console)
        printed.append(console.file.getvalue())
    assert "another round: the group was re-rolled once more" in printed[0]
    assert ["round 2" in text for text in printed] == [False, False, True]


@pytest.mark.parametrize("strategy", ["static_hint", "scaffold", "luffy", "critique", "srpo"])
def test_a_strategy_with_one_re_roll_refuses_rounds(strategy):
    with pytest.raises(
        ConfigError, match=f"mentor_max_rounds=2.*'{strategy}' has not; .*'mentor', 'resample', 'dapo'"
    ):
        MentorArguments(mentor_strategy=strategy, mentor_max_rounds=2)
    assert MentorArguments(mentor_strategy=strategy, mentor_max_rounds=1).max_rounds() == 1


def test_a_baseline_takes_the_rounds_of_the_method_that_it_is_compared_with():
    assert MentorArguments(mentor_strategy="none", mentor_max_rounds=2).max_rounds() == 2


def test_rounds_are_refused_with_ahead_and_with_such_an_object(tmp_path):
    with pytest.raises(ConfigError, match="mentor_schedule='ahead' re-rolls a lesson once"):
        MentorArguments(mentor_schedule="ahead", mentor_max_rounds=2)
    with pytest.raises(ConfigError, match="'luffy' has not"):
        tiny.trainer(tmp_path, strategy=LuffyStrategy(), mentor_max_rounds=2)
    own = ResampleStrategy()
    own.name, own.max_rounds = "own", 3
    with pytest.raises(ConfigError, match=r"mentor_schedule='ahead' re-rolls a lesson once.*mentor_max_rounds=3"):
        tiny.trainer(tmp_path, strategy=own, mentor_schedule="ahead")


def test_resample_takes_rounds_on_the_plain_question(tmp_path):
    trainer = trained(
        tmp_path, FAILING, {1: "c", 3: "m"}, {1: "m"}, mentor_strategy="resample", mentor=None, mentor_routes=None
    )
    assert ends(tmp_path) == [(1, 1, ANOTHER), (3, 1, RESCUED), (1, 2, RESCUED)]
    assert set(prompts(trainer, 1)) == {"w1 w1"}
