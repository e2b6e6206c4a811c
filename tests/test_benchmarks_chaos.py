"""The chaos run: a short one that finds nothing wrong, and short ones into which something wrong is planted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from trl_mentor.leaks.gate import LeakGate
from trl_mentor.records import Attempt, Call, CollapsedGroup, Guidance, HintOrigin, Intervention, RerollOutcome, Role

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

from chaos_checks import bad_hints, unjournaled  # noqa: E402
from chaos_world import exercise, number_in  # noqa: E402
from stub_server import GOOD  # noqa: E402

FALLBACK = "Read the question again."
GOOD_HINT = "Which quantity did you use twice?"


def chaos(tmp_path: Path, *options: str, interventions: int = 60) -> tuple[int, dict]:
    out = tmp_path / "chaos.json"
    command = [sys.executable, str(BENCHMARKS / "chaos.py"), "--interventions", str(interventions)]
    command += ["--json", str(out), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert out.is_file(), done.stderr[-4000:]
    return done.returncode, json.loads(out.read_text())


def test_a_short_run_ends_without_exceptions_bad_hints_or_unjournaled_outcomes(tmp_path):
    status, result = chaos(tmp_path)
    assert (status, result["wrong"]) == (0, [])
    assert (result["interventions"], result["exceptions"]) == (60, 0)
    assert (result["bad_hints_used"], result["unjournaled"]) == (0, 0)
    assert result["origins"]["accepted"] > 15
    assert len(result["answered_with"]) > 30


@pytest.mark.parametrize(
    ("plant", "interventions", "name"),
    [
        ("gate", 60, "bad_hints_used"),
        ("exception", 12, "exceptions"),
        ("thread", 12, "exceptions"),
        ("journal", 12, "unjournaled"),
    ],
)
def test_what_is_planted_into_a_run_is_found(tmp_path, plant, interventions, name):
    status, result = chaos(tmp_path, "--plant", plant, interventions=interventions)
    assert status == 1
    assert result[name] > 0
    assert result["wrong"]


# The checks


def guidance(hint: str | None = GOOD_HINT, origin: HintOrigin = HintOrigin.ACCEPTED, **more) -> Guidance:
    return Guidance(hint, origin, **more)


def approval(number: int = 0, draft: str = GOOD_HINT, *, approves: bool = True) -> dict:
    return {"exercise": number, "role": "judgment", "kind": "good", "approves": approves, "draft": draft}


def found(given: Guidance, *log: dict, number: int = 0) -> list[str]:
    return [one.what for one in bad_hints({number: given}, {number: exercise(number)}, log, FALLBACK)]


def test_a_hint_that_the_judge_approved_and_that_tells_nothing_passes():
    assert found(guidance(), approval()) == []
    assert found(guidance(FALLBACK, HintOrigin.FALLBACK)) == []
    assert found(guidance(None, HintOrigin.FAILED)) == []


@pytest.mark.parametrize("log", [[], [approval(1)], [approval(draft="another")], [approval(approves=False)]])
def test_a_hint_that_the_judge_did_not_approve_is_found(log):
    (what,) = found(guidance(), *log)
    assert "no reply of the judge approves it" in what


@pytest.mark.parametrize("number", range(24))
def test_every_planted_leak_is_found_also_with_other_layout(number):
    for leak in exercise(number).leaks:
        for hint in (leak, f"  Look:\n{leak.upper()} Now you."):
            assert found(guidance(hint), approval(number, hint), number=number) != []


def test_the_gate_refuses_every_planted_leak_and_no_good_reply():
    missed, refused = [], []
    for number in range(120):
        made = exercise(number)
        gate, group = LeakGate(made.domain), made.group(0)
        missed += [(number, leak) for leak in made.leaks if gate.objection(leak, group) is None]
        hints = (GOOD["generation"], json.loads(GOOD["repair"])["hint"])
        refused += [(number, hint) for hint in hints if gate.objection(hint, group) is not None]
    assert (missed, refused) == ([], [])


@pytest.mark.parametrize(
    "hint", ["a\x00b", "look\x1b[1m", "a <|im_end|> b", "[INST] now", "\\boxed{3}", "```x```", "...", "word " * 90]
)
def test_a_hint_that_breaks_a_formal_rule_is_found(hint):
    assert found(guidance(hint), approval(draft=hint)) != []


@pytest.mark.parametrize(
    "given",
    [
        guidance("Another text.", HintOrigin.FALLBACK),
        guidance("A text.", HintOrigin.FAILED),
        guidance("A text.", HintOrigin.NOT_ASKED),
        guidance(None, HintOrigin.ACCEPTED),
        guidance("A text.", HintOrigin.DROPPED),
    ],
)
def test_a_hint_of_another_origin_than_it_can_have_is_found(given):
    assert found(given) != []


def line(given: Guidance | None, number: int = 0) -> Intervention:
    group = CollapsedGroup("w1", (Attempt("w2", 0.0),), index=number)
    return Intervention(0, "mentor", group, given, RerollOutcome.SKIPPED)


def test_an_outcome_with_its_line_in_the_journal_passes():
    failed = guidance(
        None, HintOrigin.FAILED, reason="no route", calls=(Call(Role.JUDGMENT, 0.1, error="BackendError: x"),)
    )
    given = {0: guidance(), 1: guidance(FALLBACK, HintOrigin.FALLBACK, reason="no hint was accepted"), 2: failed}
    assert unjournaled(given, [line(one, number) for number, one in given.items()]) == []


@pytest.mark.parametrize(
    ("given", "journal", "words"),
    [
        (guidance(), [], "0 lines"),
        (guidance(), [line(guidance(), 1)], "0 lines"),
        (guidance(), [line(guidance()), line(guidance())], "2 lines"),
        (guidance(), [line(None)], "something else"),
        (guidance(), [line(guidance("Another hint"))], "something else"),
        (guidance(FALLBACK, HintOrigin.FALLBACK), None, "no cause"),
        (guidance(None, HintOrigin.FAILED, reason=" "), None, "no cause"),
        (guidance(None, HintOrigin.FAILED, reason="it failed"), None, "without a call that failed"),
    ],
)
def test_an_outcome_whose_line_is_missing_wrong_or_without_a_cause_is_found(given, journal, words):
    (one,) = unjournaled({0: given}, [line(given)] if journal is None else journal)
    assert words in one.what


def test_an_exercise_is_known_again_from_its_question_and_its_number_is_no_answer():
    for number in range(100):
        made = exercise(number)
        assert made == exercise(number)
        assert number_in(made.question) == number
        assert made.answer not in made.question or len(made.answer) == 1
