"""Optimizer steps without a gradient, in which momentum and weight decay would move the weights nevertheless."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from trl_mentor.errors import ConfigError
from trl_mentor.exchange import Exchange

_IN_BACKWARD = ("layerwise", "lomo")
"""In the names of optimizers that step while gradients are computed."""


class EmptySteps(TrainerCallback):  # type: ignore[misc]
    """Leaves weights and optimizer as they are in steps whose gradients are zero everywhere.

    It takes such gradients away, and optimizers pass over parameters without one. The step is counted and the learning
    rate goes on as in any other. All ranks leave a step out or none does.
    """

    def __init__(self, exchange: Exchange, left_out: Callable[[], None]) -> None:
        """`left_out` is called on every rank for each step that is left out."""
        self._exchange = exchange
        self._left_out = left_out

    def on_pre_optimizer_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        optimizer: torch.optim.Optimizer | None = None,
        **kwargs: Any,
    ) -> None:
        if optimizer is None or self._exchange.total(int(any(map(_has_signal, _gradients(optimizer))))):
            return
        for parameter in _parameters(optimizer):
            parameter.grad = None
        self._left_out()


def refuse_skipping(args: Any, *, scaled: bool, deepspeed: bool) -> None:
    """Raise `ConfigError` where no callback can keep the optimizer from stepping.

    `scaled` says whether gradients are scaled for fp16, `deepspeed` whether DeepSpeed steps.
    """
    optimizer = str(getattr(args.optim, "value", args.optim))
    reasons = {
        "under DeepSpeed, which steps by itself": deepspeed,
        "with fp16, whose gradient scaler fails without gradients; use bf16": scaled,
        f"with optim={optimizer!r}, which steps while gradients are computed": any(
            part in optimizer for part in _IN_BACKWARD
        ),
    }
    for reason, applies in reasons.items():
        if applies:
            raise ConfigError(f"mentor_skip_empty_steps cannot keep weights as they are {reason}; leave it out")


def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[torch.nn.Parameter]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _gradients(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """This rank's part of each gradient."""
    for parameter in _parameters(optimizer):
        if parameter.grad is not None:
            yield parameter.grad.to_local() if hasattr(parameter.grad, "to_local") else parameter.grad


def _has_signal(gradient: torch.Tensor) -> bool:
    """Whether it has a number other than zero; NaN is one."""
    return bool(torch.count_nonzero(gradient))
