"""What hints a mentor's loop writes, and what they do to a student before any training.

Training adds noise of its own, which hides small differences between tutors: here each group is one question, failed
four times by a student who has every rule of it wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from strategy_files import read_json, write_json
from strategy_methods import METHODS, Part
from strategy_run import PROBLEM_SEED, make_mentor
from strategy_specs import VERSION, Size, digest
from strategy_students import GROUP, answers, make_student, recipe_digest
from strategy_tutors import fits
from strategy_worlds import WORLDS

from trl_mentor.demo.student import load_student
from trl_mentor.records import Attempt, CollapsedGroup, Guidance, HintOrigin

TIMES = 2
"""How often each question comes round: 120 of each of 8 families make 1,920 groups."""


def hinting(world: str) -> list[str]:
    """The methods in this world whose mentors differ in the hints that they write."""
    return [
        name
        for name, method in METHODS.items()
        if world in (*method.worlds, *method.hinted)
        and (name == "mentor" or (method.part in (Part.TUTORS, Part.LOOP) and method.rate_of == "mentor"))
    ]


def measure_hints(world_name: str, name: str, size: Size, folder: Path, students: Path) -> dict[str, Any]:
    """The quality of one mentor's hints, which is read if it is there and otherwise measured and written."""
    world, method = WORLDS[world_name], METHODS[name]
    identity = {
        "version": VERSION,
        "world": world_name,
        "method": name,
        **method.identity(),
        "per_family": size.train_per_family,
        "times": TIMES,
        "recipe": recipe_digest(world, size.pretraining(world)),
    }
    path = folder / f"hints.{world_name}.{name}.{digest(identity)}.json"
    if (found := read_json(path, {"of": identity})) is not None:
        return found
    problems = world.problems(size.train_per_family, seed=PROBLEM_SEED, held_out=False)
    asked = [problem for problem in problems.values() if problem.concepts]
    groups = [
        CollapsedGroup(
            problem.question,
            (Attempt(problem.program(known=()), 0.0),) * GROUP,
            answer=problem.answer,
            prompt=problem.question,
        )
        for problem in asked
    ]
    mentor = make_mentor(world, problems, method, seed=0)
    guidances = [guidance for _ in range(TIMES) for guidance in mentor.guide(groups)]
    right = [fits(world.domain, guidance.hint or "", problem) for guidance, problem in _pairs(guidances, asked)]
    accepted = [guidance.origin is HintOrigin.ACCEPTED for guidance in guidances]
    place = make_student(students, world, seed=0, steps=size.pretraining(world))
    solved = _solved(world_name, place, guidances, asked)
    result = {
        "of": identity,
        "groups": len(guidances),
        "accepted": round(fmean(accepted), 4),
        "right": round(fmean(right), 4),
        "right_of_accepted": round(sum(map(min, right, accepted)) / max(sum(accepted), 1), 4),
        "calls": round(fmean(len(guidance.calls) for guidance in guidances), 3),
        "passed": round(fmean(map(fmean, solved)), 4),
        "rescued": round(fmean(map(any, solved)), 4),
    }
    write_json(path, result)
    return result


def _pairs(guidances: Sequence[Guidance], asked: Sequence[Any]) -> list[tuple[Guidance, Any]]:
    return list(zip(guidances, [*asked] * TIMES, strict=True))


def _solved(world_name: str, place: Path, guidances: Sequence[Guidance], asked: Sequence[Any]) -> list[list[bool]]:
    """Whether each answer of the first student, to each question under its hint, is right, by group."""
    world = WORLDS[world_name]
    pairs = [pair for pair in _pairs(guidances, asked) for _ in range(GROUP)]
    hints, problems = [guidance.hint or "" for guidance, _ in pairs], [problem for _, problem in pairs]
    texts = answers(world, load_student(place), problems, seed=0, hints=hints)
    right = [world.correct(text, problem) for text, problem in zip(texts, problems, strict=True)]
    return [right[start : start + GROUP] for start in range(0, len(right), GROUP)]


def hint_table(found: Sequence[dict[str, Any]]) -> str:
    """The table."""
    lines = [
        "| world | mentor | hints right | accepted | accepted that are right | calls a group | right answers "
        "under the hint | groups rescued |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {item['of']['world']} | {item['of']['method']} | {item['right']:.3f} | {item['accepted']:.3f} "
        f"| {item['right_of_accepted']:.3f} | {item['calls']:.2f} | {item['passed']:.3f} | {item['rescued']:.3f} |"
        for item in found
    ]
    return "\n".join(lines) + "\n"
