"""What to do with a group, of which most strategies select the collapsed ones: select, prepare, merge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from trl_mentor.records import CollapsedGroup, GroupState, Lesson, Prompt, Row


@runtime_checkable
class Strategy(Protocol):
    """A named answer to "what do we do with a collapsed group". One small file each.

    In later rounds (`mentor_max_rounds`) `select` is asked again about the re-rolled groups, and `prepare` reads the
    re-rolled completions as attempts. Attributes that a strategy may have besides:

    * `columns`: names of columns of the data set, whose values `CollapsedGroup.material` then has; `column_setting`:
      the setting that names them, for messages;
    * `start_step`, `max_rounds`: what these `mentor_*` settings are where the settings do not say;
    * `gives_hints`: False if no group is ever re-rolled under a hint, which a subclass that gives some has to undo;
      `generic(group)`: the lesson under a fixed hint, which `mentor_generic_fraction` needs of one that gives hints;
    * `routes`: what is done about each cause; `unasked(group)`: a lesson that takes no work, or None, for `ahead`;
    * `mentor`: whom it asks; `construction`: how `merge` builds rows; `affinity`: exponent of `Weighting.AFFINITY`,
      else 1.
    """

    name: str

    def select(self, states: Sequence[GroupState]) -> list[int]:
        """Indices of the groups to act on, ascending. Runs on every rank on equal input and must be deterministic."""
        ...

    def prepare(self, groups: Sequence[CollapsedGroup]) -> list[Lesson]:
        """One lesson per selected group, in order. Runs on the main process only; may be slow, must be bounded."""
        ...

    def shorten(self, group: CollapsedGroup, lesson: Lesson) -> Lesson | None:
        """The same lesson in fewer tokens, or None if there is none; asked when a lesson exceeds the context."""
        ...

    def merge(self, original: Sequence[Row], rerolled: Sequence[Row]) -> list[Row]:
        """The rows to train on, as many as `original`, for one re-rolled group. Pure; runs on every rank.

        `rerolled` are the rows of the last round, in the order of `Lesson.rolls` where the lesson has them.
        """
        ...


@runtime_checkable
class Opening(Protocol):
    """What a strategy has besides if it changes the prompts of the first roll. Rewards see the plain ones."""

    in_evaluation: bool
    """Whether it changes those of evaluation too."""

    def first_prompt(self, prompt: Prompt, example: Mapping[str, Any], *, progress: float) -> Prompt:
        """What to sample under in place of `prompt`, that of this data set row; `progress` is the share of the run's
        optimizer steps that are done. Runs on every rank on its own rows and must be deterministic."""
        ...
