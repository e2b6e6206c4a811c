"""Hidden tests of a program, as the verifier quotes them for the mentor (`trl_mentor.programs`): not for a hint."""

from __future__ import annotations

import re
from functools import lru_cache

_READ = 20_000
_RECOGNISABLE = 8
"""Characters, blanks left out, from which on an input or a result can be nothing but that of the test."""
_QUOTED = re.compile(r"(?m)^hidden test(?: \d{1,6})?: ([^\n]{1,2000})$")
_ASSERT = re.compile(r"assert [\w.]{1,60}\(([^\n]{0,400})\) == ([^\n]{1,400})")
_CALL = re.compile(r"[\w.]{1,60}\(([^\n]{0,400})\): ")
_CUT = "[...]"
_WORD_OR_SIGN = re.compile(r"-?[^\W_]+(?:[._][^\W_]+)*|[^\w\s`\"]")
_STATES = re.compile(
    r"==?|->|\u2192|=>|\b(?:returns?|outputs?|prints?|gives?|yields?|is|be|equals?|expects?|becomes?)\b"
)


def quotes_hidden_test(hint: str, *, question: str, feedback: tuple[str, ...]) -> bool:
    """Whether a hint holds the input or the result of a hidden test, which the question does not show.

    One of them alone where it is long enough to be recognised, both of them where they are short.
    """
    said, known = _plain(hint), _plain(question)
    for given, expected in _tests(feedback):
        if any(_tells(said, known, part) for part in (*given, *expected)):
            return True
        both = given + expected
        if len(both) == 2 and all(_holds(said, part) for part in both) and _STATES.search(said):
            rest = said.replace(f" {given[0]} ", "  ", 1)
            if _holds(rest, expected[0]) and not all(_holds(known, part) for part in both):
                return True
    return False


def _tells(said: str, known: str, part: str) -> bool:
    return len(part.replace(" ", "")) >= _RECOGNISABLE and _holds(said, part) and not _holds(known, part)


@lru_cache(maxsize=64)  # groups that are worked on at once; each asks again for every draft
def _tests(feedback: tuple[str, ...]) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
    """Input and expected result of each quoted test; of one that is cut, its head and its end."""
    found = dict.fromkeys(test for text in feedback for test in _QUOTED.findall(text[:_READ]))
    return tuple(_parts(test) for test in found)


def _parts(test: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if test.startswith("input "):
        given, _, rest = test.removeprefix("input ").partition(", expected ")
        return _pieces(given), _pieces(rest.partition("; ")[0])
    source = test.partition("; ")[0]
    if called := _ASSERT.search(source):
        return _pieces(called[1]), _pieces(called[2])
    alone = _CALL.match(test)
    return _pieces(alone[1] if alone else source), ()


def _pieces(quoted: str) -> tuple[str, ...]:
    return tuple(piece for piece in (_plain(part).strip() for part in quoted.split(_CUT)) if piece)


def _plain(text: str) -> str:
    """Words and signs with one blank between them: however a text is quoted, broken and spaced."""
    unescaped = text[:_READ].replace("\\n", " ").replace("\u2212", "-").replace("'", " ")
    return f" {' '.join(_WORD_OR_SIGN.findall(unescaped))} "


def _holds(said: str, part: str) -> bool:
    return bool(part) and f" {part} " in said
