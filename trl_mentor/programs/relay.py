"""Test code in one sandbox and the program in another: calls and results cross between them as plain data."""

from __future__ import annotations

import time
from typing import Any

from trl_mentor.programs.common import common_names
from trl_mentor.programs.compare import shown
from trl_mentor.programs.tests import ProgramTests
from trl_mentor.programs.verdict import (
    MEMORY_MIB,
    SECONDS,
    WALL,
    Verdict,
    clipped,
    limits_note,
    raised_note,
    refused_note,
)
from trl_mentor.programs.wire import AGENT, TESTER, LateError, Wire, WireError, start
from trl_mentor.sandbox import Limits, Sandbox

_WHOLE = 3 * WALL
"""Seconds for test code and program together; the program has `WALL` of them."""
_MOST = 2**22
"""Characters of a value that crosses."""
_TOLD = 3


def run_asserts(program: str, tests: ProgramTests, sandbox: Sandbox, *, stop: bool) -> Verdict:
    """Run ASSERTS tests on a program; `stop` ends it at the first that fails."""
    end = time.monotonic() + _WHOLE
    bounds = Limits(seconds=_WHOLE, memory_mib=MEMORY_MIB)
    order: dict[str, Any] = {"setup": tests.setup, "entry_point": tests.entry_point, "most": _MOST}
    testing = {**order, "tests": tests.program, "stop": stop, "seconds": 2 * SECONDS}
    try:
        with start(sandbox, TESTER, testing, limits=bounds, end=end) as tester:
            kind, *names = tester.line(end, _MOST)
            if kind != "names":
                return Verdict(0, 0, error=f"the tests cannot be run: {clipped(names[0])}")
            order |= {"style": "asserts", "program": program.lstrip("\ufeff"), "names": names, "seconds": SECONDS}
            order["common"] = common_names()
            with start(sandbox, AGENT, order, limits=bounds, end=end) as agent:
                return _Relay(tester, agent, end).run()
    except LateError:
        return Verdict(0, 1, (f"the tests did not end within {_WHOLE:g} s",))
    except (WireError, LookupError, TypeError, ValueError) as error:
        return Verdict(0, 0, error=f"the tests cannot be run: {error}")


class _Relay:
    """Carries calls to the program and results back, until there is a verdict."""

    def __init__(self, tester: Wire, agent: Wire, end: float) -> None:
        self.tester, self.agent, self.end = tester, agent, end
        self.left = WALL
        self.failures: list[str] = []
        self.names: dict[str, str] = {}
        self.raised: str | None = None

    def run(self) -> Verdict:
        """The verdict, which only the tests' process can give."""
        try:
            report = self._answer()
        except WireError as error:
            return self._lost("before any test", error)
        if report[0] != "defined":
            return Verdict(0, 1, (refused_note(report[1:]),))
        self.names = {value[1]: name for name, value in report[1] if isinstance(value, list) and value[0] == "handle"}
        self.tester.send(report[1], self.end)
        while True:
            kind, *rest = self.tester.line(self.end, 4 * _MOST)
            if kind == "ask":
                try:
                    self.agent.send(rest, self.end)
                    answer = self._answer()
                except WireError as error:
                    return self._lost(f"in {self._call(rest)}", error)
                self.raised = raised_note(answer[1:]) if answer[0] == "raised" else None
                self.tester.send(answer, self.end)
            elif kind == "failed":
                self._note(*rest)
            elif kind == "verdict":
                passed, total = rest
                return Verdict(passed, total, tuple(self.failures[:_TOLD]))
            else:
                return Verdict(0, 0, error=f"the tests cannot judge this program: {clipped(rest[0])}")

    def _answer(self) -> list[Any]:
        """What the program's process says, on the clock of the program."""
        began = time.monotonic()
        try:
            return self.agent.line(min(self.end, began + self.left), 4 * _MOST)
        finally:
            self.left -= time.monotonic() - began

    def _note(self, number: int, source: str, expected: Any, got: Any, kind: Any, message: Any) -> None:
        said = f"test {number}: {clipped(source, 240)}"
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
        return f"{name}{shown(['tuple', *given[1:]], 160)}" if action == "call" else f"{name}.{given}"

    def _lost(self, where: str, error: WireError) -> Verdict:
        note = limits_note("timed_out") if isinstance(error, LateError) else f"{error}"
        return Verdict(0, 1, (*self.failures[:_TOLD], f"{where}: {note}"))
