"""What an engine is to an evaluation, and how a question becomes the tokens that any engine is given."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from trl_mentor.errors import ConfigError
from trl_mentor.evaluation.settings import EngineKind, Policy, Sampling


@dataclass(frozen=True, slots=True)
class Request:
    """One completion to draw."""

    messages: Sequence[dict[str, Any]]
    seed: int


@dataclass(frozen=True, slots=True)
class Generation:
    """What a model wrote."""

    text: str
    tokens: int
    """All that were generated, the one that ends it included."""
    truncated: bool
    error: str | None = None
    """Why there is no completion: the question does not fit the model."""


class Engine(Protocol):
    """Generates completions."""

    batch_size: int
    """How many requests to hand over at once."""

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        """One completion for each request, in order."""
        ...


def choose_engine(asked: str) -> EngineKind:
    """The engine for `auto`, vllm or transformers. Raises `ConfigError` for vLLM where it is not installed.

    `auto` is vLLM where that is installed beside a GPU: on a CPU it starts slowly and generates no faster.
    """
    installed = importlib.util.find_spec("vllm") is not None
    if asked == "auto":
        return EngineKind.VLLM if installed and torch.cuda.is_available() else EngineKind.TRANSFORMERS
    if asked == EngineKind.VLLM and not installed:
        raise ConfigError(
            "--engine vllm needs vLLM, which is not installed: pip install vllm, or --engine transformers"
        )
    return EngineKind(asked)


def load_engine(
    kind: EngineKind,
    policy: Policy,
    sampling: Sampling,
    *,
    batch_size: int | None = None,
    tensor_parallel_size: int = 1,
    gpu_memory_utilization: float = 0.9,
) -> Engine:
    """Load the model. Raises `ConfigError` or `OSError` where that cannot be."""
    # Each engine is imported where it is asked for: vLLM is an optional SDK.
    if kind is EngineKind.VLLM:
        from trl_mentor.evaluation.engine_vllm import VLLMEngine

        return VLLMEngine(
            policy,
            sampling,
            batch_size=batch_size,
            tensor_parallel_size=tensor_parallel_size,
            gpu_memory_utilization=gpu_memory_utilization,
        )
    from trl_mentor.evaluation.engine_transformers import TransformersEngine

    return TransformersEngine(policy, sampling, batch_size=batch_size)


class Prompts:
    """Renders questions with the policy's chat template; a base model, which has none, gets the plain text."""

    def __init__(self, policy: Policy) -> None:
        self.tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(policy.model, revision=policy.revision)
        if policy.chat_template is not None:
            self.tokenizer.chat_template = policy.chat_template
        self._kwargs = dict(policy.chat_template_kwargs)

    def ids(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        """The prompt in tokens."""
        if self.tokenizer.chat_template is None:
            text = "\n\n".join(message["content"] for message in messages)
            return list(self.tokenizer(text)["input_ids"])
        rendered = self.tokenizer.apply_chat_template(
            list(messages), add_generation_prompt=True, return_dict=True, **self._kwargs
        )
        return list(rendered["input_ids"])


def room(prompt_tokens: int, context: int | None, sampling: Sampling) -> int:
    """Most tokens that a completion may have; 0 or less if the prompt alone is too long."""
    return sampling.max_new_tokens if context is None else min(sampling.max_new_tokens, context - prompt_tokens)


def no_room(prompt_tokens: int, context: int | None) -> Generation:
    """What stands for a completion where the question does not fit: it counts as wrong."""
    return Generation("", 0, True, error=f"the question has {prompt_tokens} tokens; the model takes {context} in all")
