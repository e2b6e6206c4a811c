"""The four agents of section 3.2: a role and what to read from its reply."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from trl_mentor.errors import ReplyError
from trl_mentor.quoting import clean_text
from trl_mentor.records import Quality, Reply, Role, Verdict, VerdictSource

T = TypeVar("T")

MAX_REPLY_CHARS = 20_000
MAX_KEYWORDS = 8
MAX_KEYWORD_CHARS = 200
MAX_CRITIQUE_CHARS = 2_000

_THINKING_START = re.compile(r"<think(?:ing)?>", re.IGNORECASE)
_THINKING_END = re.compile(r"</think(?:ing)?>", re.IGNORECASE)

_BULLET = re.compile(r"\s*(?:[-*+\u2022\u2013]|\(?\d{1,2}[.)])\s+")
_KEYWORD_LABEL = re.compile(r"[\s*_#]*(?:diagnosis|(?:diagnostic )?keywords?)[\s*_]*:[\s*_]*", re.IGNORECASE)
_HINT_LABEL = re.compile(r"[\s*_#>]*(?:(?:new|revised|improved|final) )?hint[*_]*\s*(?::[\s*_]*|\n)", re.IGNORECASE)
_FENCE = re.compile(r"```\w*\n(.*)\n```", re.DOTALL)
_WRAPPERS = (
    ("**", "**"),
    ('"', '"'),
    ("'", "'"),
    ("\u201c", "\u201d"),
    ("<hint>", "</hint>"),
    ("<draft>", "</draft>"),
)

_VERDICT_WORD = re.compile("verdict", re.IGNORECASE)
_VERDICT = re.compile(
    r"^[ \t*_#`\"{(\-\u2022\u2705]*verdict[*_`\"]*[ \t]*[:\uff1a]([^\n,]*)", re.IGNORECASE | re.MULTILINE
)
_CRITIQUE = re.compile(r"\bcritique[^\w\n]*?:(.*?)(?=^[^\w\n]*verdict\b|\Z)", re.IGNORECASE | re.MULTILINE | re.DOTALL)
_CRITIQUE_LABEL = re.compile(r"\bcritique\b", re.IGNORECASE)
_LOW_WORD = re.compile(r"\bLOW\b")
_DECORATION = " \t\r\n*_`\"'.,{}[]()"


@dataclass(frozen=True, slots=True)
class Agent(Generic[T]):
    """A role as a value: its name, which is also its template's, and the parser of its replies."""

    role: Role
    parse: Callable[[str], T]
    accepts_truncated: bool = False
    """Whether a reply that was cut off at the token limit may be used at all."""

    def read(self, reply: Reply) -> T:
        """What the reply says. Raises `ReplyError` if it cannot be read or must not be trusted."""
        if reply.truncated and not self.accepts_truncated:
            raise ReplyError(f"the {self.role} reply was cut off at the token limit; raise the mentor's token limit")
        return self.parse(reply.text)


def parse_diagnosis(text: str) -> tuple[str, ...]:
    """Keywords, most important first: the bulleted lines, else all lines, else the comma-separated parts of one line.

    At most `MAX_KEYWORDS`, each at most `MAX_KEYWORD_CHARS` characters. Raises `ReplyError` if there are none.
    """
    lines = [line for line in _without(_KEYWORD_LABEL, _visible(text)).splitlines() if line.strip()]
    items = [line for line in lines if _BULLET.match(line)] or lines
    if len(items) == 1 and not _BULLET.match(items[0]):
        items = re.split(r"[,;]\s+", items[0])
    keywords: dict[str, str] = {}
    for item in items:
        keyword = " ".join(_without(_BULLET, item).strip(" \t*_`\"'").split())[:MAX_KEYWORD_CHARS]
        if re.search(r"\w", keyword):
            keywords.setdefault(keyword.casefold(), keyword)
    if not keywords:
        raise ReplyError("the diagnosis holds no keyword")
    return tuple(keywords.values())[:MAX_KEYWORDS]


def parse_hint(text: str) -> str:
    """The hint without label, fence or quotation marks around it. Raises `ReplyError` if nothing is left."""
    hint, before = _visible(text), ""
    while hint != before:
        before = hint
        hint = _without(_HINT_LABEL, _unwrapped(hint)).strip()
    if not re.search(r"\w", hint):
        raise ReplyError("the hint is empty")
    return hint


def parse_verdict(text: str) -> Verdict:
    """The one verdict on the lines that begin with `VERDICT:`.

    Raises `ReplyError` if there is none, or several, or another word. What is in doubt is no approval: a reply that
    says HIGH must not speak of a verdict anywhere else (it may be a quoted one), nor say LOW.
    """
    _refuse_verdict_in_thinking(text)
    text = _visible(text)
    lines = _VERDICT.findall(text)
    values = {_CRITIQUE_LABEL.split(line, maxsplit=1)[0].strip(_DECORATION).upper() for line in lines}
    if len(values) != 1 or not values <= set(Quality):
        found = ", ".join(repr(value[:40]) for value in sorted(values)[:4]) or "none"
        raise ReplyError(f"expected one VERDICT: HIGH or VERDICT: LOW, found {found}")
    quality = Quality(values.pop())
    if quality is Quality.HIGH and (len(_VERDICT_WORD.findall(text)) > 1 or _LOW_WORD.search(text)):
        raise ReplyError("expected one VERDICT: HIGH, found more: the reply speaks of another verdict or says LOW too")
    critique = match[1] if (match := _CRITIQUE.search(text)) else ""
    return Verdict(quality, critique.strip(_DECORATION)[:MAX_CRITIQUE_CHARS], VerdictSource.JUDGE)


def _refuse_verdict_in_thinking(text: str) -> None:
    """Raise `ReplyError` for a verdict before a closing tag that was never opened: quoted text may have closed it."""
    before, closing, _ = text.rpartition("</")
    if closing and _THINKING_END.search(text) and not _THINKING_START.search(text) and _VERDICT.search(before):
        raise ReplyError("there is a verdict before the end of a thinking block that was never begun")


def _visible(text: str) -> str:
    """What follows the thinking. Raises `ReplyError` if it is empty, too long, or never stops thinking."""
    text = _THINKING_END.split(clean_text(text))[-1].strip()
    if _THINKING_START.search(text):
        raise ReplyError("the reply ends inside its thinking; raise the mentor's token limit")
    if not text:
        raise ReplyError("the reply is empty")
    if len(text) > MAX_REPLY_CHARS:
        raise ReplyError(f"the reply has {len(text)} characters, more than {MAX_REPLY_CHARS}")
    return text


def _without(start: re.Pattern[str], text: str) -> str:
    return text[match.end() :] if (match := start.match(text)) else text


def _unwrapped(text: str) -> str:
    text = text.strip()
    if fenced := _FENCE.fullmatch(text):
        return fenced[1]
    for start, end in _WRAPPERS:
        inner = text[len(start) : -len(end)]
        if text.startswith(start) and text.endswith(end) and start not in inner and end not in inner:
            return inner
    return text


ATTRIBUTION = Agent(Role.ATTRIBUTION, parse_diagnosis)
GENERATION = Agent(Role.GENERATION, parse_hint, accepts_truncated=True)
JUDGMENT = Agent(Role.JUDGMENT, parse_verdict)
REPAIR = Agent(Role.REPAIR, parse_hint, accepts_truncated=True)
