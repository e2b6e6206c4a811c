r"""Whether a hint holds the answer in another form: an equal expression, its values in another order, a decimal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

from trl_mentor.answer_forms import final_results, spaced, tokenize
from trl_mentor.leaks.math_candidates import Candidate, candidates, is_cheap
from trl_mentor.leaks.math_equal import are_equal, value_of
from trl_mentor.leaks.math_lists import Values, answer_values, values_in
from trl_mentor.leaks.rewriting import rewritten

_LETTER = re.compile(r"(?<![A-Za-z\\])[A-Za-z](?![A-Za-z])|\\pi")
_WORD = re.compile(r"(?<!\\)(?<![A-Za-z\\])[A-Za-z]{2,}")
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")
_UNIT = re.compile(r"(?<=[\d}])\s?(?:[A-Za-z\u00b5]{1,12}\s?(?:/\s?[A-Za-z]{1,6})?(?:\^\{?[23]\}?)?)\s*$")
_MEASURED = re.compile(r"(?:[a-z]{2,9}\s)?(-?\d+(?:\.\d+)?)\s(?:[A-Z]|[A-Za-z]{2,12}|[hms])")
_DECIMALS = 3  # that a decimal needs to count as an approximation


def states_equal(hint: str, *, question: str, answer: str) -> bool:
    """Whether an expression of the hint, or a list of values, equals the answer, and the question does not say it.

    Expressions equal to a short answer count only where the hint states or orders a result ("= ", "compute").
    Whole numbers are the business of the formal rules.
    """
    return _states_values(hint, answer, question) or _states_expression(hint, answer, question)


@lru_cache(maxsize=64)  # groups that are worked on at once; each asks again for every draft
def _known(question: str) -> str:
    return spaced(tokenize(rewritten(question)))


def _states_expression(hint: str, answer: str, question: str) -> bool:
    targets = _targets(answer)
    if not targets:
        return False
    found = [one for one in candidates(hint) if spaced(tokenize(one.text)) not in _known(question)]
    pairs = [(one, target) for target in targets for one in found if _comparable(one.text, target)]
    return any(_leaks(one, target) and not _is_rewriting(one.text, target, question) for one, target in pairs)


@lru_cache(maxsize=64)  # as above
def _targets(answer: str) -> tuple[str, ...]:
    return tuple(_read_targets(answer))


def _read_targets(answer: str) -> Iterator[str]:
    """The expressions that the answer may be read as, without units."""
    for result in final_results(answer):
        text = rewritten(result).strip(" .$")
        text = re.sub(r"\\[()\[\]]|\$", "", text).strip()
        if _UNIT.search(text) and len(_LETTER.findall(text)) != len(re.findall(r"[A-Za-z]", text)):
            text = _UNIT.sub("", text)
        if numbered := _MEASURED.fullmatch(text):
            yield numbered[1]
        if (
            "\\pm" not in text
            and is_cheap(text)
            and not _WORD.search(text)
            and (re.search(r"\d|\\", text) or _LETTER.search(text))
        ):
            yield text


def _comparable(candidate: str, target: str) -> bool:
    """Whether the two have the same variables: the cheapest reason not to compare them."""
    ignored = {"e", "i", "\\pi"}
    return set(_LETTER.findall(candidate)) - ignored == set(_LETTER.findall(target)) - ignored


def _leaks(candidate: Candidate, target: str) -> bool:
    short = len(target.strip("-+")) < 2
    if short and not candidate.leads:
        return False
    if _NUMBER.fullmatch(candidate.text):
        return _approximates(candidate.text, target)
    if candidate.text.replace(" ", "") == target.replace(" ", "") and len(target) < 3:
        return False
    if ("=" in target) != ("=" in candidate.text):
        return False
    return are_equal(candidate.text, target)


def _is_rewriting(candidate: str, target: str, question: str) -> bool:
    """Whether the question asks to rewrite an expression, and the candidate is neither it nor the form asked for.

    Where an expression is to be factored, all that is done to it on the way equals the answer.
    """
    if not _LETTER.search(target) or sorted(tokenize(candidate)) == sorted(tokenize(target)):
        return False
    return any(_comparable(one.text, target) and are_equal(one.text, target) for one in candidates(question))


def _approximates(decimal: str, target: str) -> bool:
    """Whether a decimal of some length is what the answer begins with or rounds to."""
    places = len(decimal.partition(".")[2])
    if places < _DECIMALS or _NUMBER.fullmatch(target):
        return False
    value = value_of(target)
    return value is not None and abs(value.imag) < 1e-12 and abs(value.real - float(decimal)) < 10.0**-places


def _states_values(hint: str, answer: str, question: str) -> bool:
    for wanted in _wanted(answer):
        for said in values_in(rewritten(hint).replace("\\cdot ", "*")):
            if spaced(tokenize(said.text)) not in _known(question) and _same(said, wanted):
                return True
    return False


@lru_cache(maxsize=64)  # as above
def _wanted(answer: str) -> tuple[Values, ...]:
    read = (answer_values(rewritten(result).replace("\\cdot ", "*")) for result in final_results(answer))
    return tuple(values for values in read if values is not None and values.parts)


def _same(said: Values, wanted: Values) -> bool:
    if len(said.parts) != len(wanted.parts):
        return False
    one, two = [_value(part) for part in said.parts], [_value(part) for part in wanted.parts]
    if not wanted.ordered:
        one, two = sorted(one, key=str), sorted(two, key=str)
    return one == two


def _value(text: str) -> Fraction | complex | str:
    compact = text.replace(" ", "").removeprefix("+")
    tokens = tokenize(compact)
    if len(tokens) == 1 and re.fullmatch(r"-?\d+(?:/\d+)?", tokens[0]):
        return Fraction(tokens[0])
    value = value_of(compact) if is_cheap(compact) else None
    return compact if value is None else complex(round(value.real, 9), round(value.imag, 9))
