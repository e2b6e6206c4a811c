"""The objects that a trainer works with, made from its settings."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from trl_mentor.books import Books
from trl_mentor.causes import format_columns
from trl_mentor.collapse import SuccessRule
from trl_mentor.config import check_deadline
from trl_mentor.dosage import Decay, Dosage
from trl_mentor.factory import build_schedule, build_strategy
from trl_mentor.guards import warn_if_queue_is_small, warn_if_success_is_a_sum
from trl_mentor.journal import JOURNAL_PATH, Journal
from trl_mentor.mentor import Mentor
from trl_mentor.probe import Prober
from trl_mentor.records import RunInfo
from trl_mentor.refill import Refill
from trl_mentor.reply_cache import CACHE_DIR
from trl_mentor.schedules import Ahead, Schedule
from trl_mentor.settings import MentorArguments, ScheduleKind, StrategyKind
from trl_mentor.strategies.base import Strategy
from trl_mentor.strategies.mentor import mentor_of
from trl_mentor.trial import Trial

if TYPE_CHECKING:
    from trl_mentor.grpo_trainer import MentorGRPOTrainer


def read_rewards(
    names: list[str], weights: Sequence[float], settings: MentorArguments
) -> tuple[SuccessRule, tuple[int, ...]]:
    """The rule of success, and the columns of the rewards that pay for form."""
    success_rewards = settings.mentor_success_rewards or ()
    warn_if_success_is_a_sum(names, settings)
    rule = SuccessRule.from_names(
        names, weights=weights, success_rewards=success_rewards, threshold=settings.mentor_success_threshold
    )
    return rule, format_columns(names, settings.mentor_format_rewards, success_rewards)


def make_strategy(trainer: MentorGRPOTrainer, settings: MentorArguments, mentor: Mentor | None) -> Strategy:
    """The strategy that the settings name."""
    accelerator = trainer.accelerator
    cache_dir = Path(trainer.args.output_dir) / CACHE_DIR
    refills = settings.mentor_strategy == StrategyKind.DAPO and settings.mentor_dapo_refill
    return build_strategy(
        settings,
        mentor,
        is_main=accelerator.is_main_process,
        device=str(accelerator.device),
        cache_dir=cache_dir,
        fresh=Refill(trainer.train_dataset, seed=trainer.args.seed) if refills else None,
    )


def make_schedule(trainer: MentorGRPOTrainer, settings: MentorArguments) -> Schedule:
    """When collapsed groups get their lessons. Raises `ConfigError` if other ranks would give up waiting for them."""
    strategy = trainer.strategy
    mentor = mentor_of(strategy)
    if mentor is not None and settings.mentor_schedule == ScheduleKind.INLINE:
        check_deadline(mentor.deadline, trainer.args.ddp_timeout)
    schedule = build_schedule(settings, strategy)
    if isinstance(schedule, Ahead):
        groups = trainer.args.generation_batch_size // trainer.num_generations
        warn_if_queue_is_small(settings.mentor_queue_size, groups=groups)
    return schedule


def open_books(trainer: MentorGRPOTrainer, settings: MentorArguments) -> Books:
    """The books of a run, whose journal the main process keeps."""
    main, seed = trainer.accelerator.is_main_process, trainer.args.seed
    return Books(
        mentor=mentor_of(trainer.strategy),
        journal=Journal(Path(trainer.args.output_dir) / JOURNAL_PATH) if main else None,
        trial=Trial(seed, settings.mentor_control_fraction, settings.mentor_generic_fraction),
        prober=Prober(every=settings.mentor_probe_steps, prompts=settings.mentor_probe_prompts, seed=seed),
        table_rows=settings.mentor_table_rows,
    )


def make_dosage(trainer: MentorGRPOTrainer, settings: MentorArguments) -> Dosage:
    """Which collapsed groups are mentored in the training that goes on, whose steps TRL knows since it began."""
    decay, total, start = Decay(settings.mentor_decay), trainer.state.max_steps, settings.mentor_start_step
    if start is None:
        start = getattr(trainer.strategy, "start_step", 0.0)
    return Dosage(trainer.args.seed, start, decay, total)


def run_info(trainer: MentorGRPOTrainer, settings: MentorArguments) -> RunInfo:
    """What a reader of the journal needs to know of this run."""
    mentor, trial = mentor_of(trainer.strategy), trainer.books.trial
    return RunInfo(
        strategy=trainer.strategy.name,
        schedule=settings.mentor_schedule,
        model=str(getattr(trainer.model.config, "_name_or_path", "")),
        mentor="" if mentor is None else ", ".join(mentor.models),
        domain="" if mentor is None else mentor.domain,
        seed=trainer.args.seed,
        num_generations=trainer.num_generations,
        world_size=trainer.accelerator.num_processes,
        control_fraction=trial.control,
        generic_fraction=trial.generic,
        success_threshold=trainer.success_rule.threshold,
        rescue=str(getattr(trainer.strategy, "construction", "")),
        dosage=str(make_dosage(trainer, settings)),
        priced=trainer.books.priced,
        version=metadata.version("trl-mentor"),
    )
