"""How long a step with a mentor takes, and how many mentor replicas a run needs. Standard library only.

A *step* here is one generation batch and all optimizer steps that are taken on it. docs/planning.md explains every
formula; benchmarks/simulate_cluster.py is the same system event by event.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, fields
from statistics import NormalDist, fmean

from trl_mentor.errors import ConfigError
from trl_mentor.settings import ScheduleKind

TARGET_UTILISATION = 0.8
"""Share of their time that mentor workers may be busy when lessons are to keep up with collapse (`ahead`)."""

_DRAWN_GROUPS = 20_000
"""Groups drawn for one estimate: many batches if they are small, fewer if they are large."""
_LEAST_DRAWS, _MOST_DRAWS = 20, 1000
_LONG_RUN = 100
"""Batches over which the largest one is looked for."""
_COUNTS = (
    "ranks",
    "groups",
    "num_generations",
    "mentor_slots",
    "replicas",
    "gpus_per_replica",
    "mentor_max_concurrency",
    "mentor_queue_size",
)
_SHARES = ("collapse_share",)
_RATES = ("policy_tokens_per_second", "mentor_tokens_per_second", "mentor_prompt_tokens_per_second", "calls_per_group")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInputs:
    """What the arithmetic starts from. A wrong value raises `ConfigError`."""

    ranks: int
    """GPUs that train."""
    groups: int
    """Groups of one generation batch, over all ranks."""
    num_generations: int
    completion_tokens: float
    """Mean length of a completion of the policy, in tokens."""
    policy_tokens_per_second: float
    """Completion tokens that the policy generates per second on one GPU, all its rows together."""
    roll_seconds: float = 0.0
    """Seconds of a roll that do not depend on its number of rows: weight sync, prompts, the longest completion."""
    length_spread: float = 0.0
    """Standard deviation of the length of a completion, divided by its mean; 0 if the rate holds the slowest rank."""
    training_seconds: float
    """Everything in a step but rolls and mentor: log-probabilities, loss, gradients, optimizer."""
    collapse_share: float
    """Mean share of the groups that collapse. How many do in one batch is taken as binomial."""
    collapsed_groups: int | None = None
    """If given, exactly this many groups collapse in every batch, whatever `collapse_share` says."""
    calls_per_group: float = 4.0
    prompt_tokens_per_call: float = 1500.0
    completion_tokens_per_call: float = 400.0
    call_seconds: float | None = None
    """Measured seconds of one call; None: from the tokens and the replica's rates."""
    mentor_tokens_per_second: float = 2000.0
    """Tokens that one replica writes per second with all its slots busy."""
    mentor_prompt_tokens_per_second: float = 20_000.0
    """Tokens that one replica reads per second."""
    mentor_slots: int = 32
    """Calls that one replica works on at once."""
    group_spread: float = 0.3
    """Standard deviation of the seconds of one group's calls, divided by their mean."""
    replicas: int = 1
    gpus_per_replica: int = 1
    mentor_max_concurrency: int = 8
    mentor_deadline: float = 300.0
    schedule: ScheduleKind = ScheduleKind.INLINE
    mentor_queue_size: int = 64

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "schedule" or value is None:
                continue
            whole = field.name in (*_COUNTS, "collapsed_groups")
            if not math.isfinite(value) or value < 0 or (whole and value != int(value)):
                raise ConfigError(f"{field.name} must be a {'whole ' * whole}number of at least 0, got {value!r}")
            if value == 0 and field.name in (*_COUNTS, *_RATES, "mentor_deadline"):
                raise ConfigError(f"{field.name} must be above 0, got {value!r}")
            if value > 1 and field.name in _SHARES:
                raise ConfigError(f"{field.name} is a share from 0 to 1, got {value!r}")
        if self.collapsed_groups is not None and self.collapsed_groups > self.groups:
            raise ConfigError(f"collapsed_groups is {self.collapsed_groups}, more than the {self.groups} groups")

    @property
    def seconds_per_call(self) -> float:
        """As measured; else reading, which shares the replica, and writing, at the rate of one of all busy slots."""
        if self.call_seconds is not None:
            return self.call_seconds
        sharing = min(self.mentor_slots, math.ceil(self.workers / self.replicas))
        reading = sharing * self.prompt_tokens_per_call / self.mentor_prompt_tokens_per_second
        return reading + self.mentor_slots * self.completion_tokens_per_call / self.mentor_tokens_per_second

    @property
    def seconds_per_group(self) -> float:
        """The calls for one group follow each other."""
        return self.calls_per_group * self.seconds_per_call

    @property
    def workers(self) -> int:
        """Groups that are worked on at once: the trainer's limit or the endpoint's, whichever is lower."""
        return min(self.mentor_max_concurrency, self.replicas * self.mentor_slots)

    @property
    def collapsed(self) -> float:
        """Groups that collapse in a batch on average."""
        return self.collapse_share * self.groups if self.collapsed_groups is None else float(self.collapsed_groups)


@dataclass(frozen=True, slots=True)
class Prediction:
    """One step on average; seconds unless a name says otherwise."""

    first_roll: float
    mentor_wait: float
    reroll: float
    training: float
    collapsed: float
    """Groups that collapse."""
    rerolled: float
    """Groups that are re-rolled: those with a hint (`inline`), or places that a lesson takes (`ahead`)."""
    utilisation: float
    """Share of their time that the mentor's workers would be busy if every collapsed group were mentored."""
    staleness: float
    """Steps from the collapse of a group to its lesson's re-roll; 0 with `inline`."""
    outstanding: float
    """With `ahead`: groups that wait for a hint or a place at once, and so the least `mentor_queue_size`."""

    @property
    def plain_step(self) -> float:
        """The same step of plain GRPO."""
        return self.first_roll + self.training

    @property
    def step(self) -> float:
        return self.plain_step + self.mentor_wait + self.reroll

    @property
    def overhead(self) -> float:
        """What the mentor adds, as a share of the plain step."""
        return (self.mentor_wait + self.reroll) / self.plain_step if self.plain_step else math.inf


@dataclass(frozen=True, slots=True)
class Need:
    """The mentor that a target takes."""

    workers: int
    """Groups worked on at once: the least `mentor_max_concurrency`."""
    replicas: int
    gpus: int


def predict(inputs: PlanInputs) -> Prediction:
    """The mean step of a run with these inputs."""
    batches = _sample_batches(inputs)
    if inputs.schedule is ScheduleKind.AHEAD:
        return _predict_ahead(inputs, batches)
    finishes = [_finishes(inputs, times) for times in batches]
    hinted = [sum(finish <= inputs.mentor_deadline for finish in batch) for batch in finishes]
    share = sum(hinted) / max(sum(map(len, batches)), 1)
    wait = fmean(min(max(batch, default=0.0), inputs.mentor_deadline) for batch in finishes)
    reroll = fmean(reroll_seconds(inputs, count) for count in hinted)
    return Prediction(
        first_roll=first_roll_seconds(inputs),
        mentor_wait=wait,
        reroll=reroll,
        training=inputs.training_seconds,
        collapsed=inputs.collapsed,
        rerolled=share * inputs.collapsed,
        utilisation=_utilisation(inputs, _plain_seconds(inputs) + wait + reroll),
        staleness=0.0,
        outstanding=0.0,
    )


def needed(inputs: PlanInputs, max_wait_share: float = 0.1) -> Need | None:
    """The smallest mentor with which the wait stays below a share of the step or, `ahead`, lessons keep up.

    None if no mentor is large enough: even if every group is worked on at once, its own calls take too long.
    """
    if not 0 < max_wait_share < 1:
        raise ConfigError(f"the allowed share of waiting must be between 0 and 1, got {max_wait_share!r}")
    batches = _sample_batches(inputs)
    rest = _plain_seconds(inputs) + fmean(reroll_seconds(inputs, len(times)) for times in batches)
    if inputs.schedule is ScheduleKind.AHEAD:
        busy = inputs.collapsed * inputs.seconds_per_group
        return _need(inputs, math.ceil(busy / (TARGET_UTILISATION * rest)) if rest else inputs.groups)
    allowed = rest * max_wait_share / (1 - max_wait_share)

    def suffices(workers: int) -> bool:
        return fmean(max(finish_times(times, workers), default=0.0) for times in batches) <= allowed

    low, high = 1, inputs.groups
    if not suffices(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle + 1, high)
    return _need(inputs, low)


def finish_times(times: Sequence[float], workers: int) -> list[float]:
    """When each group is done if groups are taken in order, each by the worker that is free first."""
    free = [0.0] * min(workers, len(times))
    finishes = []
    for seconds in times:
        finishes.append(free[0] + seconds)
        heapq.heapreplace(free, finishes[-1])
    return finishes


def _finishes(inputs: PlanInputs, times: Sequence[float]) -> list[float]:
    """Finish times of a batch; groups that share too few slots take turns, and so all finish later."""
    finishes = finish_times(times, inputs.mentor_max_concurrency)
    work = sum(times) / (inputs.replicas * inputs.mentor_slots)
    stretch = max(work / max(finishes), 1.0) if finishes and work else 1.0
    return [finish * stretch for finish in finishes]


def rows_per_rank(groups: int, *, group_size: int, ranks: int) -> int:
    """Rows that each rank re-rolls, padding included, as `reroll.plan_reroll` shares them out."""
    unit = group_size // math.gcd(group_size, ranks)
    return math.ceil(groups * group_size / (ranks * unit)) * unit


def first_roll_seconds(inputs: PlanInputs) -> float:
    """Seconds of the first roll: every rank rolls its rows at once."""
    return _roll_seconds(inputs, inputs.groups * inputs.num_generations / inputs.ranks)


def reroll_seconds(inputs: PlanInputs, groups: float) -> float:
    """Seconds of re-rolling this many groups; whole numbers are padded as the trainer pads them, 0 takes no time."""
    if groups == int(groups):
        rows = rows_per_rank(int(groups), group_size=inputs.num_generations, ranks=inputs.ranks)
        return _roll_seconds(inputs, rows)
    share = min(groups, 1.0)  # of the batches that re-roll anything
    return share * _roll_seconds(inputs, groups * inputs.num_generations / inputs.ranks / share)


def _roll_seconds(inputs: PlanInputs, rows: float) -> float:
    """Seconds until the slowest rank is done, whose tokens are so many standard deviations above the mean."""
    if rows == 0:
        return 0.0
    above = NormalDist().inv_cdf((inputs.ranks - 0.375) / (inputs.ranks + 0.25)) if inputs.ranks > 1 else 0.0
    tokens = inputs.completion_tokens * (rows + above * inputs.length_spread * math.sqrt(rows))
    return inputs.roll_seconds + tokens / inputs.policy_tokens_per_second


def _plain_seconds(inputs: PlanInputs) -> float:
    return first_roll_seconds(inputs) + inputs.training_seconds


def _utilisation(inputs: PlanInputs, step: float) -> float:
    busy = inputs.collapsed * inputs.seconds_per_group
    return busy / (inputs.workers * step) if step else math.inf


def _predict_ahead(inputs: PlanInputs, batches: Sequence[Sequence[float]]) -> Prediction:
    """No wait; as many re-rolls as the workers finish lessons in a step, and no more than there are places."""
    plain = _plain_seconds(inputs)
    lessons = inputs.collapsed
    reroll = fmean(reroll_seconds(inputs, len(times)) for times in batches)
    if _utilisation(inputs, plain + reroll) > 1:
        rate = inputs.workers / inputs.seconds_per_group
        for _ in range(100):  # fewer re-rolls shorten the step, in which fewer lessons get done
            lessons = min(lessons, rate * (plain + reroll_seconds(inputs, lessons)))
        reroll = reroll_seconds(inputs, lessons)
    step = plain + reroll
    utilisation = _utilisation(inputs, step)
    outstanding, staleness = _ages(inputs, batches, step=step, keeps_up=utilisation <= 1)
    return Prediction(
        first_roll=first_roll_seconds(inputs),
        mentor_wait=0.0,
        reroll=reroll,
        training=inputs.training_seconds,
        collapsed=inputs.collapsed,
        rerolled=lessons,
        utilisation=utilisation,
        staleness=staleness,
        outstanding=outstanding,
    )


def _ages(
    inputs: PlanInputs, batches: Sequence[Sequence[float]], *, step: float, keeps_up: bool
) -> tuple[float, float]:
    """Groups that are queued at once, and steps that a lesson is old when it is used.

    Each place that a lesson takes hands over a group of its own, so the queue never gets shorter: it holds as many
    groups as the largest batch so far, times the steps that a hint takes. A queue that overflows is always full.
    """
    if not inputs.collapsed or not step:
        return 0.0, 0.0
    finishes = [_finishes(inputs, times) for times in batches[:_LONG_RUN]]
    steps = [math.ceil(finish / step) for batch in finishes for finish in batch]
    outstanding = max(map(len, finishes)) * max(fmean(steps), 1.0)
    if keeps_up and outstanding <= inputs.mentor_queue_size:
        return outstanding, outstanding / inputs.collapsed
    full = inputs.mentor_queue_size / inputs.collapsed
    return outstanding, max(full + (0.0 if keeps_up else inputs.seconds_per_group / step), 1.0)


def _need(inputs: PlanInputs, workers: int) -> Need:
    workers = max(workers, 1)
    replicas = math.ceil(workers / inputs.mentor_slots)
    return Need(workers=workers, replicas=replicas, gpus=replicas * inputs.gpus_per_replica)


def _sample_batches(inputs: PlanInputs) -> list[list[float]]:
    """Seconds of each collapsed group in a number of typical batches; the same ones for the same inputs."""
    how_many, how_long = random.Random(0), random.Random(1)
    draws = max(_LEAST_DRAWS, min(_MOST_DRAWS, _DRAWN_GROUPS // inputs.groups))
    sizes = [_collapsed(inputs, how_many) for _ in range(draws)]
    return [[_group_seconds(inputs, how_long) for _ in range(size)] for size in sizes]


def _collapsed(inputs: PlanInputs, rng: random.Random) -> int:
    if inputs.collapsed_groups is not None:
        return inputs.collapsed_groups
    return sum(rng.random() < inputs.collapse_share for _ in range(inputs.groups))


def _group_seconds(inputs: PlanInputs, rng: random.Random) -> float:
    """Gamma: the shape of a sum of calls whose own seconds vary."""
    mean, spread = inputs.seconds_per_group, inputs.group_spread
    return rng.gammavariate(spread**-2, mean * spread**2) if mean and spread else mean
