"""What is compared: strategies with their settings, the tutor behind each, and the worlds that they run in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from strategy_tutors import Tutoring
from strategy_worlds import WORLDS

MAIN = ("code", "arithmetic")
"""The two worlds in which learning rates are chosen; the others are regimes of the first."""
REGIME_RUNS = 5
"""At most so many of each method in a regime."""
REGIMES = tuple(world for world in WORLDS if world not in MAIN)
ALL = (*MAIN, *REGIMES)
CODE = MAIN[:1]


class Part(StrEnum):
    """Of the comparison: each has tables of its own."""

    RIVALS = "rivals"
    VARIANTS = "variants"  # other constructions of rescued groups
    TUTORS = "tutors"  # what poor hints cost
    LOOP = "loop"  # what the parts of the mentor's loop are worth with a tutor that errs


@dataclass(frozen=True, slots=True)
class Method:
    """A strategy of the trainer with its settings, and the tutor behind the mentor."""

    name: str
    settings: Mapping[str, Any]
    """Of `MentorGRPOConfig`: the strategy, and whatever else makes this method what it is."""
    worlds: tuple[str, ...] = MAIN
    hinted: tuple[str, ...] = ()
    """Further worlds, in which it is not trained and only its hints are measured."""
    part: Part = Part.RIVALS
    rate_of: str | None = None
    """The method whose learning rate it is trained at; None if one is chosen for itself."""
    tutoring: Tutoring = Tutoring.RIGHT
    noisy: bool = False
    """Whether all four agents err at times."""
    mentor: Mapping[str, Any] = field(default_factory=dict)
    """Of `Mentor`."""

    @property
    def asks(self) -> bool:
        """Whether it asks a mentor."""
        return self.settings["mentor_strategy"] in ("mentor", "critique")

    def identity(self) -> dict[str, Any]:
        """What decides about a run, as plain JSON."""
        tutor = {"tutoring": self.tutoring.value, "noisy": self.noisy, "mentor": dict(self.mentor)}
        return {"settings": dict(self.settings), **tutor}


PAPER = {"mentor_strategy": "mentor"}
ROBUST = {**PAPER, "mentor_preset": "robust"}
HINT = {"mentor_strategy": "static_hint"}
DAPO = {"mentor_strategy": "dapo", "epsilon_high": 0.28}
CRITIQUE = {
    "mentor_strategy": "critique",
    "mentor_critique": "text",
    # The only prompts besides a bare question that the students have learnt to read.
    "mentor_critique_template": "Hint: {critique}\n\nOriginal Question: {question}",
}
POOR = [tutoring for tutoring in Tutoring if tutoring is not Tutoring.RIGHT]
LOOPS: Mapping[str, Mapping[str, Any]] = {
    "noisy": {},  # Max Retry 2, Max Refine 2
    "noisy-no-attribution": {"ablation": "no_attribution"},
    "noisy-no-generation": {"ablation": "no_generation"},
    "noisy-no-judge": {"ablation": "no_judge"},
}
"""Trained, under the preset `paper` in `code` and under `robust` in `arithmetic`, where `paper` hardly learns."""
SWEEPS: Mapping[str, Mapping[str, Any]] = {
    "noisy-retry1": {"max_retry": 1},
    "noisy-retry3": {"max_retry": 3},
    "noisy-refine1": {"max_refine": 1},
    "noisy-refine3": {"max_refine": 3},
}
"""Not trained; only their hints are measured."""


def _variant(name: str, settings: Mapping[str, Any], of: str) -> Method:
    return Method(name, settings, CODE, part=Part.VARIANTS, rate_of=of)


def _tutored(name: str, settings: Mapping[str, Any], tutoring: Tutoring) -> Method:
    # What leaks is refused by the mentor's rules, so that its fallback hint would be trained, as `generic` is.
    worlds, hinted = ((), CODE) if tutoring is Tutoring.LEAKING and settings == PAPER else (CODE, ())
    return Method(f"{name}-{tutoring}", settings, worlds, hinted, part=Part.TUTORS, rate_of=name, tutoring=tutoring)


def _loop(of: str, name: str, mentor: Mapping[str, Any], worlds: tuple[str, ...]) -> Method:
    settings, hinted = (PAPER, MAIN) if of == "mentor" else (ROBUST, ())  # the same hints, measured once
    return Method(f"{of}-{name}", settings, worlds, hinted, part=Part.LOOP, rate_of=of, noisy=True, mentor=mentor)


METHODS: Mapping[str, Method] = {
    method.name: method
    for method in (
        Method("none", {"mentor_strategy": "none"}, ALL),
        Method("dapo", DAPO, ALL),
        Method("resample", {"mentor_strategy": "resample"}, ALL),
        Method("resample-robust", {"mentor_strategy": "resample", "mentor_preset": "robust"}, ALL),
        Method("static-hint", HINT, ALL),
        # Scaf-GRPO leaves the first steps alone, so that a policy solves first what it can; these never can.
        Method("scaffold", {"mentor_strategy": "scaffold", "mentor_start_step": 0.0}, ALL),
        Method("luffy", {"mentor_strategy": "luffy", "scale_rewards": "none"}, ALL),
        Method("critique", CRITIQUE, ALL),
        Method("mentor", PAPER, ALL),
        Method("mentor-robust", ROBUST, ALL),
        _variant("dapo-own", {**DAPO, "mentor_dapo_refill": False}, "dapo"),
        _variant("mentor-robust-shaped", {**ROBUST, "mentor_rescue_shaping": "luffy"}, "mentor-robust"),
        _variant("mentor-rounds", {**PAPER, "mentor_max_rounds": 2}, "mentor"),
        _variant("mentor-mixed", {**ROBUST, "mentor_rescue": "mixed"}, "mentor-robust"),
        _variant("mentor-union", {**ROBUST, "mentor_rescue": "union_success"}, "mentor-robust"),
        _variant("mentor-adaptive", {**PAPER, "mentor_rescue": "adaptive"}, "mentor-robust"),
        *(
            _tutored(name, settings, tutoring)
            for name, settings in (("mentor", PAPER), ("mentor-robust", ROBUST), ("static-hint", HINT))
            for tutoring in POOR
            if (name, tutoring) != ("mentor-robust", Tutoring.LEAKING)  # whose hints are those of `mentor-leaking`
        ),
        *(_loop("mentor", name, mentor, CODE) for name, mentor in LOOPS.items()),
        *(_loop("mentor", name, mentor, ()) for name, mentor in SWEEPS.items()),
        *(_loop("mentor-robust", name, mentor, MAIN[1:]) for name, mentor in LOOPS.items()),
    )
}
