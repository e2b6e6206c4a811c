r"""The expressions of a text that are worth comparing with an answer, and only those that are cheap to evaluate.

A text of the mentor or of a data set may hold `9^{9^9}`, `1000000!` or a thousand brackets; a computer algebra system
would work on them for ever. So commands are from a list, and length, depth, exponents, factorials and the number of
candidates are bounded before anything is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from math import prod

from trl_mentor.leaks.rewriting import rewritten

MOST = 24
"""Candidates that are looked at in one text."""

_LONG = 80
_DEEP = 6
_POWER = 600  # the product of all exponents
_FACTORIAL = 20
_COMMAND = (
    r"\\(?:frac|sqrt|binom|cdot|pi|pm|infty|ln|log|sin|cos|tan|cot|sec|csc|exp|arcsin|arccos|arctan)(?![A-Za-z])"
)
_RUN = re.compile(
    rf"(?>{_COMMAND}|\d++(?:[.,]\d++)*+|"
    rf"[-+/^!()\[\]{{}}%|_ ]|\\%|(?<![A-Za-z\\])[A-Za-z](?![A-Za-z])){{1,{_LONG * 3}}}+"
)
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3}){1,3}(?![\d,])")
_EQUATION = re.compile(f"({_RUN.pattern})=({_RUN.pattern})")
_LONE_UNIT = re.compile(r"((?:\\[a-z]++|[^A-Za-z\\])+)(?<=\d) [a-z]")  # "3/5*45 m"
_PLAIN = re.compile(r"[-+]?\d+(?:\.\d+)?")
_OPERATES = re.compile(r"[-+/^!%]|\\|[A-Za-z(]")
_EXPONENT = re.compile(r"\^\s?(?:\{([^{}]*)\}|\(([^()]*)\)|(\d+|[A-Za-z]))")
_TOWER = re.compile(r"\^\s?(?:\{[^{}]*\}|[^{}\s]\w*)\s?\^")
_VAST = re.compile(r"\\exp|\\(?:arc)?(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])|\\binom|!|\d{4}|\^.*\^|\^\s?[({]?\d\d")
_BINOMIAL = re.compile(r"\\binom\s?(?:\{(\d{1,2})\}\s?\{(\d{1,2})\}|(\d)\s?(\d))")
_LEADS = re.compile(
    r"(?:=|\b(?:is|are|be|equals?|gives?|get|yields?|obtain|becomes?|makes?|namely|compute|evaluate|"
    r"calculate|work out|answer|result|just|do|take|multiply|add|subtract|divide)\b)[^\w.;]{0,6}"
    r"(?:(?:the|to|just|exactly|simply|here|that|of)\s){0,3}[^\w.;]{0,6}$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """An expression as it stands in a text."""

    text: str
    leads: bool
    """True after "=", "is", "compute" and the like: where a text states or orders a result."""


def candidates(text: str) -> list[Candidate]:
    """The distinct expressions of a text, at most `MOST`: no bare whole numbers, nothing that is costly."""
    found: dict[str, bool] = {}
    plain = _THOUSANDS.sub(lambda found: found[0].replace(",", ""), rewritten(text).replace("{,}", ","))
    for expression, leads in (*_equations(plain), *_expressions(plain)):
        if len(found) >= MOST:
            break
        if is_cheap(expression) and (not _PLAIN.fullmatch(expression) or "." in expression):
            found[expression] = found.get(expression, False) or leads
    return [Candidate(expression, leads) for expression, leads in found.items()]


def is_cheap(expression: str) -> bool:
    """Whether an expression can be parsed and evaluated in milliseconds, judged by its shape alone."""
    if (
        not 0 < len(expression) <= _LONG
        or "!!" in expression
        or re.search(r"(?:[)}\]]|[.,]\d+)\s*!|\d\s*_|\d{16}|\\pm.*\\pm", expression)
    ):
        return False
    if any(int(number) > _FACTORIAL for number in re.findall(r"(\d{1,16})\s*!", expression)):
        return False
    if expression.count("\\binom") != len(_BINOMIAL.findall(expression)):
        return False
    if _TOWER.search(expression):
        return False
    before, exponential, after = expression.partition("\\exp")
    if exponential and _VAST.search(f"{before} {after}"):  # an angle of that size is worked out to its last digit
        return False
    exponents = ["".join(pair) for pair in _EXPONENT.findall(expression)]
    if len(exponents) != expression.count("^") or any(re.search(r"[!^]|\\(?!frac)", power) for power in exponents):
        return False
    sizes = [int(number) for power in exponents for number in re.findall(r"\d{1,9}", power)]
    return prod(max(1, size) for size in sizes) <= _POWER and _depth(expression) <= _DEEP


def _equations(text: str) -> Iterator[tuple[str, bool]]:
    for found in islice(_EQUATION.finditer(text.replace("$", " ")), MOST // 2):
        left, right = (_balanced(side.strip(" ,_|")) for side in found.groups())
        if left and right and is_cheap(left) and is_cheap(right):
            yield f"{left} = {right}", False


def _expressions(text: str) -> Iterator[tuple[str, bool]]:
    for run in _RUN.finditer(text):
        expression = _balanced(run[0].strip(" ,_|"))
        if _OPERATES.search(expression) and re.search(r"\d|\\|[A-Za-z].*[-+/^]|[-+/^].*[A-Za-z]", expression):
            unit = _LONE_UNIT.fullmatch(expression)
            yield (
                unit[1] if unit else expression,
                _LEADS.search(text[max(0, run.start() - 60) : run.start()]) is not None,
            )
        elif _PLAIN.fullmatch(expression):
            yield expression, False


def _balanced(expression: str) -> str:
    """The expression without brackets at its ends that have no partner."""
    for _ in range(_DEEP):
        before = expression
        for opening, closing in ("()", "[]", "{}"):
            extra = expression.count(opening) - expression.count(closing)
            if extra > 0 and expression[:1] == opening:
                expression = expression[1:].strip()
            elif extra < 0 and expression[-1:] == closing:
                expression = expression[:-1].strip()
        if expression == before:
            break
    return expression


def _depth(expression: str) -> int:
    depth = deepest = 0
    for character in expression:
        depth += (character in "([{") - (character in ")]}")
        deepest = max(deepest, depth)
    return deepest if depth == 0 else _DEEP + 1
