"""What a policy in training can be sampled under, and what is said the first time that a strategy wants more."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from trl_mentor.fitting import Objection, fitted_openings, objection
from trl_mentor.records import Lesson, Prompt

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Limits:
    """The rooms are numbers of tokens, as `fitting.objection` takes them."""

    strategy: str
    """Its name, for warnings."""
    special_tokens: Sequence[str]
    count_tokens: Callable[[Prompt], int]
    context_room: float
    engine_room: float
    completion_room: float
    _told: set[str] = field(default_factory=set)

    def objection(self, lesson: Lesson, original: Prompt) -> Objection | None:
        """What speaks against re-rolling the policy under a lesson, or None."""
        return objection(
            lesson,
            original,
            special_tokens=self.special_tokens,
            count_tokens=self.count_tokens,
            context_room=self.context_room,
            engine_room=self.engine_room,
            completion_room=self.completion_room,
        )

    def lesson_objection(self, lesson: Lesson, original: Prompt) -> Objection | None:
        """As `objection`; the first that no mentor hears of is warned about."""
        found = self.objection(lesson, original)
        if found is not None and lesson.guidance is None:
            self._tell_once(
                "trl-mentor: the policy cannot take all that strategy %r has for a group: %s. It is shortened or left "
                "out, and a group for which nothing is left stays as it is; the journal says what became of each that "
                "collapsed. This is said once.",
                found,
            )
        return found

    def opened(self, plain: Sequence[Prompt], wanted: Sequence[Prompt]) -> list[Prompt]:
        """The wanted prompts of first rolls, or the plain ones where the policy cannot take those."""
        found, refused = fitted_openings(plain, wanted, self.objection, special_tokens=self.special_tokens)
        if refused is not None:
            self._tell_once(
                "trl-mentor: a prompt is sampled without what strategy %r adds to it: %s. mentor/opened_rows counts "
                "those that are sampled with it.",
                refused,
            )
        return found

    def _tell_once(self, message: str, found: Objection) -> None:
        if message not in self._told:
            self._told.add(message)
            logger.warning(message, self.strategy, found.reason)
