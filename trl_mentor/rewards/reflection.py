"""SRPO's reward for reflection (arXiv 2506.01713): is the form kept, what did it change, was it to the point?"""

from __future__ import annotations

import asyncio
import functools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trl_mentor.assembly import completion_text
from trl_mentor.collapse import SuccessRule
from trl_mentor.records import Completion
from trl_mentor.rewards.callables import RewardFunction, is_async, name_of

NAME = "reflection"
"""Under which TRL logs the reward."""

FORM = 0.5
"""For a completion that keeps the whole form (the paper's format reward)."""
KEPT_RIGHT, MADE_WRONG, MADE_RIGHT, KEPT_WRONG = 0.25, -0.25, 0.5, 0.0
"""For what reflection made of the first answer (the paper's I_eff). The user's own reward pays for the final answer
beside it, .5 in the paper; the authors' code for verl means to pay the sums .75, -.25, 1 and 0, and by a slip of
operator precedence pays .75, 0, 0 and -.25. The paper's I_ref is in none of its codes, nor here."""
LENGTH = 0.1
"""Most for the length (the paper's alpha)."""
TARGET, LONGEST = 2.0, 2.5
"""Lengths of the whole, as multiples of that of the first thoughts and answer: the best one, and T_max."""

_TAG = re.compile(r"</?(?:think|answer|reflection)>")
_PARTS = ("think", "answer", "reflection", "think", "answer")
_TAGS = [tag for part in _PARTS for tag in (f"<{part}>", f"</{part}>")]


def first_part(text: str) -> str | None:
    """A completion up to the end of its first answer; None unless it keeps the form and has something in each part.

    A chat template may have opened the first thoughts already.
    """
    found = list(_TAG.finditer(text))
    tags = [match[0] for match in found]
    if tags == _TAGS[1:]:
        return first_part(_TAGS[0] + text)
    if tags != _TAGS:
        return None
    inside = [text[found[i].end() : found[i + 1].start()] for i in range(0, len(found), 2)]
    outside = [text[: found[0].start()], text[found[-1].end() :]]
    outside += [text[found[i].end() : found[i + 1].start()] for i in range(1, len(found) - 1, 2)]
    is_kept = all(part.strip() for part in inside) and not any(part.strip() for part in outside)
    return text[: found[3].end()] if is_kept else None


def reward_of(first: bool | None, second: bool | None, *, length: int, first_length: int) -> float:
    """What a completion that keeps the form is paid, where `first` and `second` say whether its answers are right.

    FORM + transition + LENGTH * exp(-(|L - T_target| / (T_max - T_target))^2), L being its length; lengths in any
    unit. An answer that could not be scored has no transition.
    """
    transitions = {
        (True, True): KEPT_RIGHT,
        (True, False): MADE_WRONG,
        (False, True): MADE_RIGHT,
        (False, False): KEPT_WRONG,
    }
    changed = 0.0 if first is None or second is None else transitions[first, second]
    target, longest = TARGET * first_length, LONGEST * first_length
    return FORM + changed + LENGTH * math.exp(-(((length - target) / (longest - target)) ** 2))


class Reflection:
    """The reward function beside those of the user, which it has judge the first answers.

    A completion that does not keep the form is paid nothing. Lengths are counted in characters, the paper's in tokens.
    """

    def __init__(self, judges: Sequence[RewardFunction], rule: SuccessRule) -> None:
        """`rule` says success from one value for each of the judges, the success rewards of the user."""
        self._judges = [_Judge(function) for function in judges]
        self._rule = rule

    def watched(self, function: RewardFunction) -> RewardFunction:
        """The function with its values kept for this reward if it is one of the judges, itself if not."""
        judge = next((judge for judge in self._judges if judge.function is function), None)
        return function if judge is None else judge.watched()

    def function(self) -> RewardFunction:
        """The reward function, which TRL has to call after the watched ones."""

        def reflection(completions: list[Completion], **given: Any) -> list[float]:
            firsts = [first_part(completion_text(completion)) for completion in completions]
            asked = _asked(completions, firsts, given)
            values = [judge.function(**asked) if asked["completions"] else [] for judge in self._judges]
            return self._rewards(completions, firsts, values, [judge.kept(completions) for judge in self._judges])

        async def reflection_later(completions: list[Completion], **given: Any) -> list[float]:
            firsts = [first_part(completion_text(completion)) for completion in completions]
            asked = _asked(completions, firsts, given)
            values = [await judge.asked(asked) if asked["completions"] else [] for judge in self._judges]
            kept = [await judge.kept_later(completions) for judge in self._judges]
            return self._rewards(completions, firsts, values, kept)

        chosen: RewardFunction = reflection
        if any(is_async(judge.function) for judge in self._judges):
            chosen = reflection_later
        chosen.__name__ = NAME
        return chosen

    def _rewards(
        self,
        completions: Sequence[Completion],
        firsts: Sequence[str | None],
        of_first: Sequence[Sequence[Any]],
        of_whole: Sequence[Sequence[Any] | None],
    ) -> list[float]:
        in_form = [row for row, first in enumerate(firsts) if first is not None]
        columns = [
            _column(values, len(in_form), name_of(judge.function))
            for values, judge in zip(of_first, self._judges, strict=True)
        ]
        first = {row: self._rule.succeeded([column[i] for column in columns]) for i, row in enumerate(in_form)}
        wholes = [[math.nan] * len(firsts) if found is None else list(map(_number, found)) for found in of_whole]
        rewards = [0.0] * len(firsts)
        for row in in_form:
            second = self._rule.succeeded([column[row] for column in wholes])
            text = completion_text(completions[row])
            rewards[row] = reward_of(first[row], second, length=len(text.strip()), first_length=len(firsts[row] or ""))
        return rewards


@dataclass(slots=True, eq=False)
class _Judge:
    """A success reward of the user, and what it said of the completions that it was shown last."""

    function: RewardFunction
    _seen: tuple[Any, Any] | None = None

    def watched(self) -> RewardFunction:
        function = self.function
        if is_async(function):

            @functools.wraps(function)
            async def watched_later(**given: Any) -> list[Any]:
                said: asyncio.Future[list[Any] | None] = asyncio.get_running_loop().create_future()
                self._seen = (given["completions"], said)
                values = None
                try:
                    values = list(await function(**given))
                finally:
                    said.set_result(values)
                return values

            watched_later.__name__ = name_of(function)
            return watched_later

        @functools.wraps(function)
        def watched(**given: Any) -> list[Any]:
            self._seen = None
            values = list(function(**given))
            self._seen = (given["completions"], values)
            return values

        watched.__name__ = name_of(function)
        return watched

    async def asked(self, given: dict[str, Any]) -> list[Any]:
        found = self.function(**given)
        return list(await found if is_async(self.function) else found)

    def kept(self, completions: Any) -> list[Any] | None:
        """What it said of these completions; None if it failed on them."""
        seen = self._seen
        found = seen[1] if seen is not None and seen[0] is completions else None
        return found if found is not None and len(found) == len(completions) else None

    async def kept_later(self, completions: Any) -> list[Any] | None:
        if self._seen is not None and isinstance(self._seen[1], asyncio.Future):
            self._seen = (self._seen[0], await self._seen[1])
        return self.kept(completions)


def _asked(completions: Sequence[Completion], firsts: Sequence[str | None], given: dict[str, Any]) -> dict[str, Any]:
    """What a judge is asked about the first answers of those completions that keep the form; it logs nothing."""
    rows = [row for row, first in enumerate(firsts) if first is not None]

    def of_rows(value: Any) -> Any:
        return [value[row] for row in rows] if isinstance(value, list) and len(value) == len(firsts) else value

    shown = [_in_shape(firsts[row] or "", completions[row]) for row in rows]
    silent = {"log_extra": _log_nothing, "log_metric": _log_nothing}
    return {name: of_rows(value) for name, value in given.items()} | silent | {"completions": shown}


def _in_shape(text: str, like: Completion) -> Completion:
    return text if isinstance(like, str) else [{"role": "assistant", "content": text}]


def _log_nothing(name: str, value: Any) -> None:
    pass


def _column(values: Any, rows: int, name: str) -> list[float]:
    found = [_number(value) for value in values]
    if len(found) != rows:
        raise ValueError(f"{name} returned {len(found)} values for {rows} first answers; expected one for each")
    return found


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
