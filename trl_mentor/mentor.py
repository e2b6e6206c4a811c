"""The mentor: vetted hints for many collapsed groups at once, under one deadline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from trl_mentor.agents import Agents
from trl_mentor.backends.base import Backend
from trl_mentor.budget import Allowance, Budget
from trl_mentor.calls import Caller
from trl_mentor.endpoints import Endpoints
from trl_mentor.errors import ConfigError
from trl_mentor.events import Events
from trl_mentor.leaks.gate import LeakGate
from trl_mentor.leaks.hint_rules import HintLimits
from trl_mentor.leaks.rules import LeakRule
from trl_mentor.mentor_pool import Clock, MentorPool, describe, outcome_of
from trl_mentor.packing import check_budget
from trl_mentor.priority import most_promising_first
from trl_mentor.records import Ablation, CollapsedGroup, Event, Guidance, calls_for_a_hint
from trl_mentor.reply_cache import ReplyCache
from trl_mentor.setting_checks import check_choice, is_number, is_whole
from trl_mentor.spending import Ledger, Spending
from trl_mentor.templating import PromptTemplates
from trl_mentor.tutorial import Plan, Tutorial

__all__ = ["Ablation", "Mentor"]


class Mentor:
    """Turns collapsed groups into vetted hints. Needs a backend, and neither TRL nor torch.

    It asks for one diagnosis per group, then makes up to `max_retry` attempts of one draft and at most `max_refine`
    reviews with a repair between each two: at best 3 calls, with the defaults at worst 9, and once more for each reply
    that cannot be read. `attempt_budget` is in characters; `call_timeout` bounds one call and `deadline` one whole
    `guide`, in seconds. `agents` may replace any of the four, `fallback_hint` replaces the domain's fixed hint, and
    `leak_rule` is asked about every hint after the domain's own rules. Several backends share the work and stand in
    for each other; one that failed `pause_after` times in a row is left alone for `pause_seconds`.

    Groups are taken most promising first, for where `deadline` or `budget` do not reach for all. `budget` limits
    `batch_calls`, `batch_tokens`, `batch_cost` in one `guide` and `run_calls`, `run_tokens`, `run_cost` over all of
    them; costs are at `prices` per million tokens of `prompt`, `completion` and `cached`. With `cache_dir`, replies
    are kept there, and what was asked before is not asked again; see docs/budget.md.

    Raises `ConfigError` (`TemplateError` for templates) if a setting is wrong.
    """

    def __init__(
        self,
        backend: Backend | Sequence[Backend],
        *,
        domain: str = "math",
        templates_dir: str | Path | None = None,
        max_retry: int = 2,
        max_refine: int = 2,
        ablation: Ablation | str | None = None,
        agents: Agents | None = None,
        limits: HintLimits | None = None,
        leak_rule: LeakRule | None = None,
        attempt_budget: int = 12_000,
        fallback_hint: str | None = None,
        max_concurrency: int = 8,
        call_timeout: float = 120.0,
        deadline: float = 300.0,
        pause_after: int = 5,
        pause_seconds: float = 30.0,
        budget: Mapping[str, float] | None = None,
        prices: Mapping[str, float] | None = None,
        cache_dir: str | Path | None = None,
    ) -> None:
        self.deadline = _seconds("deadline", deadline)
        call_timeout = _seconds("call_timeout", call_timeout)
        self.events = Events()
        endpoints = Endpoints(
            _backends(backend),
            pause_after=_count("pause_after", pause_after),
            pause_seconds=_seconds("pause_seconds", pause_seconds),
            patience=min(call_timeout, self.deadline) / 2,
            events=self.events,
        )
        if fallback_hint is not None and not fallback_hint.strip():
            raise ConfigError(
                "fallback_hint is blank; give a hint that fits any question, or None for the domain's own"
            )
        check_budget(_count("attempt_budget", attempt_budget))
        if not isinstance(agents, Agents | None):
            raise ConfigError(f"agents is {agents!r}; give Agents(...) of trl_mentor.agents with those of your own")
        self.domain = domain
        templates = PromptTemplates(domain, templates_dir)
        self.plan = Plan(
            backend=endpoints,
            templates=templates,
            fallback_hint=templates.fallback if fallback_hint is None else fallback_hint.strip(),
            max_retry=_count("max_retry", max_retry),
            max_refine=_count("max_refine", max_refine),
            ablation=_ablation(ablation),
            gate=LeakGate(domain, HintLimits() if limits is None else limits, leak_rule),
            attempt_budget=attempt_budget,
            call_timeout=call_timeout,
            agents=agents or Agents(),
        )
        self.max_concurrency = _count("max_concurrency", max_concurrency)
        self.budget = Budget(budget, prices, least_calls=calls_for_a_hint(self.plan.ablation), hear=self.events.add)
        self.ledger = Ledger(self.budget.cost)
        self._cache = None if cache_dir is None else ReplyCache(cache_dir)
        self._pool = MentorPool(self.max_concurrency)
        self._endpoints = endpoints
        self._clocks: set[Clock] = set()

    @property
    def models(self) -> list[str]:
        """What its backends run, for the records of a run."""
        return self._endpoints.models

    def take_events(self) -> list[Event]:
        """What happened to the mentor as a whole since the last time, oldest first."""
        return self.events.take()

    def resume_spending(self, spent: Spending = Spending()) -> None:
        """Begin a run that has taken so much already; a new one by default."""
        self.budget.begin_run(spent)

    def guide(self, groups: Sequence[CollapsedGroup]) -> list[Guidance]:
        """One guidance per group, in order, after at most `deadline` seconds.

        Nothing that the backend or a reply does is raised: a group whose drafts were all refused gets the fallback
        hint, a group for which the mentor could not be asked in time or within the budget gets none and says why.
        """
        clock = Clock(self.deadline)
        self._clocks.add(clock)
        order = self._order(groups)
        allowances = self.budget.shares(len(order), same_batch=any(group.round > 1 for group in groups))
        tutorials = {
            index: Tutorial(self.plan, groups[index], self._caller(clock, allowance))
            for index, allowance in zip(order, allowances, strict=True)
        }
        try:
            jobs = [partial(_run, tutorials[index], share) for index, share in zip(order, allowances, strict=True)]
            outcomes = self._pool.run(jobs, clock)
        finally:
            for allowance in allowances:
                allowance.close()
            interrupted = clock not in self._clocks
            self._clocks.discard(clock)
        late = "the training ended" if interrupted else f"the deadline of {self.deadline:g} s passed"
        guidances = {
            index: outcome
            if isinstance(outcome, Guidance)
            else tutorials[index].failed(late if outcome is None else describe(outcome))
            for index, outcome in zip(order, outcomes, strict=True)
        }
        return [guidances[index] for index in range(len(groups))]

    def interrupt(self) -> None:
        """End every `guide` that is under way: its groups have failed, and no further call is made for them."""
        for clock in list(self._clocks):
            self._clocks.discard(clock)
            clock.cancelled = True
        self._pool.wake()
        self._endpoints.interrupt()

    def _order(self, groups: Sequence[CollapsedGroup]) -> Sequence[int]:
        order = outcome_of(lambda: most_promising_first(groups, attempt_budget=self.plan.attempt_budget))
        return range(len(groups)) if isinstance(order, Exception) else order  # some group is not what it should be

    def _caller(self, clock: Clock, allowance: Allowance) -> Caller:
        plan = self.plan
        return Caller(
            plan.backend,
            clock,
            call_timeout=plan.call_timeout,
            allowance=allowance,
            cache=self._cache,
            ledger=self.ledger,
        )


def _run(tutorial: Tutorial, allowance: Allowance) -> Guidance:
    try:
        return tutorial.run()
    finally:
        allowance.close()  # so that the groups that wait can have what this one did not need


def _backends(given: Backend | Sequence[Backend]) -> list[Backend]:
    backends = list(given) if isinstance(given, Sequence) else [given]
    for backend in backends:
        if not isinstance(backend, Backend):
            raise ConfigError(
                f"backend is {backend!r}, which has no method chat; see trl_mentor.backends.base.Backend"
            )
    if not backends:
        raise ConfigError("the list of backends is empty; give at least one")
    return backends


def _ablation(value: Ablation | str | None) -> Ablation | None:
    if value is None:
        return None
    check_choice("ablation", value, Ablation)
    return Ablation(value)


def _count(name: str, value: int) -> int:
    if not is_whole(value) or value < 1:
        raise ConfigError(f"{name} is {value!r}; expected a whole number of at least 1")
    return value


def _seconds(name: str, value: float) -> float:
    if not is_number(value) or value <= 0:
        raise ConfigError(f"{name} is {value!r}; expected a number of seconds above 0")
    return float(value)
