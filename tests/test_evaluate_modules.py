"""The package's modules of the library `evaluate`, loaded as its users load them."""

from __future__ import annotations

import sys
from statistics import fmean

import evaluate
import pytest

from trl_mentor.errors import ConfigError
from trl_mentor.evaluation import module_path
from trl_mentor.evaluation.estimators import maj_at_k, pass_at_k
from trl_mentor.rewards.math import judge_math


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    """`evaluate.load` with all that it writes in a folder of the test's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate.config, "HF_MODULES_CACHE", str(tmp_path_factory.mktemp("modules")))
        patch.setattr(sys, "path", list(sys.path))
        folder = str(tmp_path_factory.mktemp("data"))
        yield lambda name: evaluate.load(module_path(name), cache_dir=folder)


def test_pass_at_k_is_the_estimators(load):
    metric = load("pass_at_k")
    scores = [[1, 0, 0, 0.5], [0, 0, 0, 0], [1, 1, 1, 1]]
    found = metric.compute(predictions=scores, k=[1, 2, 4])
    assert found == {f"pass@{k}": fmean(pass_at_k(4, right, k) for right in (1, 0, 4)) for k in (1, 2, 4)}
    assert metric.compute(predictions=scores) == {"pass@1": found["pass@1"]}


def test_batches_and_single_problems_add_up(load):
    metric = load("pass_at_k")
    metric.add_batch(predictions=[[1, 0], [0, 0]])
    metric.add(prediction=[True, True])
    assert metric.compute(k=[1, 2]) == {"pass@1": 0.5, "pass@2": pytest.approx(2 / 3)}


def test_maj_at_k_is_the_estimators_and_leaves_out_what_has_no_answer(load):
    metric = load("maj_at_k")
    answers, references = [["7", "7", "3"], ["", "6", ""]], ["7", "6"]
    found = metric.compute(predictions=answers, references=references, k=[1, 3])
    first = maj_at_k(["7", "7", "3"], [True, True, False], 1)
    assert found == {"maj@1": pytest.approx((first + 1 / 3) / 2), "maj@3": 1.0}
    assert metric.compute(predictions=answers, references=references) == {"maj@3": 1.0}


def test_math_accuracy_is_the_verifiers_of_the_reward(load):
    metric = load("math_accuracy")
    texts, references = ["So it is \\boxed{0.5}.", "Hence \\boxed{3}.", "I do not know."], ["1/2", "4", "7"]
    judged = judge_math(texts, references)
    found = metric.compute(predictions=texts, references=references)
    assert found["accuracy"] == fmean(judgement.right for judgement in judged) == pytest.approx(1 / 3)
    assert (found["unreadable"], found["unjudged"]) == (pytest.approx(1 / 3), 0)
    unjudged = metric.compute(predictions=["\\boxed{0.5}", "I do not know."], references=["", "7"])
    assert unjudged == {"accuracy": 0.0, "unreadable": 0.5, "unjudged": 1}
    several = metric.compute(predictions=[["\\boxed{0.5}", "\\boxed{2}"]], references=["1/2"])
    assert several["accuracy"] == 0.5


def test_modules_of_the_same_inputs_are_combined(load):
    both = evaluate.combine([load("math_accuracy"), load("maj_at_k")])
    found = both.compute(predictions=[["7", "7", "3"]], references=["7"])
    assert found == {"accuracy": pytest.approx(2 / 3), "unreadable": 0.0, "unjudged": 0, "maj@3": 1.0}


@pytest.mark.parametrize("name", ["pass_at_k", "maj_at_k", "math_accuracy"])
def test_a_module_describes_itself(load, name):
    info = load(name).info
    assert (info.module_name, info.module_type) == (name, "metric")
    assert info.description
    assert "Returns:" in info.inputs_description
    assert info.citation.startswith("@")


def test_too_few_completions_and_unknown_names_are_said(load):
    with pytest.raises(ValueError, match="expected k between 1 and the 1 completions"):
        load("pass_at_k").compute(predictions=[[1, 0], [1]], k=[2])
    with pytest.raises(ConfigError, match=r"choose from maj_at_k, math_accuracy, pass_at_k"):
        module_path("bleu")
