"""pass@k as a module of `evaluate`; computed by `trl_mentor.evaluation.estimators`."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import datasets
import evaluate

from trl_mentor.evaluation.estimators import pass_at_k

_DESCRIPTION = """\
pass@k: how likely it is that at least one of k completions of a problem is right, estimated without bias from n >= k
completions of each problem, and averaged over problems. pass@1 is the mean of right, also called avg@n.
"""

_INPUTS = """
Args:
    predictions: for each problem the scores of its completions; 1 is right, anything less is wrong.
    k: the numbers of completions to report, each at most that of the problem with the fewest. Default: [1].
Returns:
    a figure for each k, by the names "pass@1", "pass@8", ...
Example:
    >>> metric = evaluate.load(trl_mentor.evaluation.module_path("pass_at_k"))
    >>> metric.compute(predictions=[[1, 0, 0, 0], [0, 0, 0, 0]], k=[1, 2])
    {'pass@1': 0.125, 'pass@2': 0.25}
"""

_CITATION = """\
@article{chen2021evaluating,
  title={Evaluating Large Language Models Trained on Code},
  author={Chen, Mark and Tworek, Jerry and Jun, Heewoo and Yuan, Qiming and others},
  journal={arXiv preprint arXiv:2107.03374},
  year={2021}
}
"""


class PassAtK(evaluate.Metric):  # type: ignore[misc]
    """pass@k of problems with several scored completions each."""

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_INPUTS,
            features=datasets.Features({"predictions": datasets.Sequence(datasets.Value("float64"))}),
            reference_urls=["https://arxiv.org/abs/2107.03374"],
        )

    def _compute(self, predictions: Sequence[Sequence[float]], k: Sequence[int] = (1,)) -> dict[str, float]:
        counts = [(len(scores), sum(score == 1 for score in scores)) for scores in predictions]
        return {f"pass@{number}": fmean(pass_at_k(*count, number) for count in counts) for number in k}
