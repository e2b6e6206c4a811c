"""Accuracy of mathematical answers as a module of `evaluate`; judged by `trl_mentor.rewards.math`."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import datasets
import evaluate

from trl_mentor.evaluation.estimators import share
from trl_mentor.rewards.math import judge_math

_DESCRIPTION = """\
The share of completions whose final answer equals the reference as mathematics, by the verifier that trl-mentor's
math_reward uses. With several completions of each problem it is avg@n, the unbiased pass@1.
"""

_INPUTS = """
Args:
    predictions: for each problem a completion, or a list of completions.
    references: for each problem the right answer.
Returns:
    accuracy: the mean over problems of the share that is right; what could not be judged is wrong.
    unreadable: the share of completions that were judged to have no answer that could be read.
    unjudged: the number of completions that could not be judged.
Example:
    >>> metric = evaluate.load(trl_mentor.evaluation.module_path("math_accuracy"))
    >>> metric.compute(predictions=["So it is \\\\boxed{0.5}."], references=["1/2"])
    {'accuracy': 1.0, 'unreadable': 0.0, 'unjudged': 0}
"""

_CITATION = """\
@software{math_verify,
  title={Math-Verify},
  author={Kydl{\\'i}{\\v{c}}ek, Hynek},
  url={https://github.com/huggingface/Math-Verify}
}
"""


class MathAccuracy(evaluate.Metric):  # type: ignore[misc]
    """Accuracy of mathematical answers, of one completion per problem or several."""

    def _info(self) -> evaluate.MetricInfo:
        text = datasets.Value("string")
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_INPUTS,
            features=[
                datasets.Features({"predictions": datasets.Sequence(text), "references": text}),
                datasets.Features({"predictions": text, "references": text}),
            ],
            reference_urls=["https://github.com/huggingface/Math-Verify"],
        )

    def _compute(
        self, predictions: Sequence[str] | Sequence[Sequence[str]], references: Sequence[str]
    ) -> dict[str, float]:
        groups = [[texts] if isinstance(texts, str) else list(texts) for texts in predictions]
        texts = [text for group in groups for text in group]
        judged = judge_math(texts, [ref for ref, group in zip(references, groups, strict=True) for _ in group])
        verdicts = iter(judged)
        return {
            "accuracy": fmean(fmean(next(verdicts).right for _ in group) for group in groups),
            "unreadable": share(judgement.answer is None and judgement.score is not None for judgement in judged),
            "unjudged": sum(judgement.score is None for judgement in judged),
        }
