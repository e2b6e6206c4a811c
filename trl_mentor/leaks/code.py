"""Leaks of a programming task: statements of the reference solution under other names, results of hidden tests,
pseudocode."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain, islice

_READ = 50_000
_WINDOW = 8  # tokens of code in a row that count as copied
_TESTS = 1_000  # of an answer that are looked at
_SIGNS = 3  # of which at least so many are signs
_NAME = re.compile(r"[^\W\d]\w*")
_TOKEN = re.compile(
    r"[^\W\d]\w*|\d+(?:\.\d+)?|\"[^\"\n]{0,80}\"|'[^'\n]{0,80}'|[-+*/%<>=!&|^:]=|\*\*|//|->|&&|\|\||\S"
)
_OPERATORS = frozenset(["=", "==", "!=", "<=", ">=", "<", ">", "+=", "-=", "*=", ":=", "[", "(", "%", "->"])
_FIXED = frozenset(keyword.kwlist) | {name for name in dir(builtins) if name.islower()}
_COMMON = (
    "for i in range(len(a)):",
    "for i in range(n):",
    "for i in range(1, n + 1):",
    "for i, x in enumerate(a):",
    "for (int i = 0; i < n; i++) {",
    "if __name__ == '__main__':",
    "list(map(int, input().split()))",
    "n = int(input())",
    "import sys\ninput = sys.stdin.readline",
)
_LINE = re.compile(
    r"\s{0,40}(?:[-*\u2022]\s|\d{1,2}[.)]\s)?(?:while|for|foreach|repeat|until|loop|if|else|elif|end|return|set|let|do|"
    r"increment|decrement|initiali[sz]e|append|swap|procedure|function|begin|print|output|\w{1,20}\s?(?::=|<-|\u2190))\b",
    re.IGNORECASE,
)
_ONE_LINER = re.compile(r"`\s?(?:return|yield|lambda)\b([^`\n]{8,300})`")
_COMPREHENSION = re.compile(
    r"(?:\breturn\s|=\s?|`|\s(?=\[))[\w.]{0,30}[(\[{][^\n`]{1,120}?\sfor\s\w{1,30}(?:,\s?\w{1,30})?\sin\s"
    r"|\blambda \w{1,20}(?:, \w{1,20}){0,8}:"
)
_ASSIGNS = re.compile(r"(?m)^\s{0,40}\w{1,20}\s?(?::=|<-|\u2190)")
_ASSERT = re.compile(
    r"assert\s{1,20}+(?:\w{1,40}\.)?\w{1,40}\(([^\n]{1,200}?)\)\s{0,20}+(?:==|is)\s{0,20}+([^\n,#]{1,200})"
)
_PAIR = re.compile(
    r"in(?:put)?\"?\s{0,20}+[:=]\s{0,20}+\"?([^\s][^\n]{0,199}?)\"?[,;]?\s{1,4}"
    r"\"?(?:expected |output|out|result)\w{0,8}\"?\s{0,20}+[:=]\s{0,20}+\"?([^\n\"]{1,200})",
    re.IGNORECASE,
)
_JOINS_LEFT = re.compile(r"[\w.-]")
_JOINS_RIGHT = re.compile(r"\w|\.\d")
_STATES = re.compile(
    r"==?|->|\u2192|=>|\b(?:returns?|outputs?|prints?|gives?|yields?|is|be|equals?|expects?|becomes?)\b"
)


def copies_code(hint: str, *, question: str, answer: str) -> bool:
    """Whether the hint holds a stretch of the reference solution, whatever it calls the variables.

    What stands in the question as well and what every program says ("for i in range(n)") does not count.
    """
    said = set(_shingles(hint))
    copied = said and said & set(_shingles(answer))  # which takes long for a long answer, and most hints are prose
    return bool(copied) and not copied <= set(_shingles(question)).union(*(_shingles(idiom) for idiom in _COMMON))


def tells_output(hint: str, *, question: str, answer: str) -> bool:
    """Whether the hint states what a test expects for an input that the question does not show."""
    said, known = _plain(hint), _plain(question)
    for given, expected in _tests(answer):
        told = _holds(said, given) and _holds(said.replace(given, " ", 1), expected)
        if told and _STATES.search(said) and not (_holds(known, given) and _holds(known, expected)):
            return True
    return False


def is_pseudocode(hint: str) -> bool:
    """Whether most lines of the hint, and at least three, are statements, or one statement does all the work."""
    if any(len(_TOKEN.findall(found)) >= _WINDOW for found in _ONE_LINER.findall(hint[:_READ])):
        return True
    if _COMPREHENSION.search(hint[:_READ]):
        return True
    lines = [line for line in re.split(r"[\n;]", hint[:_READ]) if line.strip()]
    statements = sum(1 for line in lines if _LINE.match(line))
    return (statements >= 3 and 2 * statements > len(lines)) or len(_ASSIGNS.findall(hint[:_READ])) > 1


def _shingles(text: str) -> Iterator[tuple[str, ...]]:
    """Every window of code tokens, its names numbered in order of appearance but for keywords and builtins."""
    tokens = _TOKEN.findall(text[:_READ].replace("`", " "))
    for at in range(len(tokens) - _WINDOW + 1):
        window = tokens[at : at + _WINDOW]
        signs = sum(1 for token in window if not token[0].isalnum() and token[0] not in "_\"'")
        if signs >= _SIGNS and not _OPERATORS.isdisjoint(window):
            yield _renamed(window)


def _renamed(window: list[str]) -> tuple[str, ...]:
    names: dict[str, str] = {}
    return tuple(
        names.setdefault(token, f"${len(names)}") if _NAME.fullmatch(token) and token not in _FIXED else token
        for token in window
    )


@lru_cache(maxsize=64)  # groups that are worked on at once; each asks again for every draft
def _tests(answer: str) -> tuple[tuple[str, str], ...]:
    """Input and expected output of each test that the answer holds, of many the first."""
    read = answer[:_READ]
    found = islice(chain(_ASSERT.finditer(read), _PAIR.finditer(read)), _TESTS)
    return tuple((_plain(test[1]), _plain(test[2])) for test in found)


def _plain(text: str) -> str:
    return " ".join(text[:_READ].replace("\u2212", "-").replace("`", " ").split()).strip(" .;")


def _holds(text: str, part: str) -> bool:
    """Whether the part stands in the text and is no part of a longer word or number."""
    at = text.find(part) if part else -1
    while at >= 0:
        if not _JOINS_LEFT.match(text[at - 1 : at]) and not _JOINS_RIGHT.match(text[at + len(part) :][:2]):
            return True
        at = text.find(part, at + 1)
    return False
