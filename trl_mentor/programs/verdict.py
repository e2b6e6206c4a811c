"""What became of one program under the tests of its problem, and the words for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trl_mentor.programs.wire import MEMORY_MIB

SECONDS = 6
"""CPU time for each input, as LiveCodeBench allows, and for all calls of test code together. On the clock it may be
twice as long, for programs that sleep and machines that are busy."""
NO_PROGRAM = "there is no fenced block with a program (``` ... ```) after the thinking"
_SHOWN = 160


@dataclass(frozen=True, slots=True)
class Verdict:
    """One program against one problem's tests."""

    passed: int
    total: int
    """Tests that there are; of test code that ends at its first failure, those that were run."""
    failures: tuple[str, ...] = ()
    """The first tests that failed, each with what was expected and what came, for the mentor alone."""
    error: str | None = None
    """Why the tests could not judge it; then the rest says nothing."""

    @property
    def right(self) -> bool:
        """Whether every test passes."""
        return self.error is None and self.passed == self.total > 0

    @property
    def share(self) -> float:
        """The share of the tests that pass."""
        return self.passed / self.total if self.total else 0.0


def limits_note(ending: str) -> str:
    """How a run ended that did not end by itself."""
    return {
        "timed_out": "it took too long",
        "output": "it was stopped because it printed far more than any test expects",
        "killed": "it was killed, as by a broken memory access or by itself",
        "unstarted": "it could not be started, as too many processes were left over from earlier tests",
    }.get(ending, clipped(ending))


def raised_note(report: Sequence[Any]) -> str:
    """An exception as the agent reports it: builtin type, own type, message, number and text of the line."""
    _, kind, message, number, line = report
    if kind in ("MemoryError",):
        return f"it ran out of memory (limit {MEMORY_MIB} MiB){_at(number, line)}"
    said = f"{clipped(kind)}: {clipped(message)}" if message else clipped(kind)
    return f"it raised {said}{_at(number, line)}"


def refused_note(report: Sequence[Any]) -> str:
    """Why a program did not come as far as its tests."""
    _, kind, message, number, line = report
    if kind in ("SyntaxError", "IndentationError", "TabError"):
        return f"the program is not valid Python: {kind}: {clipped(message)}{_at(number, line)}"
    return f"the program failed before any test: {clipped(kind)}: {clipped(message)}{_at(number, line)}"


def _at(number: Any, line: Any) -> str:
    return f" at line {number}: {clipped(line)}" if isinstance(number, int) and line else ""


def clipped(text: Any, most: int = _SHOWN) -> str:
    """A text of bounded length: its head and its end."""
    text = str(text)
    return text if len(text) <= most else f"{text[: most // 2]} [...] {text[-most // 2 :]}"
