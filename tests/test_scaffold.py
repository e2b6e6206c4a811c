"""Scaf-GRPO: which rung of the ladder is trained, in whose place, under which prompt and with which advantage."""

from __future__ import annotations

import logging

import pytest
import tiny
from datasets import Dataset

from trl_mentor import read_journal
from trl_mentor.errors import ConfigError
from trl_mentor.records import CollapsedGroup, RerollOutcome, Row, Weighting
from trl_mentor.strategies.material import FIRST
from trl_mentor.strategies.scaffold import MAX_RUNGS, ScaffoldStrategy

LADDER = ["w30", "w30 w31", "w30 w31 w32"]
PLAIN = [1, 2]
ONE_OF_FOUR = (0.75 / (0.5 + 1e-4), -0.25 / (0.5 + 1e-4))
"""Advantages of one success, and of each failure, among four rows: sample deviation 0.5."""


def data(ladder=LADDER, *, conversational=False):
    """The tiny data set with a ladder for each question."""
    rows = tiny.dataset(conversational=conversational).to_list()
    return Dataset.from_list([{**row, "hints": ladder} for row in rows])


def trained(folder, reroll, *, ladder=LADDER, conversational=False, **options):
    options = {"mentor_start_step": 0, "mentor_strategy": "scaffold", **options}
    reward = tiny.HardRowsFail(reroll)
    return tiny.trained(folder, reward=reward, data=data(ladder, conversational=conversational), **options)


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "chat"])
def run(request, tmp_path_factory):
    """A run in which the second and the third rung succeed, and the rows of its first roll."""
    out = tmp_path_factory.mktemp("run")
    chat = request.param
    trainer = trained(out, (0.0, 1.0, 1.0), conversational=chat)
    options = {"data": data(conversational=chat), "mentor_strategy": "none"}
    first = tiny.trained(tmp_path_factory.mktemp("first"), reward=tiny.HardRowsFail(rerolls=False), **options).batches[
        0
    ]
    return trainer, tiny.rows(first), out, chat


def test_the_success_under_the_weakest_hint_replaces_one_failure_and_keeps_its_own_prompt(run):
    trainer, first, out, chat = run
    rows, advantages = tiny.rows(trainer.batches[0]), trainer.batches[0]["advantages"].tolist()
    for group, record in zip((1, 3), read_journal(out), strict=True):
        mine = range(4 * group, 4 * group + 4)
        (place,) = [i for i in mine if rows[i] != first[i]]
        asked = f"Hint: w30 w31\n\nOriginal question: w{group} w{group}"
        assert rows[place][0] == tiny.prompt_ids(asked, chat=chat)
        assert trainer.processing_class.decode(rows[place][1], skip_special_tokens=True) == record.completions[1]
        assert [round(advantages[i], 4) for i in mine] == [round(ONE_OF_FOUR[i != place], 4) for i in mine]
    others = [i for i in range(16) if i // 4 in (0, 2)]
    assert [rows[i] for i in others] == [first[i] for i in others]


def test_each_rung_is_sampled_once_and_rewards_are_shown_the_question(run):
    trainer, first, out, chat = run
    reward = trainer.reward_funcs[0]
    assert [call["roll"] for call in reward.calls] == ["first", "second"]
    assert reward.calls[1]["answer"] == ["answer-1"] * 3 + ["answer-3"] * 3
    shown = reward.calls[1]["prompts"]
    asked = [prompt[-1]["content"] for prompt in shown] if chat else shown
    assert asked == ["w1 w1"] * 3 + ["w3 w3"] * 3
    totals = trainer.mentor_totals
    tokens = sum(len(ids) for _, ids in first)
    assert totals.reroll_tokens == totals.policy_tokens - tokens == sum(r.reroll_tokens for r in read_journal(out)) > 0
    assert trainer.generated == totals.policy_tokens
    assert (totals.reroll_completions, totals.reroll_successes) == (6, 4)
    assert (totals.rescued, totals.off_context_rows, totals.calls) == (2, 0, 0)
    journal = read_journal(out)
    assert [(record.successes, record.hints) for record in journal] == [((0.0, 1.0, 1.0), tuple(LADDER))] * 2
    assert journal.to_dataset()["hints"][0] == LADDER


def test_without_a_success_the_group_stays_as_it_was(run, tmp_path):
    _, first, _, chat = run
    trainer = trained(tmp_path, (0.0,), conversational=chat)
    assert tiny.rows(trainer.batches[0]) == first
    assert trainer.batches[0]["advantages"][4:8].tolist() == [0.0] * 4
    assert trainer.mentor_totals.still_collapsed == 2


def test_the_ladder_may_have_more_rungs_than_the_group_has_rows(tmp_path):
    ladder = [f"w{i}" for i in range(30, 36)]
    trainer = trained(tmp_path, (0.0,) * 5 + (1.0,), ladder=ladder)
    rows = tiny.rows(trainer.batches[0])
    asked = [prompt for prompt, _ in rows if len(prompt) > 2]
    assert asked == [tiny.prompt_ids(f"Hint: w35\n\nOriginal question: w{n} w{n}") for n in (1, 3)]
    assert trainer.mentor_totals.reroll_completions == 12


def test_a_quoted_hint_stays_in_the_row_that_is_scored_under_it(tmp_path):
    # Word for word the prompt of its hint; only rows that are scored on the question lose what they quote.
    class Quotes(tiny.Recorder):
        def _generate_single_turn(self, prompts, *args, **kwargs):
            completions, *rest = super()._generate_single_turn(prompts, *args, **kwargs)
            quoted = [
                [*ids[:-1], *new] if len(ids) > 2 else new for ids, new in zip(prompts, completions, strict=True)
            ]
            return quoted, *rest

    trainer = trained(tmp_path, (1.0,), cls=Quotes, mentor_strip_echo=True)
    (row,) = [row for row in tiny.rows(trainer.batches[0])[4:8] if len(row[0]) > 2]
    assert row[1][: len(row[0]) - 1] == row[0][:-1]
    assert trainer.mentor_totals.echoes == 0


def test_the_first_fifteen_percent_of_the_steps_are_exempt_unless_the_settings_say_otherwise(tmp_path):
    def steps(folder, **options):
        reward = tiny.HardRowsFail((1.0,), rerolls=False)
        strategy = {"mentor_strategy": "scaffold"}
        tiny.trained(tmp_path / folder, reward=reward, data=data(), max_steps=4, **{**strategy, **options})
        return sorted({record.step for record in read_journal(tmp_path / folder) if record.completions})

    assert steps("default") == [1, 2, 3]  # 0.15 * 4 is 0.6
    assert steps("object", mentor_strategy="mentor", strategy=ScaffoldStrategy()) == [1, 2, 3]
    assert steps("given", mentor_start_step=0) == [0, 1, 2, 3]


def test_withheld_hints_are_replaced_by_as_many_rolls_of_the_question(tmp_path):
    trainer = trained(tmp_path, (0.0, 1.0, 1.0), mentor_control_fraction=0.999)
    records = read_journal(tmp_path)
    assert [(str(record.arm), len(record.completions)) for record in records] == [("control", 3)] * 2
    rows = tiny.rows(trainer.batches[0])
    assert all(len(prompt) == 2 for prompt, _ in rows)
    assert [round(value, 1) for value in sorted(trainer.batches[0]["advantages"][4:8].tolist())] == [-0.5] * 3 + [1.5]


@pytest.mark.parametrize(
    ("ladder", "reason"),
    [
        (None, "the column 'hints' has nothing for this question"),
        ([], "the column 'hints' has nothing for this question"),
        (["", None, "  "], "the column 'hints' has nothing for this question"),
        ("w30", "the column 'hints' holds 'w30' (str); expected a list of at most 32 texts from weak to strong"),
        (7, "the column 'hints' holds 7 (int); expected"),
        ([1, 2], "the column 'hints' holds [1, 2] (list); expected"),
        ([["w30"], ["w31"]], "the column 'hints' holds [['w30'], ['w31']] (list); expected"),
        ([f"h{i}" for i in range(MAX_RUNGS + 1)], "expected a list of at most 32 texts"),
    ],
)
def test_a_question_without_a_ladder_is_left_to_grpo_and_the_journal_says_why(tmp_path, caplog, ladder, reason):
    with caplog.at_level(logging.WARNING, logger="trl_mentor"):
        trainer = trained(tmp_path, (1.0,), ladder=ladder)
    records = read_journal(tmp_path)
    assert [(record.outcome, reason in record.guidance.reason) for record in records] == [
        (RerollOutcome.SKIPPED, True)
    ] * 2
    assert trainer.mentor_totals.reroll_completions == 0
    assert trainer.batches[0]["advantages"][4:8].tolist() == [0.0] * 4
    # What is merely empty is no mistake; what is wrong is said once.
    assert sum(reason in record.message for record in caplog.records) == ("expected" in reason)


@pytest.mark.parametrize(("filled", "warned"), [(FIRST // 2 - 1, True), (FIRST // 2, False)])
def test_a_column_that_is_empty_for_most_of_the_first_questions_is_warned_about_once(caplog, filled, warned):
    groups = [group(LADDER if number < filled else None) for number in range(FIRST)] + [group(None)] * FIRST
    strategy = ScaffoldStrategy()
    with caplog.at_level(logging.WARNING, logger="trl_mentor"):
        lessons = [strategy.prepare([one])[0] for one in groups]
    assert sum(lesson.prompt is not None for lesson in lessons) == filled
    said = [record.getMessage() for record in caplog.records]
    empty = "trl-mentor: the column 'hints' has nothing to use for 9 of the first 16 questions"
    assert [text.startswith(empty) for text in said] == [True] * warned


def group(material, prompt="w1 w1"):
    return CollapsedGroup("w1 w1", (), prompt=prompt, material={"hints": material})


def test_blank_and_repeated_rungs_are_left_out():
    (lesson,) = ScaffoldStrategy().prepare([group(["a", "", None, "b", "a"])])
    assert [roll.hint for roll in lesson.rolls] == ["a", "b"]
    assert (lesson.hint, lesson.prompt) == ("a", lesson.rolls[0].prompt)


def test_a_rung_that_the_policy_has_no_room_for_falls_out_of_the_ladder(tmp_path):
    ladder = ["w30", " ".join(["w31"] * 130), "<eos> w32"]  # 128 positions; a special token
    trainer = trained(tmp_path, (1.0,), ladder=ladder)
    assert trainer.mentor_totals.reroll_completions == 2
    assert [tiny.prompt_ids(f"Hint: w30\n\nOriginal question: w{n} w{n}") for n in (1, 3)] == [
        prompt for prompt, _ in tiny.rows(trainer.batches[0]) if len(prompt) > 2
    ]


def test_a_prompt_without_a_user_turn_costs_its_group_alone():
    bare = group(LADDER, [{"role": "system", "content": "w1"}])
    first, second = ScaffoldStrategy().prepare([bare, group(LADDER)])
    assert (first.prompt, len(second.rolls)) == (None, 3)
    assert "no user turn" in first.guidance.reason


def test_a_template_without_its_slots_is_refused():
    with pytest.raises(ConfigError, match="exactly one"):
        ScaffoldStrategy(hint_template="{hint}")


def rows_of(successes, prefix, prompt):
    return [
        Row(prompt, [10 + i], f"{prefix}{i}", None, (float(bool(value)),), success=value)
        for i, value in enumerate(successes)
    ]


def test_what_could_not_be_scored_gives_way_before_a_failure_and_is_no_success():
    original = rows_of((None, False, None, None), "o", PLAIN)
    rolled = rows_of((None, True, True), "h", [7, *PLAIN])
    rows = ScaffoldStrategy().merge(original, rolled)
    assert rows[1] == original[1]
    (new,) = [row for row in rows if row not in original]
    assert new == rolled[1]
    assert (new.weighting, new.off_context) == (Weighting.NONE, False)


def test_the_failure_that_gives_way_is_drawn_by_lot():
    places = set()
    for n in range(40):
        original = [Row(PLAIN, [n, i], f"o{i}", None, (0.0,), success=False) for i in range(4)]
        rows = ScaffoldStrategy().merge(original, rows_of((True,), "h", [7, *PLAIN]))
        assert rows == ScaffoldStrategy().merge(original, rows_of((True,), "h", [7, *PLAIN]))
        places.add(next(i for i, row in enumerate(rows) if row.completion == "h0"))
    assert places == {0, 1, 2, 3}
