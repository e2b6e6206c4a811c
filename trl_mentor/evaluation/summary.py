"""What an evaluation found: the figures of each benchmark and of each kind of benchmark, from its samples.

A completion is right if its score is 1, so a program only if every test passes; one that could not be judged is
wrong, and counted. pass@1 is the mean of right over all completions, which is avg@k as well; each problem weighs the
same, however many completions it has.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from trl_mentor.evaluation.estimators import macro_average, maj_at_k, pass_at_k, share
from trl_mentor.evaluation.intervals import Estimate, Gain, estimate, gain
from trl_mentor.evaluation.records import Sample
from trl_mentor.plain import plain_json
from trl_mentor.tasks.records import Kind

Problems = Mapping[str, Sequence[Sample]]
"""The samples of a benchmark, by problem."""


@dataclass(frozen=True, slots=True)
class BenchmarkSummary:
    """The figures of one benchmark."""

    benchmark: str
    kind: Kind
    problems: int
    samples: int
    fewest: int
    """Completions of the problem that has the fewest; less than `most` where a run was interrupted."""
    most: int
    pass_at: Mapping[int, Estimate | None]
    """By k, and always for 1; None where some problem has fewer than k completions."""
    maj_at: Mapping[int, Estimate | None]
    """The same for the vote; empty for programs, which do not vote."""
    truncated: float
    """Share of the completions that ran into the token limit."""
    unreadable: float | None
    """Share that were judged to have no answer that could be read; None for programs."""
    unjudged: int
    """Completions that could not be judged, which count as wrong."""
    mean_tokens: float
    gain: Gain | None
    """pass@1 against the base run on the problems of both; None without one."""


@dataclass(frozen=True, slots=True)
class Average:
    """All benchmarks of one kind as one figure: the paper's sample-weighted average, where each problem counts one."""

    kind: Kind
    benchmarks: tuple[str, ...]
    problems: int
    pass_at: Mapping[int, Estimate | None]
    maj_at: Mapping[int, Estimate | None]
    macro: float
    """The plain mean of the benchmarks' pass@1."""
    gain: Gain | None


@dataclass(frozen=True, slots=True)
class Summary:
    """An evaluation, for results.json and for tables."""

    benchmarks: tuple[BenchmarkSummary, ...]
    averages: tuple[Average, ...]
    """One per kind: programs, mathematics and options are not averaged with one another."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON with k as text; an infinite end of an interval is null."""
        plain: dict[str, Any] = plain_json(self)
        return plain


def summarize(
    samples: Iterable[Sample], kinds: Mapping[str, Kind], *, ks: Iterable[int] = (), base: Iterable[Sample] = ()
) -> Summary:
    """The figures of a run for each k of `ks`, and its gain over a base run, with 95 % intervals.

    `kinds` has the kind of every benchmark; its order is that of the summary. Raises `ValueError` for a benchmark
    without a kind, for a completion that is there twice and for k < 1.
    """
    wanted = sorted({1, *ks})
    if wanted[0] < 1:
        raise ValueError(f"expected numbers of completions from 1, got k={wanted[0]}")
    runs, bases = _by_benchmark(samples), _by_benchmark(base)
    if unknown := sorted(runs.keys() - kinds.keys()):
        raise ValueError(f"expected a kind for every benchmark, got none for {', '.join(unknown)}")
    names = [name for name in kinds if name in runs]
    found = {name: _benchmark(name, kinds[name], runs[name], bases.get(name, {}), wanted) for name in names}
    averages = []
    for kind in dict.fromkeys(kinds[name] for name in names):
        group = [name for name in names if kinds[name] is kind]
        macro = macro_average([fmean(_pass_at(runs[name], 1)) for name in group])
        averages.append(_average(kind, {name: runs[name] for name in group}, bases, macro, wanted))
    return Summary(tuple(found.values()), tuple(averages))


def _by_benchmark(samples: Iterable[Sample]) -> dict[str, dict[str, list[Sample]]]:
    found: dict[str, dict[str, list[Sample]]] = defaultdict(lambda: defaultdict(list))
    seen = Counter[tuple[str, str, int]]()
    for sample in samples:
        place = (sample.benchmark, sample.problem, sample.index)
        if place in seen:
            raise ValueError(f"completion {sample.index} of {sample.benchmark}/{sample.problem} is there twice")
        seen[place] += 1
        found[sample.benchmark][sample.problem].append(sample)
    return {name: dict(problems) for name, problems in found.items()}


def _benchmark(name: str, kind: Kind, problems: Problems, base: Problems, ks: Sequence[int]) -> BenchmarkSummary:
    samples = [sample for completions in problems.values() for sample in completions]
    numbers = [len(completions) for completions in problems.values()]
    programs = kind is Kind.CODE
    unreadable = share(sample.answer is None and sample.score is not None for sample in samples)
    return BenchmarkSummary(
        benchmark=name,
        kind=kind,
        problems=len(problems),
        samples=len(samples),
        fewest=min(numbers),
        most=max(numbers),
        pass_at={k: _figure([_pass_at(problems, k)]) for k in ks},
        maj_at={} if programs else {k: _figure([_maj_at(problems, k)]) for k in ks},
        truncated=share(sample.truncated for sample in samples),
        unreadable=None if programs else unreadable,
        unjudged=sum(sample.score is None for sample in samples),
        mean_tokens=fmean(sample.tokens for sample in samples),
        gain=_gain([(problems, base)]),
    )


def _average(
    kind: Kind, runs: Mapping[str, Problems], bases: Mapping[str, Problems], macro: float, ks: Sequence[int]
) -> Average:
    benchmarks = list(runs.values())
    programs = kind is Kind.CODE
    return Average(
        kind=kind,
        benchmarks=tuple(runs),
        problems=sum(map(len, benchmarks)),
        pass_at={k: _figure([_pass_at(problems, k) for problems in benchmarks]) for k in ks},
        maj_at={} if programs else {k: _figure([_maj_at(problems, k) for problems in benchmarks]) for k in ks},
        macro=macro,
        gain=_gain([(problems, bases.get(name, {})) for name, problems in runs.items()]),
    )


def _figure(benchmarks: Sequence[Sequence[float]]) -> Estimate | None:
    return estimate(benchmarks) if all(benchmarks) else None


def _gain(runs: Sequence[tuple[Problems, Problems]]) -> Gain | None:
    """pass@1 of a run and its base on the problems that both have; None if there are none."""
    paired = [
        [(_passed(problems[name], 1), _passed(base[name], 1)) for name in problems if name in base]
        for problems, base in runs
    ]
    shared = [pairs for pairs in paired if pairs]
    return gain(shared) if shared else None


def _pass_at(problems: Problems, k: int) -> list[float]:
    """pass@k of each problem; nothing if one has fewer than k completions, as a figure of the others would flatter."""
    if min(map(len, problems.values())) < k:
        return []
    return [_passed(completions, k) for completions in problems.values()]


def _passed(completions: Sequence[Sample], k: int) -> float:
    return pass_at_k(len(completions), sum(_right(completions)), k)


def _maj_at(problems: Problems, k: int) -> list[float]:
    if min(map(len, problems.values())) < k:
        return []
    return [maj_at_k([sample.answer for sample in some], _right(some), k) for some in problems.values()]


def _right(completions: Sequence[Sample]) -> list[bool]:
    return [sample.score == 1.0 for sample in completions]
