"""Answers that are there for whoever decodes them: reversed, rot13, base64, hexadecimal, binary, Roman numerals."""

from __future__ import annotations

import base64
import binascii
import codecs
import re
from collections.abc import Iterator

from trl_mentor.answer_forms import answer_forms, tokenize

_READ = 4_000
_LONG = 40  # longer answers are not looked for
_CHUNK = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{4,200}={0,2}")
_PREFIXED = re.compile(r"\b0(?:x[0-9a-f]{1,16}|b[01]{1,60}|o[0-7]{1,20})\b", re.IGNORECASE)
_RADIX = ((re.compile(r"\bhex", re.IGNORECASE), 16), (re.compile(r"\bbinary\b|\bbase (?:2|two)\b", re.IGNORECASE), 2))
_BARE = re.compile(r"(?<![\w.])[0-9a-f]{2,16}(?![\w])", re.IGNORECASE)
_BACKWARDS = re.compile(r"backward|revers|right[- ]to[- ]left|mirror", re.IGNORECASE)
_ROMAN = re.compile(r"(?<!\w)(?=[IVXLCDM]{2})M{0,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})(?!\w)")
_ROMAN_WORTH = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}


def is_disguised_in(hint: str, *, question: str, answer: str) -> bool:
    """Whether a word of the hint, decoded, is the answer; what stands in the question as well does not count."""
    cores = {core for form in answer_forms(answer) if 0 < len(core := " ".join(form)) <= _LONG}
    cores |= {core.replace(" ", "") for core in cores}
    read = hint[:_READ]
    numbers = {int(core) for core in cores if core.isdecimal()}
    if any(_is(core, text) for text in _decoded(read) for core in cores):
        return True
    values = {value for value, written in _numbers(read) if written not in question}
    return not numbers.isdisjoint(values) or any(_hidden_word(core, read, question) for core in cores)


def holds_all_words(hint: str, *, question: str, answer: str) -> bool:
    """Whether all words of an answer of two to six words stand in the hint, in any order, and none in the question."""
    words, said = tokenize(answer[:200]), set(tokenize(hint[:_READ]))
    if not 1 < len(words) <= 6 or not all(word.isalpha() and len(word) > 1 for word in words):
        return False
    return said.issuperset(words) and set(tokenize(question[:_READ])).isdisjoint(words)


def _hidden_word(core: str, hint: str, question: str) -> bool:
    compact, said, known = core.replace(" ", ""), hint.casefold(), question.casefold()
    forms: list[str] = []
    if len(compact) >= (5 if compact.isalpha() else 3) and (not compact.isdecimal() or _BACKWARDS.search(hint)):
        forms += [core[::-1], compact[::-1]]
    if len(compact) >= 5 and compact.isalpha():
        forms += [codecs.encode(core, "rot13"), codecs.encode(compact, "rot13")]
    return any(
        form != core and form in said and form not in known and re.search(rf"(?<!\w){re.escape(form)}(?!\w)", said)
        for form in map(str.casefold, forms)
    )


def _is(core: str, text: str) -> bool:
    text = " ".join(text.split()).casefold()
    core = core.casefold()
    return core in text and re.search(rf"(?<![\w.]){re.escape(core)}(?!\w|\.\d)", text) is not None


def _decoded(hint: str) -> Iterator[str]:
    """The texts that base64 and hexadecimal chunks of the hint stand for."""
    for chunk in _CHUNK.findall(hint):
        padded = chunk.rstrip("=").replace("-", "+").replace("_", "/")
        for data in (_base64(padded), _hex(chunk)):
            if data and data.isascii() and (text := data.decode("ascii")).isprintable():
                yield text


def _base64(chunk: str) -> bytes:
    try:
        return base64.b64decode(chunk + "=" * (-len(chunk) % 4), validate=True)
    except binascii.Error:
        return b""


def _hex(chunk: str) -> bytes:
    try:
        return bytes.fromhex(chunk.removeprefix("0x"))
    except ValueError:
        return b""


def _numbers(hint: str) -> Iterator[tuple[int, str]]:
    """Numbers in another radix or in Roman numerals, and how they are written."""
    for written in _PREFIXED.findall(hint):
        yield int(written, 0), written
    for says, radix in _RADIX:
        if says.search(hint):
            for written in _BARE.findall(hint):
                if radix == 16 or not set(written) - {"0", "1"}:
                    yield int(written, radix), written
    for match in _ROMAN.finditer(hint):
        worth = [_ROMAN_WORTH[letter] for letter in match[0]]
        yield sum(-one if one < after else one for one, after in zip(worth, [*worth[1:], 0], strict=True)), match[0]
