"""SRPO (arXiv 2506.01713): the policy answers, reflects and answers again, and is paid for what reflection changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trl_mentor.assembly import add_hint
from trl_mentor.errors import ConfigError
from trl_mentor.records import Prompt
from trl_mentor.strategies.none import NoneStrategy

INSTRUCTION = (
    "Solve this twice. Write exactly these five parts and nothing outside of them:\n"
    "<think>your reasoning</think>\n"
    "<answer>your first answer</answer>\n"
    "<reflection>a short check of your reasoning: what is wrong, missing or needless in it</reflection>\n"
    "<think>your reasoning, improved by what the check found</think>\n"
    "<answer>your final answer</answer>\n"
    "Both answers take the form that the task asks for."
)
"""What follows the question, in words of this package."""


class SrpoStrategy(NoneStrategy):
    """GRPO on a reflection format, with a reward for it beside the task's own; no group is re-rolled.

    This is the paper's second stage. The first, supervised training on reflections, comes before the run and is not
    part of it. The reward is `rewards.reflection`, which the trainer adds to the user's.
    """

    name = "srpo"
    in_evaluation = True

    def first_prompt(self, prompt: Prompt, example: Mapping[str, Any], *, progress: float) -> Prompt:
        try:
            return add_hint(prompt, INSTRUCTION, "{question}\n\n{hint}")
        except ConfigError:  # a conversation without a user turn
            return prompt
