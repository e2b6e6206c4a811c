"""Programs that are given inputs, on standard input or as arguments, and whose results are compared outside."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from trl_mentor.programs.codec import encode, is_encoded
from trl_mentor.programs.common import common_names
from trl_mentor.programs.compare import same_output, same_value, shown
from trl_mentor.programs.tests import Case, ProgramTests, Style
from trl_mentor.programs.verdict import (
    SECONDS,
    Verdict,
    clipped,
    limits_note,
    raised_note,
    refused_note,
)
from trl_mentor.programs.wire import AGENT, GoneError, LateError, Wire, WireError, parsed, start
from trl_mentor.sandbox import Sandbox

_LATE = 3
"""After so many inputs without an end the rest is not tried and fails."""
_WHOLE = 10
"""All inputs together may take so many times what one may."""
_SLACK = 5.0
_TOLD = 3
_UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, RecursionError)


def run_cases(program: str, tests: ProgramTests, sandbox: Sandbox, *, stop: bool, seconds: int = SECONDS) -> Verdict:
    """Run a program for the inputs of STDIN or CALL tests; `stop` ends it at the first that fails."""
    whole = 2.0 * seconds * _WHOLE
    inputs = [_input(case, tests.style) for case in tests.cases]
    expected = max(len(case.output if tests.style is Style.STDIN else json.dumps(case.output)) for case in tests.cases)
    order: dict[str, Any] = {
        "style": str(tests.style),
        "program": program.lstrip("\ufeff"),
        "function": tests.function,
        "common": common_names(but=tests.function),
        "seconds": seconds,
        "wall": 2.0 * seconds,
        "most": 1 << max(16, (2 * expected).bit_length()),  # rounded up: not even the length of the longest is told
    }
    largest = max(len(given) for given in inputs) if tests.style is Style.STDIN else 0
    failures: list[str] = []
    passed = late = 0
    try:
        with start(sandbox, AGENT, order, seconds=whole, file_mib=16 + 4 * largest // 2**20) as wire:
            end = time.monotonic() + whole
            for case, given in zip(tests.cases, inputs, strict=True):
                report = _report(wire, given, end, order)
                problem = _problem(case, report, tests.style)
                if problem is None:
                    passed += 1
                    continue
                failures.append(_told(case, len(failures) + passed + 1, tests.style, problem))
                late += report[0] == "timed_out"
                if stop or late == _LATE:
                    break
    except _RefusedError as refused:
        return Verdict(0, len(inputs), (str(refused),))
    except (WireError, *_UNREADABLE) as error:
        failures.append(_broken(error, len(failures) + passed, len(inputs)))
    return Verdict(passed, len(inputs), tuple(failures[:_TOLD]))


class _RefusedError(Exception):
    """The program does not compile."""


def _report(wire: Wire, given: Any, end: float, order: dict[str, Any]) -> list[Any]:
    """What became of one input: how it ended, what was printed, what the child says."""
    soon = min(end, time.monotonic() + order["wall"] + _SLACK)  # the driver keeps to `wall` unless it is disturbed
    wire.send(given, soon)
    kind, *report = wire.line(soon, 16 * order["most"] + 100_000)
    if kind == "refused":
        raise _RefusedError(refused_note(report))
    return report


def _problem(case: Case, report: Sequence[Any], style: Style) -> str | None:
    """What is wrong with one run; None if nothing is."""
    ending, output, said = report
    if ending != "exited":
        return limits_note(ending)
    if said and (told := parsed(said))[0] == "raised":
        return raised_note(told[1:])
    if style is Style.STDIN:
        return None if same_output(output, case.output) else f"got {_quoted(output)}"
    if not said:
        return "it ended the process instead of returning"
    value = parsed(said)[1]
    if not is_encoded(value):
        raise WireError("it wrote a result that is none")
    return None if same_value(value, case.output) else f"got {shown(value, 160)}"


def _told(case: Case, number: int, style: Style, problem: str) -> str:
    hidden = "hidden" if case.hidden else "visible"
    if style is Style.STDIN:
        given, expected = _quoted(case.input), _quoted(case.output)
    else:
        given, expected = clipped(", ".join(map(repr, case.input))), clipped(repr(case.output))
    return f"{hidden} test {number}: input {given}, expected {expected}; {problem}"


def _quoted(text: str) -> str:
    return clipped(repr(clipped(text, 400)))


def _broken(error: Exception, ran: int, total: int) -> str:
    if isinstance(error, LateError):
        return f"it took too long, after {ran} of {total} tests"
    if isinstance(error, GoneError):
        return f"the program ended the process that runs it, after {ran} of {total} tests"
    return f"the program disturbed the process that runs it ({error}), after {ran} of {total} tests"


def _input(case: Case, style: Style) -> Any:
    return case.input if style is Style.STDIN else json.loads(encode(list(case.input), _never, [2**28]))


def _never(_: Any) -> int:
    raise AssertionError("JSON values are plain data")
