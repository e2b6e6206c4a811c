r"""Words in an answer: they are told from formulas, so that their letters never become factors of a product.

Every function is linear in the length of the text.
"""

from __future__ import annotations

import re

WRAPPED = re.compile(
    r"\$\$([^$]+)\$\$|\$((?:\\\$|[^$\n])+)\$|\\\(((?:(?!\\[()]).)+)\\\)|\\\[((?:(?!\\[\[\]]).)+)\\\]", re.DOTALL
)
"""A formula in `$...$` or another pair of marks."""
TEXT_COMMAND = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mbox|operatorname)\s*\{([^{}]*)\}")
NUMBER = re.compile(r"[-+]?\$?\d(?:[\d,]*\d)?(?:\.\d+)?(?:\s*/\s*\d+)?\s*%?")

_FUNCTIONS = "arcsin|arccos|arctan|sinh|cosh|tanh|sin|cos|tan|cot|sec|csc|log|ln|exp|pi"
_UNMARKED = re.compile(rf"(?<![\\A-Za-z{{])({_FUNCTIONS})(?![A-Za-z])")
_RUN = re.compile(rf"(?<![\\A-Za-z])(?!(?:and|or|sqrt|inf|infty|{_FUNCTIONS})(?![a-z]))[A-Za-z]{{2,}}")
_WORDS = re.compile(r"(?i:no)|(?=.*(?:[^\W\d_]{3}|[^\W\d_a-zA-Z]))[^\W_](?:[^\W_]|[\s,.'\"()/:;&-])*", re.DOTALL)
_COMMON = re.compile(r"(?i:am|an|as|at|be|by|do|go|he|hi|if|in|is|it|me|my|no|of|oh|ok|on|so|to|up|us|we)")
_OPERATORS = frozenset("+-*/^_=<>(){}[],;|")
_FORMULA = re.compile(r"[+*/^\\<>_{}\[\]|]")
_BEFORE = re.compile(
    rf"\b(?:not|never|cannot|nor)\b|n't\b|\b(?:minus|negative|root of|sqrt|{_FUNCTIONS})\s*$|[\w)-]\(?$", re.IGNORECASE
)
_AFTER = re.compile(
    rf"[\w(-]|\s*(?:\w+illion|thousand|hundred|dozen|squared|cubed|factorial|plus|minus|times|over|sqrt|{_FUNCTIONS})\b",
    re.IGNORECASE,
)
"""What makes another number of the one that stands there, or denies it."""
_SAID = re.compile(
    r"^(?:(?:so|thus|hence|therefore|then|it|this|that|[a-z]),? )*(?:it's|that's|is|are|equals|[a-z]? ?=)? *",
    re.IGNORECASE,
)

_READ = 2000
"""Characters in which words are looked for."""


def is_words(answer: str) -> bool:
    r"""Whether this is said in words, as `\text{even}`, "No" and "June 20" are, not in a formula."""
    return _WORDS.fullmatch(TEXT_COMMAND.sub(r"\1", answer)) is not None


def is_two_letters(answer: str) -> bool:
    """Whether this may be `xy` as well as a word, so that only the same two letters are equal to it."""
    return len(answer) == 2 and _RUN.fullmatch(answer) is not None and not _is_common(answer)


def _is_common(letters: str) -> bool:
    """Whether these two letters, unlike the segment `AM`, are a word such as "am", which answers nothing."""
    return _COMMON.fullmatch(letters) is not None and not letters.isupper()


def has_long_words(text: str) -> bool:
    r"""Whether three or more letters stand together outside `\text{}` that name no function: words in any place."""
    return any(len(run) > 2 for run in _RUN.findall(TEXT_COMMAND.sub("", text)))


def has_words(text: str) -> bool:
    """Whether words stand outside of what is marked as a formula; two letters are none in a sum, as in `2xy + yz`."""
    text = WRAPPED.sub("0", TEXT_COMMAND.sub("", text[:_READ]))
    return any(
        len(run[0]) > 2
        or _is_common(run[0])
        or not _is_factor(text[max(0, run.start() - 9) : run.start()], text[run.end() : run.end() + 9])
        for run in _RUN.finditer(text)
    )


def _is_factor(before: str, after: str) -> bool:
    """Whether what stands around two letters makes them a product: both sides end or are an operator."""
    before, after = before.rstrip()[-1:], after.lstrip()[:1]
    return (not before or before in _OPERATORS or before.isdigit()) and (not after or after in _OPERATORS)


def number_in_words(text: str) -> str | None:
    """The one number of a text of words; None for several, and for one that is denied, multiplied or in a formula."""
    text = TEXT_COMMAND.sub(r" \1 ", text).replace("\\$", "$").replace("\\%", "%").replace("**", "")
    found = list(NUMBER.finditer(text))
    if len(found) != 1:
        return None
    number, start = found[0][0].strip(), found[0].start()
    before, after = text[:start], text[start + len(number) :]
    is_clear = not (_FORMULA.search(before + after) or _BEFORE.search(before) or _AFTER.match(after))
    return number if is_clear else None


def number_said(text: str) -> str | None:
    """The number of a short text that says nothing else, unless a unit of two letters: "It is 3.", "so x = 3 cm"."""
    number = number_in_words(text)
    rest = _SAID.sub("", text, count=1).rstrip(" .!")
    return number if number and re.fullmatch(rf"{re.escape(number)}(?: [A-Za-z]{{2}})?", rest) else None


def with_commands(formula: str) -> str:
    r"""The formula with `\pi` for "pi", and so for functions, which math-verify takes for products of letters."""
    return _UNMARKED.sub(r"\\\1", formula)
