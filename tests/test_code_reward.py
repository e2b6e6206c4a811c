"""The rewards for programs, what they tell the mentor, and what must not go on from there to the policy."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest

from trl_mentor.causes import Sign, find_cause
from trl_mentor.channel import ANSWER_PARSED, FEEDBACK, LIMITS, VERIFIER_ERROR
from trl_mentor.errors import ConfigError
from trl_mentor.guards import answer_columns
from trl_mentor.leaks.gate import LeakGate
from trl_mentor.leaks.rules import QUOTES_TEST
from trl_mentor.programs.judging import judge_programs
from trl_mentor.programs.store import TestStore
from trl_mentor.programs.tests import Case, ProgramTests, Style
from trl_mentor.records import Attempt, Cause, CollapsedGroup
from trl_mentor.rewards.code import code_fraction_reward, code_reward, judge_code
from trl_mentor.settings import MentorArguments

TESTS = ProgramTests(
    Style.STDIN,
    (Case("2 3\n", "5\n", hidden=False), Case("40 -2\n", "38\n"), Case("123456 654321\n", "777777\n")),
).to_json()
RIGHT = "The sum:\n```python\nprint(sum(map(int, input().split())))\n```"
HALF = "```python\na, b = map(int, input().split())\nprint(abs(a) + abs(b))\n```"
WRONG = "```python\nprint('no idea')\n```"
RAISES = "```python\na, b = map(int, input().split())\nraise RuntimeError(a)\n```"
TEXT = "Just add the two."


@pytest.fixture(scope="module")
def reported():
    """Rewards of both functions and what they log, for completions as texts and as messages."""
    columns: dict[str, list] = {}
    texts = [RIGHT, HALF, WRONG, RAISES, TEXT, RIGHT]
    cells = [TESTS] * 5 + ["{not json"]
    strict = code_reward(texts, cells, log_extra=columns.__setitem__, prompts=["p"] * 6, trainer_state=None)
    messages = [[{"role": "assistant", "content": text}] for text in texts]
    shares: dict[str, list] = {}
    fraction = code_fraction_reward(messages, tests=cells, log_extra=shares.__setitem__)
    return strict, fraction, columns, shares


def test_one_reward_asks_for_every_test_and_the_other_counts_them(reported):
    strict, fraction, _, _ = reported
    assert strict == [1.0, 0.0, 0.0, 0.0, 0.0, None]
    assert fraction == [1.0, pytest.approx(2 / 3), 0.0, 0.0, 0.0, None]


def test_rewards_need_no_log(reported):
    assert code_reward([TEXT], [TESTS]) == [0.0]


@pytest.mark.parametrize("reward", [code_reward, code_fraction_reward])
@pytest.mark.parametrize(
    ("completions", "columns", "said"),
    [
        ([TEXT], {}, "got no `tests`"),
        ([TEXT], {"tests": TESTS}, "got str .* as `tests`; expected a list with one value for each completion"),
        (TEXT, {"tests": [TESTS]}, "got str .* as `completions`; expected a list"),
        ([TEXT], {"tests": [TESTS] * 2}, "got 1 completions and 2 values of `tests`; expected one for each"),
    ],
)
def test_what_is_no_list_with_tests_for_each_completion_is_refused(reward, completions, columns, said):
    with pytest.raises(ConfigError, match=f"{reward.__name__} {said}"):
        reward(completions, **columns)


def test_programs_and_tests_are_judged_in_pairs():
    with pytest.raises(ConfigError, match="judge_code got 1 texts and 2 values of `tests`"):
        judge_code([TEXT], [TESTS] * 2)
    with pytest.raises(ConfigError, match="got 1 programs and 2 tests"):
        judge_programs([None], [TESTS] * 2)


def test_the_mentor_hears_what_failed_within_its_limits(reported):
    _, _, columns, shares = reported
    right, half, wrong, raises, text, unread = columns[FEEDBACK]
    assert right is None
    assert unread is None
    assert half == "hidden test 2: input '40 -2\\n', expected '38\\n'; got '42\\n'"
    assert "visible test 1" in wrong
    assert "it raised RuntimeError: 2 at line 2: raise RuntimeError(a)" in raises
    assert "no fenced block" in text
    assert shares[FEEDBACK][1].startswith("It passes 2 of 3 tests.\nhidden test 2")
    assert all(len(note) <= LIMITS[FEEDBACK] for note in columns[FEEDBACK] + shares[FEEDBACK] if note)


def test_tests_that_cannot_be_read_are_an_error_of_the_verifier(reported):
    _, _, columns, _ = reported
    assert columns[VERIFIER_ERROR][:5] == [None] * 5
    assert "no JSON" in columns[VERIFIER_ERROR][5]
    assert columns[ANSWER_PARSED][5] == "[skipped]"
    for cell in (None, 5, "", "[]", '{"style": "guess"}', json.dumps({"style": "stored", "sha256": "0" * 64})):
        assert code_reward([RIGHT], [cell]) == [None]


def test_a_group_without_programs_collapsed_by_its_form_and_one_with_programs_did_not(reported):
    _, _, columns, _ = reported
    parsed = columns[ANSWER_PARSED]
    assert parsed[0] != parsed[1]
    assert find_cause([Sign(TEXT, 0.0, parsed=parsed[4]), Sign("Add!", 0.0, parsed=parsed[4])]).cause is Cause.FORMAT
    assert find_cause([Sign(HALF, 0.0, parsed=parsed[1]), Sign(TEXT, 0.0, parsed=parsed[4])]).cause is Cause.KNOWLEDGE


@pytest.mark.parametrize("style", ["stdin", "asserts"])
def test_no_note_is_longer_for_a_long_name_of_an_exception(style):
    tests = {"stdin": TESTS, "asserts": ProgramTests(Style.ASSERTS, entry_point="f", program="assert f()").to_json()}
    (judged,) = judge_code(["```python\nraise type('E' * 10**4, (Exception,), {})\n```"], [tests[style]])
    assert "EEE [...] EEE" in judged.feedback
    assert len(judged.feedback) < 500


def test_stored_tests_are_found_by_their_digest(tmp_path, monkeypatch):
    monkeypatch.setenv("TRL_MENTOR_CACHE", str(tmp_path))
    reference = TestStore().put(
        ProgramTests(Style.CALL, (Case((2,), 4), Case((3,), 9)), function="square")
    ).to_json()  # fmt: skip
    assert len(reference) < 120
    judged = judge_code(["```python\ndef square(n):\n    return n * n\n```"], [reference])
    assert [(one.score, one.error) for one in judged] == [(1.0, None)]


def test_the_example_of_the_docs_prints_what_it_says(capsys):
    text = Path(__file__).parent.parent.joinpath("docs", "rewards.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)\n```\n", text.partition("## Programs")[2], re.DOTALL)
    exec(example, {})
    assert capsys.readouterr().out.splitlines() == re.findall(r"^print\(.*\)  # (.*)$", example, re.MULTILINE)


def feedback_of(*notes: str) -> CollapsedGroup:
    attempts = tuple(Attempt("```python\n...\n```", 0.0, feedback=note) for note in notes)
    return CollapsedGroup("Print the sum of the numbers. For the input 2 3 print 5.", attempts)


@pytest.mark.parametrize(
    "hint",
    [
        "What happens for 123456 654321?",
        "One test has the numbers `123456`\n`654321`.",
        "The sum should be 777777 but it is not, so check the parts: for 123456 654321 it fails.",
        "For 40 -2 the program has to print 38.",
        "When the first is 40 -2, think: the result is 38.",
        "Think about [1, -4, 7, 12].",
        "It is slow for ['abc', 'abd'].",
    ],
)
def test_a_hint_that_quotes_a_hidden_test_is_refused(reported, hint):
    _, _, _, shares = reported
    note = "hidden test 2: assert total([1, -4, 7, 12]) == 16; expected 16, got 24"
    long = "hidden test 3: input '123456 654321\\n', expected '777777\\n'; it took too long"
    late = "hidden test: grouped(['abc', 'abd']): it took too long"
    assert LeakGate(domain="code").objection(hint, feedback_of(shares[FEEDBACK][1], note, long, late)) == QUOTES_TEST


@pytest.mark.parametrize(
    "hint",
    [
        "What is the sum when one of the numbers is negative?",
        "For the input 2 3 the result is 5: what does your program do with signs?",
        "Does abs() keep the sign of a number such as -7?",
        "Look at line 2: is 40 a special number?",
        "Which type does input().split() give, and what must become of it before you can add?",
    ],
)
def test_a_hint_that_quotes_no_hidden_test_passes(reported, hint):
    _, _, _, shares = reported
    note = "hidden test 2: assert total([1, -4, 7, 12]) == 16; expected 16, got 24"
    assert LeakGate(domain="code").objection(hint, feedback_of(shares[FEEDBACK][1], note)) is None


def test_a_data_set_with_tests_needs_no_answer_column(caplog):
    with caplog.at_level(logging.WARNING):
        assert answer_columns(MentorArguments(), ["prompt", "tests"]) == ()
    assert not caplog.records
