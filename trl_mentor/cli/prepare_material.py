"""What can be written for a question before a training: how it is asked for, read and checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from trl_mentor.agents import Agent, last_form, parse_hint, plain_schema, visible
from trl_mentor.cli.prepare_rows import Item
from trl_mentor.errors import ReplyError
from trl_mentor.leaks.gate import LeakGate
from trl_mentor.leaks.hint_rules import HintLimits
from trl_mentor.leaks.plain_text import declines, is_plain
from trl_mentor.leaks.rules import LeakRule
from trl_mentor.quoting import clean_text
from trl_mentor.records import Message, Role
from trl_mentor.replies import find_objects
from trl_mentor.templating import TemplateSet

MAX_ENTRIES = 4
"""Entries of each kind in a ladder (Scaf-GRPO, arXiv 2510.19807)."""
MAX_ENTRY_CHARS = 800

_LADDER_LIMITS = HintLimits(max_words=400, max_steps=40)
"""Of four entries together, of which those of the solution are worked steps."""
_NOT_PLAIN = "The solution holds control characters or chat markup: write plain text only."
_DECLINES = "The solution declines to help: write the whole solution."
_WRONG = (
    "A checker judged the solution wrong: it has to arrive at the right answer and to give it, at its end, in exactly "
    "the form that the question asks for."
)
_UNJUDGED = "the reward could not judge it"


class Kind(StrEnum):
    """What is written; the values are also names of templates."""

    HINT = "hint"
    HINTS = "hints"
    DEMONSTRATION = "demonstration"


class Outcome(StrEnum):
    """What became of one text; all but FAILED are final."""

    WRITTEN = "written"
    PARTLY = "partly"  # a ladder of which some entries were refused
    REFUSED = "refused"  # the leak gate let none through
    WRONG = "wrong"  # the reward does not accept it
    UNJUDGED = "unjudged"  # the reward cannot tell
    UNREADABLE = "unreadable"  # no reply could be read
    FAILED = "failed"  # the mentor could not be asked; a repeated command tries again
    KEPT = "kept"  # the row had one already


@dataclass(frozen=True, slots=True)
class Review:
    """What may be kept of a text, and what speaks against the whole of it."""

    value: Any
    """None if nothing may be kept."""
    objection: str | None = None
    outcome: Outcome = Outcome.WRITTEN
    """What it is called, with an objection, if nothing better comes."""
    final: bool = False
    """Whether it is of no use to ask again."""


Judge = Callable[[Mapping[str, Any], str], float | None]
"""The reward of a solution for a row; None if it could not be judged."""


@dataclass(frozen=True, slots=True)
class Material:
    """One column: `agent` reads the replies, `review` says what may be kept."""

    kind: Kind
    column: str
    agent: Agent[Any]
    wanted: str
    """What to reply with, where no schema says it."""
    review: Callable[[Any, Item], Review]
    templates: TemplateSet

    def messages(self, item: Item) -> list[Message]:
        """What the mentor is asked."""
        question = item.told if self.kind is Kind.DEMONSTRATION else item.group.question
        return self.templates.messages(self.kind, {"question": question, "answer": item.group.answer})

    def fits(self, value: Any) -> bool:
        """Whether a value has the type of what is written here: a text, or a list of texts for a ladder."""
        if self.kind is Kind.HINTS:
            return isinstance(value, list) and all(text is None or isinstance(text, str) for text in value)
        return isinstance(value, str)

    def is_there(self, row: Mapping[str, Any]) -> bool:
        """Whether the row has this already."""
        value = row.get(self.column)
        if self.kind is Kind.HINTS:
            return isinstance(value, list) and any(isinstance(text, str) and text.strip() for text in value)
        return isinstance(value, str) and bool(value.strip())


class Ladder(BaseModel):
    """The reply that holds a ladder. More fields than asked for do no harm."""

    model_config = ConfigDict(strict=True, extra="ignore")
    knowledge: list[str]
    planning: list[str]
    solution: list[str]


def parse_ladder(text: str) -> dict[str, list[str]]:
    """The entries of each kind, at most `MAX_ENTRIES`, with their lines. Raises `ReplyError` if there are none."""
    form = last_form(find_objects(visible(text)), Ladder)
    ladder = {name: _entries(getattr(form, name)) for name in Ladder.model_fields}
    if not any(ladder.values()):
        raise ReplyError("the ladder holds no entry")
    return ladder


def _entries(given: Sequence[str]) -> list[str]:
    entries = [clean_text(entry).strip() for entry in given]
    entries = [entry for entry in entries if re.search(r"\w", entry)]
    if any(len(entry) > MAX_ENTRY_CHARS for entry in entries):
        raise ReplyError(f"an entry of the ladder has more than {MAX_ENTRY_CHARS} characters; write it shorter")
    return entries[:MAX_ENTRIES]


def parse_demonstration(text: str) -> str:
    """A solution in free text. Raises `ReplyError` if it is empty or too long."""
    solution = visible(text).strip()
    if not re.search(r"\w", solution):
        raise ReplyError("the solution is empty")
    return solution


def make_materials(
    columns: Mapping[Kind, str],
    domain: str,
    templates_dir: str | Path | None,
    leak_rule: LeakRule | None,
    judge: Judge | None,
    threshold: float,
) -> list[Material]:
    """One material for each column. Raises `TemplateError` for templates that cannot be used."""
    slots = {kind.value: ("question", "answer") for kind in columns}
    required = {kind.value: ("question",) for kind in columns}
    templates = TemplateSet(domain, templates_dir, slots=slots, required=required, stand_in=True)
    gate = LeakGate(domain, HintLimits(), leak_rule)
    ladder_gate = LeakGate(domain, _LADDER_LIMITS, leak_rule)
    made: dict[Kind, tuple[Agent[Any], str, Callable[[Any, Item], Review]]] = {
        Kind.HINT: (Agent(Role.GENERATION, parse_hint), "the hint alone, as plain text", _hint_review(gate)),
        Kind.HINTS: (
            Agent(Role.GENERATION, parse_ladder, schema=plain_schema(Ladder)),
            "",
            _ladder_review(ladder_gate),
        ),
        Kind.DEMONSTRATION: (
            Agent(Role.GENERATION, parse_demonstration),
            "the whole solution and nothing else",
            _solution_review(judge, threshold),
        ),
    }
    return [Material(kind, columns[kind], *made[kind], templates) for kind in Kind if kind in columns]


def _hint_review(gate: LeakGate) -> Callable[[str, Item], Review]:
    def review(hint: str, item: Item) -> Review:
        objection = gate.objection(hint, item.group)
        return Review(hint if objection is None else None, objection, Outcome.REFUSED)

    return review


def _ladder_review(gate: LeakGate) -> Callable[[Mapping[str, Sequence[str]], Item], Review]:
    """Rung k of a kind is the text of its first k entries, on one line; one that is refused is left out of later ones.

    An entry of several lines is looked at as it is, too: code is known by its lines.
    """

    def review(ladder: Mapping[str, Sequence[str]], item: Item) -> Review:
        rungs: list[str] = []
        objections: list[str] = []
        for kind, entries in ladder.items():
            text = ""
            for number, entry in enumerate(entries, start=1):
                longer = " ".join(f"{text} {entry}".split())
                as_it_is = gate.objection(entry, item.group) if "\n" in entry else None
                if objection := as_it_is or gate.objection(longer, item.group):
                    objections.append(f"{kind}, entry {number}: {objection}")
                else:
                    rungs.append(longer)
                    text = longer
        return Review(rungs or None, " ".join(objections) or None, Outcome.PARTLY if rungs else Outcome.REFUSED)

    return review


def _solution_review(judge: Judge | None, threshold: float) -> Callable[[str, Item], Review]:
    def review(solution: str, item: Item) -> Review:
        for found, objection in ((not is_plain(solution), _NOT_PLAIN), (declines(solution), _DECLINES)):
            if found:
                return Review(None, objection, Outcome.REFUSED)
        if judge is None:
            return Review(solution)
        value = judge(item.row, solution)
        if value is None:
            return Review(None, _UNJUDGED, Outcome.UNJUDGED, final=True)
        return Review(solution) if value > threshold else Review(None, _WRONG, Outcome.WRONG)

    return review
