"""What the formal rules refuse before the judge is asked, and what they let through."""

from __future__ import annotations

import random
import time

import pytest

from trl_mentor.errors import ConfigError
from trl_mentor.leaks import hint_rules
from trl_mentor.leaks.hint_rules import (
    ANNOUNCES_RESULT,
    CODE,
    COPIES_SOLUTION,
    DECLINES,
    EMPTY,
    GIVES_ANSWER,
    NOT_TEXT,
    TOO_LONG,
    WORKED_OUT,
    HintLimits,
    check_hint,
    gives_away,
)

PROOF = (
    "Let p be a prime that divides both numbers. Then p divides their difference, which is one by construction, "
    "and this contradicts the choice of p, so the two numbers have no common factor at all."
)
PROGRAM = """def longest(values):
    best = [1] * len(values)
    for right in range(len(values)):
        for left in range(right):
            if values[left] < values[right]:
                best[right] = max(best[right], best[left] + 1)
    return max(best, default=0)
"""


def critique(hint: str, answer: str | None = None, question: str = "Solve the problem.", **limits: int) -> str:
    return check_hint(hint, question=question, answer=answer, limits=HintLimits(**limits)) or ""


@pytest.mark.parametrize(
    ("hint", "answer"),
    [
        ("Think about whether a nowhere dense set must be a countable union of closed sets.", "No"),
        ("There is no shortcut: compare the two closures first.", "no"),
        ("Check what happens when n is even, then when n is odd.", "36"),
        ("Recall that $\\sin^2 x + \\cos^2 x = 1$ and look for a substitution.", "\\frac{\\pi}{4}"),
        ("Use the hockey-stick identity $\\sum_{i=r}^{n} \\binom{i}{r} = \\binom{n+1}{r+1}$.", "126"),
        ("First count the pairs, then remove the ones counted twice.", "15"),
        ("The function is a bijection; ask what that says about its inverse.", "A"),
        ("Keep a table of the best length that ends at each position.", PROGRAM),
        ("Look at the difference of the two numbers.", PROOF),
        ("The answer is not an integer, so do not round too early.", "7/3"),
        ("The answer should be left in terms of the radius.", None),
        ("想一想这个集合的补集。", "42"),
        ("Be careful with the sign of the second term.", ""),
        ("Be careful with the sign of the second term.", " .. "),
    ],
)
def test_a_hint_that_points_without_telling_passes(hint: str, answer: str | None):
    assert critique(hint, answer) == ""


@pytest.mark.parametrize(
    ("hint", "answer"),
    [
        ("You should find 126 ways.", "126"),
        ("You should find 126 ways.", "126 ways"),
        ("You should find 126 of them.", "126 ways"),
        ("You should find 126.", "$126$."),
        ("You should find 1,260 ways.", "1260"),
        ("You should find 1{,}260 ways.", "1260"),
        ("You should find 1\\,260 ways.", "1260"),
        ("You should find 12\u200b60 ways.", "1260"),
        ("You should find 1260 ways.", "1,260"),
        ("The chance comes out at 0.5 in the end.", "1/2"),
        ("The chance comes out at 1/2 in the end.", "0.5"),
        ("The chance comes out at $\\frac{1}{2}$ in the end.", "0.50"),
        ("The chance comes out at $\\dfrac12$ in the end.", "\\frac{1}{2}"),
        ("The chance comes out at 50% in the end.", "0.5"),
        ("The chance comes out at 0.125 in the end.", "12.5\\%"),
        ("The chance comes out at \u00bd in the end.", "0.5"),
        ("It drops to \u2212120 after the last step.", "-120"),
        ("Aim for $x^{2} + 1$.", "x^2+1"),
        ("Aim for \\( X = \\sqrt{ 13 } \\).", "\\sqrt{13}"),
        ("Aim for √13.", "$\\sqrt{13}$"),
        ("The capital is  PARIS.", "Paris"),
        ("Think of \\text{Paris}.", "Paris"),
        ("想一想北京大学在哪里。", "北京大学"),
        ("You should find 126.", "Choose 4 of 9, which gives 3024 / 24.\n#### 126"),
        ("You should find 7/3.", "So we obtain \\boxed{\\frac{7}{3}}."),
        ("You should find 7/3.", "so f(1) = 2 and f(2) = \\frac{7}{3}."),
    ],
)
def test_the_answer_is_found_in_every_way_of_writing_it(hint: str, answer: str):
    assert GIVES_ANSWER in critique(hint, answer)


@pytest.mark.parametrize(
    ("hint", "answer"),
    [
        ("So x = 2.", "2"),
        ("So x equals two.", "2"),
        ("So x = 2.", "two"),
        ("So x is 2, as you can check.", "2"),
        ("It is equal to -2 in the end.", "-2"),
        ("Final answer: **2**", "2"),
        ("Note $\\boxed{2}$.", "2"),
        ("Show that 12 is the answer.", "12"),
        ("Choose option (B).", "B"),
        ("Pick B because the rest fail.", "(B)"),
        ("B is correct.", "B"),
        ("The answer is no.", "No"),
        ("You will see that it is true.", "True"),
        ("So y = x.", "x"),
        ("It equals 50%.", "50"),
        ("So x = 2.", "x = 2"),
    ],
)
def test_a_short_answer_leaks_where_it_is_stated_as_the_result(hint: str, answer: str):
    assert GIVES_ANSWER in critique(hint, answer)


@pytest.mark.parametrize(
    ("hint", "answer"),
    [
        ("Split the sum into 2 parts.", "2"),
        ("Start from y = 2x and substitute.", "2"),
        ("Start from y = 2 + z and substitute.", "2"),
        ("Look at the 2nd term, it is 2nd for a reason.", "2"),
        ("Compare with 120 and with 1.12 first.", "12"),
        ("So it is 120 at most, and 1.12 at least.", "12"),
        ("It is 12/5 of the rest.", "12"),
        ("It is one of the factors.", "1"),
        ("It is -2 there, not here.", "2"),
        ("Look at 240 - 120 and at n - 120.", "-120"),
        ("It is 3 at first, then more.", "3:1"),
        ("Let x be the unknown side.", "x"),
        ("Choose a point B on the line.", "B"),
        ("It is true for all small cases, so try induction.", "True"),
        ("Eventually the terms vanish.", "even"),
    ],
)
def test_a_short_answer_elsewhere_is_only_a_word_or_a_number(hint: str, answer: str):
    assert critique(hint, answer) == ""


@pytest.mark.parametrize(
    ("hint", "answer"),
    [
        ("The total is twelve.", "12"),
        ("Eighteen of them are even.", "18"),
        ("Look for seventy-two ways.", "72"),
        ("Look for Seventy two ways.", "72"),
        ("Look for ninety-nine ways.", "99"),
        ("Look for one hundred ways.", "100"),
        ("Look for two hundred and five ways.", "205"),
        ("Look for a hundred ways.", "100"),
        ("You need two dozen eggs.", "24"),
        ("You need a dozen eggs.", "12"),
        ("Look for 72 ways.", "seventy-two"),
        ("Look for 72 ways.", "Seventy-two ways"),
    ],
)
def test_a_number_in_words_is_the_same_number(hint: str, answer: str):
    assert GIVES_ANSWER in critique(hint, answer)


@pytest.mark.parametrize(
    ("hint", "answer"),
    [
        ("Halve the first amount, add it, and you have 72 clips.", "72"),
        ("Then 72 clips remain.", "72"),
        ("Check that 72 = 48 + 24.", "72"),
        ("You get _72_ clips.", "72"),
        ("You have 72 (all of them).", "72"),
        ("You need 72% of it.", "72"),
        ("It drops to -12 at the end.", "-12"),
        ("Use the 12 months of a year.", "12"),
        ("Start from y = 12 + z.", "12"),
    ],
)
def test_a_number_of_two_digits_that_the_question_lacks_leaks_wherever_it_stands(hint: str, answer: str):
    assert GIVES_ANSWER in critique(hint, answer)
    assert critique(hint.replace("y =", "y from"), answer, f"Here are {answer}, {answer}% and 72 = 48 + 24.") == ""


@pytest.mark.parametrize(
    ("hint", "answer"),
    [
        ("Expand $x^{12}$ first.", "12"),
        ("Expand $x^{-12}$ first.", "-12"),
        ("Look at $a_{12}$ first.", "12"),
        ("Start from 12x and substitute.", "12"),
        ("Divide by 12! to forget the order.", "12"),
        ("The area has a factor $12\\pi$.", "12"),
        ("Look at the 12th term.", "12"),
        ("Go back to step 12.", "12"),
        ("Use equation (12) of your attempt.", "12"),
        ("Work modulo 10.", "10"),
        ("Write it in base 10.", "10"),
        ("Think of the calendar of year 2024.", "2024"),
        ("Compare with 120, 712 and 7.12.", "12"),
        ("Compare with twelve hundred, and with one hundred and twelve.", "12"),
        ("Seventy-three is prime.", "70"),
        ("Look at twenty-one of them.", "20"),
    ],
)
def test_a_number_that_belongs_to_something_else_is_no_leak(hint: str, answer: str):
    assert critique(hint, answer) == ""


@pytest.mark.parametrize(
    ("hint", "answer"),
    [
        ("The answer is eight.", "8"),
        ("You get nine.", "9"),
        ("You get nine clips.", "9"),
        ("That leaves 8 apples.", "8"),
        ("Give two away, leaving eight.", "8"),
        ("The bill totals $8.", "8"),
        ("You have a total of 8 apples.", "8"),
        ("Total: 8.", "8"),
        ("That makes 8.", "8"),
        ("It comes to 8.", "8"),
        ("This leads to 8.", "8"),
        ("It is therefore 8.", "8"),
        ("You should have 8 left.", "8"),
        ("There are eight apples left.", "8"),
        ("He buys 8 apples in total.", "8"),
        ("She then has 8 altogether.", "8"),
        ("So the slope is zero.", "0"),
    ],
)
def test_a_digit_leaks_where_it_is_stated_as_the_result_in_digits_or_words(hint: str, answer: str):
    assert GIVES_ANSWER in critique(hint, answer)


@pytest.mark.parametrize(
    ("hint", "answer"),
    [
        ("You have 2 equations for two unknowns.", "2"),
        ("Split the eight apples into two groups.", "8"),
        ("It is eight times as large.", "8"),
        ("One part is 8 more than the other.", "8"),
        ("Move the 8 to the left side.", "8"),
        ("Add eight to the total.", "8"),
        ("It is eighty-one at most.", "8"),
        ("It gives eight hundred at most.", "8"),
        ("It is two-thirds of the rest.", "2"),
        ("The length is $8\\pi$ there.", "8"),
        ("No one is left out of that sum.", "1"),
        ("The sum is zero everywhere else, so drop it.", "0"),
    ],
)
def test_a_digit_or_its_word_elsewhere_is_only_a_number(hint: str, answer: str):
    assert critique(hint, answer) == ""


def test_a_number_that_the_question_has_in_words_may_be_repeated_in_digits_and_the_other_way_round():
    assert critique("Start from the 12 eggs.", "12", "A box holds a dozen eggs.") == ""
    assert critique("Start from the twelve eggs.", "12", "A box holds 12 eggs.") == ""
    assert critique("There are twelve eggs left in it.", "12", "There are 12 eggs left.") == ""
    assert GIVES_ANSWER in critique("So twelve eggs are left; the total is twelve.", "12", "A box holds 12 eggs.")


def test_a_number_of_the_question_may_be_repeated_but_not_announced_as_the_answer():
    question = "A shop sells 126 apples at f(0) = 126 cents. How many are left?"
    assert critique("Start from the 126 apples.", "126", question) == ""
    assert critique("Recall that f(0) = 126 here.", "126", question) == ""
    assert GIVES_ANSWER in critique("So n = 126.", "126", question)
    assert GIVES_ANSWER in critique("Recall that f(1) = 126 here.", "126", question)
    assert GIVES_ANSWER in critique("Start from the 126 apples.", "126", "How many are left?")


def test_words_of_the_question_may_be_repeated():
    question = "Is the function increasing or decreasing?"
    assert critique("Ask where an increasing function has its slope.", "increasing", question) == ""
    assert GIVES_ANSWER in critique("The function is increasing.", "increasing", question)


def test_a_passage_of_a_worked_solution_is_refused_and_a_few_of_its_words_are_not():
    copied = "Notice: then p divides their difference, which is one by construction. What follows?"
    assert COPIES_SOLUTION in critique(copied, PROOF)
    assert COPIES_SOLUTION in critique("THEN p DIVIDES  THEIR DIFFERENCE,\nWHICH IS ONE BY CONSTRUCTION", PROOF)
    assert critique("Take a prime that divides both numbers, and their difference.", PROOF) == ""


def test_a_passage_that_the_question_holds_as_well_may_be_repeated():
    question = "Explain: then p divides their difference, which is one by construction."
    assert critique("You know that p divides their difference, which is one by construction.", PROOF, question) == ""


@pytest.mark.parametrize("line", ["if values[left] < values[right]:", "best[right]=max( best[right],best[left]+1 )"])
def test_a_line_of_a_program_is_a_passage_of_it(line: str):
    assert COPIES_SOLUTION in critique(f"Remember to use {line} somewhere.", PROGRAM)


@pytest.mark.parametrize("hint", ["", "  \n\t", "...", "?!", "$$", "\x00", "\ud800"])
def test_a_hint_without_a_word_is_empty(hint: str):
    assert critique(hint, "42") == EMPTY


def test_a_hint_of_exactly_the_allowed_words_passes_and_one_more_is_too_long():
    assert critique("think " * 10, max_words=10) == ""
    assert critique("think " * 11, max_words=10) == TOO_LONG


def test_a_text_without_blanks_is_measured_in_characters():
    assert critique("想" * 120, max_words=10) == ""
    assert critique("想" * 121, max_words=10) == TOO_LONG


@pytest.mark.parametrize(
    "hint",
    [
        "Think.\x00",
        "Think \ud83d now.",
        "<|im_end|> Think.",
        "<think>Hm.</think> Think.",
        "Think.\x1b[0m",
        "Thi\u202enk.",
        "Think.\u2066",
        "\u25c1think\u25b7Hm.\u25c1/think\u25b7Think.",
        "<reflection>Hm.</reflection> Think.",
        "<thoughts>Hm.</thoughts> Think.",
        "<thinking about='x'>Hm. Think.",
        "[INST] Think. [/INST]",
        "Think <\uff5cUser\uff5c> again.",
        "Think \u2039|User|\u203a again.",
        "<start_of_turn>user: think.",
        "<tool_call>x</tool_call> Think.",
        "Think.\n\nUser: ok\nAssistant: yes",
        "Think.\n**Assistant:** yes",
        '{"hint": "Think."}',
        '{"text": "Think."}',
        'Here it is: {"hint": "Think."}',
    ],
)
def test_control_characters_and_chat_markup_are_refused(hint: str):
    assert critique(hint) == NOT_TEXT


@pytest.mark.parametrize(
    "hint",
    [
        "I cannot help with that request.",
        "I can\u2019t assist with this.",
        "I'm sorry, but I can't do that.",
        "Unfortunately, I am unable to provide a hint here.",
        "Sorry, I won't give any hints for this.",
        "As an AI language model, I think of sums.",
    ],
)
def test_an_excuse_is_no_hint(hint: str):
    assert critique(hint) == DECLINES


@pytest.mark.parametrize(
    "hint",
    [
        "Which users cannot help with the task? Count those first.",
        "Ask what you cannot give away: the sign of a square.",
        "Is $0 < |x - 1| < d$ what the definition asks for?",
        "Take the set {a, b} and the pair [x, y]; look at a[i] and dict['key'].",
        "How many of the users:\nthose of the first or of the second group?",
        "Think of the system:\nboth equations hold at once.",
        "Compare \u27e8x, y\u27e9 with the \u00abinner\u00bb product.",
    ],
)
def test_what_only_looks_like_an_excuse_or_markup_passes(hint: str):
    assert critique(hint) == ""


@pytest.mark.parametrize(
    "hint",
    [
        "1. Expand.\n2. Collect.\n3. Factor.\n4. Solve.",
        "Step 1: expand. Step 2: collect. Step 3: factor. Step 4: solve.",
        "- Expand\n- Collect\n- Factor\n- Solve",
        "Write $a = b = c = d = e$.",
        "a = b, so c = d. Hence e = f and g = h.",
        "A \\implies B \\implies C \\implies D \\implies E",
    ],
)
def test_a_worked_solution_is_refused_by_its_shape(hint: str):
    assert critique(hint) == WORKED_OUT
    assert critique(hint, max_steps=4) == ""


def test_bounds_of_sums_are_no_equations():
    assert critique("Compare $\\sum_{i=1}^{n} i$, $\\sum_{j=1}^{n} j$ and $\\prod_{k=1}^{n} k$.", max_steps=1) == ""


@pytest.mark.parametrize(
    "hint",
    [
        "Try this:\n```python\nprint(1)\n```",
        "Write\ndef solve(n):\n    return max(n)",
        "Write\nfor x in items:\n    total += x",
        "Write\nint a;\nwhile (a < 3) {",
    ],
)
def test_code_is_refused(hint: str):
    assert critique(hint) == CODE


@pytest.mark.parametrize("hint", ["Keep `dp[i]` for each prefix.", "For each edge:\nask whether it is needed."])
def test_a_word_of_code_or_a_colon_is_no_program(hint: str):
    assert critique(hint) == ""


@pytest.mark.parametrize(
    "hint",
    [
        "So \\boxed{x}.",
        "The answer is 7.",
        "the final answer is: $\\frac{1}{3}$",
        "Answer: B",
        "The answer is yes.",
        "The answer is eight.",
        "The answer is twenty-one.",
        "The answer is one.",
        "The answer is therefore $-\\sqrt{2}$.",
        "The final answer to this arithmetic problem is 6.",
        "The answer to the question 'What comes after the last number?' is 12.",
        "The answer to the question \u201cHow many clips are there?\u201d is \u201ctwelve\u201d.",
        "The solution to this problem is 15.",
        "The final result is 15.",
        "The answer for the second part should be about 3.5.",
    ],
)
def test_an_announced_result_is_refused_even_when_the_answer_is_unknown(hint: str):
    assert critique(hint, None) == ANNOUNCES_RESULT


@pytest.mark.parametrize(
    "hint",
    [
        "The answer to the first part is an angle. There are 3 of them.",
        "The answer to this lies in seeing that the sum of the parts is 6 at most.",
        "The answer depends on whether n is 3 or more.",
        "The solution of the equation is a pair; the result of step 2 is one half of it.",
        "Write down every solution of $x^2 = 4$ first.",
        "Look for the solution of an equation whose constant term is 0.",
        "The answer of your attempt is one unit too large.",
        "Answer the question for small n first; the smallest is 3.",
    ],
)
def test_a_sentence_about_the_answer_that_names_no_result_passes(hint: str):
    assert critique(hint, None) == ""


def test_every_fault_is_named_at_once_so_that_one_repair_can_mend_them_all():
    found = critique("So x = 126. " + "Think. " * 90 + "```x```", "126")
    assert found == f"{TOO_LONG} {GIVES_ANSWER} {CODE}"


def test_a_critique_is_made_of_fixed_sentences_and_so_never_holds_the_answer():
    fixed = {value for value in vars(hint_rules).values() if isinstance(value, str) and value.startswith("The hint")}
    assert len(fixed) == 9
    for answer in ("126", "7/3", "B", "Paris", PROOF):
        found = critique(f"{answer} is the answer, so the answer is {answer}.", answer)
        assert found
        for sentence in fixed:
            found = found.replace(sentence, "")
        assert not found.strip()


@pytest.mark.parametrize("limits", [{"max_words": 0}, {"max_steps": 0}, {"max_words": -3}])
def test_a_limit_below_one_is_refused(limits: dict[str, int]):
    with pytest.raises(ConfigError, match="expected at least 1"):
        HintLimits(**limits)


MEGABYTE = 1_000_000
HOSTILE = {
    "letters": "a" * MEGABYTE,
    "digits": "7" * MEGABYTE,
    "decimals": "0." + "3" * MEGABYTE,
    "groups": "1,000" + ",000" * (MEGABYTE // 4),
    "dots": "5" + "." * MEGABYTE,
    "blanks": "5" + " " * MEGABYTE + "/",
    "braces": "\\boxed{" + "{" * MEGABYTE,
    "boxes": "\\boxed{" * (MEGABYTE // 7),
    "fractions": "\\frac{1" * (MEGABYTE // 7),
    "minus signs": "-" * MEGABYTE + "5",
    "equals signs": "=5" * (MEGABYTE // 2),
    "combining marks": "a" + "\u0301\u0323" * (MEGABYTE // 2),
    "ligatures": "\ufdfa" * MEGABYTE,
    "surrogates": "5" + "\ud800" * MEGABYTE,
    "NULs": "5" + "\x00" * MEGABYTE,
    "newlines": "5" + "\n" * MEGABYTE,
    "hashes": "5" + "#" * MEGABYTE,
    "sentences": "so x is 5 and y = 7. " * (MEGABYTE // 21),
    "number words": "twenty-one hundred and " * (MEGABYTE // 23),
    "announcements": "answer to 5 left is " * (MEGABYTE // 20),
    "division by zero": "1/0 0/0 5/0.0 \\frac{1}{0} " * (MEGABYTE // 27),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_text_in_any_place_is_handled_in_seconds(name: str):
    text = HOSTILE[name]
    started = time.process_time()
    assert TOO_LONG in critique(text, "5", "Why?") or not any(map(str.isalnum, text))
    critique("So x = 5 = 7.", text, "Why?")
    critique("So x = 5 = 7.", "5", text)
    critique(text, text, text)
    assert time.process_time() - started < 20


@pytest.mark.parametrize("seed", range(300))
def test_random_texts_never_raise_and_a_stated_answer_is_always_found(seed: int):
    generator = random.Random(seed)
    pieces = [
        "=",
        "is",
        "\\frac{",
        "}",
        "1",
        "2/",
        "%",
        "\\boxed{",
        "####",
        "{,}",
        "\n",
        " ",
        "-",
        ".",
        "√",
        "\x00",
        "b",
    ]
    noise = "".join(generator.choice(pieces) for _ in range(generator.randint(0, 60)))
    critique(noise, noise[::-1], noise[5:])
    critique(noise[::-1], noise, "")
    number = generator.randint(1_000, 10**12)
    assert GIVES_ANSWER in critique(f"Consider {number:,} again.", f"{noise}\n#### {number}", "")


@pytest.mark.parametrize("hint", ["One root is 137.", "Both 3 and 137 are candidates.", "The smaller one equals -12."])
def test_each_of_several_answers_is_a_leak(hint):
    assert check_hint(hint, question="Solve it.", answer="137\n-12\n0.5", limits=HintLimits()) == GIVES_ANSWER
    assert check_hint("Look at the sign.", question="Solve it.", answer="137\n-12\n0.5", limits=HintLimits()) is None


@pytest.mark.parametrize(
    "phrase", ["41", "The answer is:  forty-one", "So the answer is 12", "it should be 41 points"]
)
def test_a_phrase_of_a_diagnosis_that_gives_the_answer_away_is_found(phrase):
    assert gives_away(phrase, question="How many points?", answer="41")


@pytest.mark.parametrize("phrase", ["confuses shares with counts", "adds the 3 parts twice", "x" * 5000])
def test_a_phrase_that_names_a_misconception_gives_nothing_away(phrase):
    assert not gives_away(phrase, question="How many points?", answer="41")


def test_a_phrase_that_is_a_short_answer_gives_it_away():
    assert gives_away("6", question="1 + 5 =", answer="6")


def test_a_question_is_read_only_for_a_hint_that_holds_the_answer_or_copies_a_passage(monkeypatch):
    read = []
    monkeypatch.setattr(hint_rules, "question_words", lambda question: read.append(question) or "")
    assert critique("What changes first, the price or the number of rows?", "1234") == ""
    assert critique("What changes first?", PROOF) == ""
    assert not read
    assert GIVES_ANSWER in critique("Look for 1234 in it.", "1234")
    assert COPIES_SOLUTION in critique(PROOF[:120], PROOF)
    assert len(read) >= 2
