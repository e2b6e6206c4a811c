"""The loop of an evaluation: generate what is missing, judge the last batch meanwhile, keep every completion."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from trl_mentor.evaluation.benchmarks import Benchmark, Item
from trl_mentor.evaluation.engine import Engine, Generation, Request
from trl_mentor.evaluation.judging import judge
from trl_mentor.evaluation.records import Sample
from trl_mentor.evaluation.settings import Sampling
from trl_mentor.evaluation.store import Folder
from trl_mentor.rewards.judgement import Judgement

Draw = tuple[Item, int]
"""A problem and which of its completions."""


@dataclass(slots=True)
class Standing:
    """How far a benchmark is, completions of earlier runs included."""

    benchmark: str
    total: int
    done: int = 0
    judged: int = 0
    """None of them where another harness judges."""
    right: int = 0
    tokens: int = 0
    errors: int = 0
    """Completions that could not be judged, which count as wrong."""

    def add(self, samples: Sequence[Sample]) -> None:
        """Count completions that are kept."""
        self.done += len(samples)
        self.judged += sum(sample.score is not None for sample in samples)
        self.right += sum(sample.score == 1.0 for sample in samples)
        self.tokens += sum(sample.tokens for sample in samples)
        self.errors += sum(sample.error is not None for sample in samples)


Report = Callable[[Standing], None]


def missing(folder: Folder, benchmark: Benchmark, sampling: Sampling) -> list[Draw]:
    """The completions that are yet to be drawn, all of a problem together."""
    there = {(sample.problem, sample.index) for sample in folder.samples(benchmark.name)}
    return [
        (item, index)
        for item in benchmark.items
        for index in range(sampling.num_samples)
        if (item.id, index) not in there
    ]


def evaluate(folder: Folder, benchmark: Benchmark, engine: Engine, sampling: Sampling, report: Report) -> None:
    """Draw what is missing. The caller holds the folder's lock.

    Samples are judged and written in a thread of their own while the next batch is generated. An interrupt reaches the
    main thread alone, so it never tears a line, and the batch that is judged at that time is still kept.
    """
    folder.drop_torn_line(benchmark.name)
    standing = Standing(benchmark.name, len(benchmark.items) * sampling.num_samples)
    standing.add(folder.samples(benchmark.name))
    report(standing)

    def keep(draws: Sequence[Draw], generations: Sequence[Generation]) -> None:
        samples = judged(benchmark, draws, generations)
        folder.append(benchmark.name, samples)
        standing.add(samples)
        report(standing)

    with ThreadPoolExecutor(max_workers=1) as thread:
        pending = None
        for draws in _batches(missing(folder, benchmark, sampling), engine.batch_size):
            generations = engine.generate(
                [Request(item.messages, sampling.seed_of(benchmark.name, item.id, index)) for item, index in draws]
            )
            if pending is not None:
                pending.result()
            pending = thread.submit(keep, draws, generations)
        if pending is not None:
            pending.result()


def judged(benchmark: Benchmark, draws: Sequence[Draw], generations: Sequence[Generation]) -> list[Sample]:
    """Samples from what the engine returned; where it returned no completion, there is nothing to judge."""
    samples = [
        Sample(benchmark.name, item.id, index, made.text, made.tokens, made.truncated, None, error=made.error)
        for (item, index), made in zip(draws, generations, strict=True)
    ]
    return rescored(benchmark, samples)


def rescored(benchmark: Benchmark, samples: Sequence[Sample]) -> list[Sample]:
    """The same completions with a fresh verdict on each that has tokens."""
    items = {item.id: item for item in benchmark.items}
    asked = [sample for sample in samples if sample.tokens]
    verdicts = iter(judge(benchmark, [items[s.problem] for s in asked], [s.completion for s in asked]))
    return [_with_verdict(sample, next(verdicts)) if sample.tokens else sample for sample in samples]


def _with_verdict(sample: Sample, verdict: Judgement) -> Sample:
    return replace(sample, score=verdict.score, answer=verdict.answer, error=verdict.error)


def _batches(draws: Sequence[Draw], size: int) -> Iterator[Sequence[Draw]]:
    yield from (draws[start : start + size] for start in range(0, len(draws), size))
