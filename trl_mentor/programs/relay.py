"""Test code in one sandbox and the program in another: calls and results cross between them as plain data."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from trl_mentor.programs.codec import is_encoded
from trl_mentor.programs.common import MODULES, common_names
from trl_mentor.programs.compare import shown
from trl_mentor.programs.tests import ProgramTests
from trl_mentor.programs.verdict import (
    SECONDS,
    Verdict,
    clipped,
    limits_note,
    raised_note,
    refused_note,
)
from trl_mentor.programs.wire import AGENT, START_SECONDS, TESTER, GoneError, LateError, Wire, WireError, start
from trl_mentor.sandbox import Sandbox

_WHOLE = 3
"""Test code and program together may take so many times what the program may."""
_MOST = 2**22
"""Characters of a value that crosses."""
_TOLD = 3


def run_asserts(program: str, tests: ProgramTests, sandbox: Sandbox, *, stop: bool, seconds: int = SECONDS) -> Verdict:
    """Run ASSERTS tests on a program; `stop` ends it at the first that fails."""
    whole = 2.0 * seconds * _WHOLE
    order: dict[str, Any] = {"setup": tests.setup, "entry_point": tests.entry_point, "most": _MOST}
    testing = {**order, "tests": tests.program, "stop": stop, "seconds": 2 * seconds, "modules": MODULES}
    with start(sandbox, TESTER, testing, seconds=START_SECONDS + whole) as tester:
        try:
            kind, *names = tester.line(time.monotonic() + START_SECONDS, _MOST)
        except WireError as error:
            return Verdict(0, 0, error=f"the tests cannot be run: {error}")
        if kind != "names":
            return Verdict(0, 0, error=f"the tests cannot be run: {clipped(names[0])}")
        order |= {"style": "asserts", "program": program.lstrip("\ufeff"), "names": names, "seconds": seconds}
        order["common"] = common_names(but=tests.entry_point)
        with start(sandbox, AGENT, order, seconds=whole) as agent:
            relay = _Relay(tester, agent, time.monotonic() + whole, seconds)
            try:
                return relay.run()
            except (WireError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
                return relay.lost(error)


class _Relay:
    """Carries calls to the program and results back, until there is a verdict."""

    def __init__(self, tester: Wire, agent: Wire, end: float, seconds: int) -> None:
        self.tester, self.agent, self.end = tester, agent, end
        self.seconds, self.left = seconds, 2.0 * seconds
        self.failures: list[str] = []
        self.names: dict[str, str] = {}
        self.raised: str | None = None
        self.where = "before any test"

    def run(self) -> Verdict:
        """The verdict, which only the tests' process can give.

        Whatever else ends the talk is the program's doing, as its tests were fit to run: it fails.
        """
        report = self._answer("defined", "refused")
        if report[0] == "refused":
            return Verdict(0, 1, (refused_note(report[1:]),))
        self.names = {value[1]: name for name, value in report[1] if isinstance(value, list) and value[0] == "handle"}
        self.tester.send(report[1], self.end)
        while True:
            self.where = "in the tests"
            kind, *rest = self.tester.line(self.end, 4 * _MOST)
            if kind == "ask":
                self.where = f"hidden test: {self._call(rest)}"
                self.agent.send(rest, self.end)
                answer = self._answer("value", "raised")
                self.raised = raised_note(answer[1:]) if answer[0] == "raised" else None
                self.tester.send(answer, self.end)
            elif kind == "failed":
                self._note(*rest)
            elif kind == "verdict":
                passed, total = rest
                return Verdict(passed, total, tuple(self.failures[:_TOLD]))
            else:
                return Verdict(0, 0, error=f"the tests cannot judge this program: {clipped(rest[0])}")

    def lost(self, error: Exception) -> Verdict:
        """The verdict where one of the processes is late, gone, or says what nobody says."""
        late = isinstance(error, LateError) or self.left < self.seconds  # the kernel ended it at its limit of CPU
        note = "it ended the process" if isinstance(error, GoneError) else "it disturbed the process that runs it"
        note = limits_note("timed_out") if late else note
        return Verdict(0, 1, (*self.failures[:_TOLD], f"{self.where}: {note}"))

    def _answer(self, *kinds: str) -> list[Any]:
        """What the program's process says, on the clock of the program. Raises `WireError` for any other kind."""
        began = time.monotonic()
        try:
            answer = self.agent.line(min(self.end, began + self.left), 4 * _MOST)
        finally:
            self.left -= time.monotonic() - began
        kind, *rest = answer
        if kind not in kinds or not _FORMS[kind](rest):
            raise WireError(f"it answered with {clipped(kind)!r}")
        return answer

    def _note(self, number: int, source: str, expected: Any, got: Any, kind: Any, message: Any) -> None:
        said = f"hidden test {number}: {clipped(' '.join(str(source).split()), 240)}"
        if kind is None:
            said += f"; expected {clipped(expected)}, got {clipped(got)}"
        elif self.raised is not None:
            said += f"; {self.raised}"
        else:
            said += f"; {kind}" + (f": {clipped(message)}" if message else "")
        self.failures.append(said)
        self.raised = None

    def _call(self, request: list[Any]) -> str:
        action, number, given, _ = request
        name = self.names.get(str(number), "a function")
        return f"{name}({shown(given, 160)[1:-1]})" if action == "call" else f"{name}.{given}"


def _is_defined(rest: list[Any]) -> bool:
    pairs = rest[0] if len(rest) == 1 and isinstance(rest[0], list) else None
    return pairs is not None and all(
        isinstance(one, list) and len(one) == 2 and isinstance(one[0], str) and is_encoded(one[1]) for one in pairs
    )


def _is_failure(rest: list[Any]) -> bool:
    return len(rest) == 5 and all(isinstance(part, str) for part in rest[:3])


_FORMS: Mapping[str, Callable[[list[Any]], bool]] = {
    "defined": _is_defined,
    "refused": _is_failure,
    "raised": _is_failure,
    "value": lambda rest: len(rest) == 2 and all(map(is_encoded, rest)),
}
