"""Reward functions as TRL calls them, outside a training: every argument it passes, one value per completion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trl_mentor.cli.check_process import UserCodeError, UserProcess
from trl_mentor.collapse import SuccessRule
from trl_mentor.guards import ANSWER_COLUMNS, TESTS_COLUMN

_GIVEN = frozenset(
    {"prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric", "environments"}
)
"""What TRL hands to every reward function besides the columns of the data set."""

_OWN_NEEDS: Mapping[str, tuple[str, ...]] = {
    "math_reward": ANSWER_COLUMNS,
    "choice_reward": ("answer",),
    "code_reward": (TESTS_COLUMN,),
    "code_fraction_reward": (TESTS_COLUMN,),
}
"""Columns of which a reward of this package needs one, whatever has a default in its signature."""


@dataclass(frozen=True, slots=True)
class Scored:
    """What the reward functions say about some completions."""

    successes: list[float]
    """The success reward of each completion; NaN where it could not be scored."""
    seconds: float
    """Of the slowest function, for all of them."""
    slowest: str
    rewards: list[tuple[float, ...]]
    """What each function says, by completion."""
    reported: list[dict[str, Any]]
    """What the functions reported about each completion through `log_extra`."""


class RewardError(Exception):
    """A reward function raised, or returned something else than one number or None for each completion."""


@dataclass(frozen=True, slots=True)
class LoadedReward:
    """A reward function that waits in the process of the user's code."""

    process: UserProcess
    index: int
    """Its place among those that the process has loaded."""
    name: str
    """The name under which TRL logs it."""
    required: Sequence[str]
    """Its parameters without a default."""
    own: bool
    """Whether it is one of this package's."""

    @property
    def needs(self) -> list[tuple[str, ...]]:
        """The columns that it asks for; of those in one tuple any will do."""
        if self.own and self.name in _OWN_NEEDS:
            return [_OWN_NEEDS[self.name]]
        return [(name,) for name in self.required if name not in _GIVEN]

    @property
    def judges_programs(self) -> bool:
        return (TESTS_COLUMN,) in self.needs


def success_rule(rewards: Sequence[LoadedReward], training: Any) -> SuccessRule:
    """The rule of the training. Raises `ConfigError` for `mentor_success_rewards` that are not among the rewards."""
    names = [reward.name for reward in rewards]
    weights = training.reward_weights or [1.0] * len(names)
    return SuccessRule.from_names(
        names,
        weights=weights,
        success_rewards=training.mentor_success_rewards or (),
        threshold=training.mentor_success_threshold,
    )


def score(
    rewards: Sequence[LoadedReward], rule: SuccessRule, rows: Sequence[Mapping[str, Any]], texts: Sequence[str]
) -> Scored:
    """Score one text for each row. Raises `RewardError`, and `UserCodeError` with the name of the function."""
    answers = [ask(reward, rows, texts) for reward in rewards]
    values = list(zip(*(answer["values"] for answer in answers), strict=True))
    seconds, name = max((a["seconds"], reward.name) for reward, a in zip(rewards, answers, strict=True))
    reported = [_joined(of_row) for of_row in zip(*(answer["reported"] for answer in answers), strict=True)]
    return Scored([rule.value(row) for row in values], seconds, name, values, reported)


def _joined(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What several functions report about one completion; texts in one column stand below each other."""
    joined: dict[str, Any] = {}
    for name, value in (item for report in reports for item in report.items() if item[1] is not None):
        both = isinstance(value, str) and isinstance(joined.get(name), str)
        joined[name] = f"{joined[name]}\n{value}" if both else value
    return joined


def ask(reward: LoadedReward, rows: Sequence[Mapping[str, Any]], texts: Sequence[str]) -> dict[str, Any]:
    """What `UserCode.score` answers for one function. Raises `RewardError` and `UserCodeError` with its name."""
    try:
        answer = reward.process.ask("score", reward.index, rows, texts)
    except UserCodeError as ended:
        raise UserCodeError(f"{reward.name} {ended}") from None
    if "error" in answer:
        raise RewardError(f"{reward.name} {answer['error']}")
    return answer
