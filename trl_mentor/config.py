"""`GRPOConfig` with the `mentor_*` settings."""

from __future__ import annotations

from dataclasses import dataclass, fields

from trl import GRPOConfig

from trl_mentor.errors import ConfigError
from trl_mentor.settings import MentorArguments, ScheduleKind


@dataclass
class MentorGRPOConfig(MentorArguments, GRPOConfig):  # type: ignore[misc]
    """Arguments of `MentorGRPOTrainer`: everything `GRPOConfig` has, and `mentor_*`.

    Raises `ConfigError` for a wrong `mentor_*` value, and for a `mentor_deadline` that would let other ranks run into
    `ddp_timeout` while the main process waits for hints, as it does unless they are written `ahead`.
    """

    def __post_init__(self) -> None:
        MentorArguments.__post_init__(self)
        GRPOConfig.__post_init__(self)
        if self.mentor_schedule == ScheduleKind.INLINE:
            check_deadline(self.mentor_deadline, self.ddp_timeout)


def mentor_arguments(args: GRPOConfig | None) -> MentorArguments:
    """The `mentor_*` settings of a config; the defaults for a plain `GRPOConfig` or none."""
    if isinstance(args, MentorArguments):
        return MentorArguments(**{f.name: getattr(args, f.name) for f in fields(MentorArguments)})
    return MentorArguments()


def check_deadline(deadline: float, ddp_timeout: float) -> None:
    """Raise `ConfigError` unless a batch of hints ends well before the other ranks give up waiting."""
    if deadline > 0.9 * ddp_timeout:
        raise ConfigError(
            f"the mentor's deadline is {deadline:g} s, but the ranks that wait for its hints give up after "
            f"ddp_timeout={ddp_timeout:g} s; keep the deadline below nine tenths of it, or raise ddp_timeout"
        )
