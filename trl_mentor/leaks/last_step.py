r"""Whether a hint leaves nothing but the last step, and gives all its values.

"240 pages are left at 12 a day, so divide", `n + 1 = 60`, `(x - 4)(x + 2) = 0`: no expression equals the answer, but a
student reads it off. Texts, numbers and their pairs are bounded, so that all of it is cheap.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import islice, permutations

from trl_mentor.answer_forms import answer_forms, in_digits
from trl_mentor.leaks.math_candidates import candidates
from trl_mentor.leaks.math_equal import value_of
from trl_mentor.leaks.math_lists import answer_values
from trl_mentor.leaks.readings import folded
from trl_mentor.leaks.rewriting import rewritten

_READ = 4_000
_MOST = 16
_PLAIN = r"\d{1,12}(?:\.\d{1,9})?"
_NUMBER = re.compile(
    rf"(?<![\w.,^}}/\\])((?:\d{{1,3}}(?:,\d{{3}}){{1,3}}|{_PLAIN})(?:/\d{{1,9}})?)(?![\w%^!/]|[.,]\d|\\%)"
)
_MULTIPLES = ((re.compile(r"\b(?:twice|double)\b"), "2"), (re.compile(r"\bhalf\b"), "1/2"))
_CUES = {
    "+": re.compile(r"\b(?:add|plus|sum|total|altogether|together|combine)"),
    "-": re.compile(r"\b(?:subtract|minus|difference|remov|take away|deduct|left\b|remain|leaves|spen[dt]|rest\b)"),
    "*": re.compile(
        r"\b(?:times\b|multipl|product|each\b|apiece|per\b|every\b|twice|double|half|such\b|of (?:them|these|those))"
    ),
    "/": re.compile(r"\b(?:divi[ds]|quotient|split|share|out of|ratio|per\b)"),
}
_ORDERS = {
    "+": re.compile(r"\badd\b(?! up)"),
    "-": re.compile(r"\b(?:subtract|minus)\b"),
    "*": re.compile(r"\bmultiply\b"),
    "/": re.compile(r"\bdivide\b"),
}
_ONE_STEP = re.compile(
    rf"(?<![\w)\]}}^/.*+-])(?<![-+*/] )(?:({_PLAIN})\s?([-+])?\s?)?([A-Za-z])(?:\s?([-+/])\s?({_PLAIN}))?"
    rf"\s?=\s?(-?{_PLAIN})(?!\s?[-+*/^(\\=]|\w|\.\d)"
)
_NAMED = re.compile(rf"\b[A-Za-z](?:-(?:coordinate|value))? (?:is|equals|must be) (-?{_PLAIN})(?![\w^/]|\.\d)")
_FACTOR = rf"\(\s?(?:{_PLAIN}\s?)?[A-Za-z]\s?[-+]\s?{_PLAIN}\s?\)"
_FACTORED = re.compile(rf"(?:{_FACTOR}\s?){{2,6}}=\s?0(?!\d|\.\d)")
_ROOT = re.compile(rf"\(\s?({_PLAIN})?\s?[A-Za-z]\s?([-+])\s?({_PLAIN})\s?\)")


def leaves_last_step(hint: str, *, question: str, answer: str) -> bool:
    """Whether an equation or one operation on values of the hint, not all of them the question's, makes the answer."""
    wanted = _wanted(answer)
    if not wanted:
        return False
    plain = rewritten(hint).replace("$", "")
    solved = set(_solved(plain, question))
    if len(wanted) > 1:
        solved |= set(_assigned(hint, question))
    return any(wanted <= values for values in (solved, *_roots(plain, question))) or _combines(hint, question, wanted)


@lru_cache(maxsize=64)  # asked again for every draft
def _wanted(answer: str) -> set[Fraction]:
    """The numbers that the answer consists of; none for any other answer."""
    values = answer_values(rewritten(answer))
    if values is not None and len(values.parts) > 1:
        parts = {_fraction(part.replace(" ", "")) for part in values.parts}
        return {part for part in parts if part is not None} if len(parts - {None}) == len(values.parts) else set()
    numbers = (_fraction(form[0]) for form in answer_forms(answer) if len(form) == 1)
    return set(islice((number for number in numbers if number is not None), 1))


def _assigned(hint: str, question: str) -> Iterator[Fraction]:
    """The numbers that the hint gives to variables."""
    yield from (Fraction(number) for number in islice(_NAMED.findall(rewritten(hint)), _MOST))
    for name, _, right in (candidate.text.partition(" = ") for candidate in candidates(hint)):
        if len(name) == 1 and right and not _says(question, f"{name}={right}"):
            value = value_of(right)
            if value is not None and not value.imag:
                yield Fraction(value.real).limit_denominator(10**6)


def _solved(plain: str, question: str) -> Iterator[Fraction]:
    """The solutions of equations in one variable that take one step."""
    for found in islice(_ONE_STEP.finditer(plain), _MOST):
        factor, sign, _, operation, operand, right = found.groups()
        if (factor is None) == (operand is None) or _says(question, found[0]):
            continue
        value, other = Fraction(right), Fraction(factor or operand)
        if factor is None:
            yield value - other if operation == "+" else value + other if operation == "-" else value * other
        elif sign is not None:
            yield value - other if sign == "+" else other - value
        elif other:
            yield value / other


def _roots(plain: str, question: str) -> Iterator[set[Fraction]]:
    """The roots of products of linear factors that are said to be zero; each by itself, and all."""
    for found in islice(_FACTORED.finditer(plain), _MOST):
        if _says(question, found[0]):
            continue
        roots = set()
        for factor, sign, constant in _ROOT.findall(found[0]):
            if top := Fraction(factor or 1):
                roots.add((Fraction(constant) if sign == "-" else -Fraction(constant)) / top)
        yield roots


def _combines(hint: str, question: str, wanted: set[Fraction]) -> bool:
    """Whether two numbers and an operation that the hint speaks of make a result of at least two digits."""
    if len(wanted) > 1:
        return False
    short = all(value.denominator == 1 and abs(value) < 10 for value in wanted)
    text = hint[:_READ].lower()
    signs = [sign for sign, cue in (_ORDERS if short else _CUES).items() if cue.search(text)]
    numbers = list(_numbers(text, _MOST)) if signs else []
    if len(numbers) < 2 or (short and len(numbers) > 3):
        return False
    asked = set(_numbers(question, 4 * _MOST))
    chosen = len(numbers) == 2 < len(asked)
    fresh = (pair for pair in permutations(numbers, 2) if chosen or not asked.issuperset(pair))
    return any(result in wanted for one, two in fresh for result in _results(one, two, signs))


def _numbers(text: str, most: int) -> Iterator[Fraction]:
    text = in_digits(folded(text[:_READ]))
    for pattern, by in _MULTIPLES:
        text = pattern.sub(by, text)
    for found in islice(_NUMBER.finditer(text), most):
        if (number := _fraction(found[1].replace(",", ""))) is not None:
            yield number


def _results(one: Fraction, two: Fraction, signs: list[str]) -> Iterator[Fraction]:
    for sign in signs:
        if sign == "+":
            yield one + two
        elif sign == "-":
            yield one - two
        elif sign == "*":
            yield one * two
        elif two:
            yield one / two


def _fraction(text: str) -> Fraction | None:
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        return None


def _says(question: str, part: str) -> bool:
    """Whether the question says this, and not as the end of something longer."""
    spread = " ?".join(map(re.escape, _compact(part)))
    return re.search(rf"(?<![-+*/^\w.])(?<![-+*/^] ){spread}", _known(question)) is not None


@lru_cache(maxsize=64)  # groups that are worked on at once; few hints need it, and those several times
def _known(question: str) -> str:
    return " ".join(rewritten(question).replace("$", "").split())


def _compact(text: str) -> str:
    return re.sub(r"\s", "", text)
