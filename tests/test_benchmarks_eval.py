"""The verdicts with which `benchmarks/eval_smollm2.py` checks an evaluation."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import eval_smollm2_judges


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("so \\boxed{1} or rather \\boxed{1,234}", 1234.0),
        ("it is \\boxed{\\$18.50}", 18.5),
        ("The answer is 7.", 7.0),
        ("I say\n#### 12", 12.0),
        ("thus $x = 3$.", 3.0),
        ("that is $3$ of 4 apples", None),
        ("\\boxed{3, 4}", None),
        ("So the answer is 5 + 8 = 13.", 13.0),
        ("1 + 5 = 6", 6.0),
        ("the answer is 5 + 5", 10.0),
        ("", None),
    ],
)
def test_a_stated_number_is_read(text, number):
    assert eval_smollm2_judges.stated_number(text) == number


def test_the_last_block_is_the_program():
    judges = eval_smollm2_judges
    assert judges.program("a\n```python\nx = 1\n```\nb\n```\ny = 2\n```\n") == "y = 2\n"
    assert judges.program("```python\nx = 1\n") == "x = 1\n"
    assert judges.program("no block") is None


def test_reference_solutions_are_right_and_empty_bodies_wrong():
    judge = eval_smollm2_judges.humaneval_judge()
    problem = eval_smollm2_judges.read_problems()["HumanEval/0"]
    for body, right in ((problem["canonical_solution"], True), ("    return None\n", False)):
        assert judge({"problem": "HumanEval/0", "completion": f"```python\n{problem['prompt']}{body}\n```"}) is right
