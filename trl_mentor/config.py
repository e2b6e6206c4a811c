"""`GRPOConfig` with the `mentor_*` settings, and the objects that they describe."""

from __future__ import annotations

from dataclasses import dataclass, fields

from trl import GRPOConfig

from trl_mentor.backends.base import Backend
from trl_mentor.errors import ConfigError
from trl_mentor.mentor import Mentor
from trl_mentor.settings import BackendKind, MentorArguments, StrategyKind
from trl_mentor.strategies.base import Strategy
from trl_mentor.strategies.mentor import MentorStrategy
from trl_mentor.strategies.none import NoneStrategy
from trl_mentor.strategies.resample import ResampleStrategy


@dataclass
class MentorGRPOConfig(MentorArguments, GRPOConfig):  # type: ignore[misc]
    """Arguments of `MentorGRPOTrainer`: everything `GRPOConfig` has, and `mentor_*`.

    Raises `ConfigError` for a wrong `mentor_*` value, and for a `mentor_deadline` that would let other ranks run into
    `ddp_timeout` while the main process waits for hints.
    """

    def __post_init__(self) -> None:
        MentorArguments.__post_init__(self)
        GRPOConfig.__post_init__(self)
        check_deadline(self.mentor_deadline, self.ddp_timeout)


def mentor_arguments(args: GRPOConfig) -> MentorArguments:
    """The `mentor_*` settings of a config; the defaults for a plain `GRPOConfig`."""
    if isinstance(args, MentorArguments):
        return MentorArguments(**{f.name: getattr(args, f.name) for f in fields(MentorArguments)})
    return MentorArguments()


def check_deadline(deadline: float, ddp_timeout: float) -> None:
    """Raise `ConfigError` unless a batch of hints ends well before the other ranks give up waiting."""
    if deadline >= ddp_timeout:
        raise ConfigError(
            f"the mentor's deadline is {deadline:g} s, but the ranks that wait for its hints give up after "
            f"ddp_timeout={ddp_timeout:g} s; lower the deadline or raise ddp_timeout"
        )


def build_mentor(settings: MentorArguments) -> Mentor:
    """The mentor that the settings describe. Raises `ConfigError` if they do not name a model."""
    return Mentor(
        build_backend(settings),
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


def build_backend(settings: MentorArguments) -> Backend:
    """The backend that the settings describe; its SDK is imported here and only if it is asked for."""
    if settings.mentor_model is None:
        raise ConfigError(
            "no mentor: pass mentor=Mentor(backend) to the trainer, or set mentor_model (and mentor_base_url for your "
            "own endpoint), or choose mentor_strategy='resample' or 'none', which need none"
        )
    if settings.mentor_backend == BackendKind.TRANSFORMERS:
        from trl_mentor.backends.transformers import TransformersBackend

        return TransformersBackend(
            settings.mentor_model,
            temperature=settings.mentor_temperature,
            max_new_tokens=settings.mentor_max_tokens,
        )
    from trl_mentor.backends.openai import OpenAIBackend

    return OpenAIBackend(
        settings.mentor_model,
        base_url=settings.mentor_base_url,
        api_key_env=settings.mentor_api_key_env,
        temperature=settings.mentor_temperature,
        max_tokens=settings.mentor_max_tokens,
    )


def build_strategy(settings: MentorArguments, mentor: Mentor | None) -> Strategy:
    """The strategy that the settings name."""
    match StrategyKind(settings.mentor_strategy):
        case StrategyKind.RESAMPLE:
            return ResampleStrategy()
        case StrategyKind.NONE:
            return NoneStrategy()
        case StrategyKind.MENTOR:
            return MentorStrategy(
                mentor if mentor is not None else build_mentor(settings), hint_template=settings.mentor_hint_template
            )
