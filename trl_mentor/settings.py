"""The `mentor_*` settings as a plain dataclass, so that they can be read and checked without TRL."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum

from trl_mentor.errors import ConfigError


class BackendKind(StrEnum):
    """Kinds of mentor that a recipe can name; anything else is passed to the trainer as an object."""

    OPENAI = "openai"
    TRANSFORMERS = "transformers"


class StrategyKind(StrEnum):
    """Strategies that a recipe can name; anything else is passed to the trainer as an object."""

    MENTOR = "mentor"
    RESAMPLE = "resample"
    NONE = "none"


@dataclass
class MentorArguments:
    """Settings of the mentor, flat as TRL's are. Wrong values raise `ConfigError` on construction."""

    mentor_strategy: str = field(
        default="mentor",
        metadata={
            "help": "What to do with a collapsed group: `mentor` (hint and re-roll), `resample` (re-roll on the plain "
            "question, the control) or `none` (only measure)."
        },
    )
    mentor_backend: str = field(
        default="openai",
        metadata={
            "help": "Where the mentor runs: `openai` (any OpenAI-compatible endpoint) or `transformers` (a local "
            "model in the main process)."
        },
    )
    mentor_model: str | None = field(
        default=None,
        metadata={"help": "Name of the mentor model at the endpoint, or its id or path for `transformers`."},
    )
    mentor_base_url: str | None = field(
        default=None, metadata={"help": "URL of the endpoint, for example http://localhost:8000/v1."}
    )
    mentor_api_key_env: str | None = field(
        default=None,
        metadata={"help": "Name of the environment variable that holds the endpoint's key. Never the key itself."},
    )
    mentor_temperature: float = field(default=0.7, metadata={"help": "Sampling temperature of the mentor."})
    mentor_max_tokens: int = field(
        default=1024, metadata={"help": "Longest reply of the mentor in tokens, thinking included."}
    )
    mentor_domain: str = field(
        default="math", metadata={"help": "Set of prompt templates: `math`, `code`, or one from mentor_templates_dir."}
    )
    mentor_templates_dir: str | None = field(
        default=None, metadata={"help": "Directory whose <domain>/<role>.jinja files replace the package's own."}
    )
    mentor_max_retry: int = field(
        default=2, metadata={"help": "Full hint attempts before the fallback hint (the paper's Max Retry)."}
    )
    mentor_max_refine: int = field(
        default=2,
        metadata={"help": "Judge rounds inside one attempt, with a repair between two (the paper's Max Refine)."},
    )
    mentor_ablation: str | None = field(
        default=None,
        metadata={"help": "One of the paper's ablations: `no_attribution`, `no_generation` or `no_judge`."},
    )
    mentor_hint_template: str = field(
        default="Hint: {hint}\n\nOriginal question: {question}",
        metadata={"help": "Text of the last user turn of a re-roll; the order of the two slots is the placement."},
    )
    mentor_success_rewards: list[str] | None = field(
        default=None,
        metadata={
            "help": "Names of the reward functions that say right or wrong; each must exceed the threshold. Default: "
            "the weighted sum of all rewards."
        },
    )
    mentor_success_threshold: float = field(
        default=0.0, metadata={"help": "A completion fails if its success reward is not above this."}
    )
    mentor_answer_column: str | None = field(
        default=None,
        metadata={
            "help": "Data set column with the reference answer, for diagnosis and the leak rule. Default: `answer` or "
            "`solution`, whichever is there."
        },
    )
    mentor_attempt_budget: int = field(
        default=12_000, metadata={"help": "Characters of failed attempts that the mentor reads for one group."}
    )
    mentor_max_concurrency: int = field(default=8, metadata={"help": "Groups that the mentor works on at once."})
    mentor_call_timeout: float = field(default=60.0, metadata={"help": "Seconds for one call to the mentor."})
    mentor_deadline: float = field(
        default=300.0,
        metadata={
            "help": "Seconds for all hints of one generation batch. Groups without a hint by then are left as they "
            "are. Must be below ddp_timeout."
        },
    )

    def __post_init__(self) -> None:
        self._check_choice("mentor_strategy", StrategyKind)
        self._check_choice("mentor_backend", BackendKind)
        for name in ("mentor_max_retry", "mentor_max_refine", "mentor_max_tokens", "mentor_max_concurrency"):
            self._check_positive(name)
        for name in ("mentor_call_timeout", "mentor_deadline", "mentor_attempt_budget"):
            self._check_positive(name)
        if not (_is_number(self.mentor_temperature) and self.mentor_temperature >= 0):
            raise ConfigError(f"mentor_temperature must be a number of at least 0, got {self.mentor_temperature!r}")

    def _check_choice(self, name: str, kinds: type[StrEnum]) -> None:
        value = getattr(self, name)
        allowed = [kind.value for kind in kinds]
        if value not in allowed:
            raise ConfigError(f"{name} must be one of {allowed}, got {value!r}; an object goes to the trainer itself")

    def _check_positive(self, name: str) -> None:
        value = getattr(self, name)
        if not (_is_number(value) and value > 0):
            raise ConfigError(f"{name} must be a positive number, got {value!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
