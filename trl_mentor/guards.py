"""What the trainer refuses, warns about, or reads off its surroundings at construction."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from trl_mentor.backends.vllm import engines_held, require_vllm
from trl_mentor.errors import ConfigError
from trl_mentor.factory import MENTOR_SETTINGS, STRATEGY_SETTINGS
from trl_mentor.mentor import Mentor
from trl_mentor.records import Weighting
from trl_mentor.rescue import PAPER
from trl_mentor.settings import (
    BackendKind,
    MentorArguments,
    ScheduleKind,
    StrategyKind,
    refuse_ahead,
    refuse_rounds,
    refuse_rounds_ahead,
)
from trl_mentor.strategies.base import Strategy
from trl_mentor.strategy_settings import READERS, StaticHint

logger = logging.getLogger(__name__)

REFUSED_OPTIONS = ("tools", "environment_factory", "rollout_func")
IMAGE_COLUMNS = ("image", "images")
TOPIC_COLUMNS = ("topic", "subject")
ANSWER_COLUMNS = ("answer", "solution")
UNCLIPPED = ("cispo", "sapo", "vespo")
"""Losses of TRL in which `epsilon` is no range of ratios."""
TESTS_COLUMN = "tests"
"""The reference of a programming task, which has no answer: what failed is the mentor's to read (`channel`)."""


def check_arguments(
    given: Mapping[str, Any],
    settings: MentorArguments,
    *,
    mentor: Mentor | None,
    strategy: Strategy | None,
    zero3: bool,
) -> None:
    """Refuse what cannot be trained before a model is loaded.

    `given` are the arguments of `GRPOTrainer` by name; `zero3` says whether DeepSpeed ZeRO-3 is on. Raises
    `ConfigError` and, for options that mentoring does not support, `NotImplementedError`.
    """
    refuse_options(given)
    refuse_second_engine(given.get("args"), named=engines_held() > 0)
    refuse_images(getattr(given.get("train_dataset"), "column_names", None))
    if mentor is not None and not isinstance(mentor, Mentor):
        raise ConfigError(
            f"mentor= must be a Mentor, got {type(mentor).__name__}; wrap a backend: "
            "mentor=Mentor(OpenAIBackend(model, base_url=...))"
        )
    if strategy is not None and not isinstance(strategy, Strategy):
        raise ConfigError(
            f"strategy= must have name, select, prepare, shorten and merge, got {type(strategy).__name__}; see "
            "trl_mentor.strategies.base.Strategy"
        )
    if mentor is not None and strategy is not None:
        raise ConfigError(
            "got both mentor= and strategy=; pass the strategy alone, with the mentor in it: MentorStrategy(mentor)"
        )
    if strategy is None:
        warn_of_unread(settings)
    warn_if_scaled(settings.mentor_strategy if strategy is None else strategy.name, given.get("args"))
    refuse_weighting(weightings(settings, strategy), given.get("args"))
    if strategy is not None:
        refuse_unused_settings(settings, given="strategy", unused=STRATEGY_SETTINGS)
        refuse_arm_without_hint(settings, strategy)
        refuse_construction_ahead(settings, strategy)
        refuse_rounds(settings.max_rounds(), strategy.name)
        refuse_ahead(settings.mentor_schedule, strategy.name)
        refuse_rounds_ahead(settings.mentor_schedule, settings.max_rounds(getattr(strategy, "max_rounds", 1)))
    elif mentor is not None:
        refuse_unused_settings(settings, given="mentor", unused=MENTOR_SETTINGS)
    else:
        if names_mentor(settings, BackendKind.VLLM):
            refuse_second_engine(given.get("args"), named=True)
            require_vllm()
        refuse_local_mentor_under_zero3(settings, zero3=zero3)
        warn_if_ahead_shares_a_device(settings)


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


def refuse_multimodal() -> None:
    """Raise `NotImplementedError` for a processor that handles more than text."""
    raise NotImplementedError(
        "MentorGRPOTrainer trains on text alone, but processing_class is a multimodal processor; if your prompts are "
        "text, pass processing_class=AutoTokenizer.from_pretrained(...)"
    )


def refuse_unused_settings(settings: MentorArguments, *, given: str, unused: Iterable[str]) -> None:
    """Raise `ConfigError` for a setting that an object given to the trainer makes void."""
    defaults = MentorArguments()
    for field in fields(MentorArguments):
        if field.name in unused and getattr(settings, field.name) != getattr(defaults, field.name):
            raise ConfigError(
                f"got both {given}= and {field.name}, which the object does not look at; give it to the object, as "
                f"{field.name.removeprefix('mentor_')}= where it takes one, and leave {field.name} out"
            )


def refuse_construction_ahead(settings: MentorArguments, strategy: Strategy) -> None:
    """Raise `ConfigError` for a strategy with a construction that `ahead` does not follow."""
    construction = getattr(strategy, "construction", PAPER)
    if settings.mentor_schedule == ScheduleKind.AHEAD and construction != PAPER:
        raise ConfigError(
            "mentor_schedule='ahead' trains re-rolled rows as they are, but the strategy's construction is "
            f"{construction}; leave it out, or use mentor_schedule='inline'"
        )


def weightings(settings: MentorArguments, strategy: Strategy | None) -> list[Weighting]:
    """How rows of the run will be weighed by the loss, as far as settings and strategy show it beforehand."""
    name = settings.mentor_strategy if strategy is None else strategy.name
    if strategy is None:
        hinted = settings.method() == StrategyKind.STATIC_HINT
        shaped, affinity = settings.construction().shaped, settings.mentor_affinity if hinted else 0.0
    else:
        shaped, affinity = getattr(strategy, "construction", PAPER).shaped, getattr(strategy, "affinity", 0.0)
    shaped = shaped or name in (StrategyKind.LUFFY, StrategyKind.CRITIQUE)
    return [Weighting.SHAPED] * shaped + [Weighting.AFFINITY] * bool(affinity)


def refuse_weighting(found: Iterable[Weighting], args: Any) -> None:
    """Raise `ConfigError` if rows are to be weighed so and the loss of these arguments has no place for it."""
    kinds = set(found)
    level = getattr(args, "importance_sampling_level", "token")
    if kinds - {Weighting.NONE} and level != "token":
        raise ConfigError(
            f"rows are weighed token by token (luffy, critique, static_hint or mentor_rescue_shaping), but "
            f"importance_sampling_level is {level!r}, with which the loss has one ratio per row; use 'token'"
        )
    if Weighting.AFFINITY not in kinds:
        return
    loss_type, epsilon = getattr(args, "loss_type", "dapo"), getattr(args, "epsilon", 0.2)
    if loss_type in UNCLIPPED:
        raise ConfigError(
            f"mentor_affinity counts the tokens that are not clipped, but loss_type={loss_type!r} clips no ratio at "
            "1 - epsilon and 1 + epsilon; use 'dapo', 'grpo', 'bnpo', 'dr_grpo' or 'luspo', or mentor_affinity 0"
        )
    if epsilon <= 0:
        raise ConfigError(f"mentor_affinity measures drift by epsilon, which must be above 0, got {epsilon}")


def refuse_arm_without_hint(settings: MentorArguments, strategy: Strategy) -> None:
    """Raise `ConfigError` if the second control is asked of a strategy that has hints but no fixed one."""
    lacks_fixed_one = getattr(strategy, "gives_hints", True) and not callable(getattr(strategy, "generic", None))
    if settings.mentor_generic_fraction and lacks_fixed_one:
        raise ConfigError(
            f"mentor_generic_fraction is {settings.mentor_generic_fraction:g}, but strategy {strategy.name!r} has no "
            "method generic(group) that returns the Lesson under a fixed hint; add one (see MentorStrategy.generic), "
            "or use mentor_control_fraction, which needs none"
        )


def refuse_second_engine(args: Any, *, named: bool) -> None:
    """Raise `ConfigError` if the trainer is to hold a vLLM engine beside that of a mentor (`named`)."""
    if named and getattr(args, "use_vllm", False) and getattr(args, "vllm_mode", None) == "colocate":
        raise ConfigError(
            "use_vllm with vllm_mode='colocate' puts the policy's vLLM engine into this process, which cannot hold "
            "the mentor's (mentor_backend='vllm', VLLMBackend) too; serve the mentor (vllm serve MODEL) and use "
            "mentor_backend='openai' with its mentor_base_url, or vllm_mode='server' for the policy"
        )


def names_mentor(settings: MentorArguments, *kinds: BackendKind) -> bool:
    """Whether the settings describe a mentor that runs on one of these kinds of backend."""
    return settings.asks_mentor() and settings.mentor_backend in kinds


def refuse_local_mentor_under_zero3(settings: MentorArguments, *, zero3: bool) -> None:
    """Raise `ConfigError` if one rank alone would load a model while every load is spread over all ranks."""
    if zero3 and names_mentor(settings, BackendKind.TRANSFORMERS, BackendKind.VLLM):
        raise ConfigError(
            f"mentor_backend={settings.mentor_backend!r} loads the mentor on the main process alone, which hangs "
            "under DeepSpeed ZeRO-3; serve the mentor (for example with vllm serve) and use mentor_backend='openai'"
        )


def warn_if_ahead_shares_a_device(settings: MentorArguments) -> None:
    """Say so when hints are written beside training by a model that takes the time of the main process."""
    ahead = settings.mentor_schedule == ScheduleKind.AHEAD
    if ahead and names_mentor(settings, BackendKind.TRANSFORMERS, BackendKind.VLLM):
        logger.warning(
            "trl-mentor: "
            "mentor_schedule='ahead' with mentor_backend=%r: the mentor runs on the device of the main process while "
            "that trains, and all ranks wait for the slowest. Serve the mentor (for example with vllm serve) and use "
            "mentor_backend='openai', or expect slower steps.",
            settings.mentor_backend,
        )


def warn_if_queue_is_small(size: int, *, groups: int) -> None:
    """Say so when a generation batch may collapse to more groups than the queue of `ahead` holds."""
    if size < groups:
        logger.warning(
            "trl-mentor: "
            "mentor_queue_size is %d, but a generation batch has %d groups: of those that collapse at once, the ones "
            "beyond the queue are dropped even while the mentor is idle. Set mentor_queue_size to %d or more.",
            size,
            groups,
            groups,
        )


def answer_candidates(settings: MentorArguments) -> tuple[str, ...]:
    """The columns that may hold reference answers, whether a data set has them or not."""
    chosen = settings.mentor_answer_column
    return ANSWER_COLUMNS if chosen is None else (chosen,)


def answer_columns(settings: MentorArguments, columns: Iterable[str], *, writes: bool = False) -> tuple[str, ...]:
    """Columns in which to look for the reference answer of a data set row.

    Raises `ConfigError` if the chosen one is not among `columns`, and warns if there is neither a candidate nor a
    column of tests, and somebody would read the answer: `writes` says that a mentor writes, whatever the strategy.
    """
    chosen = settings.mentor_answer_column
    candidates = answer_candidates(settings)
    names = list(columns)
    if not set(candidates).isdisjoint(names):
        return candidates
    if chosen is not None:
        raise ConfigError(f"mentor_answer_column is {chosen!r}, but the training data set has the columns {names}")
    if TESTS_COLUMN in names:
        return ()
    if not writes and not settings.reads_answers():
        return ()
    if writes or settings.asks_mentor():
        lost = "the mentor works without the answer and no rule can tell whether a hint gives it away"
    else:
        lost = "a critique says whether an attempt is right and gives no reference answer"
    logger.warning(
        "trl-mentor: the training data set has no %s column, so that %s. Set mentor_answer_column.",
        " or ".join(candidates),
        lost,
    )
    return ()


def topic_columns(settings: MentorArguments, columns: Iterable[str]) -> tuple[str, ...]:
    """Columns in which to look for what a question is about. Raises `ConfigError` if the chosen one is not there."""
    chosen, names = settings.mentor_topic_column, list(columns)
    if chosen is None:
        return TOPIC_COLUMNS
    if chosen not in names:
        raise ConfigError(f"mentor_topic_column is {chosen!r}, but the training data set has the columns {names}")
    return (chosen,)


def check_material(strategy: Strategy, columns: Iterable[str]) -> None:
    """Raise `ConfigError` if the training data set lacks a column that the strategy reads."""
    names = list(columns)
    missing = [column for column in getattr(strategy, "columns", ()) if column not in names]
    if missing:
        setting = getattr(strategy, "column_setting", None)
        otherwise = f", or name the column to read with {setting} (column= of a strategy object)" if setting else ""
        raise ConfigError(
            f"strategy {strategy.name!r} reads the column {missing[0]!r}, but the training data set has the columns "
            f"{names}; add it{otherwise}"
        )


def context_length(config: Any) -> int | None:
    """Tokens that a model of this configuration has positions for, or None if that is not known."""
    scaling = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    if (scaling.get("factor") or 1) > 1:
        return None  # stretched positions: the configured number may be the one before stretching
    length: int | None = getattr(config, "max_position_embeddings", None)
    return length


def warn_if_scaled(strategy: str, args: Any) -> None:
    """Say so when the advantages of LUFFY are not those of its paper."""
    scale = getattr(args, "scale_rewards", "group")
    if strategy == StrategyKind.LUFFY and scale != "none":
        logger.warning(
            "trl-mentor: "
            "mentor_strategy='luffy' with scale_rewards=%r: the paper's advantage is the reward minus the mean of its "
            "group, over no deviation. Set scale_rewards='none' for that, or compare methods at equal scaling.",
            scale,
        )


def warn_of_unread(settings: MentorArguments) -> None:
    """Say which settings the strategy that is named does not read."""
    kind = settings.mentor_strategy
    if kind in (StrategyKind.NONE, StrategyKind.RESAMPLE):
        return
    method = settings.method()
    defaults = MentorArguments()
    chosen = [name for name in READERS if getattr(settings, name) != getattr(defaults, name)]
    unread = [name for name in chosen if method not in READERS[name]]
    if unread:
        logger.warning(
            "trl-mentor: %s: not read by mentor_strategy=%r%s, so that it does nothing here; leave it out, or see "
            "docs/strategies.md for what each strategy reads.",
            ", ".join(unread),
            kind,
            " with mentor_static_hint='prefix'" if method == StaticHint.PREFIX else "",
        )


def warn_if_success_is_a_sum(reward_names: list[str], settings: MentorArguments) -> None:
    """Say so when several rewards are summed to decide success: a format reward would hide every collapse."""
    if len(reward_names) > 1 and not settings.mentor_success_rewards:
        logger.warning(
            "trl-mentor: "
            "a group counts as collapsed when the weighted sum of %s is at most %g in every completion. If one of "
            "them rewards format or punishes length, name the verifier in mentor_success_rewards, or collapse goes "
            "unseen or is seen where there is none.",
            reward_names,
            settings.mentor_success_threshold,
        )
