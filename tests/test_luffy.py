"""LUFFY through the real trainer: a demonstration takes the last place of its group, scored by the task's rewards."""

from __future__ import annotations

import logging

import pandas as pd
import pytest
import tiny
from datasets import Dataset

from trl_mentor import read_journal
from trl_mentor.errors import ConfigError
from trl_mentor.guards import check_material
from trl_mentor.records import GroupState, RerollOutcome, Row, Weighting
from trl_mentor.strategies.luffy import LuffyStrategy
from trl_mentor.weighting import WEIGHTING

FIRST = {0: (1.0, 0.0, 1.0, 0.0), 1: (0.0,) * 4, 2: (1.0,) * 4, 3: (0.0,) * 4}
"""Mixed, collapsed, all correct, collapsed."""
GIVEN = {0: 1.0, 1: 1.0, 2: 0.0, 3: 1.0}
DEMONSTRATIONS = ["w30 w31", "w32 w33 w34", "w35", None]
OPTIONS = {"mentor_strategy": "luffy", "scale_rewards": "none", "mentor_routes": None}


class Verifier:
    """Values of the first roll by question and place, then those of what is given."""

    __name__ = "verifier"

    def __init__(self, first=FIRST, given=GIVEN):
        self.first, self.given = first, given
        self.calls = []

    def __call__(self, prompts, completions, answer, **kwargs):
        numbers = [int(name.removeprefix("answer-")) for name in answer]
        self.calls.append({"prompts": prompts, "completions": completions, "answer": answer})
        kwargs["log_extra"]("seen", [f"call {len(self.calls)} {name}" for name in answer])
        kwargs["log_metric"]("rolls", float(len(self.calls)))
        if len(self.calls) % 2 == 0:
            return [self.given[number] for number in numbers]
        return [self.first[number][place % 4] for place, number in enumerate(numbers)]


def data(demonstrations=DEMONSTRATIONS, *, conversational=False):
    rows = tiny.dataset(4, conversational=conversational).to_list()
    return Dataset.from_list([{**row, "demonstration": d} for row, d in zip(rows, demonstrations, strict=True)])


def trained(folder, demonstrations=DEMONSTRATIONS, *, conversational=False, reward=None, **options):
    given = data(demonstrations, conversational=conversational)
    return tiny.trained(folder, reward=reward or Verifier(), data=given, **{**OPTIONS, **options})


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "chat"])
def run(request, tmp_path_factory):
    """One step, and the rows of its first roll."""
    out, chat = tmp_path_factory.mktemp("run"), request.param
    trainer = trained(out, conversational=chat, log_completions=True)
    plain = tiny.trained(
        tmp_path_factory.mktemp("first"), reward=Verifier(), data=data(conversational=chat), mentor_strategy="none"
    )
    return trainer, tiny.rows(plain.batches[0]), out, chat


def test_the_demonstration_replaces_the_last_completion_of_each_group_that_has_one(run):
    trainer, first, _, _ = run
    rows, words = tiny.rows(trainer.batches[0]), tiny.tokenizer()
    for group, demonstration in enumerate(DEMONSTRATIONS):
        mine = slice(4 * group, 4 * group + 4)
        if demonstration is None:
            assert rows[mine] == first[mine]
            continue
        assert rows[mine][:3] == first[mine][:3]
        prompt = first[mine][0][0]
        assert rows[mine][3] == (prompt, (*words(demonstration)["input_ids"], words.eos_token_id))


def test_advantages_are_reward_minus_the_mean_of_the_union(run):
    trainer, _, _, _ = run
    found = trainer.batches[0]["advantages"].reshape(4, 4).tolist()
    assert found[0] == pytest.approx([0.25, -0.75, 0.25, 0.25])  # 1 0 1 and a right demonstration
    assert found[1] == pytest.approx([-0.25, -0.25, -0.25, 0.75])
    assert found[2] == pytest.approx([0.25, 0.25, 0.25, -0.75])  # the verifier refuses this demonstration
    assert found[3] == [0.0] * 4


def test_demonstrations_alone_are_weighed_by_their_probability(run):
    trainer, _, _, _ = run
    codes = trainer.batches[0][WEIGHTING].tolist()
    shaped, none = (list(Weighting).index(kind) for kind in (Weighting.SHAPED, Weighting.NONE))
    assert codes == [shaped if row in (3, 7, 11) else none for row in range(16)]


def test_demonstrations_are_scored_once_on_the_question_and_cost_no_tokens_of_the_policy(run):
    trainer, first, out, chat = run
    _, given = trainer.reward_funcs[0].calls
    assert given["answer"] == ["answer-0", "answer-1", "answer-2"]
    assert [text[-1]["content"] if chat else text for text in given["completions"]] == DEMONSTRATIONS[:3]
    assert [prompt[-1]["content"] if chat else prompt for prompt in given["prompts"]] == ["w0 w0", "w1 w1", "w2 w2"]
    totals = trainer.mentor_totals
    assert totals.policy_tokens == trainer.generated == sum(len(ids) for _, ids in first)
    assert (totals.reroll_tokens, totals.reroll_completions, totals.given_rows) == (0, 0, 3)
    assert [record.reroll_tokens for record in read_journal(out)] == [0, 0]
    logged = trainer.state.log_history[0]
    assert (logged["rolls"], logged["mentor/given/rolls"]) == (1.0, 2.0)


def test_collapsed_groups_alone_are_told_of_and_a_demonstration_rescues_one(run):
    trainer, _, out, _ = run
    records = read_journal(out)
    assert [(record.group.question.split()[0], record.outcome) for record in records] == [
        ("w1", RerollOutcome.RESCUED),
        ("w3", RerollOutcome.SKIPPED),
    ]
    assert (records[0].completions, records[0].successes) == ((DEMONSTRATIONS[1],), (1.0,))
    assert "nothing for this question" in records[1].guidance.reason
    totals = trainer.mentor_totals
    assert (totals.collapsed, totals.rescued, totals.skipped, totals.other_groups) == (2, 1, 1, 2)
    assert (totals.off_context_rows, totals.calls) == (3, 0)


def test_the_table_of_completions_shows_them_with_their_own_values(run):
    _, _, out, _ = run
    table = pd.read_parquet(out / "completions" / "completions_00001.parquet")
    # Older versions of TRL write the text of a conversation's completion, newer ones its turns.
    texts = [text if isinstance(text, str) else text[-1]["content"] for text in table["completion"]]
    assert [texts[row] for row in (3, 7, 11)] == DEMONSTRATIONS[:3]
    assert [table["seen"][row] for row in (3, 7, 12)] == ["call 2 answer-0", "call 2 answer-1", "call 1 answer-3"]
    assert table["verifier"][7] == 1.0


def test_scaled_advantages_are_over_the_deviation_of_the_union_and_the_run_says_how_the_paper_does_it(
    tmp_path, caplog
):
    with caplog.at_level(logging.WARNING, logger="trl_mentor"):
        trainer = trained(tmp_path / "scaled", scale_rewards="group")
        assert sum("scale_rewards='none'" in record.message for record in caplog.records) == 1
        caplog.clear()
        trained(tmp_path / "paper")
        assert not caplog.records
    scaled = trainer.batches[0]["advantages"][4:8].tolist()
    assert scaled == pytest.approx([-0.25 / (0.5 + 1e-4)] * 3 + [0.75 / (0.5 + 1e-4)])  # the sample deviation


def test_a_demonstration_that_does_not_fit_is_said_once_and_costs_its_group_alone(tmp_path, caplog):
    demonstrations = ["w30 " * 6, "w31 <eos>", "w30 " * 5, "w30"]  # at most 6 tokens, the end is one
    with caplog.at_level(logging.WARNING, logger="trl_mentor"):
        trainer = trained(tmp_path, demonstrations)
    assert trainer.mentor_totals.given_rows == 2
    (said,) = [record.message for record in caplog.records if "demonstration" in record.message]
    assert "7 tokens with its end, more than the 6" in said
    records = read_journal(tmp_path)
    assert [record.outcome for record in records] == [RerollOutcome.SKIPPED, RerollOutcome.RESCUED]
    assert "special token" in records[0].guidance.reason


def test_a_value_that_is_no_text_is_said_once_and_left_to_grpo(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, logger="trl_mentor"):
        trainer = trained(tmp_path, [7, 8, 9, 10])
    (said,) = [record.message for record in caplog.records]
    assert "'demonstration' holds 7 (int); expected a text" in said
    assert trainer.mentor_totals.given_rows == 0
    assert trainer.batches[0]["advantages"][4:8].tolist() == [0.0] * 4
    assert WEIGHTING not in trainer.batches[0]


def test_a_group_that_could_not_be_scored_is_left_alone(tmp_path):
    reward = Verifier(FIRST | {0: (None,) * 4})
    trainer = trained(tmp_path, reward=reward)
    assert reward.calls[1]["answer"] == ["answer-1", "answer-2"]
    assert trainer.mentor_totals.unscorable == 1
    states = [GroupState.COLLAPSED, GroupState.UNSCORABLE, GroupState.MIXED, GroupState.ALL_CORRECT]
    assert LuffyStrategy().select(states) == [0, 2, 3]


def test_a_demonstration_that_cannot_be_scored_takes_no_place(tmp_path):
    trainer = trained(tmp_path, reward=Verifier(given=GIVEN | {0: None}))
    plain = tiny.trained(tmp_path / "plain", reward=Verifier(), data=data(), mentor_strategy="none")
    rows, first = tiny.rows(trainer.batches[0]), tiny.rows(plain.batches[0])
    assert rows[:4] == first[:4]
    assert rows[7] != first[7]
    assert trainer.batches[0]["advantages"][:4].tolist() == [0.5, -0.5, 0.5, -0.5]


def test_a_missing_column_is_refused_at_construction_with_the_setting(tmp_path):
    with pytest.raises(ConfigError, match=r"reads the column 'demonstration'.*mentor_demonstration_column"):
        tiny.trainer(tmp_path, **OPTIONS)
    with pytest.raises(ConfigError, match="reads the column 'solved'"):
        tiny.trainer(tmp_path, data=data(), **OPTIONS, mentor_demonstration_column="solved")
    with pytest.raises(ConfigError, match="reads the column 'solved'"):
        tiny.trainer(tmp_path, data=data(), strategy=LuffyStrategy("solved"))
    check_material(LuffyStrategy("b"), iter(["a", "b"]))


def test_in_a_stream_a_missing_column_is_refused_with_the_first_rows(tmp_path):
    stream = tiny.dataset().to_iterable_dataset().map(lambda row: row)  # whose columns are not known beforehand
    assert stream.column_names is None
    trainer = tiny.trainer(tmp_path, data=stream, **OPTIONS)
    with pytest.raises(ConfigError, match="reads the column 'demonstration'"):
        trainer.train()


def test_the_background_and_further_rounds_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="'luffy' puts new rows among those of its own"):
        tiny.config(tmp_path, **OPTIONS, mentor_schedule="ahead")
    with pytest.raises(ConfigError, match="'luffy' puts new rows among those of its own"):
        tiny.trainer(tmp_path, data=data(), strategy=LuffyStrategy(), mentor_schedule="ahead")
    with pytest.raises(ConfigError, match="mentor_max_rounds=2"):
        tiny.config(tmp_path, **OPTIONS, mentor_max_rounds=2)


def test_the_card_says_what_was_done_and_claims_no_hints(tmp_path):
    trainer = trained(tmp_path)
    trainer.create_model_card()
    card = (tmp_path / "README.md").read_text()
    assert "a demonstration of the data set took the place of one completion" in card
    assert "hint" not in card.partition("### What came of it")[2].lower()


def test_the_same_rows_are_merged_the_same_way_whatever_their_rewards():
    original = [Row([1, 2], [10 + i], f"o{i}", [-1.0], (float(i == 3),), success=i == 3) for i in range(4)]
    given = [Row([1, 2], [7, 1], "d", None, (0.0,), success=False, off_context=True)]
    merged = LuffyStrategy().merge(original, given)
    assert merged[:3] == original[:3]
    assert (merged[3].completion_ids, merged[3].weighting) == ([7, 1], Weighting.SHAPED)
