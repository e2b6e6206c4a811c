"""HINT: collapsed groups are sampled again under a hint of the data set and trained on the question."""

from __future__ import annotations

import logging
import math

import engines
import pandas as pd
import pytest
import tiny
from datasets import Dataset

from trl_mentor import read_journal
from trl_mentor.errors import ConfigError
from trl_mentor.records import CollapsedGroup, RerollOutcome, Row, Weighting
from trl_mentor.strategies.static_hint import MAX_CHARS, StaticHintStrategy
from trl_mentor.weighting import WEIGHTING

SIDE = 0.5 / (math.sqrt(1 / 3) + 1e-4)
"""Advantage of a success among as many failures, G = 4: sample deviation sqrt(1/3)."""
PLAIN = [1, 2]


def data(hint=tiny.HINT, *, conversational=False, column="hint"):
    """The tiny data set with this hint for each question, or those that a list has."""
    rows = tiny.dataset(conversational=conversational).to_list()
    hints = hint if isinstance(hint, list) else [hint] * len(rows)
    return Dataset.from_list([{**row, column: value} for row, value in zip(rows, hints, strict=True)])


def trained(folder, reroll=(1.0, 0.0), *, hint=tiny.HINT, conversational=False, column="hint", **options):
    options = {"mentor_strategy": "static_hint", **options}
    given = data(hint, conversational=conversational, column=column)
    return tiny.trained(folder, reward=tiny.HardRowsFail(reroll), data=given, **options)


def first_roll(folder, **shape):
    options = {"reward": tiny.HardRowsFail(rerolls=False), "mentor_strategy": "none"}
    return tiny.rows(tiny.trained(folder, data=data(**shape), **options).batches[0])


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize(("reroll", "advantage"), [((1.0, 0.0), SIDE), ((0.0,), 0.0), ((1.0,), 0.0)])
def test_the_whole_group_is_replaced_whatever_it_brought_and_scored_on_the_question(tmp_path, reroll, advantage, chat):
    trainer = trained(tmp_path / "a", reroll, conversational=chat)
    first = first_roll(tmp_path / "b", conversational=chat)
    (batch,) = trainer.batches
    rows, advantages = tiny.rows(batch), batch["advantages"].tolist()
    assert [prompt for prompt, _ in rows] == [prompt for prompt, _ in first]
    assert [i // 4 for i in range(16) if rows[i][1] != first[i][1]] == [1] * 4 + [3] * 4
    records = read_journal(tmp_path / "a")
    decode = trainer.processing_class.decode
    assert [record.hints for record in records] == [(tiny.HINT,) * 4] * 2
    for start, record in zip((4, 12), records, strict=True):
        texts = tuple(decode(ids, skip_special_tokens=True) for _, ids in rows[start : start + 4])
        assert record.completions == texts
        expected = [advantage, -advantage] * 2 if len(reroll) == 2 else [0.0] * 4
        assert advantages[start : start + 4] == pytest.approx(expected, abs=1e-4)
    assert trainer.mentor_totals.off_context_rows == 8
    affinity = [i for i, code in enumerate(batch[WEIGHTING].tolist()) if list(Weighting)[code] is Weighting.AFFINITY]
    assert affinity == [*range(4, 8), *range(12, 16)]


def test_completions_are_sampled_under_the_hint_which_no_reward_sees(tmp_path):
    trainer = trained(tmp_path, log_completions=True)
    reward, totals = trainer.reward_funcs[0], trainer.mentor_totals
    assert reward.calls[1]["prompts"] == ["w1 w1"] * 4 + ["w3 w3"] * 4
    table = pd.read_parquet(tmp_path / "completions" / "completions_00001.parquet")
    assert table["mentor/hint"].tolist() == [tiny.HINT if i // 4 in (1, 3) else "" for i in range(16)]
    assert table["prompt"].tolist() == [f"w{i // 4} w{i // 4}" for i in range(16)]
    # The mentor strategy with the same hint samples the same completions.
    mentored = tiny.trained(tmp_path / "mentor").batches[0]
    assert [ids for _, ids in tiny.rows(trainer.batches[0])] == [ids for _, ids in tiny.rows(mentored)]
    assert totals.reroll_tokens == sum(record.reroll_tokens for record in read_journal(tmp_path)) > 0
    assert trainer.generated == totals.policy_tokens
    assert (totals.calls, totals.rescued) == (0, 2)


def test_with_an_exponent_of_0_the_loss_is_trls_own(tmp_path):
    trainer = trained(tmp_path, mentor_affinity=0)
    assert trainer.mentor_totals.off_context_rows == 8
    assert WEIGHTING not in trainer.batches[0]
    assert StaticHintStrategy(affinity=0.5).affinity == 0.5


def test_questions_without_a_hint_keep_their_rows_beside_others_that_have_one(tmp_path):
    hints = [None, None, "w5", tiny.HINT, *[None] * 4]
    trainer = trained(tmp_path / "a", hint=hints)
    rows, first = tiny.rows(trainer.batches[0]), first_roll(tmp_path / "b", hint=hints)
    assert [i // 4 for i in range(16) if rows[i] != first[i]] == [3] * 4
    assert [record.outcome for record in read_journal(tmp_path / "a")] == [
        RerollOutcome.SKIPPED,
        RerollOutcome.RESCUED,
    ]


@pytest.mark.parametrize(
    ("hint", "reason"),
    [
        (None, "the column 'clue' has nothing for this question"),
        ("", "the column 'clue' has nothing for this question"),
        (" \n", "the column 'clue' has nothing for this question"),
        (12, "the column 'clue' holds 12 (int); expected a text of at most 10,000 characters, or nothing"),
    ],
)
def test_a_question_without_a_hint_is_left_to_grpo_and_the_journal_says_why(tmp_path, caplog, hint, reason):
    with caplog.at_level(logging.WARNING, logger="trl_mentor"):
        trainer = trained(tmp_path, hint=hint, column="clue", mentor_hint_column="clue")
    assert [reason in record.guidance.reason for record in read_journal(tmp_path)] == [True] * 2
    assert trainer.mentor_totals.reroll_completions == 0
    assert sum(reason in record.message for record in caplog.records) == (hint == 12)


def test_a_list_where_a_text_belongs_is_no_hint():
    (lesson,) = StaticHintStrategy().prepare([CollapsedGroup("q", (), prompt="q", material={"hint": ["a", "b"]})])
    assert lesson.prompt is None
    assert "holds ['a', 'b'] (list); expected a text" in lesson.guidance.reason


def test_a_hint_that_would_take_long_to_shorten_and_half_a_surrogate_are_known_in_time():
    strategy = StaticHintStrategy()

    def prepared(hint):
        return strategy.prepare([CollapsedGroup("w1", (), prompt="w1", material={"hint": hint})])[0]

    assert prepared("w" * MAX_CHARS).hint == "w" * MAX_CHARS
    refused = prepared("w1. " * MAX_CHARS)
    assert refused.prompt is None
    assert "expected a text of at most 10,000 characters" in refused.guidance.reason
    assert prepared("a\ud800b").hint == "a\ufffdb"


def test_a_prompt_without_a_user_turn_costs_its_group_alone():
    bare = CollapsedGroup("q", (), prompt=[{"role": "system", "content": "q"}], material={"hint": "a"})
    first, second = StaticHintStrategy().prepare([bare, CollapsedGroup("q", (), prompt="q", material={"hint": "a"})])
    assert (first.prompt, second.hint) == (None, "a")
    assert "no user turn" in first.guidance.reason


def test_a_hint_that_the_policy_has_no_room_for_loses_sentences(tmp_path):
    trainer = trained(tmp_path, hint=f"w30 w31.\n{'w32 ' * 130}", log_completions=True)
    table = pd.read_parquet(tmp_path / "completions" / "completions_00001.parquet")
    assert set(table["mentor/hint"]) == {"", "w30 w31."}
    assert trainer.mentor_totals.rescued == 2


@pytest.mark.parametrize("strip", [True, False])
def test_quoted_hints_are_cut_where_that_is_asked_for(tmp_path, strip):
    trainer = trained(tmp_path, cls=engines.QuotesTheHint, mentor_strip_echo=strip)
    lengths = {len(completion) for _, completion in tiny.rows(trainer.batches[0])[4:8]}
    assert lengths <= ({5, 6} if strip else {10, 11})
    assert trainer.mentor_totals.echo_tokens == (40 if strip else 0)
    weightings = trainer.batches[0][WEIGHTING].tolist()
    assert weightings[4:8] == [list(Weighting).index(Weighting.AFFINITY)] * 4


def test_rows_whose_hint_was_withheld_are_in_their_context(tmp_path):
    trainer = trained(tmp_path, mentor_control_fraction=0.999)
    assert WEIGHTING not in trainer.batches[0]
    assert (trainer.mentor_totals.off_context_rows, trainer.mentor_totals.rescued) == (0, 2)


def test_sampling_log_probabilities_under_the_hint_are_not_known_under_the_question():
    original = [Row(PLAIN, [10 + i], f"o{i}", [-1.0], (0.0,), success=False) for i in range(4)]
    rolled = [Row([7, *PLAIN], [20 + i], f"h{i}", [-2.0], (0.0,), hint="a", success=False) for i in range(4)]
    rows = StaticHintStrategy().merge(original, rolled)
    assert [(row.completion, row.prompt_ids, row.off_context) for row in rows] == [
        (f"h{i}", PLAIN, True) for i in range(4)
    ]
    assert all(math.isnan(row.logprobs[0]) for row in rows)


def test_a_template_without_its_slots_is_refused():
    with pytest.raises(ConfigError, match="exactly one"):
        StaticHintStrategy(hint_template="{hint}")
