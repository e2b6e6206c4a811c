"""What decides the completions of an evaluation: the model, how it is sampled, and the seed of each sample."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from trl_mentor.errors import ConfigError

_WEIGHTS = (".safetensors", ".bin")
_PIECES, _PIECE = 64, 2**16


class EngineKind(StrEnum):
    """What generates."""

    VLLM = "vllm"
    TRANSFORMERS = "transformers"


@dataclass(frozen=True, slots=True)
class Policy:
    """The model under evaluation."""

    model: str
    revision: str | None = None
    adapter: str | None = None
    """A folder with a PEFT adapter for `model`."""
    dtype: str = "auto"
    chat_template: str | None = None
    """Text of a template that replaces the tokenizer's own."""
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """What the template takes besides, such as `enable_thinking`."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How completions are drawn. Raises `ConfigError` for values outside their range."""

    num_samples: int = 1
    """Completions per problem."""
    temperature: float = 0.6
    """0 is greedy decoding."""
    top_p: float = 0.95
    max_new_tokens: int = 4096
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("num_samples", "max_new_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 <= self.temperature <= 2:
            raise ConfigError(f"temperature must be from 0 to 2, got {self.temperature:g}")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p must be above 0 and at most 1, got {self.top_p:g}")
        if self.temperature == 0 and self.num_samples > 1:
            raise ConfigError(
                f"temperature 0 gives the same completion {self.num_samples} times; set a temperature above 0, or "
                "num_samples to 1"
            )

    def seed_of(self, benchmark: str, problem: str, index: int) -> int:
        """The seed of one sample: it depends on nothing that was drawn before, so a resumed run draws the same."""
        text = json.dumps([self.seed, benchmark, problem, index])
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")


def settings_record(policy: Policy, sampling: Sampling, engine: EngineKind, *, limit: int | None) -> dict[str, Any]:
    """All that completions depend on beside the problems, flat; samples of one folder share it."""
    record = {**asdict(policy), **asdict(sampling), "engine": str(engine), "limit": limit}
    record["chat_template_kwargs"] = dict(policy.chat_template_kwargs)
    record["weights"] = weights_digest(policy.model, *([] if policy.adapter is None else [policy.adapter]))
    return record


def weights_digest(*folders: str) -> str | None:
    """What tells the weights in directories from those that another training put there; None if there are none.

    Of each file the name, the size and pieces from all over it: a training that goes on changes some of them.
    """
    digest, found = hashlib.sha256(), False
    for path in sorted(path for folder in folders for path in Path(folder).glob("*") if path.suffix in _WEIGHTS):
        found, size = True, path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            for piece in range(_PIECES):
                file.seek(size * piece // _PIECES)
                digest.update(file.read(_PIECE))
    return digest.hexdigest()[:16] if found else None
