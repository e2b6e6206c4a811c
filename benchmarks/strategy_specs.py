"""What is compared: methods, sizes, and the identity of a run, by which its result is found again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from strategy_students import recipe_digest
from strategy_tutors import Tutoring
from strategy_worlds import WORLDS


@dataclass(frozen=True, slots=True)
class Method:
    """A strategy of the trainer with its settings, and the tutor behind the mentor."""

    name: str
    settings: Mapping[str, Any]
    """Of `MentorGRPOConfig`: the strategy, and whatever else makes this method what it is."""
    tutoring: Tutoring = Tutoring.RIGHT


METHODS = {
    method.name: method
    for method in (
        Method("none", {"mentor_strategy": "none"}),
        Method("resample", {"mentor_strategy": "resample"}),
        Method("mentor", {"mentor_strategy": "mentor"}),
        Method("mentor-robust", {"mentor_strategy": "mentor", "mentor_preset": "robust"}),
        *(
            Method(f"mentor-{tutoring}", {"mentor_strategy": "mentor"}, tutoring)
            for tutoring in Tutoring
            if tutoring is not Tutoring.RIGHT
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Size:
    """How much is spent on one run, and on its student."""

    tokens: int
    """Completion tokens of the policy, those of second rolls included; the mentor's are booked apart."""
    evaluations: int
    """During training, evenly over the tokens; one more comes before it."""
    train_per_family: int
    held_out_per_family: int
    samples: int
    """Answers to each held-out problem."""
    pretraining_steps: int


FULL = Size(120_000, 12, train_per_family=120, held_out_per_family=25, samples=4, pretraining_steps=2500)
QUICK = Size(2_000, 1, train_per_family=4, held_out_per_family=2, samples=1, pretraining_steps=5)


@dataclass(frozen=True, slots=True)
class Spec:
    """What a run is; two runs with the same one are the same run."""

    world: str
    method: str
    pretraining_seed: int
    seed: int
    learning_rate: float
    size: Size

    def identity(self) -> dict[str, Any]:
        """Everything that decides what comes of the run, as plain JSON."""
        method = METHODS[self.method]
        recipe = recipe_digest(WORLDS[self.world], self.size.pretraining_steps)
        return {**asdict(self), "settings": dict(method.settings), "tutoring": method.tutoring.value, "recipe": recipe}

    @property
    def name(self) -> str:
        """Of the file of its result, without the ending."""
        digest = hashlib.sha256(json.dumps(self.identity(), sort_keys=True).encode()).hexdigest()[:10]
        rate = f"{self.learning_rate:g}"
        return f"{self.world}.{self.method}.student{self.pretraining_seed}.seed{self.seed}.lr{rate}.{digest}"


def result_path(folder: Path, spec: Spec) -> Path:
    return folder / f"{spec.name}.json"


def read_result(folder: Path, spec: Spec) -> dict[str, Any] | None:
    """What came of a run, or None if it has not been finished, or if its file is torn or that of another run."""
    try:
        result = json.loads(result_path(folder, spec).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return result if isinstance(result, dict) and result.get("spec") == spec.identity() else None
