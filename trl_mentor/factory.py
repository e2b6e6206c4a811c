"""The objects that the `mentor_*` settings describe. Needs neither TRL nor, for an endpoint, torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trl_mentor.backends.base import Backend
from trl_mentor.errors import BackendError, ConfigError
from trl_mentor.lesson_queue import LessonQueue
from trl_mentor.mentor import Mentor
from trl_mentor.records import Message, Reply, Role
from trl_mentor.schedules import Ahead, Inline, Schedule
from trl_mentor.settings import BackendKind, MentorArguments, ScheduleKind, StrategyKind, json_object
from trl_mentor.strategies.base import Strategy
from trl_mentor.strategies.mentor import MentorStrategy
from trl_mentor.strategies.none import NoneStrategy
from trl_mentor.strategies.resample import ResampleStrategy

MENTOR_SETTINGS = (
    "mentor_backend",
    "mentor_model",
    "mentor_base_url",
    "mentor_api_key_env",
    "mentor_temperature",
    "mentor_max_tokens",
    "mentor_extra_body",
    "mentor_domain",
    "mentor_templates_dir",
    "mentor_max_retry",
    "mentor_max_refine",
    "mentor_ablation",
    "mentor_attempt_budget",
    "mentor_max_concurrency",
    "mentor_call_timeout",
    "mentor_deadline",
)
"""The settings that only `build_mentor` reads."""

STRATEGY_SETTINGS = (*MENTOR_SETTINGS, "mentor_strategy", "mentor_hint_template", "mentor_routes")
"""The settings that only `build_strategy` reads."""


def build_strategy(
    settings: MentorArguments, mentor: Mentor | None, *, is_main: bool, device: str | None = None
) -> Strategy:
    """The strategy that the settings name, with `mentor` or, if it is None, the one that they describe.

    A strategy that asks no mentor does not use `mentor`, so that one script can run a method and its controls.
    """
    match StrategyKind(settings.mentor_strategy):
        case StrategyKind.RESAMPLE:
            return ResampleStrategy()
        case StrategyKind.NONE:
            return NoneStrategy()
        case StrategyKind.MENTOR:
            mentor = build_mentor(settings, is_main=is_main, device=device) if mentor is None else mentor
            routes = json_object("mentor_routes", settings.mentor_routes)
            return MentorStrategy(mentor, hint_template=settings.mentor_hint_template, routes=routes)


def build_schedule(settings: MentorArguments, strategy: Strategy) -> Schedule:
    """When collapsed groups get their lessons, as the settings say."""
    match ScheduleKind(settings.mentor_schedule):
        case ScheduleKind.INLINE:
            return Inline(strategy)
        case ScheduleKind.AHEAD:
            workers, at_once = 1, None
            if isinstance(strategy, MentorStrategy):
                workers, at_once = strategy.mentor.max_concurrency, strategy.unasked
            queue = LessonQueue(strategy.prepare, size=settings.mentor_queue_size, workers=workers)
            return Ahead(queue, at_once=at_once)


def build_mentor(settings: MentorArguments, *, is_main: bool = True, device: str | None = None) -> Mentor:
    """The mentor that the settings describe. Raises `ConfigError` if they do not name a model.

    Only the main process asks the mentor, so only there does `is_main` make it load a local model, onto `device`.
    """
    return Mentor(
        build_backend(settings, is_main=is_main, device=device),
        domain=settings.mentor_domain,
        templates_dir=settings.mentor_templates_dir,
        max_retry=settings.mentor_max_retry,
        max_refine=settings.mentor_max_refine,
        ablation=settings.mentor_ablation,
        attempt_budget=settings.mentor_attempt_budget,
        max_concurrency=settings.mentor_max_concurrency,
        call_timeout=settings.mentor_call_timeout,
        deadline=settings.mentor_deadline,
    )


def build_backend(settings: MentorArguments, *, is_main: bool = True, device: str | None = None) -> Backend:
    """The backend that the settings describe; its SDK is imported here and only if it is asked for."""
    if settings.mentor_model is None:
        raise ConfigError(
            "no mentor: pass mentor=Mentor(backend) to the trainer, or set mentor_model (and mentor_base_url for your "
            "own endpoint), or choose mentor_strategy='resample' or 'none', which need none"
        )
    if settings.mentor_backend == BackendKind.TRANSFORMERS:
        if not is_main:
            return _OnMainOnly()
        from trl_mentor.backends.transformers import TransformersBackend

        return TransformersBackend(
            settings.mentor_model,
            device=device,
            temperature=settings.mentor_temperature,
            max_new_tokens=settings.mentor_max_tokens,
            thinking=json_object("mentor_thinking", settings.mentor_thinking),
        )
    if settings.mentor_backend == BackendKind.VLLM:
        if not is_main:
            return _OnMainOnly()
        from trl_mentor.backends.vllm import VLLMBackend

        return VLLMBackend(
            settings.mentor_model,
            temperature=settings.mentor_temperature,
            max_tokens=settings.mentor_max_tokens,
            thinking=json_object("mentor_thinking", settings.mentor_thinking),
        )
    from trl_mentor.backends.openai import OpenAIBackend

    return OpenAIBackend(
        settings.mentor_model,
        base_url=settings.mentor_base_url,
        api_key_env=settings.mentor_api_key_env,
        temperature=settings.mentor_temperature,
        max_tokens=settings.mentor_max_tokens,
        extra_body=json_object("mentor_extra_body", settings.mentor_extra_body),
    )


class _OnMainOnly:
    """Stands in, on the other ranks, for a local model that only the main process holds."""

    def chat(
        self, messages: Sequence[Message], *, role: Role, timeout: float, schema: Mapping[str, Any] | None = None
    ) -> Reply:
        raise BackendError("the local mentor is held by the main process only")
