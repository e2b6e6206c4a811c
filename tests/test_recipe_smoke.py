"""The smoke recipe: its verifier says right or wrong, and its settings are ones that the training accepts."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import yaml

from trl_mentor.settings import MentorArguments

RECIPE = Path(__file__).parents[1] / "recipes" / "smoke"


@pytest.fixture(scope="module")
def verifier():
    spec = importlib.util.spec_from_file_location("smoke_rewards", RECIPE / "rewards.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.last_number_is_answer


@pytest.mark.parametrize(
    ("text", "answer", "reward"),
    [
        ("4 - 1 = 3", "3", 1.0),
        ("The answer is 3.", "3", 1.0),
        ("It is 3, because 5 - 2 is that.", "3", 0.0),
        ("He earns 28,080 in all.", "28080", 1.0),
        ("Then 28,080.00", "28080", 1.0),
        ("0 - 4 = -4", "-4", 1.0),
        ("0 - 4 = 4", "-4", 0.0),
        ("13", "3", 0.0),
        ("no number", "3", 0.0),
        ("", "3", 0.0),
    ],
)
def test_the_last_number_decides_in_both_shapes_of_a_completion(verifier, text, answer, reward):
    assert verifier(completions=[text], answer=[answer], prompts=["?"]) == [reward]
    assert verifier(completions=[[{"role": "assistant", "content": text}]], answer=[answer]) == [reward]


def test_the_recipes_mentor_settings_exist_and_are_accepted():
    recipe = yaml.safe_load((RECIPE / "grpo.yaml").read_text(encoding="utf-8"))
    settings = {name: value for name, value in recipe.items() if name.startswith("mentor_")}
    assert MentorArguments(**settings).mentor_model == recipe["model_name_or_path"]
