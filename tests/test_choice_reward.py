r"""The letter of an option: read from a box, a phrase or a line that is but an option, never guessed from words."""

from __future__ import annotations

import pytest

from trl_mentor.channel import ANSWER_PARSED, VERIFIER_ERROR
from trl_mentor.errors import ConfigError
from trl_mentor.rewards.choice import choice_reward, judge_choices

READ = [
    (r"\boxed{B}", "B"),
    (r"So we get \boxed{\text{B}}.", "B"),
    (r"$\boxed{\mathbf{(C)}}$", "C"),
    (r"\boxed{D. 42}", "D"),
    (r"\boxed{\text{(E) } 17}", "E"),
    (r"\boxed{b}", "B"),
    (r"\boxed{J}", "J"),
    ("So it is \\boxed{\n  B\n}\nas the sketch shows.", "B"),
    (r"First \boxed{A}. Wait, that is wrong." "\n" r"The answer is \boxed{C}.", "C"),
    (r"<think>\boxed{A}, I think</think> \boxed{D}", "D"),
    ("The answer is (B)", "B"),
    ("The answer is B.", "B"),
    ("The correct answer is **C**.", "C"),
    ("Therefore the answer is option D.", "D"),
    ("The best option is H", "H"),
    ("**Answer:** B", "B"),
    ("Answer: B) Paris", "B"),
    ("The answer is (C) because A is too small.", "C"),
    ("The answer is A because the others are wrong.", "A"),
    ("The answer is B, not C.", "B"),
    ("the final answer is:\n\n(G)", "G"),
    ("I first took it for A.\nThe answer is A. No: the answer is B.", "B"),
    ("B", "B"),
    ("**B**", "B"),
    ("(b)", "B"),
    ("B. Paris", "B"),
    ("A: it depends", "A"),
    ("Both sides grow.\n\nC", "C"),
    ("C\n\nBoth sides grow.", "C"),
    ("Option F", "F"),
    ("A vitamin is needed. The answer is C. vitamin A and B", "C"),
]
NONE = [
    "A good way to see this is to draw it.",
    "I think so.",
    "The answer is a matter of taste.",
    "The answer is A good way to begin.",
    "The answer is A or B.",
    "The answer is (A), (B)",
    "The answer is B and C",
    r"\boxed{A} or \boxed{B}",
    r"\boxed{A, B}",
    r"\boxed{A. Paris, B. London, C. Rome}",
    r"\boxed{AB}",
    r"\boxed{K}",
    r"\boxed{42}",
    r"\boxed{}",
    r"\boxed{B",
    "\\boxed{A} or \\boxed{\nB}",
    "\\boxed{B}\nAs said, \\boxed{",
    "A, B, C, D",
    "A B C D",
    "The answer is Berlin.",
    "<think>The answer is B.</think>",
    "",
]


@pytest.mark.parametrize(("text", "letter"), READ)
def test_the_letter_of_the_final_option_is_read(text, letter):
    wrong = "A" if letter != "A" else "B"
    right, failed = judge_choices([text, text], [letter, wrong])
    assert (right.score, right.answer, right.error) == (1.0, letter, None)
    assert (failed.score, failed.answer) == (0.0, letter)


@pytest.mark.parametrize("text", NONE)
def test_words_and_several_letters_are_no_answer(text):
    assert {(one.score, one.answer) for one in judge_choices([text] * 4, list("ABCD"))} == {(0.0, None)}


def test_the_reward_takes_conversations_and_tells_what_it_read():
    logged: dict[str, list[object]] = {}
    completions = [[{"role": "assistant", "content": text}] for text in ("(B)", "no idea", "(C)")]
    rewards = choice_reward(completions, answer=["B", "B", "five"], log_extra=logged.__setitem__, topic=["x"] * 3)
    assert rewards == [1.0, 0.0, None]
    assert logged[ANSWER_PARSED] == ["B", "[unparseable]", "[skipped]"]
    assert logged[VERIFIER_ERROR] == [None, None, "the reference answer 'five' is not a letter from A to J"]


def test_references_may_be_written_as_options_are():
    assert [one.score for one in judge_choices(["B", "B", "B"], ["(B)", "b", " B. "])] == [1.0, 1.0, 1.0]


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(
        ConfigError, match="judge_choices got 2 texts and 1 values of `letters`; expected one for each"
    ):
        judge_choices(["A", "B"], ["A"])


@pytest.mark.parametrize(
    ("completions", "columns", "said"),
    [
        (["A"], {}, "got no `answer`"),
        (["A"], {"answer": "A"}, "got str 'A' as `answer`; expected a list with one value for each completion"),
        ("A", {"answer": ["A"]}, "got str 'A' as `completions`; expected a list"),
        (["A"], {"answer": ["A", "B"]}, "got 1 completions and 2 values of `answer`"),
    ],
)
def test_the_reward_refuses_what_is_no_list_with_a_letter_for_each_completion(completions, columns, said):
    with pytest.raises(ConfigError, match=f"choice_reward {said}"):
        choice_reward(completions, **columns)


@pytest.mark.parametrize("start", ["", "The answer is ", "option", r"\boxed{option"])
@pytest.mark.parametrize("piece", ["(", "answer is ", r"\boxed{", "{", "**", r"\text{", "A, ", "answer\n", "  "])
def test_hostile_repetition_ends(start, piece):
    (judged,) = judge_choices([f"{start}{piece * 100_000}}}"], ["B"])
    assert judged.score == 0.0
