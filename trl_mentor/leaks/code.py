"""Leaks of a programming task: statements of the reference solution under other names, results of hidden tests,
pseudocode."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterator

_READ = 50_000
_WINDOW = 8  # tokens of code in a row that count as copied
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
_ASSERT = re.compile(r"assert\s+(?:\w+\.)?(\w+)\((.{1,200}?)\)\s*(?:==|is)\s*([^\n,#]{1,200})")
_PAIR = re.compile(
    r"(?:input|in)\"?\s*[:=]\s*\"?([^\n]{1,200}?)\"?[,;]?\s{1,4}"
    r"\"?(?:expected |output|out|result)\w{0,8}\"?\s*[:=]\s*\"?([^\n\"]{1,200})",
    re.IGNORECASE,
)
_STATES = re.compile(
    r"==?|->|\u2192|=>|\b(?:returns?|outputs?|prints?|gives?|yields?|is|be|equals?|expects?|becomes?)\b"
)


def copies_code(hint: str, *, question: str, answer: str) -> bool:
    """Whether the hint holds a stretch of the reference solution, whatever it calls the variables.

    What stands in the question as well and what every program says ("for i in range(n)") does not count.
    """
    known = set(_shingles(question)).union(*(_shingles(idiom) for idiom in _COMMON))
    return not (set(_shingles(hint)) & set(_shingles(answer))) <= known


def tells_output(hint: str, *, question: str, answer: str) -> bool:
    """Whether the hint states what a test expects for an input that the question does not show."""
    said, known = _plain(hint), _plain(question)
    for given, expected in _tests(answer):
        shown = _holds(known, given) and _holds(known, expected)
        if (
            not shown
            and _holds(said, given)
            and _holds(said.replace(given, " ", 1), expected)
            and _STATES.search(said)
        ):
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


def _tests(answer: str) -> Iterator[tuple[str, str]]:
    """Input and expected output of each test that the answer holds."""
    for _, given, expected in _ASSERT.findall(answer[:_READ]):
        yield _plain(given), _plain(expected)
    for given, expected in _PAIR.findall(answer[:_READ]):
        yield _plain(given), _plain(expected)


def _plain(text: str) -> str:
    return " ".join(text[:_READ].replace("\u2212", "-").replace("`", " ").split()).strip(" .;")


def _holds(text: str, part: str) -> bool:
    return bool(part) and re.search(rf"(?<![\w.-]){re.escape(part)}(?![\w]|\.\d)", text) is not None
