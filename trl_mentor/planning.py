"""How long a step with a mentor takes, and how many mentor replicas a run needs. Standard library only.

A *step* here is one generation batch and all optimizer steps that are taken on it. docs/planning.md explains every
formula; benchmarks/simulate_cluster.py is the same system event by event.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Sequence
from statistics import NormalDist, fmean

from trl_mentor.errors import ConfigError
from trl_mentor.plan_records import Need, PlanInputs, Prediction
from trl_mentor.reroll import rows_per_rank
from trl_mentor.settings import ScheduleKind

TARGET_UTILISATION = 0.8
"""Share of their time that mentor workers may be busy when lessons are to keep up with collapse (`ahead`)."""

_DRAWN_GROUPS, _LEAST_DRAWS, _MOST_DRAWS = 20_000, 20, 1000
"""Groups drawn for one estimate, in many batches if they are small and in fewer if they are large."""
_LONG_RUN = 100
"""Batches over which the largest one is looked for."""


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


def first_roll_seconds(inputs: PlanInputs) -> float:
    """Seconds of the first roll: every rank rolls its rows at once."""
    return _roll_seconds(inputs, inputs.groups * inputs.num_generations / inputs.ranks)


def reroll_seconds(inputs: PlanInputs, groups: float) -> float:
    """Seconds of re-rolling this many groups; whole numbers are padded as the trainer pads them, 0 takes no time."""
    if groups == int(groups):
        rows = rows_per_rank(int(groups), group_size=inputs.num_generations, world_size=inputs.ranks)
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
    return inputs.collapsed * inputs.seconds_per_group / (inputs.workers * step) if step else math.inf


def _predict_ahead(inputs: PlanInputs, batches: Sequence[Sequence[float]]) -> Prediction:
    """No wait; as many re-rolls as places, unless workers finish or the queue holds fewer lessons in a step."""
    plain = _plain_seconds(inputs)
    lessons = inputs.collapsed
    reroll = fmean(reroll_seconds(inputs, len(times)) for times in batches)
    if _lessons(inputs, batches, plain + reroll) < lessons:
        for _ in range(100):  # fewer re-rolls shorten the step, in which fewer lessons get done
            lessons = min(lessons, _lessons(inputs, batches, plain + reroll_seconds(inputs, lessons)))
        reroll = reroll_seconds(inputs, lessons)
    outstanding, staleness = _ages(inputs, batches, plain + reroll, lessons)
    return Prediction(
        first_roll=first_roll_seconds(inputs),
        mentor_wait=0.0,
        reroll=reroll,
        training=inputs.training_seconds,
        collapsed=inputs.collapsed,
        rerolled=lessons,
        utilisation=_utilisation(inputs, plain + reroll),
        staleness=staleness,
        outstanding=outstanding,
    )


def _lessons(inputs: PlanInputs, batches: Sequence[Sequence[float]], step: float) -> float:
    """Lessons that workers finish in a step, and no more than a queue holds whose groups stay for whole steps."""
    times = [seconds for batch in batches[:_LONG_RUN] for seconds in batch]
    if not sum(times) or not step:
        return float(inputs.mentor_queue_size)
    stay = fmean(max(math.ceil(seconds / step), 1) for seconds in times)
    return min(inputs.workers * step / inputs.seconds_per_group, inputs.mentor_queue_size / stay)


def _ages(inputs: PlanInputs, batches: Sequence[Sequence[float]], step: float, lessons: float) -> tuple[float, float]:
    """Groups that are queued at once, and steps that a lesson is old when it is used.

    Each place that a lesson takes hands over a group of its own, so the queue never gets shorter: it holds as many
    groups as the largest batch so far, times the steps that a hint takes. A full one drops groups that wait for their
    turn; those that get it have passed all others that wait.
    """
    if not inputs.collapsed or not step:
        return 0.0, 0.0
    finishes = [_finishes(inputs, times) for times in batches[:_LONG_RUN]]
    steps = [math.ceil(finish / step) for batch in finishes for finish in batch]
    outstanding = max(map(len, finishes)) * max(fmean(steps), 1.0)
    if _utilisation(inputs, step) <= 1:
        return outstanding, min(outstanding, inputs.mentor_queue_size) / lessons
    waiting = (inputs.mentor_queue_size - inputs.workers) / inputs.collapsed + (1 - lessons / inputs.collapsed) / 2
    return outstanding, max(waiting + inputs.seconds_per_group / step, 1.0)


def _need(inputs: PlanInputs, workers: int) -> Need:
    workers = max(workers, 1)
    replicas = math.ceil(workers / inputs.mentor_slots)
    return Need(workers=workers, replicas=replicas, gpus=replicas * inputs.gpus_per_replica)


def _sample_batches(inputs: PlanInputs) -> list[list[float]]:
    """Seconds of each collapsed group in a number of typical batches; the same ones for the same inputs."""
    how_many, how_long = random.Random(0), random.Random(1)
    draws = max(_LEAST_DRAWS, min(_MOST_DRAWS, _DRAWN_GROUPS // inputs.groups))
    return [[_group_seconds(inputs, how_long) for _ in range(_collapsed(inputs, how_many))] for _ in range(draws)]


def _collapsed(inputs: PlanInputs, rng: random.Random) -> int:
    if inputs.collapsed_groups is not None:
        return inputs.collapsed_groups
    return sum(rng.random() < inputs.collapse_share for _ in range(inputs.groups))


def _group_seconds(inputs: PlanInputs, rng: random.Random) -> float:
    """Gamma: the shape of a sum of calls whose own seconds vary."""
    mean, spread = inputs.seconds_per_group, inputs.group_spread
    return rng.gammavariate(spread**-2, mean * spread**2) if mean and spread else mean
