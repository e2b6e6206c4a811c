r"""Where the answer stands in a completion or a reference, decided on the text alone: boxes, phrases, last lines.

Every function is linear in the length of the text, which a policy or a stranger wrote.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from trl_mentor.rewards.words import (
    NUMBER,
    TEXT_COMMAND,
    WRAPPED,
    has_long_words,
    has_words,
    is_two_letters,
    is_words,
    number_in_words,
    number_said,
    with_commands,
)

_BRACES = re.compile(r"\\boxed\s*\{|\\.|[{}]", re.DOTALL)
_PHRASE = re.compile(r"\banswer\b[^\n.:=$]{0,60}?(?:\b(?:is|are)\b|[:=])", re.IGNORECASE)
_CLAUSE_END = re.compile(r"(?<=[^\s.])\.\s|,?\s(?:because|since|as|which|where|so|for)\s")
_SPACING = re.compile(r"\\[!,;: ]|\\(?:left|right|displaystyle)(?![A-Za-z])|[$~]|\s+")
_MIXED = re.compile(r"([-+]?\d+)(?:\s|\\[ ,;!])+(\d+)\s*/\s*(\d+)")
_SPACED = re.compile(r"[-+]?\d{1,3}(?:(?:\\[,;! ]| )\d{3})+(?:\.\d+)?")
_APART = re.compile(r"\d+(?:(?:\s|\\[ ,;!])+\d+)+")
_REPEATING = re.compile(r"([-+]?)(\d{0,9})\.(\d{0,9})\\(?:overline|bar)\s*\{(\d{1,9})\}")
_COUNTED = re.compile(
    r"([-+]?\\?\$?\d[\d,]*(?:\.\d+)?) +(?!(?:and|per|plus|minus|times|over|mod|hundred|dozen)|\w+illion|thousand|pct)"
    r"[A-Za-z]{3,}(?: [A-Za-z]{2,})*"
)
_LONGEST = 200
"""Characters of an answer outside a box; what is longer is no answer but an explanation."""


def final_text(text: str) -> str:
    """What follows the last `</think>`; the whole text where there is none."""
    return text.rpartition("</think>")[2]


def boxes(text: str) -> list[str | None]:
    r"""The contents of every `\boxed{...}` in the order in which they begin; None for one that is not closed."""
    found: list[str | None] = []
    opened: list[tuple[int, int | None]] = []
    for match in _BRACES.finditer(text):
        token = match[0]
        if token == "{":
            opened.append((match.end(), None))
        elif token.startswith("\\boxed"):
            opened.append((match.end(), len(found)))
            found.append(None)
        elif token == "}" and opened:
            start, number = opened.pop()
            if number is not None:
                found[number] = text[start : match.start()]
    return found


def unwrapped(text: str) -> str | None:
    r"""The formula if the text is one formula in `$...$`, `$$...$$`, `\(...\)`, `\[...\]` or `\boxed{...}`."""
    text = text.strip()
    match = WRAPPED.fullmatch(text)
    if match is not None:
        return next(part for part in match.groups() if part is not None).strip()
    contents = boxes(text)
    if len(contents) == 1 and contents[0] is not None and re.fullmatch(r"\\boxed\s*\{.*\}", text, re.DOTALL):
        return contents[0].strip()
    return None


def plain_answer(text: str) -> str | None:
    """The answer of a completion without a box: after `####`, after "the answer is", or as its last formula.

    The last one of each kind counts, so that naming many answers is no better than naming the last. A completion that
    is but a formula, a word or a phrase such as "It is 3." is its own answer. A formula that stood in `$...$` comes
    in `$...$`. None if there is none.
    """
    marked = text.rpartition("####")
    if marked[1]:
        lines = marked[2].strip().splitlines()
        return _bounded(lines[0]) if lines else None
    stated = line_after(_PHRASE, text)
    if stated is not None:
        return _bounded(_CLAUSE_END.split(stated)[0])
    lines = text.strip().splitlines()
    formulas = list(WRAPPED.finditer(text[-2000:]))
    if formulas and not text[-2000:][formulas[-1].end() :].strip(" \n\t.*!"):
        formula = _bounded(next(part for part in formulas[-1].groups() if part is not None))
        return f"${formula}$" if formula else None
    if len(lines) != 1 or len(lines[0]) > _LONGEST:
        return None
    is_short = len(lines[0].split()) == 1 or not has_words(lines[0])
    return _bounded(lines[0]) if is_short else number_said(lines[0])


def line_after(phrase: re.Pattern[str], text: str) -> str | None:
    """The line that follows the last place of a phrase, from there on; None if the text does not have it."""
    end = max((match.end() for match in phrase.finditer(text)), default=None)
    if end is None:
        return None
    lines = text[end:].lstrip(" \t\n\r:*").splitlines()
    return lines[0] if lines else ""


def _bounded(answer: str) -> str | None:
    answer = answer.strip().strip("*`").rstrip(".!;, ").lstrip("= ")
    return answer if answer and len(answer) <= _LONGEST and "\\boxed" not in answer else None


def without_prose(answer: str) -> str | None:
    """The formula in an answer outside a box, such as `42` in "42 apples"; None if words make it ambiguous.

    An answer that names two numbers in words ("5 apples or 6 pears") names none.
    """
    core = unwrapped(answer)
    if core is not None:
        return number_in_words(core) if has_long_words(core) else core
    if is_two_letters(answer):
        return None
    return number_in_words(answer) if has_words(answer) else answer


def is_misread(formula: str) -> bool:
    r"""Whether math-verify makes another number of this: it takes `3 1/2` for 2, `2\,500` for 502, `7 8` for 15."""
    return any(form.fullmatch(formula.strip()) for form in (_MIXED, _SPACED, _APART))


def is_numbers_apart(formula: str) -> bool:
    """Whether these are numbers with nothing but space between them, which says neither 78 nor "7 and 8"."""
    return _APART.fullmatch(formula.strip()) is not None


def cleaned(formula: str) -> str:
    r"""The formula as math-verify understands it.

    Put right are `3 1/2`, `2\,500`, `0.\overline{3}`, `42 dollars`, `\text{5}`, `\varnothing`, `pi`, `**5**` and `5.`.
    """
    formula = formula.strip().rstrip(".;, ").strip().replace("\\varnothing", "\\emptyset")
    formula = with_commands(formula)
    formula = formula[2:-2] if formula.startswith("**") and formula.endswith("**") else formula
    inner = TEXT_COMMAND.fullmatch(formula)
    if inner is not None and NUMBER.fullmatch(inner[1].strip()):
        formula = inner[1].strip()
    if counted := _COUNTED.fullmatch(formula):
        formula = counted[1]
    if _SPACED.fullmatch(formula):
        formula = re.sub(r"\\?[,;! ]", "", formula)
    if mixed := _MIXED.fullmatch(formula):
        return f"{mixed[1]}\\frac{{{mixed[2]}}}{{{mixed[3]}}}"
    if repeating := _REPEATING.fullmatch(formula):
        sign, whole, fixed, period = repeating.groups()
        over = int(whole + fixed + period) - int(whole + fixed or "0")
        return f"{sign}\\frac{{{over}}}{{{10 ** len(fixed) * (10 ** len(period) - 1)}}}"
    return formula


def normal_text(answer: str) -> str:
    """The answer without what changes its looks alone; small letters where it is made of words."""
    for _ in range(2):
        answer = TEXT_COMMAND.sub(r"\1", answer)
    answer = " ".join(_SPACING.sub(" ", answer).split()).strip(" .,;:!*`'\"")
    if is_words(answer):
        answer = answer.casefold()
        answer = answer[1:-1].strip() if re.fullmatch(r"\([^()]*\)", answer) else answer
    return answer


def stated_reference(reference: str | Sequence[str]) -> tuple[str, bool]:
    r"""The reference of a data set, and whether it is one formula rather than a text in which one is to be found.

    Several answers are joined to the list of all of them. Raises `ValueError` for one that is empty.
    """
    if not isinstance(reference, str):
        stated = [stated_reference(part)[0] for part in reference]
        if not stated:
            raise ValueError("it is an empty list")
        return ", ".join(stated), len(stated) > 1 or stated_reference(reference[0])[1]
    text = reference.rpartition("####")[2].strip()
    if not any(character.isalnum() for character in text) and "\\" not in text:
        raise ValueError("it is empty")
    core = unwrapped(text)
    if core is not None:
        return core, True
    bare = not re.search(r"(?<!\\)\$|\\boxed|\\\(|\\\[|\banswer\b", text, re.IGNORECASE)
    return text, bare
