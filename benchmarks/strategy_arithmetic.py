"""The second world: expressions with two operators and worked steps, and a student who has five rules wrong.

    Compute: 3 + 6 * 3?  ->  6 * 3 = 18 ; 3 + 18 = 21

The misconceptions are planted, as those of the demo's code world are. Facts about a problem are computed here; what
documents a student reads, and under which hints, is the business of `trl_mentor.demo.corpus`.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of arithmetic that the student has wrong."""

    name: str
    label: str
    """Keywords for a diagnosis."""
    hints: tuple[str, ...]
    """Paraphrases of the same advice, without any number."""


PRECEDENCE = Rule(
    "precedence",
    "signs worked from left to right",
    ("Times goes before plus and minus.", "Do the stronger sign first."),
)
NEGATIVE = Rule(
    "negative",
    "the smaller number always taken from the larger",
    ("A difference can fall below zero.", "Keep the order when you take away."),
)
POWERS = Rule(
    "powers",
    "a square taken as a double",
    ("A square is a number times itself.", "A power is not a double."),
)
REMAINDERS = Rule(
    "remainders",
    "a quotient given for a remainder",
    ("Percent asks for what is left over.", "The rest of a division is wanted."),
)
BRACKETS = Rule(
    "brackets",
    "brackets ignored",
    ("Work inside the brackets before all else.", "Brackets come first."),
)
RULES = (PRECEDENCE, NEGATIVE, POWERS, REMAINDERS, BRACKETS)

GENERIC_HINTS = (
    "Read the question again.",
    "Check each step of your work.",
    "Think about what each sign means.",
    "Go through it slowly.",
)

FAMILIES: dict[str, tuple[tuple[str, ...], tuple[Rule, ...]]] = {
    "easy": (("a + b + c", "a + b - c", "a * b + c"), ()),
    "precedence": (("a + b * c",), (PRECEDENCE,)),
    "negative": (("a - b + c", "a - b - c"), (NEGATIVE,)),
    "powers": (("a ^ 2 + f", "a ^ 2 - b"), (POWERS,)),
    "remainders": (("e % b + c",), (REMAINDERS,)),
    "brackets": (("( a + b ) * d", "d * ( a + b )", "e - ( a + b )"), (BRACKETS,)),
    "precedence+powers": (("f + b ^ 2",), (PRECEDENCE, POWERS)),
    "precedence+negative": (("a - d * b",), (PRECEDENCE, NEGATIVE)),
    "brackets+remainders": (("e % ( d + b )",), (BRACKETS, REMAINDERS)),
}
"""Family name -> the forms of its expressions, whose letters are numbers from `_RANGES`, and the rules they need."""

_RANGES = {"a": (2, 9), "b": (2, 9), "c": (2, 9), "d": (2, 4), "e": (10, 29), "f": (2, 29)}
_LARGEST = 199


@dataclass(frozen=True, slots=True)
class Sum:
    """An expression `x s y t z` and which of its two signs comes first."""

    family: str
    question: str
    numbers: tuple[int, int, int]
    signs: tuple[str, str]
    second_first: bool

    @property
    def concepts(self) -> tuple[Rule, ...]:
        """The rules without which the answer fails."""
        return FAMILIES[self.family][1]

    @property
    def answer(self) -> str:
        """The right steps."""
        return self.program(known=self.concepts)

    @property
    def naive(self) -> str:
        """The steps of a student who has every rule of the family wrong."""
        return self.program(known=())

    def program(self, *, known: Collection[Rule]) -> str:
        """The steps of a student who has only the `known` rules right."""
        wrong = [rule for rule in self.concepts if rule not in known]
        turned = PRECEDENCE in wrong or BRACKETS in wrong
        (x, y, z), (first, second) = self.numbers, self.signs
        if self.second_first != turned:
            between = _value(y, second, z, wrong)
            return f"{_step(y, second, z, between)} ; {_step(x, first, between, _value(x, first, between, wrong))}"
        between = _value(x, first, y, wrong)
        return f"{_step(x, first, y, between)} ; {_step(between, second, z, _value(between, second, z, wrong))}"


def solves(answer: str, problem: Sum) -> bool:
    """Whether the number after the last equals sign is the right one."""
    return (found := _result(answer)) is not None and found == _result(problem.answer)


def missing_rules(answer: str, problem: Sum) -> list[Rule]:
    """The rules that a student lacks whose steps agree with this answer up to its first wrong step, or longest."""
    written = answer.replace(" ", "")

    def agreement(known: Sequence[Rule]) -> int:
        pairs = zip(written, problem.program(known=known).replace(" ", ""), strict=False)
        return next((position for position, (ours, theirs) in enumerate(pairs) if ours != theirs), len(written))

    subsets = [known for size in range(len(problem.concepts)) for known in combinations(problem.concepts, size)]
    best = max(subsets, key=agreement, default=())
    return [rule for rule in problem.concepts if rule not in best]


def sample_sums(rng: random.Random, per_family: int, *, held_out: bool) -> dict[str, Sum]:
    """Distinct problems of one side of the split by question, `per_family` of each family, in mixed order."""
    problems: list[Sum] = []
    for family in FAMILIES:
        source = _distinct(rng, family, held_out)
        problems += [next(source) for _ in range(per_family)]
    rng.shuffle(problems)
    return {problem.question: problem for problem in problems}


def _distinct(rng: random.Random, family: str, held_out: bool) -> Iterator[Sum]:
    seen: set[str] = set()
    for _ in range(100_000):
        problem = _draw(rng, family)
        if problem is None or problem.question in seen or _is_held_out(problem.question) != held_out:
            continue
        seen.add(problem.question)
        yield problem
    raise ValueError(f"the family {family!r} does not have that many problems; ask for fewer per family")


def _draw(rng: random.Random, family: str) -> Sum | None:
    """A problem in which each rule that it needs shows and no number is too large, or None."""
    forms, needed = FAMILIES[family]
    form = rng.choice(forms)
    text = re.sub("[a-f]", lambda match: str(rng.randint(*_RANGES[match[0]])), form)
    parts = [part for part in text.split() if part not in "()"]
    x, first, y, second, z = parts
    second_first = ("(" in form and not form.startswith("(")) or ("(" not in form and PRECEDENCE in needed)
    problem = Sum(family, f"Compute: {text}?", (int(x), int(y), int(z)), (first, second), second_first)
    right = _result(problem.answer)
    values = [int(number) for number in re.findall(r"\d+", f"{problem.answer} {problem.naive}")]
    below_zero = "= -" in problem.answer or "= -" in problem.naive
    if right is None or max(values) > _LARGEST or (below_zero and NEGATIVE not in needed):
        return None
    partly = [problem.program(known=[rule for rule in needed if rule is not wrong]) for wrong in needed]
    return (
        None if any(_result(steps) == right for steps in [*partly, *([problem.naive] if needed else [])]) else problem
    )


def _value(x: int, sign: str, y: int, wrong: Collection[Rule]) -> int:
    match sign:
        case "+":
            return x + y
        case "*":
            return x * y
        case "^":
            return x * y if POWERS in wrong else x**y
        case "%":
            return x // y if REMAINDERS in wrong else x % y
        case _:
            return abs(x - y) if NEGATIVE in wrong else x - y


def _step(x: int, sign: str, y: int, value: int) -> str:
    return f"{x} {sign} {y} = {value}"


def _result(steps: str) -> int | None:
    last = steps.rpartition("=")[2].replace(" ", "")
    return int(last) if re.fullmatch(r"-?\d{1,6}", last, re.ASCII) else None


def _is_held_out(question: str) -> bool:
    return hashlib.sha256(question.encode()).digest()[0] % 5 == 0
