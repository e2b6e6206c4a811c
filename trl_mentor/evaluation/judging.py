"""The verdict on completions, by the verifiers that the rewards use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from trl_mentor.evaluation.benchmarks import Benchmark, Item
from trl_mentor.rewards.choice import judge_choices
from trl_mentor.rewards.code import judge_code
from trl_mentor.rewards.judgement import Judgement
from trl_mentor.rewards.math import judge_math
from trl_mentor.tasks.records import Kind

JUDGES: Mapping[Kind, Callable[[Sequence[str], Sequence[str]], list[Judgement]]] = {
    Kind.MATH: judge_math,
    Kind.CODE: judge_code,
    Kind.CHOICE: judge_choices,
}


def judge(benchmark: Benchmark, items: Sequence[Item], texts: Sequence[str]) -> list[Judgement]:
    """A verdict on each text as an answer to its problem; what the verifier cannot judge has an error, not a score.

    Where another harness judges there is neither.
    """
    if benchmark.export:
        return [Judgement(None)] * len(texts)
    return JUDGES[benchmark.kind](texts, [item.reference or "" for item in items])
