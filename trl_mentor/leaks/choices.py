"""Questions with options: the letter of the right one, its text, its place in the list, and what exclusion leaves."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from trl_mentor.answer_forms import answer_forms, spaced, tokenize

_READ = 20_000
_MOST = 12
_TEXT = r"[^\n]{1,300}"
_STYLES = (
    re.compile(rf"(?m)^\s{{0,8}}\(([A-La-l1-9])\)\s{{0,4}}({_TEXT})$"),
    re.compile(rf"(?m)^\s{{0,8}}(?:\*\*)?([A-La-l1-9])[.):](?:\*\*)?\s{{1,4}}({_TEXT})$"),
    re.compile(r"(?<![\w\\])\(([A-L])\)\s{0,4}([^()\n]{1,200}?)(?=\s{0,4}\([A-L]\)|\s{1,4}\(|\s{0,4}$)", re.MULTILINE),
    re.compile(r"(?<!\w)([A-L])[.):]\s{0,4}([^\n]{1,200}?)[,;]?\s{1,4}(?=[A-L][.):]\s|$)", re.MULTILINE),
)
_ORDINALS = (
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "11th",
    "12th",
)
_NAMES = (
    "options?|choices?|answers?|letters?|alternatives?|variants?|picks?|choose|select|mark|tick|circle|"
    "take|go (?:for|with)"
)
_LETTER = (
    r"\b(?:{names})(?: (?:is|would be|must be|should be|to|number))?[:=]? ?[\"'`*(]{{0,3}}"
    r"{letter}(?![\w'-])(?! (?:or|and)\b)"
)
_PLACE = r"\b{ordinal}(?: and last)? (?:option|choice|answer|alternative|one listed|of the (?:options|choices))"
_EXCLUDES = re.compile(
    r"(?i:eliminate|rules? out|exclude|discard|cross out|ignore) ((?:\(?[A-L]\)?(?:, and |, | and |\b)){2,12})"
)
_STATES = ("=", "is", "equals", "gives", "leaves", "becomes")
_RIGHT = (
    r"(?<![\w'])\(?{letter}\)?(?: is| must be| has to be|'s)(?: the)? (?:\w+ )?(?:correct|right|answer|true|best|only)"
)


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a question."""

    letter: str
    text: str
    tokens: tuple[str, ...]


@lru_cache(maxsize=64)  # groups that are worked on at once; each asks again for every draft
def options_of(question: str) -> tuple[Option, ...]:
    """The options that the question lists, first letter first; none if it does not list at least two in order."""
    for style in _STYLES:
        found = style.findall(question[:_READ])[:_MOST]
        letters = [letter.upper() for letter, _ in found]
        if (len(found) > 1 and "".join(letters) in ("ABCDEFGHIJKL", "123456789"[: len(found)])) or _in_order(letters):
            return tuple(
                Option(letter, text.strip(), tokenize(text.strip(" \t.;,*")))
                for letter, (_, text) in zip(letters, found, strict=True)
            )
    return ()


def names_choice(hint: str, *, question: str, answer: str) -> bool:
    """Whether the hint points to the right one of the question's options.

    By its letter where letters are spoken of as options, by its place, by its text where it is the only option that
    is named, or by naming all the others.
    """
    options = options_of(question)
    right = _right(options, answer) if options else None
    if right is None:
        return False
    return _by_letter(hint, right, options) or _by_text(hint, right, options)


def as_open_question(question: str, answer: str) -> tuple[str, str]:
    """The question without its options and the text of the right one; both as they are if there are none."""
    options = options_of(question)
    right = _right(options, answer) if options else None
    if right is None:
        return question, answer
    return question[: max(0, question.find(options[0].text) - 4)], right.text


def _in_order(letters: list[str]) -> bool:
    return (
        len(letters) > 1
        and letters == [chr(ord(letters[0]) + at) for at in range(len(letters))]
        and letters[0] in "A1"
    )


def _right(options: tuple[Option, ...], answer: str) -> Option | None:
    bare = answer.strip(" \t\n.$()[]*").removeprefix("\\boxed{").rstrip("}")
    lettered = re.fullmatch(
        r"(?:(?:option|choice|answer)\s)?\(?([A-La-l1-9])\)?(?:[.):]\s.*)?", bare, re.IGNORECASE | re.DOTALL
    )
    for option in options:
        if lettered and lettered[1].upper() == option.letter:
            return option
    forms = set(answer_forms(answer))
    return next((option for option in options if option.tokens in forms), None)


def _by_letter(hint: str, right: Option, options: tuple[Option, ...]) -> bool:
    letter = rf"[{right.letter}{right.letter.lower()}]"
    place = _ORDINALS[options.index(right)]
    patterns = [_LETTER.format(names=_NAMES, letter=letter), _PLACE.format(ordinal=place)]
    if right is options[-1]:
        patterns.append(_PLACE.format(ordinal="last"))
    if any(re.search(pattern, hint, re.IGNORECASE) for pattern in patterns):
        return True
    if re.search(_RIGHT.format(letter=right.letter), hint):
        return True
    named = set(re.findall(r"(?<![\w)\]}\\])\(([A-La-l1-9])\)", hint))
    letters, others = {letter.upper() for letter in named}, {one.letter for one in options if one is not right}
    excluded = {letter for run in _EXCLUDES.findall(hint) for letter in re.findall(r"[A-L]", run)}
    return letters == {right.letter} or (len(others) > 1 and others in (letters, excluded))


def _by_text(hint: str, right: Option, options: tuple[Option, ...]) -> bool:
    said = spaced(tokenize(hint))
    named = [option for option in options if option.tokens and spaced(option.tokens) in said]
    named = [one for one in named if not any(one is not two and _inside(one, two) for two in named)]
    others = [option for option in options if option is not right]
    solid = len("".join(right.tokens)) > 2
    stated = [one for one in options if one.tokens and any(f" {verb}{spaced(one.tokens)}" in said for verb in _STATES)]
    return (solid and [right] in (named, stated)) or (len(others) > 1 and named == others)


def _inside(one: Option, two: Option) -> bool:
    return len(one.tokens) < len(two.tokens) and spaced(one.tokens) in spaced(two.tokens)
