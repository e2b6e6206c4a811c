r"""Mathematical answers are judged rightly, as TRL judges them, and no input costs more than a bounded time."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from math_pairs import BARE, DEPARTURES, DIFFERENT, EQUAL, KNOWN_WRONG, PROSE, READING, SHOTGUN, UNREADABLE
from trl.rewards import accuracy_reward

import trl_mentor.rewards
from trl_mentor.channel import ANSWER_PARSED, FEEDBACK, VERIFIER_ERROR
from trl_mentor.errors import ConfigError
from trl_mentor.rewards.form import boxed_format_reward
from trl_mentor.rewards.judgement import Judgement
from trl_mentor.rewards.math import POOL, judge_math, math_reward

TABLE = [
    *((reference, f"\\boxed{{{content}}}", 1.0) for reference, content in EQUAL),
    *((reference, f"\\boxed{{{content}}}", 0.0) for reference, content in DIFFERENT),
    *((reference, text, 1.0) for reference, text in READING),
    *((reference, text, 0.0) for reference, text in SHOTGUN),
    *((reference, "\\boxed{2}", None) for reference in UNREADABLE),
]
HOSTILE = {
    "a tower of powers": "\\boxed{9^{9^{9^{9^{9}}}}}",
    "a huge factorial": "\\boxed{10000000!}",
    "nested braces": f"\\boxed{{{'{' * 100_000}1{'}' * 100_000}}}",
    "many boxes": "\\boxed{1}" * 10_000,
    "boxes that are not closed": "\\boxed{" * 10_000,
    "dollars": "$" * 200_000,
    "phrases": "the answer is " * 20_000,
    "hashes": "####" * 20_000,
    "what no file can hold": "\\boxed{\x00\ud800}",
}


def script(code: str) -> str:
    """What a program prints that judges answers."""
    start = "import os, sys\nfrom trl_mentor.rewards.math import POOL, judge_math\n"
    command = [sys.executable, "-X", "dev", "-c", start + code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture(scope="module")
def judged() -> list[Judgement]:
    return judge_math([text for _, text, _ in TABLE], [reference for reference, _, _ in TABLE])


@pytest.mark.parametrize("row", range(len(TABLE)), ids=[f"{ref!r} {text!r}"[:80] for ref, text, _ in TABLE])
def test_an_answer_is_judged_rightly(judged, row):
    assert judged[row].score == TABLE[row][2]
    assert (judged[row].error is None) == (judged[row].score is not None)


def test_the_table_is_long_enough_and_has_no_pair_twice():
    assert len({(str(reference), text) for reference, text, _ in TABLE}) == len(TABLE) >= 130


def trl_departures(wrap: bool, judged: list[Judgement]) -> tuple[set[tuple[str, str]], int]:
    """The pairs on which TRL's verdict is another one, and how many it has one for."""
    rows = [(row, *TABLE[row][:2]) for row in range(len(TABLE)) if isinstance(TABLE[row][0], str)]
    references = [f"${r}$" if wrap and not any(mark in r for mark in ("$", "\\boxed", "#")) else r for _, r, _ in rows]
    logged: dict[str, list[str]] = {}
    completions = [[{"role": "assistant", "content": text}] for _, _, text in rows]
    scores = accuracy_reward(completions, solution=references, log_extra=logged.__setitem__)
    defined = [
        (pair, score, judged[pair[0]].score)
        for pair, score, found in zip(rows, scores, logged["answer_parsed"], strict=True)
        if score is not None and found != "[unparseable]" and judged[pair[0]].score is not None
    ]
    return {(reference, text) for (_, reference, text), theirs, ours in defined if theirs != ours}, len(defined)


def test_verdicts_are_those_of_trl_but_for_the_listed_departures(judged):
    differing, compared = trl_departures(True, judged)
    assert differing == set(DEPARTURES)
    assert compared > 180


def test_a_bare_reference_is_read_whole_where_trl_reads_one_number_of_it(judged):
    differing, compared = trl_departures(False, judged)
    assert {reference for reference, text in differing - set(DEPARTURES)} == BARE
    assert compared > 140


@pytest.mark.parametrize(("reference", "text", "score", "reason"), KNOWN_WRONG)
def test_what_is_known_to_be_judged_wrongly_is_judged_so_still(reference, text, score, reason):
    assert judge_math([text], [reference])[0].score == score


@pytest.mark.parametrize(
    "written",
    [
        ["\\frac{1}{2}", "0.5", "1/2", "\\frac12", "50\\%", "x = 0.5"],
        ["2\\sqrt{2}", "\\sqrt{8}"],
        ["42", "42.0", "\\text{42}", "42 dollars", "x = 21 + 21 = 42", "42 = x"],
        ["1, 2", "2, 1", "\\{2, 1\\}", "x = 2, x = 1", "1 \\text{ and } 2"],
        ["x^2+2x+1", "(x+1)^2"],
        ["\\text{Yes}", "yes", "Yes."],
        ["x + y = 3", "3 = y + x"],
        ["[1, 2)", "\\left[1,2\\right)"],
        ["x > 3", "3 < x"],
        ["3+4i", "4i+3", "3 + 4 i"],
    ],
)
def test_equal_answers_have_one_name_so_that_votes_can_be_counted(written):
    texts = [f"\\boxed{{{content}}}" for content in written]
    names = {one.answer for one in judge_math([*texts, "\\boxed{7}"], ["1"] * (len(texts) + 1))}
    assert len(names) == 2
    assert None not in names


def test_prose_is_no_answer_so_that_it_neither_votes_nor_hides_a_fault_of_form():
    logged: dict[str, list[object]] = {}
    math_reward(PROSE, answer=["3"] * len(PROSE), log_extra=logged.__setitem__)
    assert dict(zip(PROSE, logged[ANSWER_PARSED], strict=True)) == dict.fromkeys(PROSE, "[unparseable]")
    assert None not in logged[FEEDBACK]


def test_a_number_in_a_short_sentence_has_the_name_of_the_number():
    texts = ["It is 3.", "so x = 3", "= 3.", "\\boxed{3}", "The answer is 3 cm"]
    assert {one.answer for one in judge_math(texts, ["3"] * len(texts))} == {"3"}


def test_hostile_completions_are_wrong_and_spoil_nothing():
    texts = [text for hostile in HOSTILE.values() for text in (hostile, "\\boxed{42}")]
    judged = judge_math(texts, ["42"] * len(texts))
    assert [one.score for one in judged[::2]] == [0.0] * len(HOSTILE)
    assert {(one.score, one.answer) for one in judged[1::2]} == {(1.0, "42")}
    for one in judged:
        assert len((one.answer or "").encode()) < 2000


def test_a_gigantic_completion_is_read_at_its_end():
    assert judge_math([f"{'x + ' * 1_000_000}\\boxed{{42}}"], ["42"])[0].right


def test_a_hostile_reference_punishes_nobody():
    references = ["9^{9^{9^{9}}}", "42", None]
    judged = judge_math(["\\boxed{1}", "\\boxed{42}", "\\boxed{42}"], references)
    assert [one.score for one in judged] == [None, 1.0, None]
    assert "takes too long" in str(judged[0].error)
    assert "no reference" in str(judged[2].error)


def test_a_process_that_was_killed_is_replaced():
    POOL.restart()
    assert judge_math(["\\boxed{1}"], ["1"])[0].right
    (killed,) = POOL.pids
    os.kill(killed, signal.SIGKILL)
    assert [one.score for one in judge_math(["\\boxed{2}", "\\boxed{3}", "\\boxed{4}"], ["2", "3", "5"])] == [1, 1, 0]
    assert killed not in POOL.pids


def test_a_process_that_cannot_start_leaves_the_completions_unjudged(monkeypatch):
    POOL.restart()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    judged = judge_math(["\\boxed{1}", "\\boxed{2}"], ["1", "2"])
    assert [one.score for one in judged] == [None, None]
    assert "did not start" in str(judged[0].error)


def test_many_threads_get_their_own_answers_in_order():
    def ask(number: int) -> list[float | None]:
        assert threading.current_thread() is not threading.main_thread()
        texts = [f"\\boxed{{{number + shift}}}" for shift in range(3)]
        return [one.score for one in judge_math(texts, [str(number), str(number + 1), "0"])]

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(ask, range(1, 25))) == [[1.0, 1.0, 0.0]] * 24
    assert len(POOL.pids) <= POOL.size


def test_a_forked_process_has_its_own_and_the_exit_may_still_ask_and_leaves_nothing():
    said = script("""
import atexit
right = lambda number: judge_math([f"\\\\boxed{{{number}}}"], [str(number)])[0].right
assert right(1)
before = POOL.pids
child = os.fork()
if not child:
    sys.exit(0 if POOL.pids == [] and right(2) and not set(POOL.pids) & set(before) else 1)
atexit.register(lambda: print(*(one.score for one in judge_math(["\\\\boxed{7}", "\\\\boxed{8}"], ["7", "9"]))))
print(os.waitpid(child, 0)[1], right(3), POOL.pids == before, *POOL.pids)
""").splitlines()
    assert said[0].split()[:3] == ["0", "True", "True"]
    assert said[1] == "1.0 0.0"
    assert not any(Path(f"/proc/{pid}/cmdline").exists() for pid in said[0].split()[3:])


def test_the_reward_takes_trls_columns_and_tells_what_it_read():
    texts = ["It is \\boxed{\\frac{1}{2}}.", "I give up.", "\\boxed{3}", "\\boxed{4}"]
    completions = [[{"role": "assistant", "content": text}] for text in texts]
    logged: dict[str, list[object]] = {}
    column = ["0.5", "0.5", "$2$", ""]
    assert math_reward(completions, answer=column, log_extra=logged.__setitem__) == [1.0, 0.0, 0.0, None]
    assert math_reward(texts, solution=column, trainer_state=None) == [1.0, 0.0, 0.0, None]
    assert logged[ANSWER_PARSED] == ["0.5", "[unparseable]", "3", "[skipped]"]
    assert logged[VERIFIER_ERROR] == [None, None, None, "the reference answer cannot be read: it is empty"]
    assert [value is not None for value in logged[FEEDBACK]] == [False, True, False, False]


def test_numbers_are_references_whatever_their_size_and_what_is_none_is_unjudged():
    right = [(0.1, "0.1"), (1e-7, "10^{-7}"), (2.5e16, "25000000000000000"), ([0.00001, 2], "2, 10^{-5}")]
    assert (
        math_reward([f"\\boxed{{{text}}}" for _, text in right], answer=[number for number, _ in right]) == [1.0] * 4
    )
    nothing = [float("nan"), float("inf"), {"value": 1}, b"1", ["1", None], [["1"]]]
    judged = judge_math(["\\boxed{1}"] * 6, nothing)
    assert [one.score for one in judged] == [None] * 6
    assert {one.error for one in judged} == {"the row has no reference answer: no text, number, or list of them"}


def test_a_short_answer_is_preferred_to_a_worked_solution_and_numbers_are_references_too():
    texts = ["\\boxed{7}", "\\boxed{8}", "\\boxed{2, 1}"]
    assert math_reward(texts, answer=[7, 8.0, [1, 2]], solution=["see the book"] * 3) == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({}, "neither"),
        ({"answer": ["1", "2"]}, "1 completions and 2 values of `answer`; expected one for each"),
        ({"answer": ["1"], "solution": []}, "0 values of `solution`"),
        ({"answer": "3"}, "math_reward got str '3' as `answer`; expected a list with one value for each completion"),
        ({"solution": 3}, "math_reward got int '3' as `solution`; expected a list"),
    ],
)
def test_missing_and_unequal_columns_and_what_is_no_list_are_refused(columns, said):
    with pytest.raises(ConfigError, match=said):
        math_reward(["\\boxed{1}"], **columns)


@pytest.mark.parametrize(
    ("judge", "column"),
    [(math_reward, {"answer": ["3"]}), (judge_math, {"references": ["3"]}), (boxed_format_reward, {})],
)
def test_a_text_is_no_list_of_completions(judge, column):
    with pytest.raises(ConfigError, match=f"{judge.__name__} got str '3' as `(completions|texts)`; expected a list"):
        judge("3", **column)


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("So it is \\boxed{42}.", 1.0),
        ("\\boxed {\\frac{1}{2}}", 1.0),
        ("\\boxed{\\{1, 2\\}}", 1.0),
        ("\\boxed{wrong}", 1.0),
        ("<think>\\boxed{1} or \\boxed{2</think>\\boxed{3}", 1.0),
        ("42", 0.0),
        ("\\boxed{}", 0.0),
        ("\\boxed{  }", 0.0),
        ("\\boxed{42", 0.0),
        ("\\boxed{\\frac{1}{2}", 0.0),
        ("\\boxed{1} \\boxed{2}", 0.0),
        ("\\boxed{1} \\boxed{2", 0.0),
        ("\\boxed{\\boxed{1}}", 0.0),
        ("\\boxed 42", 0.0),
        ("<think>\\boxed{42}</think> so it is", 0.0),
        ("\\boxed{" * 50_000, 0.0),
        ("", 0.0),
    ],
)
def test_the_form_is_one_complete_box_whatever_is_in_it(text, reward):
    assert boxed_format_reward([text], answer=["42"]) == [reward]
    assert boxed_format_reward([[{"role": "assistant", "content": text}]]) == [reward]


def test_rewards_are_found_by_name_and_bring_no_algebra_into_the_training():
    names = ["boxed_format_reward", "choice_reward", "code_fraction_reward", "code_reward", "math_reward"]
    assert sorted(trl_mentor.rewards.__all__) == trl_mentor.rewards.__all__ == dir(trl_mentor.rewards) == names
    assert trl_mentor.rewards.math_reward is math_reward
    assert not hasattr(trl_mentor.rewards, "other_reward")
    code = (
        "import sys\nfrom trl_mentor.rewards import boxed_format_reward, choice_reward, math_reward\n"
        "math_reward([], answer=[])\nprint(sorted({'math_verify', 'sympy', 'torch', 'trl'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_the_first_example_of_the_docs_prints_what_it_says(capsys):
    text = Path(__file__).parent.parent.joinpath("docs", "rewards.md").read_text(encoding="utf-8")
    example = re.findall(r"```python\n(.*?)\n```\n", text, re.DOTALL)[0]
    exec(example, {})
    assert capsys.readouterr().out.splitlines() == re.findall(r"^print\(.*\)  # (.*)$", example, re.MULTILINE)
