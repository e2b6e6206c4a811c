"""MENTOR for Hugging Face TRL: GRPO's zero-reward groups become lessons.

Names are imported on first use, so that `import trl_mentor` needs neither torch nor TRL.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trl_mentor.backends.openai import OpenAIBackend
    from trl_mentor.backends.scripted import ScriptedBackend
    from trl_mentor.backends.transformers import TransformersBackend
    from trl_mentor.backends.vllm import VLLMBackend
    from trl_mentor.callback import MentorCallback
    from trl_mentor.checkpoints import last_complete_checkpoint
    from trl_mentor.config import MentorGRPOConfig
    from trl_mentor.grpo_trainer import MentorGRPOTrainer
    from trl_mentor.journal import read_journal
    from trl_mentor.mentor import Mentor
    from trl_mentor.tasks.loading import load_task

_HOMES = {
    "Mentor": "mentor",
    "MentorCallback": "callback",
    "MentorGRPOConfig": "config",
    "MentorGRPOTrainer": "grpo_trainer",
    "OpenAIBackend": "backends.openai",
    "ScriptedBackend": "backends.scripted",
    "TransformersBackend": "backends.transformers",
    "VLLMBackend": "backends.vllm",
    "last_complete_checkpoint": "checkpoints",
    "load_task": "tasks.loading",
    "read_journal": "journal",
}

__all__ = [
    "Mentor",
    "MentorCallback",
    "MentorGRPOConfig",
    "MentorGRPOTrainer",
    "OpenAIBackend",
    "ScriptedBackend",
    "TransformersBackend",
    "VLLMBackend",
    "last_complete_checkpoint",
    "load_task",
    "read_journal",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
