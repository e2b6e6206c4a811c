"""The letter of an option in a completion, for questions with options."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from trl_mentor.assembly import completion_text
from trl_mentor.errors import ConfigError
from trl_mentor.records import Completion
from trl_mentor.rewards.judgement import Judgement, check_rows, told
from trl_mentor.rewards.reading import boxes, final_text, line_after

_OPEN = r"(?:\\(?:text|textbf|mathrm|mathbf|boldsymbol)\s*\{|[(\[{*_`$\s\"']|\\[(\[])*"
_CLOSE = r"(?:[)\]}*_`$\s\"']|\\[)\]])*"
_MARKED = r"[)\]}*_`$]*[.:)\]]"
_ALONE = re.compile(
    rf"{_OPEN}(?:(?:option|choice|answer)\b[\s:]*{_OPEN})?([A-J])(?:{_CLOSE}[.:,]?\s*|{_MARKED}\s*(\S.*))",
    re.DOTALL | re.IGNORECASE,
)
_PHRASE = re.compile(
    r"(?:\banswer\b|\b(?:correct|right|best|final)\s+(?:option|choice|letter)\b)"
    r"[^\n.:=]{0,40}?(?:\b(?:is|are)\b|[:=])",
    re.IGNORECASE,
)
_NAMED = re.compile(
    rf"{_OPEN}(?i:(?:option|choice)\b[\s:]*)?{_OPEN}"
    rf"(?:([A-J])(?={_MARKED}|[,;]|\s*$)|([B-HJ])(?=[\s*])|([A-J])(?=\s+(?:because|since|as|for|or|and|which)\b))"
)
_ANOTHER = re.compile(rf"{_CLOSE}(?:[,;/&]|\b(?:or|and)\b){_OPEN}(?:or\s+|and\s+)?{_OPEN}([A-J])(?![A-Za-z])")
_LISTED = re.compile(rf"[,;]\s*{_OPEN}([A-J])[.):]")
_LONGEST = 400
"""Characters of a line in which a letter is looked for: what these expressions cost grows with the square of it."""
_NO_ANSWER = "No single option was found as the final answer; give one letter in \\boxed{}."


def choice_reward(
    completions: Sequence[Completion],
    answer: Sequence[str] | None = None,
    log_extra: Callable[[str, list[Any]], None] | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """1.0 for a completion whose final answer is the letter of the option in `answer`, else 0.0.

    Raises `ConfigError` without `answer`, and for what is not a list with one value for each completion.
    """
    if answer is None:
        raise ConfigError(
            "choice_reward got no `answer`: the data set needs this column with the letter of the right option; "
            "rename the column that has it"
        )
    check_rows("choice_reward", completions=completions, answer=answer)
    return told(judge_choices([completion_text(completion) for completion in completions], answer), log_extra)


def judge_choices(texts: Sequence[str], letters: Sequence[str]) -> list[Judgement]:
    """A judgement for every text against the letter of the right option, in order."""
    check_rows("judge_choices", texts=texts, letters=letters)
    return [_judged(text, letter) for text, letter in zip(texts, letters, strict=True)]


def _judged(text: str, letter: Any) -> Judgement:
    right = letter_of(letter) if isinstance(letter, str) else None
    if right is None:
        return Judgement(None, error=f"the reference answer {str(letter)[:80]!r} is not a letter from A to J")
    chosen = final_letter(text)
    if chosen is None:
        return Judgement(0.0, feedback=_NO_ANSWER)
    return Judgement(1.0 if chosen == right else 0.0, answer=chosen)


def final_letter(text: str) -> str | None:
    r"""The letter of the option that a completion ends with; None without one, or with two different ones.

    Looked for after any `</think>`: in the boxes from the line on in which the last one begins, after the last "the
    answer is", then as a last or first line that is but an option.
    """
    text = final_text(text)
    if any(content is not None for content in boxes(text)):
        last_line = text.rfind("\n", 0, text.rfind("\\boxed")) + 1
        letters = {letter_of(content or "") for content in boxes(text[last_line:])}
        return letters.pop() if len(letters) == 1 else None
    stated = line_after(_PHRASE, text)
    if stated is not None:
        return _named_letter(stated)
    lines = [line for line in text.splitlines() if line.strip()]
    return next((letter for line in (*lines[-1:], *lines[:1]) if (letter := letter_of(line))), None)


def letter_of(text: str) -> str | None:
    """The letter of a text that is one option: `B`, `(b)`, `**B**`, `B. Paris`; None for "A good way" and "A or B"."""
    found = _ALONE.fullmatch(text.strip()[:_LONGEST].strip())
    if found is None:
        return None
    rest = found[2] or ""
    others = {other.upper() for other in _LISTED.findall(rest)}
    return found[1].upper() if others <= {found[1].upper()} else None


def _named_letter(stated: str) -> str | None:
    """The letter at the beginning of what follows "the answer is"."""
    alone = letter_of(stated)
    if alone is not None:
        return alone
    stated = stated[:_LONGEST]
    found = _NAMED.match(stated)
    if found is None:
        return None
    letter = next(group for group in found.groups() if group)
    another = _ANOTHER.match(stated, found.end())
    return letter if another is None or another[1] == letter else None
