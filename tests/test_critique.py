"""Critique-GRPO through the real trainer: completions are refined, and the best refinement takes the first place."""

from __future__ import annotations

from functools import partial

import pandas as pd
import pytest
import said
import tiny

from trl_mentor import Mentor, ScriptedBackend, read_journal
from trl_mentor.assembly import add_critique, check_critique_template
from trl_mentor.cli.check_endpoint import not_asked
from trl_mentor.cli.check_findings import Options, Setup
from trl_mentor.config import MentorGRPOConfig
from trl_mentor.errors import ConfigError
from trl_mentor.fitting import fitted, objection
from trl_mentor.guards import names_mentor
from trl_mentor.quoting import read_blocks
from trl_mentor.records import (
    Assignment,
    Attempt,
    CollapsedGroup,
    HintOrigin,
    Prepared,
    RerollOutcome,
    Role,
    Row,
    Weighting,
)
from trl_mentor.settings import BackendKind, MentorArguments
from trl_mentor.strategies.critique import MAX_CHARS, CritiqueStrategy
from trl_mentor.strategy_settings import DEFAULT_CRITIQUE_TEMPLATE
from trl_mentor.weighting import WEIGHTING

FIRST = [(1.0, 0.0, 1.0, 0.0), (0.0,) * 4, (1.0,) * 4, (None, 0.0, 0.0, 0.0)]
"""Mixed, collapsed, all correct, collapsed as far as it could be scored."""
REFINED = [(0.0, 1.0, 1.0, 0.0), (-1.0, -0.5, -0.5, -1.0), (0.0, 0.0, 0.0, 1.0), (0.0, 1.0, 1.0)]
BEST = [1, 5, 11, 13]
"""Of the 15 refinements: the first success, the first of the least bad, the fourth, the second of the three."""
CRITIQUE = {"mentor_strategy": "critique"}
WRONG, RIGHT = "This answer is wrong.", "This answer is correct."


class Verifier:
    """Values of the first roll, then those of the refinements, in order."""

    __name__ = "verifier"

    def __init__(self, first=FIRST, refined=REFINED):
        self.values = [[value for group in values for value in group] for values in (first, refined)]
        self.calls = []

    def __call__(self, prompts, completions, completion_ids, answer, **kwargs):
        self.calls.append({"prompts": prompts, "texts": completions, "ids": completion_ids, "answer": answer})
        return self.values[(len(self.calls) - 1) % 2]


class Prompted(tiny.Recorder):
    """Keeps the prompts of each roll."""

    def _generate_single_turn(self, prompts, *args, **kwargs):
        self.asked = [*getattr(self, "asked", []), [tuple(ids) for ids in prompts]]
        return super()._generate_single_turn(prompts, *args, **kwargs)


def trained(folder, *, conversational=False, reward=None, **options):
    data = tiny.dataset(4, conversational=conversational)
    options = {**CRITIQUE, "cls": Prompted, **options}
    return tiny.trained(folder, reward=reward or Verifier(), data=data, **options)


def attempts_of(trainer, chat):
    texts = trainer.reward_funcs[0].calls[0]["texts"]
    return [text[-1]["content"] if chat else text for text in texts]


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "chat"])
def run(request, tmp_path_factory):
    """One step, and the rows of its first roll."""
    out, chat = tmp_path_factory.mktemp("run"), request.param
    trainer = trained(out, conversational=chat, log_completions=True)
    data = tiny.dataset(4, conversational=chat)
    plain = tiny.trained(tmp_path_factory.mktemp("first"), reward=Verifier(), data=data, mentor_strategy="none")
    return trainer, tiny.rows(plain.batches[0]), out, chat


def test_the_best_refinement_takes_the_first_place_under_the_question(run):
    trainer, first, _, chat = run
    refined = trainer.reward_funcs[0].calls[1]["ids"]
    rows = tiny.rows(trainer.batches[0])
    for group, best in enumerate(BEST):
        mine = slice(4 * group, 4 * group + 4)
        assert rows[mine][0] == (tiny.prompt_ids(f"w{group} w{group}", chat=chat), tuple(refined[best]))
        assert rows[mine][1:] == first[mine][1:]


def test_advantages_are_those_of_the_union(run):
    trainer, _, _, _ = run
    found = trainer.batches[0]["advantages"].reshape(4, 4).tolist()
    assert found[0] == pytest.approx([0.866, -0.866, 0.866, -0.866], abs=1e-3)  # 1 | 0 1 0
    assert found[1] == pytest.approx([-1.5, 0.5, 0.5, 0.5], abs=1e-3)  # -0.5 | 0 0 0
    assert found[2] == [0.0] * 4  # 1 | 1 1 1
    assert found[3] == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-3)  # 1 | 0 0 0


def test_each_judged_completion_is_refined_on_its_own_text_and_critique(run):
    trainer, _, _, chat = run
    attempts = attempts_of(trainer, chat)
    expected = [
        DEFAULT_CRITIQUE_TEMPLATE.format(
            question=f"w{row // 4} w{row // 4}",
            attempt=attempts[row],
            critique=f"{RIGHT if FIRST[row // 4][row % 4] else WRONG} The reference answer is: answer-{row // 4}",
        )
        for row in range(16)
        if row != 12  # which could not be scored
    ]
    assert trainer.asked[1] == [tiny.prompt_ids(text, chat=chat) for text in expected]
    reward = trainer.reward_funcs[0]
    assert reward.calls[1]["answer"] == [f"answer-{row // 4}" for row in range(16) if row != 12]
    shown = [prompt[-1]["content"] if chat else prompt for prompt in reward.calls[1]["prompts"]]
    assert shown == [f"w{row // 4} w{row // 4}" for row in range(16) if row != 12]


def test_refinements_alone_are_weighed_by_their_probability_and_cost_tokens(run):
    trainer, first, out, _ = run
    codes = trainer.batches[0][WEIGHTING].tolist()
    shaped, none = (list(Weighting).index(kind) for kind in (Weighting.SHAPED, Weighting.NONE))
    assert codes == [none if row % 4 else shaped for row in range(16)]
    totals, refined = trainer.mentor_totals, trainer.reward_funcs[0].calls[1]["ids"]
    tokens = [len(ids) for ids in refined]
    assert (totals.reroll_tokens, totals.reroll_completions, totals.reroll_successes) == (sum(tokens), 15, 5)
    assert totals.policy_tokens == trainer.generated == sum(tokens) + sum(len(ids) for _, ids in first)
    assert [record.reroll_tokens for record in read_journal(out)] == [sum(tokens[4:8]), sum(tokens[12:])]
    assert (totals.off_context_rows, totals.given_rows, totals.calls, totals.mentor_seconds < 1) == (4, 0, 0, True)


def test_collapsed_groups_alone_are_told_of(run):
    trainer, _, out, _ = run
    records = read_journal(out)
    assert [record.outcome for record in records] == [RerollOutcome.STILL_COLLAPSED, RerollOutcome.RESCUED]
    assert [record.successes for record in records] == [REFINED[1], REFINED[3]]
    totals = trainer.mentor_totals
    assert (totals.collapsed, totals.rescued, totals.still_collapsed, totals.other_groups) == (2, 1, 1, 2)
    table = pd.read_parquet(out / "completions" / "completions_00001.parquet")
    assert [bool(hint) for hint in table["mentor/hint"]] == [row % 4 == 0 for row in range(16)]
    assert table["mentor/hint"][0] == f"{WRONG} The reference answer is: answer-0"


def test_without_a_refinement_that_could_be_scored_the_group_stays(tmp_path):
    reward = Verifier(refined=[(None,) * 4, (None,) * 4, (None,) * 4, (None,) * 3])
    plain = tiny.trained(tmp_path / "a", reward=Verifier(), data=tiny.dataset(4), mentor_strategy="none")
    trainer = trained(tmp_path / "b", reward=reward)
    assert tiny.rows(trainer.batches[0]) == tiny.rows(plain.batches[0])
    assert WEIGHTING not in trainer.batches[0]


def test_the_kind_simple_says_no_more_than_right_or_wrong(tmp_path):
    template = "{critique} {question}"
    trainer = trained(tmp_path, mentor_critique="simple", mentor_critique_template=template)
    verdicts = [RIGHT if value else WRONG for group in FIRST for value in group if value is not None]
    asked = [f"{verdict} w{row // 4} w{row // 4}" for row, verdict in enumerate(verdicts[:12])]
    assert trainer.asked[1][:12] == [tiny.prompt_ids(text) for text in asked]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """One step with critiques that the mentor writes."""
    out = tmp_path_factory.mktemp("text")
    mentor = Mentor(backend := tiny.backend())
    return trained(out, mentor_critique="text", mentor=mentor), backend, out


def test_the_mentor_reads_the_failures_of_each_group_that_has_some(written):
    trainer, backend, _ = written
    attempts = attempts_of(trainer, chat=False)
    texts = [request.messages[-1]["content"] for request in backend.requests if request.role is Role.ATTRIBUTION]
    asked = {read_blocks(text, "question")[0]: text for text in texts}
    assert sorted(asked) == ["w0 w0", "w1 w1", "w3 w3"]
    assert [attempt in asked["w0 w0"] for attempt in attempts[:4]] == [False, True, False, True]


def test_the_mentors_hint_is_the_critique_of_each_failure_and_a_success_is_told_that_it_is_one(written):
    trainer, _, _ = written
    attempts = attempts_of(trainer, chat=False)
    values = [value for group in FIRST for value in group]
    expected = [
        DEFAULT_CRITIQUE_TEMPLATE.format(
            question=f"w{row // 4} w{row // 4}", attempt=attempts[row], critique=RIGHT if value else tiny.HINT
        )
        for row, value in enumerate(values)
        if value is not None
    ]
    assert trainer.asked[1] == [tiny.prompt_ids(text) for text in expected]


def test_the_mentors_calls_are_booked_and_named(written):
    trainer, backend, out = written
    totals = trainer.mentor_totals
    assert (totals.calls, totals.accepted, len(backend.requests)) == (9, 3, 9)
    assert totals.mentor_seconds > 0
    assert {record.guidance.hint for record in read_journal(out)} == {tiny.HINT}
    assert trainer.run_info().mentor == "ScriptedBackend"
    trainer.create_model_card()
    card = (out / "README.md").read_text()
    assert "each completion was criticised and refined" in card
    assert "| Mentor | " in card


def test_groups_for_which_the_mentor_failed_are_left_alone(tmp_path):
    def one_question_fails(role, messages):
        if "w0 w0" in str(messages):
            raise ConnectionError("no route to mentor")
        return {Role.ATTRIBUTION: said.diagnosis("w1"), Role.GENERATION: tiny.HINT}.get(role, said.verdict("HIGH"))

    plain = tiny.trained(tmp_path / "a", reward=Verifier(), data=tiny.dataset(4), mentor_strategy="none")
    reward = Verifier(refined=REFINED[1:])
    mentor = Mentor(ScriptedBackend(one_question_fails), pause_after=99)
    trainer = trained(tmp_path / "b", reward=reward, mentor_critique="text", mentor=mentor)
    before, after = tiny.rows(plain.batches[0]), tiny.rows(trainer.batches[0])
    assert [row for row in range(16) if before[row] != after[row]] == [4, 8, 12]
    assert (trainer.mentor_totals.failed, trainer.mentor_totals.accepted) == (1, 2)
    assert {record.guidance.origin for record in read_journal(tmp_path / "b")} == {HintOrigin.ACCEPTED}


def test_the_mentors_deadline_is_checked_against_the_time_that_other_ranks_wait(tmp_path):
    with pytest.raises(ConfigError, match="ddp_timeout"):
        trained(tmp_path, mentor_critique="text", mentor=tiny.mentor(deadline=600.0), ddp_timeout=500)


def test_critiques_of_a_mentor_without_a_model_are_refused_and_a_local_one_is_guarded(tmp_path):
    with pytest.raises(ConfigError, match="no mentor"):
        trained(tmp_path, mentor_critique="text")
    text = MentorArguments(mentor_strategy="critique", mentor_critique="text", mentor_backend="transformers")
    assert names_mentor(text, BackendKind.TRANSFORMERS)
    plain = MentorArguments(mentor_strategy="critique", mentor_backend="transformers")
    assert not names_mentor(plain, BackendKind.TRANSFORMERS)


def test_the_check_of_a_recipe_knows_who_asks_a_mentor(tmp_path):
    def why(kind):
        training = MentorGRPOConfig(str(tmp_path), use_cpu=True, bf16=False, **CRITIQUE, mentor_critique=kind)
        training.settings_problems = []
        return not_asked(Setup(None, training, None, None, 1, False, Options()))

    assert (why("text"), why("simple")) == ("", "strategy critique asks no mentor")


def test_a_mentor_that_no_kind_asks_is_not_used(tmp_path):
    trainer = trained(tmp_path, mentor=Mentor(backend := tiny.backend()))
    assert (backend.requests, trainer.run_info().mentor) == ([], "")


@pytest.mark.parametrize(("kind", "mentor"), [("text", None), ("simple", tiny.mentor()), ("fair", None)])
def test_a_kind_and_a_mentor_have_to_go_together(kind, mentor):
    with pytest.raises(ConfigError, match="kind"):
        CritiqueStrategy(kind, mentor=mentor)


def test_a_refinement_that_does_not_fit_falls_out(tmp_path):
    # 128 positions and 6 tokens of completion leave 122.
    template = "{question} " + "w9 " * 116 + "{attempt} {critique}"
    reward = Verifier(refined=[])
    trainer = trained(tmp_path, reward=reward, mentor_critique_template=template)
    assert trainer.mentor_totals.reroll_completions == 0
    assert [record.outcome for record in read_journal(tmp_path)] == [RerollOutcome.SKIPPED] * 2
    assert "too long for the 122" in read_journal(tmp_path)[0].guidance.reason


def test_an_attempt_that_spells_a_special_token_is_not_put_into_a_prompt():
    (lesson,) = CritiqueStrategy("simple").prepare([group(Attempt("w1 <eos> w2", 0.0), Attempt("w3", 0.0))])
    prepared = Prepared(Assignment(group(), {}, 0), lesson)
    rooms = {"context_room": 9, "engine_room": 9, "completion_room": 9}
    object_to = partial(objection, special_tokens=["<eos>"], count_tokens=lambda prompt: 1, **rooms)
    kept = fitted(prepared, CritiqueStrategy(), object_to).lesson
    assert kept.rolls == lesson.rolls[1:]
    assert kept.prompt == lesson.rolls[1].prompt


def group(*attempts, prompt="w1 w1", answer="answer-1"):
    return CollapsedGroup("w1 w1", attempts, answer=answer, prompt=prompt)


def test_texts_with_slots_and_braces_are_put_in_as_they_are():
    attempt = Attempt("{critique} {x} {", 0.0)
    (lesson,) = CritiqueStrategy(template="{attempt}|{critique}|{question}|{y}").prepare(
        [group(attempt, prompt="{attempt} {0}", answer="{question} \\1 \\g<0>")]
    )
    expected = (
        f"{{critique}} {{x}} {{|{WRONG} The reference answer is: {{question}} \\1 \\g<0>|{{attempt}} {{0}}|{{y}}"
    )
    assert lesson.prompt == expected


def test_a_long_attempt_keeps_head_and_tail():
    text = "a" * 10_000 + "b" * 10_000
    (lesson,) = CritiqueStrategy("simple").prepare([group(Attempt(text, 0.0))])
    assert len(lesson.prompt) < MAX_CHARS + 200
    assert f"{'a' * 5_000}\n[... " in lesson.prompt
    assert "b" * 5_000 in lesson.prompt


def test_a_conversation_is_asked_in_its_last_user_turn_and_stays_as_it_is():
    prompt = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "hi"},
        {"role": "user", "content": [{"type": "text", "text": "w1 w1"}]},
    ]
    before = [dict(turn) for turn in prompt]
    asked = add_critique(prompt, "an attempt", "bad", "Q {question} A {attempt} C {critique}")
    assert asked[:2] == prompt[:2]
    assert asked[2]["content"] == [{"type": "text", "text": "Q w1 w1 A an attempt C bad"}]
    assert prompt == before


def test_without_a_reference_answer_the_critique_is_the_simple_one():
    (lesson,) = CritiqueStrategy().prepare([group(Attempt("x", 0.0), answer=None)])
    assert lesson.hint == WRONG


def test_groups_with_nothing_to_refine_or_no_user_turn_are_left_alone():
    unjudged = group(Attempt("x"), Attempt("y"))
    bare = group(Attempt("x", 0.0), prompt=[{"role": "system", "content": "w1"}])
    first, second, third = CritiqueStrategy().prepare([unjudged, bare, group(Attempt("x", 0.0))])
    assert (first.prompt, first.guidance.reason) == (None, "no completion of it could be judged")
    assert (second.prompt, "no user turn" in second.guidance.reason) == (None, True)
    assert len(third.rolls) == 1


@pytest.mark.parametrize(
    "template",
    ["{question}", "{critique}", "{question} {critique} {critique}", "{question}{critique}{attempt}{attempt}"],
)
def test_a_template_without_its_slots_is_refused(template):
    with pytest.raises(ConfigError, match="critique template"):
        check_critique_template(template)
    with pytest.raises(ConfigError, match="mentor_critique_template"):
        MentorArguments(mentor_critique_template=template)


def test_a_template_that_is_no_text_is_refused():
    with pytest.raises(ConfigError, match="mentor_critique_template must be a text"):
        MentorArguments(mentor_critique_template=None)


def test_a_row_sampled_on_the_question_is_not_weighed():
    # As in the control arm, whose hints are withheld.
    original = [Row([1], [i], f"o{i}", None, (0.0,), success=False, score=0.0) for i in range(2)]
    again = [Row([1], [9], "h", None, (1.0,), success=True, score=1.0)]
    assert CritiqueStrategy().merge(original, again) == [again[0], original[1]]


def test_the_background_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="'critique' puts new rows among those of its own"):
        tiny.config(tmp_path, **CRITIQUE, mentor_schedule="ahead")
