"""Which engine generates, and its construction."""

from __future__ import annotations

import importlib.util

import torch

from trl_mentor.errors import ConfigError
from trl_mentor.evaluation.engine import Engine
from trl_mentor.evaluation.settings import EngineKind, Policy, Sampling


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
