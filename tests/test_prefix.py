"""QuestA: every prompt is shown with the beginning of its solution, of which less is shown later in the run."""

from __future__ import annotations

import logging

import by_hand
import pytest
import tiny
from datasets import Dataset

from trl_mentor import read_journal
from trl_mentor.strategies.prefix import PrefixStrategy, beginning_of

SOLUTION = " ".join(f"w{i}" for i in range(20, 36))
"""16 words of three characters: 63 characters, of which 31 and 15 are the first half and quarter, 8 and 4 words."""
HALF, QUARTER = SOLUTION[:31], SOLUTION[:15]


def data(solution=SOLUTION, *, rows=4, conversational=False):
    """The tiny data set with this solution of each question, or those that a list has."""
    plain = tiny.dataset(rows, conversational=conversational).to_list()
    solutions = solution if isinstance(solution, list) else [solution] * rows
    return Dataset.from_list([{**row, "demonstration": value} for row, value in zip(plain, solutions, strict=True)])


def trained(folder, solution=SOLUTION, *, conversational=False, **options):
    given = {"data": data(solution, conversational=conversational), "reward": tiny.HardRowsFail(rerolls=False)}
    strategy = {"mentor_strategy": "static_hint", "mentor_static_hint": "prefix"}
    return tiny.trained(folder, **{**given, **strategy, **options})


def asked(trainer, batch=0):
    """The prompt of each row as text."""
    return [trainer.processing_class.decode(prompt) for prompt, _ in tiny.rows(trainer.batches[batch])]


def shown(number, beginning, *, chat=False):
    """What the policy reads of a question with this beginning; words that its tokenizer lacks are <unk>."""
    text = f"w{number} w{number}"
    text += f" {'<unk> ' * 5}{beginning}" if beginning else ""
    return f"<system> w20 <eos> <user> {text} <eos> <assistant>" if chat else text


@pytest.mark.parametrize("chat", [False, True])
def test_every_prompt_ends_with_the_beginning_of_its_solution_and_later_with_less_of_it(tmp_path, chat):
    trainer = trained(tmp_path, conversational=chat, max_steps=4)
    for step, beginning in enumerate((HALF, HALF, QUARTER, QUARTER)):
        assert asked(trainer, step) == [shown(i // 4, beginning, chat=chat) for i in range(16)]
    assert (trainer.mentor_totals.opened_rows, trainer.mentor_totals.completions) == (64, 64)
    prompts = [call["prompts"] for call in trainer.reward_funcs[0].calls]
    plain = [row["prompt"] for row in data(conversational=chat)]
    assert prompts == [[plain[i // 4] for i in range(16)]] * 4  # the rewards', one call a step


def test_a_run_may_have_one_share_or_many(tmp_path):
    trainer = trained(tmp_path, max_steps=3, mentor_prefix_shares=[0.75, 0.5, 0.25])
    assert [asked(trainer, step)[0] for step in range(3)] == [
        shown(0, beginning) for beginning in (SOLUTION[:47], HALF, QUARTER)
    ]
    strategy = PrefixStrategy(shares=(0.5, 0.4, 0.3))
    steps = [strategy.share(step / 90) for step in range(91)]
    assert steps == [0.5] * 30 + [0.4] * 30 + [0.3] * 31
    assert {PrefixStrategy(shares=[0.5]).share(step / 7) for step in range(8)} == {0.5}


def test_the_loss_is_that_of_the_completions_under_the_prompts_that_were_shown(tmp_path):
    tiny.model().save_pretrained(tmp_path / "model")
    trainer = trained(tmp_path / "run", num_iterations=2, max_steps=2)
    batch, policy = trainer.batches[0], tiny.load(tmp_path / "model").eval()
    for i, (prompt, completion) in enumerate(tiny.rows(batch)):
        expected = by_hand.mean_logp(policy, prompt, completion)
        assert abs(expected - by_hand.mean_logp(policy, prompt[:2], completion)) > 1e-4
        assert batch["old_per_token_logps"][i][: len(completion)].mean().item() == pytest.approx(expected, abs=1e-5)


def test_nothing_is_re_rolled_and_advantages_are_those_of_the_first_roll(tmp_path):
    trainer = trained(tmp_path)
    side = 0.5 / (3**-0.5 + 1e-4)
    advantages = trainer.batches[0]["advantages"].tolist()
    assert advantages[:8] == pytest.approx([-side, side] * 2 + [0.0] * 4, abs=1e-4)
    totals = trainer.mentor_totals
    assert (totals.collapsed, totals.reroll_completions, totals.off_context_rows) == (2, 0, 0)
    assert totals.policy_tokens == trainer.generated


def test_evaluation_asks_plainly(tmp_path):
    class Listener(tiny.Recorder):
        def _generate_single_turn(self, prompts, *args, **kwargs):
            if not self._training_batch:
                heard.extend(map(tuple, prompts))
            return super()._generate_single_turn(prompts, *args, **kwargs)

    heard = []
    options = {"eval_strategy": "steps", "eval_steps": 1, "eval_dataset": data(rows=2)}
    trained(tmp_path, cls=Listener, per_device_eval_batch_size=8, **options)
    words = tiny.tokenizer()
    assert set(heard) == {tuple(words(f"w{n} w{n}")["input_ids"]) for n in (0, 1)}


def test_prompts_that_come_round_with_a_beginning_do_not_count_as_answered_without_help(tmp_path):
    solutions = [None, None, SOLUTION, SOLUTION]  # questions 1 and 3 collapse in both steps
    trainer = trained(tmp_path, solutions, max_steps=2)
    assert [(item.step, item.solved) for item in read_journal(tmp_path).returns] == [(1, False)]
    assert (trainer.mentor_totals.collapsed, trainer.mentor_totals.opened_rows) == (4, 16)


@pytest.mark.parametrize(
    ("solution", "share", "beginning"),
    [
        ("abcdefghij", 0.5, "abcde"),
        ("abcdefghijk", 0.5, "abcde"),  # 5.5 characters
        ("  abcdefghij\n", 0.5, "abcde"),
        ("<think>a</think>no</think>\nabcdefghij", 0.5, "abcde"),
        ("abcd efghij", 0.5, "abcd"),
        ("x" * 100, 0.29, "x" * 29),  # 0.29 * 100 is a little less than 29
        ("<think>endless", 0.5, "<think>"),
        ("thought</think>", 0.5, ""),
        ("", 0.5, ""),
    ],
)
def test_a_beginning_is_so_many_characters_of_what_follows_the_thinking(solution, share, beginning):
    assert beginning_of(solution, share) == beginning


@pytest.mark.parametrize(
    ("solution", "warns"),
    [
        ("", False),
        (None, False),
        ("w20 w21 w22 w23 w2", True),  # 18 characters, half of which are 9
        ("w20 " * 20 + "</think>", True),
        (17, True),
        ([[SOLUTION]] * 4, True),
    ],
)
def test_a_question_without_enough_of_a_solution_is_asked_plainly(tmp_path, caplog, solution, warns):
    with caplog.at_level(logging.WARNING, logger="trl_mentor"):
        trainer = trained(tmp_path, solution)
    assert asked(trainer) == [shown(i // 4, "") for i in range(16)]
    assert trainer.mentor_totals.opened_rows == 0
    expected = "expected a solution of at least 20 characters, or nothing"
    assert sum(expected in record.message for record in caplog.records) == warns


def test_ten_characters_are_enough(tmp_path):
    trainer = trained(tmp_path, "w20 w21 w9 w22 w23 w2")  # 21 characters, of which 10 are shown
    assert asked(trainer)[0] == shown(0, "w20 w21 w9")


@pytest.mark.parametrize(
    ("solution", "reason"),
    [
        (" ".join(["w20"] * 260), "with its hint the prompt has 137 tokens, too long for the 122"),
        ("w20 <eos> w21 w22 w23 w24 w25", "holds '<eos>', which is a special token to the policy"),
    ],
)
def test_what_the_policy_cannot_take_is_not_added_which_is_said_once(tmp_path, caplog, solution, reason):
    with caplog.at_level(logging.WARNING, logger="trl_mentor"):
        trainer = trained(tmp_path, [solution, SOLUTION, SOLUTION, solution], max_steps=2, mentor_prefix_shares=[0.5])
    assert asked(trainer) == [shown(i // 4, HALF if i // 4 in (1, 2) else "") for i in range(16)]
    assert trainer.mentor_totals.opened_rows == 16
    assert sum(reason in record.message for record in caplog.records) == 1


def test_special_tokens_that_the_questions_own_prompt_has_are_no_objection(tmp_path):
    rows = [{**row, "prompt": f"<user> {row['prompt']} <eos>"} for row in data()]
    trainer = trained(tmp_path, data=Dataset.from_list(rows))
    assert trainer.mentor_totals.opened_rows == 16


def test_the_rows_of_a_group_are_one_question_for_the_warning_about_an_empty_column(caplog):
    strategy = PrefixStrategy()
    with caplog.at_level(logging.WARNING, logger="trl_mentor"):
        for number in range(16):
            for _ in range(16):
                row = {"demonstration": None if number < 8 else SOLUTION}
                strategy.first_prompt(f"w{number}", row, progress=0.0)
    assert not caplog.records


def test_a_conversation_without_a_user_turn_is_left_as_it_is():
    prompt = [{"role": "system", "content": "w1"}]
    assert PrefixStrategy().first_prompt(prompt, {"demonstration": SOLUTION}, progress=0.0) == prompt


def test_the_data_sets_prompt_is_not_changed():
    prompt = [{"role": "user", "content": [{"type": "text", "text": "w1"}]}]
    opened = PrefixStrategy().first_prompt(prompt, {"demonstration": SOLUTION}, progress=0.0)
    assert prompt == [{"role": "user", "content": [{"type": "text", "text": "w1"}]}]
    assert opened[0]["content"][0]["text"].startswith("w1\n\n## ")
    assert opened[0]["content"][0]["text"].endswith(f"\n\n{HALF}")
