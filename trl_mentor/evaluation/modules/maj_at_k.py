"""maj@k as a module of `evaluate`; computed by `trl_mentor.evaluation.estimators`."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import datasets
import evaluate

from trl_mentor.evaluation.estimators import maj_at_k

_DESCRIPTION = """\
maj@k, also called self-consistency or cons@k: how often the most frequent answer of k completions is right, as the
mean over all subsets of k of the n >= k completions of each problem, averaged over problems. Ties are split evenly.
"""

_INPUTS = """
Args:
    predictions: for each problem the answers of its completions, as texts that are equal for equal answers. An empty
        text stands for a completion without an answer, which does not vote.
    references: for each problem the text of the right answer.
    k: the numbers of completions to report. Default: all completions of the problem that has the fewest.
Returns:
    a figure for each k, by the names "maj@4", "maj@16", ...
Example:
    >>> metric = evaluate.load(trl_mentor.evaluation.module_path("maj_at_k"))
    >>> metric.compute(predictions=[["7", "7", "3"], ["5", "", "6"]], references=["7", "6"])
    {'maj@3': 0.75}
"""

_CITATION = """\
@inproceedings{wang2023selfconsistency,
  title={Self-Consistency Improves Chain of Thought Reasoning in Language Models},
  author={Wang, Xuezhi and Wei, Jason and Schuurmans, Dale and Le, Quoc and Chi, Ed and Narang, Sharan and others},
  booktitle={International Conference on Learning Representations},
  year={2023}
}
"""


class MajAtK(evaluate.Metric):  # type: ignore[misc]
    """maj@k of problems with several answers each."""

    def _info(self) -> evaluate.MetricInfo:
        answers = datasets.Sequence(datasets.Value("string"))
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_INPUTS,
            features=datasets.Features({"predictions": answers, "references": datasets.Value("string")}),
            reference_urls=["https://arxiv.org/abs/2203.11171"],
        )

    def _compute(
        self, predictions: Sequence[Sequence[str]], references: Sequence[str], k: Sequence[int] | None = None
    ) -> dict[str, float]:
        problems = [
            ([answer or None for answer in answers], [answer == reference for answer in answers])
            for answers, reference in zip(predictions, references, strict=True)
        ]
        numbers = [min(map(len, predictions))] if k is None else k
        return {f"maj@{number}": fmean(maj_at_k(*problem, number) for problem in problems) for number in numbers}
