"""SRPO's reward put beside those that a trainer is given."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

from torch import nn

from trl_mentor.collapse import SuccessRule
from trl_mentor.errors import ConfigError
from trl_mentor.rewards.callables import name_of
from trl_mentor.rewards.reflection import NAME, Reflection
from trl_mentor.settings import MentorArguments, StrategyKind
from trl_mentor.strategies.base import Strategy
from trl_mentor.strategies.srpo import SrpoStrategy


def pays_reflection(settings: MentorArguments, strategy: Strategy | None) -> bool:
    """Whether the strategy of a run, given or named, is SRPO."""
    if strategy is not None:
        return isinstance(strategy, SrpoStrategy)
    return settings.mentor_strategy == StrategyKind.SRPO


def add_reflection(given: dict[str, Any], settings: MentorArguments) -> list[str]:
    """Put the reward for reflection last among the arguments of `GRPOTrainer`, with a weight of 1.

    Returns the names of the user's success rewards, which judge first answers too. The user's own objects stay as they
    are. Raises `ConfigError` if one of these rewards is a model, which cannot be asked by itself.
    """
    functions = given.get("reward_funcs")
    functions = list(functions) if isinstance(functions, list | tuple) else [functions]
    names = [_name(function) for function in functions]
    if None in functions:
        raise ConfigError("mentor_strategy='srpo' needs a reward function that judges answers; got no reward_funcs")
    if NAME in names:
        raise ConfigError(
            f"a reward function is called {NAME!r}, as the one that mentor_strategy='srpo' adds; give it another name"
        )
    args = given.get("args")
    weights = getattr(args, "reward_weights", None)
    if weights is None:
        weights = [1.0] * len(names)
    elif len(weights) != len(names):
        raise ConfigError(f"reward_weights has {len(weights)} numbers for the {len(names)} reward functions {names}")
    else:
        given["args"] = copy(args)
        given["args"].reward_weights = [*weights, 1.0]
    chosen = settings.mentor_success_rewards or ()
    threshold = settings.mentor_success_threshold
    columns = SuccessRule.from_names(names, weights=weights, success_rewards=chosen, threshold=threshold).chosen
    judging = columns or tuple(range(len(names)))
    _refuse_models([(names[i], functions[i]) for i in judging])
    rule = SuccessRule(
        tuple(weights[i] for i in judging), tuple(range(len(judging))) if columns else (), threshold=threshold
    )
    reflection = Reflection([functions[i] for i in judging], rule)
    given["reward_funcs"] = [*map(reflection.watched, functions), reflection.function()]
    classes = given.get("reward_processing_classes")
    if classes is not None:
        given["reward_processing_classes"] = [*(classes if isinstance(classes, list) else [classes]), None]
    return [names[i] for i in judging]


def _refuse_models(judges: Sequence[tuple[str, Any]]) -> None:
    for name, function in judges:
        if isinstance(function, str | nn.Module):
            raise ConfigError(
                f"mentor_strategy='srpo' has the success rewards judge first answers, but {name!r} is a reward model; "
                "name reward functions in mentor_success_rewards"
            )


def _name(function: Any) -> str:
    """The name under which TRL logs it."""
    if isinstance(function, nn.Module):
        function = str(getattr(function.config, "_name_or_path", ""))
    return function.split("/")[-1] if isinstance(function, str) else name_of(function)
