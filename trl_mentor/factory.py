"""The objects that the `mentor_*` settings describe. Needs neither TRL nor, for an endpoint, torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from trl_mentor.backends.base import Backend
from trl_mentor.budget_limits import refuse_batch_limits
from trl_mentor.errors import BackendError, ConfigError
from trl_mentor.leaks.rules import LeakRule
from trl_mentor.lesson_queue import LessonQueue
from trl_mentor.mentor import Mentor
from trl_mentor.records import CollapsedGroup, Message, Reply, Role
from trl_mentor.schedules import Ahead, Inline, Schedule
from trl_mentor.setting_checks import json_object
from trl_mentor.settings import BackendKind, MentorArguments, ScheduleKind, StrategyKind
from trl_mentor.strategies.base import Strategy
from trl_mentor.strategies.critique import CritiqueStrategy
from trl_mentor.strategies.dapo import DapoStrategy
from trl_mentor.strategies.luffy import LuffyStrategy
from trl_mentor.strategies.mentor import MentorStrategy, mentor_of
from trl_mentor.strategies.none import NoneStrategy
from trl_mentor.strategies.prefix import PrefixStrategy
from trl_mentor.strategies.resample import ResampleStrategy
from trl_mentor.strategies.scaffold import ScaffoldStrategy
from trl_mentor.strategies.srpo import SrpoStrategy
from trl_mentor.strategies.static_hint import StaticHintStrategy
from trl_mentor.strategy_settings import CritiqueKind, StaticHint

NO_CACHE = "none"
"""What `mentor_cache_dir` says for no cache."""

MENTOR_SETTINGS = (
    "mentor_backend",
    "mentor_model",
    "mentor_base_url",
    "mentor_api_key_env",
    "mentor_temperature",
    "mentor_max_tokens",
    "mentor_extra_body",
    "mentor_thinking",
    "mentor_domain",
    "mentor_templates_dir",
    "mentor_leak_rule",
    "mentor_max_retry",
    "mentor_max_refine",
    "mentor_ablation",
    "mentor_attempt_budget",
    "mentor_max_concurrency",
    "mentor_call_timeout",
    "mentor_deadline",
    "mentor_pause_after",
    "mentor_pause_seconds",
    "mentor_budget",
    "mentor_prices",
    "mentor_cache_dir",
)
"""The settings that only `build_mentor` reads."""

STRATEGY_SETTINGS = (
    *MENTOR_SETTINGS,
    "mentor_strategy",
    "mentor_hint_template",
    "mentor_routes",
    "mentor_preset",
    "mentor_rescue",
    "mentor_score_on",
    "mentor_rescue_shaping",
    "mentor_hint_column",
    "mentor_demonstration_column",
    "mentor_static_hint",
    "mentor_prefix_shares",
    "mentor_affinity",
    "mentor_dapo_refill",
    "mentor_critique",
    "mentor_critique_template",
)
"""The settings that only `build_strategy` reads."""


def build_strategy(
    settings: MentorArguments,
    mentor: Mentor | None,
    *,
    is_main: bool,
    device: str | None = None,
    cache_dir: Path | None = None,
    fresh: Callable[[CollapsedGroup], Mapping[str, Any]] | None = None,
) -> Strategy:
    """The strategy that the settings name, with `mentor` or, if it is None, the one that they describe.

    A strategy that asks no mentor does not use `mentor`, so that one script can run a method and its controls.
    `fresh` draws a data set row to take the place of a group, for `dapo`; without it the group's own is sampled again.
    """

    def the_mentor() -> Mentor:
        if mentor is not None:
            return mentor
        return build_mentor(settings, is_main=is_main, device=device, cache_dir=cache_dir)

    template = settings.mentor_hint_template
    hint_column, demonstration_column = settings.mentor_hint_column, settings.mentor_demonstration_column
    match StrategyKind(settings.mentor_strategy):
        case StrategyKind.DAPO:
            return DapoStrategy(fresh)
        case StrategyKind.STATIC_HINT if settings.mentor_static_hint == StaticHint.HINT:
            return StaticHintStrategy(hint_column or "hint", hint_template=template, affinity=settings.mentor_affinity)
        case StrategyKind.STATIC_HINT:
            return PrefixStrategy(demonstration_column or "demonstration", shares=settings.mentor_prefix_shares)
        case StrategyKind.SCAFFOLD:
            return ScaffoldStrategy(hint_column or "hints", hint_template=template)
        case StrategyKind.LUFFY:
            return LuffyStrategy(demonstration_column or "demonstration")
        case StrategyKind.CRITIQUE:
            kind = CritiqueKind(settings.mentor_critique)
            writer = the_mentor() if kind is CritiqueKind.TEXT else None
            return CritiqueStrategy(kind, template=settings.mentor_critique_template, mentor=writer)
        case StrategyKind.SRPO:
            return SrpoStrategy()
        case StrategyKind.RESAMPLE:
            return ResampleStrategy(settings.construction())
        case StrategyKind.NONE:
            return NoneStrategy()
        case StrategyKind.MENTOR:
            routes = json_object("mentor_routes", settings.mentor_routes)
            return MentorStrategy(
                the_mentor(),
                hint_template=template,
                routes=routes,
                construction=settings.construction(),
            )


def build_schedule(settings: MentorArguments, strategy: Strategy) -> Schedule:
    """When collapsed groups get their lessons, as the settings say."""
    match ScheduleKind(settings.mentor_schedule):
        case ScheduleKind.INLINE:
            return Inline(strategy)
        case ScheduleKind.AHEAD:
            asked = mentor_of(strategy)
            if asked is not None:
                refuse_batch_limits(asked.budget.limits)
            workers = 1 if asked is None else asked.max_concurrency
            queue = LessonQueue(strategy.prepare, size=settings.mentor_queue_size, workers=workers)
            return Ahead(queue, at_once=getattr(strategy, "unasked", None))


def build_mentor(
    settings: MentorArguments, *, is_main: bool = True, device: str | None = None, cache_dir: Path | None = None
) -> Mentor:
    """The mentor that the settings describe. Raises `ConfigError` if they do not name a model.

    Only the main process asks the mentor, so only there does `is_main` make it load a local model, onto `device`.
    `cache_dir` is where the replies are kept unless the settings name another place, or none.
    """
    given = settings.mentor_cache_dir
    return Mentor(
        build_backends(settings, is_main=is_main, device=device),
        domain=settings.mentor_domain,
        templates_dir=settings.mentor_templates_dir,
        leak_rule=None if settings.mentor_leak_rule is None else load_leak_rule(settings.mentor_leak_rule),
        max_retry=settings.mentor_max_retry,
        max_refine=settings.mentor_max_refine,
        ablation=settings.mentor_ablation,
        attempt_budget=settings.mentor_attempt_budget,
        max_concurrency=settings.mentor_max_concurrency,
        call_timeout=settings.mentor_call_timeout,
        deadline=settings.mentor_deadline,
        pause_after=settings.mentor_pause_after,
        pause_seconds=settings.mentor_pause_seconds,
        budget=json_object("mentor_budget", settings.mentor_budget),
        prices=json_object("mentor_prices", settings.mentor_prices),
        cache_dir=cache_dir if given is None else None if given.lower() == NO_CACHE else given,
    )


def load_leak_rule(name: str) -> LeakRule:
    """The function at a dotted path `module.function`, importable from the working directory too."""
    module, _, function = name.rpartition(".")
    if not module:
        raise ConfigError(f"mentor_leak_rule is {name!r}; expected a dotted path such as my_rules.refuse_formulas")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        rule = getattr(import_module(module), function)
    except ImportError as error:
        raise ConfigError(f"cannot import mentor_leak_rule {name!r}: {error}") from error
    except AttributeError as error:
        raise ConfigError(f"mentor_leak_rule is {name!r}, but {module!r} has no {function!r}") from error
    if not callable(rule):
        raise ConfigError(f"mentor_leak_rule {name!r} is {type(rule).__name__}; expected a function (hint, group)")
    return rule  # type: ignore[no-any-return]


def build_backend(settings: MentorArguments, *, is_main: bool = True, device: str | None = None) -> Backend:
    """The first of `build_backends`."""
    return build_backends(settings, is_main=is_main, device=device)[0]


def build_backends(settings: MentorArguments, *, is_main: bool = True, device: str | None = None) -> list[Backend]:
    """The backends that the settings describe: one for each endpoint that they name, or one local model.

    What a backend needs is imported here and only if it is asked for.
    """
    if settings.mentor_model is not None and settings.mentor_backend == BackendKind.OPENAI:
        from trl_mentor.backends.openai import OpenAIBackend

        return [
            OpenAIBackend(
                settings.mentor_model,
                base_url=url,
                api_key_env=settings.mentor_api_key_env,
                temperature=settings.mentor_temperature,
                max_tokens=settings.mentor_max_tokens,
                extra_body=json_object("mentor_extra_body", settings.mentor_extra_body),
                thinking=json_object("mentor_thinking", settings.mentor_thinking),
            )
            for url in _urls(settings.mentor_base_url)
        ]
    return [_local_backend(settings, is_main=is_main, device=device)]


def _urls(setting: str | None) -> list[str | None]:
    if setting is None:
        return [None]
    urls = [url.strip() for url in setting.split(",")]
    if len({url.rstrip("/") for url in urls}) < len(urls):
        raise ConfigError("mentor_base_url names an endpoint twice; name each one once")
    return list(urls)


def _local_backend(settings: MentorArguments, *, is_main: bool, device: str | None) -> Backend:
    if settings.mentor_model is None:
        raise ConfigError(
            "no mentor: pass mentor=Mentor(backend) to the trainer, or set mentor_model (and mentor_base_url for your "
            "own endpoint), or choose a strategy that needs none: docs/strategies.md; critique needs none with "
            "mentor_critique='simple_gt'"
        )
    if not is_main:
        return _OnMainOnly()
    if settings.mentor_backend == BackendKind.TRANSFORMERS:
        from trl_mentor.backends.transformers import TransformersBackend

        return TransformersBackend(
            settings.mentor_model,
            device=device,
            temperature=settings.mentor_temperature,
            max_new_tokens=settings.mentor_max_tokens,
            thinking=json_object("mentor_thinking", settings.mentor_thinking),
        )
    from trl_mentor.backends.vllm import VLLMBackend

    return VLLMBackend(
        settings.mentor_model,
        temperature=settings.mentor_temperature,
        max_tokens=settings.mentor_max_tokens,
        thinking=json_object("mentor_thinking", settings.mentor_thinking),
    )


class _OnMainOnly:
    """Stands in, on the other ranks, for a local model that only the main process holds."""

    def chat(
        self, messages: Sequence[Message], *, role: Role, timeout: float, schema: Mapping[str, Any] | None = None
    ) -> Reply:
        raise BackendError("the local mentor is held by the main process only")
