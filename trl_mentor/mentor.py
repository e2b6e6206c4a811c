"""The mentor: vetted hints for many collapsed groups at once, under one deadline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from trl_mentor.backends.base import Backend
from trl_mentor.errors import ConfigError
from trl_mentor.hint_rules import HintLimits
from trl_mentor.mentor_pool import Clock, MentorPool, describe
from trl_mentor.packing import check_budget
from trl_mentor.records import CollapsedGroup, Guidance
from trl_mentor.templating import PromptTemplates
from trl_mentor.tutorial import Ablation, Plan, Tutorial

__all__ = ["Ablation", "Mentor"]


class Mentor:
    """Turns collapsed groups into vetted hints. Needs a backend, and neither TRL nor torch.

    It asks for one diagnosis per group, then makes up to `max_retry` attempts of one draft and at most `max_refine`
    reviews with a repair between each two: at best 3 calls, with the defaults at worst 9. `attempt_budget` is in
    characters; `call_timeout` bounds one call and `deadline` one whole `guide`, in seconds. `fallback_hint` replaces
    the domain's fixed hint. Raises `ConfigError` (`TemplateError` for templates) if a setting is wrong.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        domain: str = "math",
        templates_dir: str | Path | None = None,
        max_retry: int = 2,
        max_refine: int = 2,
        ablation: Ablation | str | None = None,
        limits: HintLimits | None = None,
        attempt_budget: int = 12_000,
        fallback_hint: str | None = None,
        max_concurrency: int = 8,
        call_timeout: float = 120.0,
        deadline: float = 300.0,
    ) -> None:
        if not isinstance(backend, Backend):
            raise ConfigError(
                f"backend is {backend!r}, which has no method chat; see trl_mentor.backends.base.Backend"
            )
        if fallback_hint is not None and not fallback_hint.strip():
            raise ConfigError(
                "fallback_hint is blank; give a hint that fits any question, or None for the domain's own"
            )
        check_budget(_count("attempt_budget", attempt_budget))
        templates = PromptTemplates(domain, templates_dir)
        self.plan = Plan(
            backend=backend,
            templates=templates,
            fallback_hint=templates.fallback if fallback_hint is None else fallback_hint.strip(),
            max_retry=_count("max_retry", max_retry),
            max_refine=_count("max_refine", max_refine),
            ablation=_ablation(ablation),
            limits=HintLimits() if limits is None else limits,
            attempt_budget=attempt_budget,
            call_timeout=_seconds("call_timeout", call_timeout),
        )
        self.deadline = _seconds("deadline", deadline)
        self.max_concurrency = _count("max_concurrency", max_concurrency)
        self._pool = MentorPool(self.max_concurrency)

    def guide(self, groups: Sequence[CollapsedGroup]) -> list[Guidance]:
        """One guidance per group, in order, after at most `deadline` seconds.

        Nothing that the backend or a reply does is raised: a group whose drafts were all refused gets the fallback
        hint, a group for which the mentor could not be asked in time gets none and says why.
        """
        clock = Clock(self.deadline)
        tutorials = [Tutorial(self.plan, group, clock) for group in groups]
        outcomes = self._pool.run([tutorial.run for tutorial in tutorials], clock)
        late = f"the deadline of {self.deadline:g} s passed"
        return [
            outcome
            if isinstance(outcome, Guidance)
            else tutorial.failed(late if outcome is None else describe(outcome))
            for tutorial, outcome in zip(tutorials, outcomes, strict=True)
        ]


def _ablation(value: Ablation | str | None) -> Ablation | None:
    try:
        return None if value is None else Ablation(value)
    except ValueError:
        raise ConfigError(f"unknown ablation {value!r}; choose {', '.join(Ablation)}, or None") from None


def _count(name: str, value: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{name} is {value!r}; expected a whole number of at least 1")
    return value


def _seconds(name: str, value: float) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
        raise ConfigError(f"{name} is {value!r}; expected a number of seconds above 0")
    return float(value)
