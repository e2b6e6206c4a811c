"""Which rows of a re-rolled group are trained, with which advantages: by hand, and through `trainer.train()`."""

from __future__ import annotations

import math

import pytest
import tiny

from trl_mentor.errors import ConfigError
from trl_mentor.records import Row
from trl_mentor.rescue import PAPER, Construction, Rescue, ScoreOn
from trl_mentor.settings import MentorArguments
from trl_mentor.strategies.mentor import MentorStrategy

PLAIN, HINTED = [1, 2], [7, 8, 9, 1, 2]


def originals(successes=(False,) * 4):
    return [Row(PLAIN, [10 + i], f"o{i}", [-1.0], (0.0,), success=value) for i, value in enumerate(successes)]


def hinted(successes):
    return [
        Row(HINTED, [20 + i, 30], f"h{i}", [-2.0, -2.0], (float(bool(value)),), hint="think", success=value)
        for i, value in enumerate(successes)
    ]


def names(rows):
    return [row.completion for row in rows]


def swapped(rows):
    """The re-rolled rows among rows of which the others have kept their places."""
    new = [row for row in rows if row.completion.startswith("h")]
    assert all(row.completion == f"o{i}" for i, row in enumerate(rows) if row not in new)
    return new


def test_single_puts_one_success_in_place_of_one_failure_however_many_succeed():
    for successes in ((True, False, False, False), (True, True, False, True), (True,) * 4):
        (row,) = swapped(Construction(Rescue.SINGLE).rows(originals(), hinted(successes)))
        assert row.success
        assert (row.prompt_ids, row.off_context) == (HINTED, False)


def test_the_union_is_sampled_down_to_the_group_with_the_share_of_successes_that_it_has():
    # G = 4 failures and k successes: 4k / (4 + k) of four rows are successes, rounded, at least one.
    for k, expected in ((1, 1), (2, 1), (3, 2), (4, 2)):
        rerolled = hinted([i < k for i in range(4)])
        new = swapped(Construction(Rescue.UNION_SUCCESS).rows(originals(), rerolled))
        assert len(new) == len(set(names(new))) == expected
        assert all(row.success for row in new)


def test_adaptive_is_the_papers_group_while_that_is_mixed_and_the_union_on_the_question_when_all_succeed():
    adaptive = Construction(Rescue.ADAPTIVE)
    mixed = hinted((True, False, False, True))
    assert adaptive.rows(originals(), mixed) == mixed
    for successes in ((True,) * 4, (True, True, None, True)):  # what could not be scored has no advantage either
        new = swapped(adaptive.rows(originals(), hinted(successes)))
        assert [(row.prompt_ids, row.off_context) for row in new] == [(PLAIN, True)] * 2


@pytest.mark.parametrize("rescue", [Rescue.SINGLE, Rescue.UNION_SUCCESS, Rescue.ADAPTIVE])
@pytest.mark.parametrize("successes", [(False,) * 4, (None, False, None, False)])
def test_without_a_success_the_original_rows_stay(rescue, successes):
    assert Construction(rescue).rows(originals(), hinted(successes)) == originals()


def test_the_papers_construction_takes_the_new_group_whatever_it_brought():
    for successes in ((True, False, False, True), (True,) * 4, (False,) * 4):
        assert PAPER.rows(originals(), hinted(successes)) == hinted(successes)


def test_a_row_that_could_not_be_scored_gives_way_before_a_failure():
    # Without its one failure the group would have nothing to compare the success with.
    group = originals((None, None, False, None))
    for construction in (Construction(Rescue.SINGLE), Construction(Rescue.UNION_SUCCESS)):
        rows = construction.rows(group, hinted((True,) * 4))
        assert names(rows)[2] == "o2"


def test_the_lot_falls_equally_on_every_rank_and_differs_between_groups():
    single = Construction(Rescue.SINGLE)
    new = [
        single.rows([Row(PLAIN, [n, i], f"o{i}", None, (0.0,), success=False) for i in range(4)], hinted((True,) * 4))
        for n in range(200)
    ]
    again = single.rows(
        [Row(PLAIN, [7, i], f"o{i}", None, (0.0,), success=False) for i in range(4)], hinted((True,) * 4)
    )
    assert again == new[7]
    places = [(next(i for i, row in enumerate(rows) if row.hint), swapped(rows)[0].completion) for rows in new]
    counts = [places.count((place, f"h{i}")) for place in range(4) for i in range(4)]
    assert min(counts) >= 3  # 12.5 expected of each of the 16 ways
    assert max(counts) <= 30


def test_a_row_under_another_prompt_than_it_was_sampled_under_has_no_known_sampling_log_probabilities():
    rows = Construction(Rescue.REPLACE, ScoreOn.ORIGINAL).rows(originals(), hinted((True, False, True, False)))
    assert [row.prompt_ids for row in rows] == [PLAIN] * 4
    assert all(row.off_context and all(map(math.isnan, row.logprobs)) and len(row.logprobs) == 2 for row in rows)
    assert [row.hint for row in rows] == ["think"] * 4  # which they were sampled under


def test_a_second_roll_on_the_plain_question_is_in_its_context():
    again = [Row(PLAIN, [40 + i], f"h{i}", [-3.0], (1.0,), success=True) for i in range(4)]
    (row,) = swapped(Construction(Rescue.SINGLE, ScoreOn.ORIGINAL).rows(originals(), again))
    assert (row.off_context, row.logprobs) == (False, [-3.0])


def test_groups_of_different_sizes_are_refused():
    with pytest.raises(ValueError, match="3 rows, the original 4"):
        PAPER.rows(originals(), hinted((True,) * 3))


# Rows, prompts and advantages through the trainer: groups 1 and 3 collapse, rows 4-7 and 12-15.

SIDE = 0.5 / (math.sqrt(1 / 3) + 1e-4)
"""Advantage of a success among as many failures, G = 4. TRL divides by the sample standard deviation plus 1e-4."""
ONE_OF_FOUR = (0.75 / (0.5 + 1e-4), -0.25 / (0.5 + 1e-4))
"""Of one success among three failures, and of each of the failures."""


def trained(folder, reroll=(1.0, 0.0), **options):
    made = tiny.trained(folder, reward=tiny.HardRowsFail(reroll), **options)
    return tiny.rows(made.batches[0]), made.batches[0]["advantages"].tolist(), made


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The rows of the first roll."""
    options = {"reward": tiny.HardRowsFail(rerolls=False), "mentor_strategy": "none"}
    return tiny.rows(tiny.trained(tmp_path_factory.mktemp("first"), **options).batches[0])


@pytest.fixture(scope="module")
def second(tmp_path_factory):
    """The rows of the paper's construction: those of collapsed groups are the re-rolled ones."""
    return trained(tmp_path_factory.mktemp("second"))[0]


@pytest.mark.parametrize(
    ("options", "on_question"),
    [
        ({"mentor_rescue": "single"}, False),
        ({"mentor_preset": "robust"}, True),
        ({"mentor_rescue": "single", "mentor_score_on": "original"}, True),
        ({"mentor_preset": "robust", "mentor_score_on": "hinted"}, False),
    ],
)
@pytest.mark.parametrize("reroll", [(1.0, 0.0), (1.0,)])
def test_single_trains_one_success_among_three_failures(tmp_path, first, second, options, on_question, reroll):
    rows, advantages, made = trained(tmp_path, reroll, **options)
    for start in (4, 12):
        (new,) = [i for i in range(start, start + 4) if rows[i] != first[i]]
        wins = [second[start + i][1] for i in range(4) if reroll[i % len(reroll)]]
        assert rows[new][1] in wins
        assert rows[new][0] == (first[new][0] if on_question else second[start][0])
        won, lost = ONE_OF_FOUR
        assert advantages[start : start + 4] == pytest.approx(
            [won if i == new else lost for i in range(start, start + 4)]
        )
    assert rows[:4] == first[:4]
    assert rows[8:12] == first[8:12]
    assert made.mentor_totals.off_context_rows == (2 if on_question else 0)


def test_the_union_trains_two_successes_among_two_failures_when_all_succeed(tmp_path, first, second):
    options = {"mentor_rescue": "union_success", "mentor_score_on": "original"}
    rows, advantages, made = trained(tmp_path, (1.0,), **options)
    for start in (4, 12):
        new = [i for i in range(start, start + 4) if rows[i] != first[i]]
        assert len(new) == 2
        assert {rows[i][1] for i in new} < {completion for _, completion in second[start : start + 4]}
        assert advantages[start : start + 4] == pytest.approx(
            [SIDE if i in new else -SIDE for i in range(start, start + 4)]
        )
    assert all(len(prompt) == 2 for prompt, _ in rows)
    assert made.mentor_totals.off_context_rows == 4


def test_adaptive_trains_the_papers_group_when_it_is_mixed_and_else_the_union_on_the_question(tmp_path, first, second):
    rows, advantages, _ = trained(tmp_path / "mixed", mentor_rescue="adaptive")
    assert rows == second
    assert advantages[4:8] == pytest.approx([SIDE, -SIDE, SIDE, -SIDE])
    rows, advantages, _ = trained(tmp_path / "all", (1.0,), mentor_rescue="adaptive")
    assert all(len(prompt) == 2 for prompt, _ in rows)
    assert sorted(advantages[4:8]) == pytest.approx([-SIDE, -SIDE, SIDE, SIDE])


def test_replace_on_the_question_trains_the_new_completions_under_the_old_prompt(tmp_path, first, second):
    rows, advantages, _ = trained(tmp_path, mentor_score_on="original")
    assert [prompt for prompt, _ in rows] == [prompt for prompt, _ in first]
    assert [completion for _, completion in rows] == [completion for _, completion in second]
    assert advantages[4:8] == pytest.approx([SIDE, -SIDE, SIDE, -SIDE])


def test_the_control_gets_the_same_construction(tmp_path, first):
    rows, advantages, made = trained(tmp_path, mentor_strategy="resample", mentor_preset="robust")
    for start in (4, 12):
        (new,) = [i for i in range(start, start + 4) if rows[i] != first[i]]
        assert advantages[new] == pytest.approx(ONE_OF_FOUR[0])
    assert made.mentor_totals.off_context_rows == 0


def test_an_object_takes_its_construction_itself(tmp_path, first):
    strategy = MentorStrategy(tiny.mentor(), routes=tiny.MENTOR_ANYWAY, construction=Construction(Rescue.SINGLE))
    rows, _, _ = trained(tmp_path / "a", strategy=strategy)
    assert sum(row != before for row, before in zip(rows, first, strict=True)) == 2
    with pytest.raises(ConfigError, match=r"'ahead' trains re-rolled rows as they are, .* is single, hinted"):
        trained(tmp_path / "b", strategy=strategy, mentor_schedule="ahead")
    with pytest.raises(ConfigError, match=r"strategy= and mentor_rescue"):
        tiny.trainer(tmp_path / "b", strategy=strategy, mentor_rescue="single")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mentor_preset": "safe"}, r"mentor_preset must be one of \['paper', 'robust'\], got 'safe'"),
        ({"mentor_rescue": "all"}, r"mentor_rescue must be one of \['replace', 'single', .*'adaptive'\], got 'all'"),
        ({"mentor_score_on": "plain"}, r"mentor_score_on must be one of \['hinted', 'original'\], got 'plain'"),
        ({"mentor_strip_echo": "yes"}, "mentor_strip_echo must be true or false, got 'yes'"),
        ({"mentor_rescue": "adaptive", "mentor_score_on": "original"}, "itself decides under which prompt"),
        ({"mentor_preset": "robust", "mentor_schedule": "ahead"}, "got single, original"),
    ],
)
def test_a_construction_that_does_not_exist_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        MentorArguments(**options)


def test_a_preset_gives_what_is_not_chosen():
    assert MentorArguments().construction() == PAPER
    assert not MentorArguments().strips_echo()
    robust = MentorArguments(mentor_preset="robust")
    assert robust.construction() == Construction(Rescue.SINGLE, ScoreOn.ORIGINAL)
    assert robust.strips_echo()
    assert not MentorArguments(mentor_preset="robust", mentor_strip_echo=False).strips_echo()
    chosen = MentorArguments(mentor_preset="robust", mentor_rescue="adaptive").construction()
    assert chosen == Construction(Rescue.ADAPTIVE, ScoreOn.HINTED)
