"""Rewards for programs: the last fenced block of a completion, run in the sandbox against the tests of its row."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from trl_mentor.assembly import completion_text
from trl_mentor.errors import ConfigError
from trl_mentor.programs.fences import program_of
from trl_mentor.programs.judging import judge_programs
from trl_mentor.programs.verdict import Verdict
from trl_mentor.rewards.judgement import Judgement, check_rows, told


def code_reward(
    completions: Sequence[Any],
    tests: Sequence[str] | None = None,
    log_extra: Callable[..., None] | None = None,
    **_: Any,
) -> list[float | None]:
    """1.0 for each completion whose program passes every test, else 0.0; None where the tests cannot be read.

    `tests` is the data set's column (`trl_mentor.programs.tests`). A program ends at the first test that it fails.
    Raises `ConfigError` without `tests`, and for what is not a list with one value for each completion.
    """
    return _rewards("code_reward", completions, tests, log_extra, fraction=False)


def code_fraction_reward(
    completions: Sequence[Any],
    tests: Sequence[str] | None = None,
    log_extra: Callable[..., None] | None = None,
    **_: Any,
) -> list[float | None]:
    """The share of the tests that the program passes; None where they cannot be read. Every test is run.

    A group in which some test passes does not look collapsed by it: name `code_reward` in mentor_success_rewards, or
    set mentor_success_threshold.
    """
    return _rewards("code_fraction_reward", completions, tests, log_extra, fraction=True)


def judge_code(texts: Sequence[str], tests: Sequence[str], *, fraction: bool = False) -> list[Judgement]:
    """A judgement for each completion; `fraction` runs all tests and scores their share instead of 1.0 or 0.0.

    Its answer is a digest of the program, its feedback for the mentor alone.
    """
    check_rows("judge_code", texts=texts, tests=tests)
    programs = [program_of(text) for text in texts]
    verdicts = judge_programs(programs, tests, stop=not fraction)
    return [
        _judgement(program, verdict, fraction=fraction) for program, verdict in zip(programs, verdicts, strict=True)
    ]


def _judgement(program: str | None, verdict: Verdict, *, fraction: bool) -> Judgement:
    if verdict.error is not None:
        return Judgement(None, _answer(program), error=verdict.error)
    score = verdict.share if fraction else float(verdict.right)
    return Judgement(score, _answer(program), None if verdict.right else _feedback(verdict, fraction=fraction))


def _answer(program: str | None) -> str | None:
    if program is None:
        return None
    return f"program {hashlib.sha256(program.strip().encode('utf-8', 'replace')).hexdigest()[:12]}"


def _feedback(verdict: Verdict, *, fraction: bool) -> str:
    passed = f"It passes {verdict.passed} of {verdict.total} tests." if fraction and verdict.total > 1 else ""
    return "\n".join(part for part in (passed, *verdict.failures) if part)


def _rewards(
    caller: str,
    completions: Sequence[Any],
    tests: Sequence[str] | None,
    log_extra: Callable[..., None] | None,
    *,
    fraction: bool,
) -> list[float | None]:
    if tests is None:
        raise ConfigError(
            f"{caller} got no `tests`: the data set needs this column with the tests of each row as JSON, as "
            "docs/rewards.md describes it; rename the column that has them"
        )
    check_rows(caller, completions=completions, tests=tests)
    judged = judge_code([completion_text(completion) for completion in completions], tests, fraction=fraction)
    return told(judged, log_extra)
