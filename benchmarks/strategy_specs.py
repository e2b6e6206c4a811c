"""The identity of a run, by which its result is found again: in another folder, another clone, on another machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from strategy_files import read_json
from strategy_methods import METHODS
from strategy_students import recipe_digest
from strategy_worlds import WORLDS, World

VERSION = 1
"""To be raised when results are no longer comparable with those that are there: then all runs are made anew."""


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
    """Answers to each held-out problem on the way."""
    last_samples: int
    """The same in the last evaluation, whose figure is the result."""
    pretraining_steps: int | None = None
    """None: those of the world."""

    def pretraining(self, world: World) -> int:
        """Steps that a student of this world is pretrained for."""
        return world.pretraining_steps if self.pretraining_steps is None else self.pretraining_steps


FULL = Size(100_000, 8, train_per_family=120, held_out_per_family=25, samples=1, last_samples=4)
REDUCED = Size(60_000, 6, train_per_family=120, held_out_per_family=25, samples=1, last_samples=4)
QUICK = Size(2_000, 1, train_per_family=4, held_out_per_family=2, samples=1, last_samples=1, pretraining_steps=5)


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
        world = WORLDS[self.world]
        recipe = recipe_digest(world, self.size.pretraining(world))
        return {"version": VERSION, **asdict(self), **METHODS[self.method].identity(), "recipe": recipe}

    @property
    def name(self) -> str:
        """Of the file of its result, without the ending."""
        rate = f"{self.learning_rate:g}"
        ends = digest(self.identity())
        return f"{self.world}.{self.method}.student{self.pretraining_seed}.seed{self.seed}.lr{rate}.{ends}"


def digest(identity: Mapping[str, Any]) -> str:
    """Ten hex digits that differ where identities do."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:10]


def result_path(folder: Path, spec: Spec) -> Path:
    return folder / f"{spec.name}.json"


def read_result(folder: Path, spec: Spec) -> dict[str, Any] | None:
    """What came of a run, or None if it has not been finished, or if its file is torn or that of another run."""
    return read_json(result_path(folder, spec), {"spec": spec.identity()})
