"""What the trainer refuses at construction, and what it resolves there."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from trl_mentor.errors import ConfigError
from trl_mentor.settings import MentorArguments

logger = logging.getLogger(__name__)

REFUSED_OPTIONS = ("tools", "environment_factory", "rollout_func")
IMAGE_COLUMNS = ("image", "images")
ANSWER_COLUMNS = ("answer", "solution")


def refuse_options(given: Mapping[str, Any]) -> None:
    """Raise `NotImplementedError` for a trainer argument that mentoring does not support."""
    for option in REFUSED_OPTIONS:
        if given.get(option):
            raise NotImplementedError(
                f"MentorGRPOTrainer does not support {option!r}: a collapsed group is re-rolled as one plain turn of "
                "text. Train with GRPOTrainer, or without this option"
            )


def refuse_images(columns: Iterable[str] | None) -> None:
    """Raise `NotImplementedError` if the data set has image columns."""
    for column in IMAGE_COLUMNS:
        if column in (columns or ()):
            raise NotImplementedError(
                f"MentorGRPOTrainer does not support images, but the training data set has a column {column!r}; "
                "remove the column or train with GRPOTrainer"
            )


def refuse_two_mentors(settings: MentorArguments) -> None:
    """Raise `ConfigError` if a mentor object and the settings of another one are both given."""
    for name in ("mentor_model", "mentor_base_url"):
        if getattr(settings, name) is not None:
            raise ConfigError(
                f"got both mentor= and {name}={getattr(settings, name)!r}; the object already has its endpoint, "
                "so remove one of the two"
            )


def answer_column(settings: MentorArguments, columns: Iterable[str] | None) -> str | None:
    """Column with the reference answer, or None if the data set has none.

    `columns` is None for a stream whose columns are not known: then it is looked up in each row. Raises `ConfigError`
    if the chosen one is missing.
    """
    chosen = settings.mentor_answer_column
    if columns is None:
        return chosen or ANSWER_COLUMNS[0]
    names = list(columns)
    if chosen is not None and chosen not in names:
        raise ConfigError(f"mentor_answer_column is {chosen!r}, but the training data set has the columns {names}")
    found = chosen or next((name for name in ANSWER_COLUMNS if name in names), None)
    if found is None:
        logger.warning(
            "The training data set has no %s column, so the mentor diagnoses without the answer and no rule can tell "
            "whether a hint gives it away. Set mentor_answer_column.",
            " or ".join(ANSWER_COLUMNS),
        )
    return found


def warn_if_success_is_a_sum(reward_names: list[str], settings: MentorArguments) -> None:
    """Say so when several rewards are summed to decide success: a format reward would hide every collapse."""
    if len(reward_names) > 1 and not settings.mentor_success_rewards:
        logger.warning(
            "A group counts as collapsed when the weighted sum of %s is at most %g in every completion. If one of "
            "them rewards format, name the verifier in mentor_success_rewards, or collapse goes unseen.",
            reward_names,
            settings.mentor_success_threshold,
        )
