"""The five misconceptions of the student: what it writes, what it should write, and how a tutor talks about it."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Concept:
    """One rule that the student has wrong."""

    name: str
    label: str
    """Keywords for a diagnosis."""
    hints: tuple[str, ...]
    """Paraphrases of the same advice, free of code and of any number of the problem."""
    wrong: str
    """Regular expression of the place where the misconception shows in a program."""
    right: str
    """What to put there, in the syntax of `re.sub`."""

    def repair(self, program: str) -> str:
        """The program with this one edit made wherever the misconception shows; unchanged where it does not."""
        return re.sub(self.wrong, self.right, program)


RANGE = Concept(
    "range",
    "end of a range taken as included",
    ("A range stops before its end.", "The end of a range is not included."),
    r"(range \( \w+ , n) \)",
    r"\1 + 1 )",
)
AT_LEAST = Concept(
    "at_least",
    "at least read as more than",
    ("At least includes the number itself.", "The number itself is allowed too."),
    r" > ",
    " >= ",
)
LAST = Concept(
    "last",
    "last items counted from the front",
    ("Count the last items from the back.", "The last items need a negative start."),
    r"\[ (\w+ : \])",
    r"[ - \1",
)
ROUND_DOWN = Concept(
    "round_down",
    "exact division where a whole number is wanted",
    ("Rounding down needs whole division.", "Use the division that drops the fraction."),
    r" / ",
    " // ",
)
MULTIPLE = Concept(
    "multiple",
    "a remainder used as if it meant a multiple",
    ("Compare the remainder with zero.", "A multiple leaves no remainder."),
    r"(% \w+)(?! ==)(?= |$)",
    r"\1 == 0",
)
CONCEPTS = (RANGE, AT_LEAST, LAST, ROUND_DOWN, MULTIPLE)

GENERIC_HINTS = (
    "Read the question again.",
    "Check each part of your program.",
    "Think about what each part of the question means.",
    "Try a small example by hand.",
)
"""Advice that names no concept. It changes nothing about what the student writes."""
