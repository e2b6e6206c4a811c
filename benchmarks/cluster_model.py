"""A cluster that trains with a mentor, simulated event by event; `simulate_cluster.py` is its command line.

Every rank rolls completions of random lengths and the slowest one decides; a random number of groups collapses; each
of them asks its agents one after the other; replicas answer a bounded number of calls at once; deadlines, the queue of
the schedule `ahead` and the ages of its lessons are those of the trainer. Not simulated: the network, and collectives
that get slower with the number of ranks.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

import numpy as np

from trl_mentor.plan_records import PlanInputs
from trl_mentor.planning import predict
from trl_mentor.reroll import rows_per_rank
from trl_mentor.settings import ScheduleKind


@dataclass(frozen=True, slots=True)
class Scenario:
    """One cluster: the averages of a plan, and how what they average varies."""

    inputs: PlanInputs
    steps: int = 200
    seed: int = 0
    accept_rate: float = 0.7
    """Probability that the judge grades a draft HIGH."""
    max_retry: int = 2
    max_refine: int = 2
    call_spread: float = 0.5
    """Standard deviation of the seconds of a call as a share of their mean; lognormal."""
    length_spread: float = 0.6
    """The same for the length of a completion."""
    recorded: Sequence[Sequence[float]] = ()
    """Seconds of the calls of real groups; if given, groups are drawn from these."""


@dataclass(slots=True)
class Step:
    """What one simulated step came to, in seconds."""

    first_roll: float = 0.0
    wait: float = 0.0
    reroll: float = 0.0
    training: float = 0.0
    collapsed: int = 0
    rerolled: int = 0
    dropped: int = 0
    ages: list[int] = field(default_factory=list)
    """Steps since their own collapse of the lessons that were used."""

    @property
    def seconds(self) -> float:
        return self.first_roll + self.wait + self.reroll + self.training


@dataclass(slots=True, eq=False)
class Job:
    """The calls for one collapsed group."""

    calls: list[float]
    """Seconds of the calls still to come, the next one last."""
    collapsed_at: int
    end: float = math.inf
    """When the time for it is over."""
    started: bool = False
    dropped: bool = False
    finished: bool = False
    hinted: bool = False


class Endpoint:
    """Workers that take jobs in order, and slots in which the calls of those jobs run, first come first served."""

    def __init__(self, inputs: PlanInputs) -> None:
        self.now = 0.0
        self.capacity = inputs.replicas * inputs.mentor_slots
        self.busy_seconds = 0.0
        self.unstarted: deque[Job] = deque()
        self.unfinished = 0
        self._deadline = inputs.mentor_deadline
        self._idle_workers = inputs.mentor_max_concurrency
        self._free_slots = self.capacity
        self._line: deque[Job] = deque()
        self._running: list[tuple[float, int, Job]] = []
        self._started_calls = 0

    def add(self, jobs: Sequence[Job]) -> None:
        self.unstarted += jobs
        self.unfinished += len(jobs)
        self._start()

    def clear(self) -> None:
        """Forget the jobs that nobody has begun."""
        self.unfinished -= len(self.unstarted)
        self.unstarted.clear()

    def advance(self, until: float, *, while_unfinished: bool = False) -> None:
        """Let time pass: up to a moment or, if asked for, up to the end of the last job if that comes first."""
        while self._running and self._running[0][0] <= until and (self.unfinished or not while_unfinished):
            self.now, _, job = heapq.heappop(self._running)
            self._free_slots += 1
            while self._line and self._free_slots:
                self._call(self._line.popleft())
            self._call(job)
            self._start()
        if self.unfinished or not while_unfinished:
            self.now = until

    def _start(self) -> None:
        while self._idle_workers and self.unstarted:
            job = self.unstarted.popleft()
            if job.dropped:
                self.unfinished -= 1
                continue
            self._idle_workers -= 1
            job.started = True
            job.end = min(job.end, self.now + self._deadline)
            self._call(job)

    def _call(self, job: Job) -> None:
        """The next call of a job, now or when a slot is free; a call ends with the time for its job at the latest."""
        if not job.calls or self.now >= job.end:
            job.finished, job.hinted = True, not job.calls
            self._idle_workers += 1
            self.unfinished -= 1
        elif not self._free_slots:
            self._line.append(job)
        else:
            seconds = min(job.calls[-1], job.end - self.now)
            if seconds == job.calls[-1]:
                job.calls.pop()
            self._free_slots -= 1
            self._started_calls += 1
            self.busy_seconds += seconds
            heapq.heappush(self._running, (self.now + seconds, self._started_calls, job))


class Cluster:
    """The simulated run."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.inputs = scenario, scenario.inputs
        self.rng = random.Random(scenario.seed)
        self.arrays = np.random.default_rng(scenario.seed)
        self.endpoint = Endpoint(scenario.inputs)
        self.queue: list[Job] = []

    def run(self) -> list[Step]:
        return [self._step(number) for number in range(self.scenario.steps)]

    def _step(self, number: int) -> Step:
        inputs, endpoint = self.inputs, self.endpoint
        rows = math.ceil(inputs.groups * inputs.num_generations / inputs.ranks)
        step = Step(first_roll=self._roll_seconds(rows), training=inputs.training_seconds)
        endpoint.advance(endpoint.now + step.first_roll)
        collapsed = [Job(call_seconds(self.scenario, self.rng)[::-1], number) for _ in range(self._collapsed())]
        step.collapsed = len(collapsed)
        if inputs.schedule is ScheduleKind.INLINE:
            self._mentor_inline(collapsed, step)
        else:
            self._mentor_ahead(collapsed, step)
        if step.rerolled:
            rows = rows_per_rank(step.rerolled, group_size=inputs.num_generations, world_size=inputs.ranks)
            step.reroll = self._roll_seconds(rows)
        endpoint.advance(endpoint.now + step.reroll + step.training)
        return step

    def _collapsed(self) -> int:
        if self.inputs.collapsed_groups is not None:
            return self.inputs.collapsed_groups
        return int(self.arrays.binomial(self.inputs.groups, self.inputs.collapse_share))

    def _roll_seconds(self, rows: int) -> float:
        """Each rank rolls its rows as fast as its tokens come; the slowest rank decides."""
        inputs, sigma = self.inputs, _sigma(self.scenario.length_spread)
        lengths = self.arrays.lognormal(-(sigma**2) / 2, sigma, (inputs.ranks, rows)) * inputs.completion_tokens
        return inputs.roll_seconds + float(lengths.sum(axis=1).max()) / inputs.policy_tokens_per_second

    def _mentor_inline(self, collapsed: list[Job], step: Step) -> None:
        """The step waits until each of its groups has a hint, or for the deadline."""
        began = self.endpoint.now
        end = began + self.inputs.mentor_deadline
        for job in collapsed:
            job.end = end
        self.endpoint.add(collapsed)
        self.endpoint.advance(end, while_unfinished=True)
        self.endpoint.clear()
        step.wait = self.endpoint.now - began
        step.rerolled = sum(job.hinted for job in collapsed)

    def _mentor_ahead(self, collapsed: list[Job], step: Step) -> None:
        """Lessons that are ready, oldest first, take the places of these groups, which are queued.

        A full queue drops what has waited longest for its turn, as `LessonQueue` does.
        """
        kept = []
        for job in self.queue:
            if not job.finished or step.rerolled == step.collapsed:
                kept.append(job)
            elif job.hinted:
                step.rerolled += 1
                step.ages.append(collapsed[0].collapsed_at - job.collapsed_at)
        queue = kept + collapsed
        too_many = max(len(queue) - self.inputs.mentor_queue_size, 0)
        for job in [job for job in queue if not job.started][:too_many]:
            job.dropped = True
            step.dropped += 1
        self.queue = [job for job in queue if not job.dropped]
        self.endpoint.add(collapsed)


def call_seconds(scenario: Scenario, rng: random.Random) -> list[float]:
    """Seconds of the calls for one group: diagnosis, then drafts, each with its reviews and repairs."""
    if scenario.recorded:
        return list(rng.choice(scenario.recorded))
    mean, sigma = scenario.inputs.seconds_per_call, _sigma(scenario.call_spread)
    return [mean * math.exp(rng.gauss(-(sigma**2) / 2, sigma)) for _ in range(_calls(scenario, rng))]


def _calls(scenario: Scenario, rng: random.Random) -> int:
    calls = 1
    for _ in range(scenario.max_retry):
        for _ in range(scenario.max_refine):
            calls += 2  # a draft or a repair, and its review
            if rng.random() < scenario.accept_rate:
                return calls
    return calls


def averages(scenario: Scenario, groups: int = 4000) -> PlanInputs:
    """The inputs of a plan with the mean and the spread of this scenario's groups in them."""
    rng = random.Random(scenario.seed + 1)
    drawn = [call_seconds(scenario, rng) for _ in range(groups)]
    totals = [sum(calls) for calls in drawn]
    calls = fmean(map(len, drawn))
    mean = fmean(totals)
    return replace(
        scenario.inputs,
        length_spread=scenario.length_spread,
        calls_per_group=calls,
        call_seconds=mean / calls,
        group_spread=float(np.std(totals)) / mean if mean else 0.0,
    )


def _sigma(spread: float) -> float:
    """Sigma of a lognormal whose standard deviation is `spread` times its mean."""
    return math.sqrt(math.log1p(spread**2))


def simulate(scenario: Scenario) -> dict[str, Any]:
    """Means of a simulated run beside the plan for the same averages; its first tenth of steps is left out."""
    cluster = Cluster(scenario)
    inputs, steps, endpoint = scenario.inputs, cluster.run(), cluster.endpoint
    counted = steps[len(steps) // 10 :]
    seconds = [step.seconds for step in counted]
    collapsed = max(sum(step.collapsed for step in counted), 1)
    ages = [age for step in counted for age in step.ages]
    planned = predict(averages(scenario))
    return {
        "ranks": inputs.ranks,
        "groups": inputs.groups,
        "replicas": inputs.replicas,
        "mentor_max_concurrency": inputs.mentor_max_concurrency,
        "schedule": inputs.schedule.value,
        "plain_step": fmean(step.first_roll + step.training for step in counted),
        "step": fmean(seconds),
        "step_p95": float(np.quantile(seconds, 0.95)),
        "wait": fmean(step.wait for step in counted),
        "reroll": fmean(step.reroll for step in counted),
        "rerolled_share": sum(step.rerolled for step in counted) / collapsed,
        "dropped_share": sum(step.dropped for step in counted) / collapsed,
        "staleness": fmean(ages) if ages else 0.0,
        "slots_busy": endpoint.busy_seconds / (endpoint.capacity * endpoint.now) if endpoint.now else 0.0,
        "planned_step": planned.step,
        "planned_wait": planned.mentor_wait,
        "planned_staleness": planned.staleness,
    }
