"""The tests of a programming problem, as a row of a data set carries them: one JSON object."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from trl_mentor.errors import ConfigError


class Style(StrEnum):
    """How a program is given its input and how its result is taken."""

    STDIN = "stdin"  # the whole program, once for each case, with text on its standard input
    CALL = "call"  # a function, or a method of `class Solution`, called with the arguments of each case
    ASSERTS = "asserts"  # test code that calls the program's functions
    STORED = "stored"  # any of the others, in the test store under its digest


@dataclass(frozen=True, slots=True)
class Case:
    """One input and what is expected for it."""

    input: Any
    """A text for STDIN; a tuple of JSON values, the arguments, for CALL."""
    output: Any
    """The expected text or JSON value."""
    hidden: bool = True
    """Whether the problem's text leaves it out."""


@dataclass(frozen=True, slots=True)
class ProgramTests:
    """All tests of one problem. Which of the fields are used follows from the style."""

    style: Style
    cases: tuple[Case, ...] = ()
    """STDIN and CALL."""
    function: str = ""
    """CALL: the function or method to call."""
    entry_point: str = ""
    """ASSERTS: the function that the problem asks for. A program that does not define it fails."""
    program: str = ""
    """ASSERTS: code that defines `check(candidate)`, or lines with `assert` that call the entry point by its name."""
    setup: str = ""
    """ASSERTS: what stands before the program (imports, helpers; HumanEval's prompt), run before it and before
    the tests, each in its own process."""
    sha256: str = ""
    """STORED: the digest under which the test store has them."""

    def to_json(self) -> str:
        """The text of a `tests` column; `parse_tests` is its inverse."""
        row: dict[str, Any] = {"style": self.style}
        if self.style in (Style.STDIN, Style.CALL):
            row["cases"] = [{"input": one.input, "output": one.output, "hidden": one.hidden} for one in self.cases]
        for name in _TEXTS[self.style]:
            if getattr(self, name) or name in _REQUIRED:
                row[name] = getattr(self, name)
        return json.dumps(row, ensure_ascii=False, separators=(",", ":"))


class TestsError(ConfigError):
    """Tests cannot be read. The message says what was got and what was expected."""

    __test__ = False


_TEXTS: Mapping[Style, tuple[str, ...]] = {
    Style.STDIN: (),
    Style.CALL: ("function",),
    Style.ASSERTS: ("entry_point", "program", "setup"),
    Style.STORED: ("sha256",),
}
_REQUIRED = ("function", "entry_point", "program", "sha256")
_SHOWN = 80


def parse_tests(text: Any) -> ProgramTests:
    """The tests that a cell holds. Raises `TestsError` for what is none; STORED tests are not looked up."""
    if not isinstance(text, str) or not text.strip():
        raise TestsError(f"got tests of the type {type(text).__name__}: {_shown(text)}; expected a JSON text")
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TestsError(f"the tests are no JSON ({error}): {_shown(text)}") from None
    if not isinstance(row, dict):
        raise TestsError(f"the tests are a JSON {type(row).__name__}, expected an object with a style: {_shown(text)}")
    if row.get("style") not in list(Style):
        raise TestsError(f"the tests have the style {row.get('style')!r}, expected one of {', '.join(Style)}")
    style = Style(row["style"])
    return ProgramTests(style, _cases(row, style), **{name: _text(row, name, style) for name in _TEXTS[style]})


def _text(row: Mapping[str, Any], name: str, style: Style) -> str:
    value = row.get(name)
    if value is None and name not in _REQUIRED:
        return ""
    if not isinstance(value, str) or (name in _REQUIRED and not value.strip()):
        raise TestsError(f"tests of the style {style} have {name}={_shown(value)}, expected a text")
    if name == "sha256" and not re.fullmatch(r"[0-9a-f]{64}", value):
        raise TestsError(f"stored tests have sha256={_shown(value)}, expected 64 hexadecimal digits")
    if name in ("function", "entry_point") and not value.isidentifier():
        raise TestsError(f"tests of the style {style} have {name}={_shown(value)}, expected a name")
    return value


def _cases(row: Mapping[str, Any], style: Style) -> tuple[Case, ...]:
    if style not in (Style.STDIN, Style.CALL):
        return ()
    cases = row.get("cases")
    if not isinstance(cases, list) or not cases:
        raise TestsError(f"tests of the style {style} have cases={_shown(cases)}, expected a list of at least one")
    return tuple(_case(case, number, style) for number, case in enumerate(cases, start=1))


def _case(case: Any, number: int, style: Style) -> Case:
    if not isinstance(case, dict) or "input" not in case or "output" not in case:
        raise TestsError(f"test {number} is {_shown(case)}, expected an object with input and output")
    given, expected, hidden = case["input"], case["output"], case.get("hidden", True)
    if style is Style.STDIN and not (isinstance(given, str) and isinstance(expected, str)):
        raise TestsError(f"test {number} is {_shown(case)}, expected texts as input and output (style stdin)")
    if style is Style.CALL and not isinstance(given, list):
        raise TestsError(f"test {number} has the input {_shown(given)}, expected the list of arguments (style call)")
    if not isinstance(hidden, bool):
        raise TestsError(f"test {number} has hidden={_shown(hidden)}, expected true or false")
    return Case(tuple(given) if style is Style.CALL else given, expected, hidden)


def _shown(value: Any) -> str:
    text = repr(value[:_SHOWN] if isinstance(value, str) else value)
    return text if len(text) <= _SHOWN + 10 else f"{text[:_SHOWN]}..."
