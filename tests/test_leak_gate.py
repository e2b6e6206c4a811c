"""What the gate refuses by domain, what a rule of the user's own can do, and that nothing hostile stops it."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import said

from trl_mentor.assembly import shorter_hint
from trl_mentor.backends.scripted import ScriptedBackend
from trl_mentor.errors import ConfigError
from trl_mentor.factory import build_mentor
from trl_mentor.leaks import gate, math_process, rules
from trl_mentor.leaks.gate import OWN_RULE, UNDECIDED, WITHHELD, LeakGate
from trl_mentor.leaks.hint_rules import HintLimits
from trl_mentor.leaks.math_candidates import candidates, is_cheap
from trl_mentor.leaks.math_equal import PROCESS, are_equal
from trl_mentor.leaks.rules import rules_of
from trl_mentor.mentor import Mentor
from trl_mentor.records import Attempt, CollapsedGroup, Guidance, HintOrigin, Lesson, Quality, Role, VerdictSource
from trl_mentor.settings import MentorArguments
from trl_mentor.strategies.mentor import MentorStrategy

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import leak_gate as benchmark  # noqa: E402

GROUP = CollapsedGroup("How many primes lie below 100?", (Attempt("24", 0.0),), answer="25")
HINT = "Which whole numbers have exactly two divisors?"


def group(answer: str | None, question: str = "Solve the problem.") -> CollapsedGroup:
    return CollapsedGroup(question, (), answer)


def mentor(script=None, **settings) -> tuple[Mentor, ScriptedBackend]:
    good = {
        Role.ATTRIBUTION: said.diagnosis("counts 1 as prime"),
        Role.GENERATION: HINT,
        Role.JUDGMENT: said.verdict("HIGH", "fine"),
        Role.REPAIR: said.repaired("Is 1 a prime?"),
    }
    backend = ScriptedBackend(good | (script or {}))
    return Mentor(backend, **settings), backend


@pytest.mark.parametrize("split", benchmark.SPLITS)
def test_the_labelled_pairs_are_told_apart(split):
    measured = benchmark.measure_pairs(split)
    stored = json.loads(benchmark.RESULT.read_text(encoding="utf-8"))[split]
    assert measured["pairs"] >= 120
    assert measured["precision"] >= 0.95
    assert measured["recall"] >= FLOOR[split]
    assert (measured["missed"], measured["false_alarms"]) == (stored["missed"], stored["false_alarms"])


FLOOR = {"tune": 1.0, "held_out": 0.97, "tune2": 0.91, "held_out3": 0.81}


def test_the_parts_share_no_pair_and_hold_both_labels():
    rows = [json.loads(line) for line in benchmark.PAIRS.read_text(encoding="utf-8").splitlines()]
    assert len({row["id"] for row in rows}) == len({(row["question"], row["hint"]) for row in rows}) == len(rows)
    for split in benchmark.SPLITS:
        leaks = [row["leak"] for row in rows if row["split"] == split]
        assert 0.4 < sum(leaks) / len(leaks) < 0.6


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("2\\sqrt{2}", "\\sqrt{8}"),
        ("1 + x^2", "x^2 + 1"),
        ("(x+i)(x-i)", "x^2+1"),
        ("y - 2x = 3", "y = 2x + 3"),
        ("2y - 4x = 6", "y = 2x + 3"),
        ("\\ln 9", "2\\ln 3"),
        ("\\binom{7}{4}", "35"),
        ("\\frac{7!}{3!4!}", "35"),
    ],
)
def test_equal_expressions_are_equal_and_others_are_not(one, two):
    assert are_equal(one, two)
    assert not are_equal(one, f"{two} + 1")


@pytest.mark.parametrize(
    "expression",
    [
        "9^9^9",
        "10^{10^{10}}",
        "1000000!",
        "((9!)!)!",
        "20!!",
        "2^{99999999}",
        "y^2999999",
        "(1+x)^99999999",
        "(1+x)^(99999999)",
        "9999999.5!",
        "1,000,000!",
        "9999999  !",
        "9_9_9_20!",
        "\\sin(\\exp(99999999))",
        "\\exp(\\exp(99))",
        "\\exp(9\\cdot 99^{599})",
        "\\cos(\\exp(20!))",
        "((2^{64})^{64})^{64}",
        "\\binom{1000000000}{500000000}",
        "(" * 400 + "x" + ")" * 400,
        "\\sqrt{" * 9 + "2" + "}" * 9,
        "\\pm 1 \\pm 1 \\pm 1",
        "x" * 81,
        "(x",
        "",
    ],
)
def test_an_expression_that_might_be_worked_on_for_ever_never_reaches_the_algebra(expression):
    assert not is_cheap(expression)
    assert all(is_cheap(found.text) for found in candidates(f"Compute ${expression}$ or 9**9**9 or 3 + 4."))


HOSTILE = {
    "towers": "Compute 9**9**9, $10^{10^{10}}$ and 1000000!. " * 20,
    "costly": "$\\tan(\\tan(9^{600}))$ $(x+\\sqrt{2})^{600}$ $\\exp(\\exp(\\exp(10)))$ $999999999999999^{599}$",
    "many": " ".join(f"$\\frac{{{i}}}{{x+{i}}}+{i}^{{9}}$" for i in range(400)),
    "digits": "7" * 5_000_000,
    "powers": "x^" * 2_500_000,
    "lists": "1, 2 and " * 500_000,
    "numbers and": "1 and " * 800_000,
    "options": "(A) x " * 800_000,
    "blanks": " " * 5_000_000 + "1",
    "brackets": "(" * 5_000_000,
    "base64": "QUJD" * 1_000_000,
    "statements": "if x:\n" * 800_000,
}


PROGRAMS = {
    "asserts": "".join(f"assert f({i}) == {i * 7}\n" for i in range(3300)),
    "blanks": "in:" + " " * 50_000,
    "blanks in rows": ("in:" + " " * 190) * 260,
    "brackets": "assert f(" + "a)" * 24_000,
    "blank asserts": ("assert" + " " * 200) * 240,
    "statements": "x = x + 1\n" * 5000,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_hostile_reference_program_is_read_once_and_not_for_every_draft(name):
    gate, one = LeakGate("code"), group(PROGRAMS[name], "Write f.")
    started = time.process_time()
    for draft in range(20):
        assert gate.objection(f"Think about the radius again and why it is {draft} not {draft + 1}.", one) is None
    assert time.process_time() - started < 5


def test_an_expected_output_counts_as_a_value_of_its_own_only():
    one = group("assert f(3) == 41\nassert f(-7) == 52", "Write f.")
    assert LeakGate("code").objection("Note that f gives 52 for -7.", one) is not None
    assert LeakGate("code").objection("Note that f is odd at 413 and 13.4.", one) is None


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_text_in_any_place_costs_seconds_at_most(name):
    text = HOSTILE[name]
    gate = LeakGate("math", HintLimits(max_words=10**6))
    started = time.process_time()
    for hint, question, answer in [
        (text, "Why?", "x+\\frac{\\sqrt{2}}{3}"),
        (text, "Why?", "\\{2, 3\\}"),
        ("So $x = 2 + x^2$, 3 and 4.", "Why?", text),
        ("So $x = 2 + x^2$.", text, "x+\\sqrt{2}"),
        (text, text, text),
    ]:
        gate.objection(hint, group(answer, question))
    assert time.process_time() - started < 30


def test_a_comparison_that_never_ends_costs_others_a_wait_and_their_hints(monkeypatch):
    monkeypatch.setattr(math_process, "_PATIENCE", 0.05)
    PROCESS.restart()
    with PROCESS._lock:
        assert LeakGate().objection("Think about $4 + 4$ first.", GROUP) == UNDECIDED
    assert LeakGate().objection("Think about $4 + 4$ first.", GROUP) is None


def test_the_package_imports_without_the_algebra():
    code = "import sys, trl_mentor.mentor; print(sorted({'sympy', 'math_verify'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_the_parser_writes_nothing_into_the_log_or_the_terminal(caplog, capfd):
    with caplog.at_level(logging.DEBUG):
        assert not are_equal("\\frac{1}{", "3.25 + 1")
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


def test_each_domain_has_its_rules_and_a_domain_of_the_users_own_the_general_ones():
    program = group("def gcd(a, b):\n    while b:\n        a, b = b, a % b\n    return abs(a)\n", "Write gcd(a, b).")
    copied = "Repeat x, y = y, x % y until it ends."
    assert LeakGate("code").objection(copied, program)
    assert LeakGate("math").objection(copied, program) is None
    assert rules_of("chemistry") == rules_of("general")
    assert LeakGate("chemistry").objection("Compute 6 times 7.", group("42"))


def test_a_question_answered_by_what_it_says_itself_may_be_repeated():
    asked = group("\\sqrt{8}", "Simplify $\\sqrt{8} + 0$.")
    assert LeakGate().objection("Look at the $\\sqrt{8}$ in it.", asked) is None


def test_critiques_of_the_gate_are_fixed_and_hold_no_answer():
    fixed = [
        value
        for module in (rules, gate)
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, str)
    ]
    assert len(fixed) > 8
    assert not any(character.isdigit() for sentence in fixed for character in sentence)


def refuse_questions(hint: str, asked: CollapsedGroup) -> str | None:
    return "Do not ask: state it." if hint.endswith("?") else None


def break_down(hint: str, asked: CollapsedGroup) -> str | None:
    raise ValueError(f"secret {asked.answer}")


def tell(hint: str, asked: CollapsedGroup) -> str | None:
    return f"Do not say {asked.answer}."


def test_a_rule_of_the_users_own_refuses_a_draft_and_its_sentence_goes_to_repair():
    teacher, backend = mentor(
        {Role.REPAIR: said.repaired("Think about the divisors of 1.")}, leak_rule=refuse_questions
    )
    (guidance,) = teacher.guide([GROUP])
    assert guidance.hint == "Think about the divisors of 1."
    assert guidance.drafts[0].verdict.source is VerdictSource.RULES
    (repair,) = [request for request in backend.requests if request.role is Role.REPAIR]
    assert "Do not ask: state it." in repair.messages[-1]["content"]


def test_a_rule_that_raises_refuses_every_hint_is_recorded_and_tells_nothing():
    teacher, backend = mentor(leak_rule=break_down)
    (guidance,) = teacher.guide([GROUP])
    assert guidance.origin is HintOrigin.FALLBACK
    assert all(draft.verdict.quality is Quality.LOW for draft in guidance.drafts)
    assert guidance.drafts[0].verdict.critique == f"{OWN_RULE} (The rule raised ValueError.)"
    assert not any("secret" in str(request.messages) for request in backend.requests)


def test_the_first_exception_of_a_rule_is_said_and_no_further_one(caplog):
    teacher, _ = mentor(leak_rule=break_down)
    teacher.guide([GROUP, GROUP])
    (warning,) = caplog.messages
    assert warning.startswith("trl-mentor: the leak rule break_down raised ValueError: secret")
    assert "hints are refused while it does" in warning


@pytest.mark.parametrize(
    ("rule", "complaint"),
    [
        ("leak.no_formula", "leak_rule is 'leak.no_formula'; give the function itself; the dotted path is for"),
        (lambda hint: None, "cannot be called with two arguments"),
        (lambda hint, group, *, strict: None, "'strict'"),
    ],
)
def test_a_rule_that_cannot_be_called_with_a_hint_and_a_group_is_refused_at_construction(rule, complaint):
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        mentor(leak_rule=rule)


@pytest.mark.parametrize("rule", [lambda hint, group, strict=True: None, lambda *given: None, max])
def test_any_callable_of_two_arguments_is_a_rule(rule):
    assert mentor(leak_rule=rule)


def test_a_rule_whose_sentence_tells_the_answer_is_not_quoted():
    assert LeakGate(own_rule=tell).objection(HINT, GROUP) == OWN_RULE
    assert LeakGate(own_rule=lambda hint, asked: 7).objection(HINT, GROUP) == OWN_RULE


def test_a_domain_rule_that_raises_refuses_the_hint_and_is_said_once(monkeypatch, caplog):
    monkeypatch.setattr(gate, "rules_of", lambda domain: (break_down,))
    monkeypatch.setattr(gate, "_warned", set())
    assert [LeakGate().objection(HINT, GROUP) for _ in range(3)] == [UNDECIDED] * 3
    (warning,) = caplog.messages
    assert "leak rule break_down raised ValueError" in warning


def test_algebra_that_cannot_be_imported_is_said_and_leaves_the_rules_that_need_none(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(gate, "_warned", set())
    (tmp_path / "math_verify.py").write_text("raise ImportError('math_verify is broken')")
    monkeypatch.syspath_prepend(tmp_path)
    PROCESS.restart()
    asked = group("\\sqrt{8}", "How long is the side?")
    assert LeakGate().objection("Look at $2\\sqrt{2}$ first.", asked) == UNDECIDED
    assert LeakGate().objection("Look for a right angle.", asked) is None
    (warning,) = caplog.messages
    assert "math_verify" in warning
    assert "pip install" in warning


def test_the_first_comparisons_of_many_threads_agree():
    code = """
import threading
from trl_mentor.leaks.gate import LeakGate
from trl_mentor.records import CollapsedGroup
asked, said, start = CollapsedGroup("How long is the side?", (), "\\\\sqrt{8}"), [], threading.Barrier(16)
def ask(number):
    start.wait()
    said.append(LeakGate().objection(f"Look at ${number}+2\\\\sqrt{{2}}-{number}$.", asked))
threads = [threading.Thread(target=ask, args=(number,)) for number in range(1, 17)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(len(said), *set(said))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == f"16 {rules.EQUALS_ANSWER}", done.stderr


@pytest.mark.parametrize(
    ("question", "answer", "hint"),
    [
        ("How many pages are left?", "20", "There are 240 pages at 12 a day, so divide."),
        ("Which number is it?", "59", "So $n + 1 = 60$."),
        ("Solve the equation.", "\\{-2, 4\\}", "Note that $(x - 4)(x + 2) = 0$."),
        ("Where do the lines meet?", "(7, 3)", "Adding gives $x = 7$, and then $y = 10 - 7$."),
        ("How many apples has he then?", "5", "After four days he has 5 apples."),
        ("Which is it? (A) 2ab (B) 4ab (C) 0", "B", "Then 2ab - (-2ab) = 4ab remains."),
        ("Which is it? (A) 170 (B) 180 (C) 190", "B", "Take 150 and add 30."),
        ("Count the seatings.", "24", "Fix one seat: (5 - 1)! orders are left."),
    ],
)
def test_a_hint_that_leaves_nothing_but_the_last_step_is_refused(question, answer, hint):
    assert LeakGate().objection(hint, group(answer, question))


@pytest.mark.parametrize(
    ("question", "answer", "hint"),
    [
        ("Tom and Ana have 52 marbles, he three times hers. How many has he?", "39", "With a for hers, 4a = 52."),
        ("Solve x + 1 = 60.", "59", "In x + 1 = 60, undo the addition."),
        ("What is 12 times 20?", "240", "Split 12 before you multiply by 20."),
        ("How many boxes of 6 pens are 42 pens?", "7", "One box holds 6 pens; how often does that fit?"),
    ],
)
def test_a_hint_that_prepares_a_step_passes(question, answer, hint):
    assert LeakGate().objection(hint, group(answer, question)) is None


def test_a_critique_that_tells_the_answer_never_reaches_the_agent_that_repairs():
    verdicts = [said.verdict("LOW", "Say that there are 25."), said.verdict("HIGH", "good")]
    teacher, backend = mentor({Role.JUDGMENT: verdicts})
    (guidance,) = teacher.guide([GROUP])
    assert guidance.origin is HintOrigin.ACCEPTED
    assert guidance.drafts[0].verdict.critique == WITHHELD
    repairs = [request.messages[-1]["content"] for request in backend.requests if request.role is Role.REPAIR]
    assert WITHHELD in repairs[0]
    assert "25" not in repairs[0]


def test_a_hint_that_lost_sentences_is_checked_once_more_as_it_will_be_used():
    teacher, _ = mentor(leak_rule=refuse_questions)
    strategy = MentorStrategy(teacher)
    whole = Guidance("Is 1 a prime? Think about its divisors.", HintOrigin.ACCEPTED)
    assert shorter_hint(whole.hint) == "Is 1 a prime?"
    shorter = strategy.shorten(GROUP, Lesson(prompt="p", hint=whole.hint, guidance=whole))
    assert shorter.prompt is None
    assert (shorter.guidance.hint, shorter.guidance.origin) == (None, HintOrigin.FAILED)


def test_a_hint_that_was_accepted_is_not_checked_again_as_it_is():
    asked = []
    teacher, _ = mentor(leak_rule=lambda hint, group: asked.append(hint))
    (lesson,) = MentorStrategy(teacher).prepare([GROUP])
    assert (lesson.hint, asked) == (HINT, [HINT])


RULES = "def refuse(hint, group):\n    return 'no' if 'prime' in hint else None\nLIMIT = 3\n"


def test_a_recipe_names_a_rule_by_its_dotted_path(tmp_path, monkeypatch):
    (tmp_path / "own_rules_of_a_lab.py").write_text(RULES, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    built = build_mentor(recipe("own_rules_of_a_lab.refuse"))
    assert built.plan.gate.objection("Is 1 a prime?", GROUP) == "no"
    assert build_mentor(recipe(None)).plan.gate.own_rule is None


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("refuse", "expected a dotted path"),
        ("no_such_module_here.refuse", "cannot import"),
        ("json.no_such_function", "has no 'no_such_function'"),
        ("string.digits", "expected a function"),
    ],
)
def test_a_wrong_path_is_a_configuration_error_that_says_what_to_do(path, complaint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(ConfigError, match=complaint):
        build_mentor(recipe(path))


def recipe(rule: str | None) -> MentorArguments:
    return MentorArguments(mentor_model="m", mentor_base_url="http://localhost:1/v1", mentor_leak_rule=rule)
