"""Students of the worlds: pretrained once for each recipe and seed, kept on disk, and measured before any training."""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median

import torch
from strategy_worlds import Exercise, World
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from trl_mentor.assembly import add_hint
from trl_mentor.demo.corpus import HINTED_SHARE, RIGHT_SHARE, hint_for, write_document
from trl_mentor.demo.pretrain import BATCH_SIZE, LEARNING_RATE, build_model, fit, garble_words
from trl_mentor.demo.student import load_student, sample_answers
from trl_mentor.demo.tokenizer import build_tokenizer

Student = tuple[LlamaForCausalLM, PreTrainedTokenizerFast]

GROUP = 4
BATCH = 1024
"""Answers sampled at a time: with a policy so small, the number of batches is what takes time."""


def recipe_digest(world: World, steps: int) -> str:
    """Twelve hex digits that differ where the corpus or the pretraining of two worlds differs."""
    recipe = {
        "domain": world.domain.name,
        "habits": asdict(world.habits),
        "shares": (HINTED_SHARE, RIGHT_SHARE),
        "tokens": world.domain.tokens,
        "hints": [concept.hints for concept in world.domain.concepts],
        "generic": world.domain.generic_hints,
        "problems": world.domain.pretraining_problems,
        "training": (steps, BATCH_SIZE, LEARNING_RATE),
    }
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:12]


def student_folder(folder: Path, world: World, *, seed: int, steps: int) -> Path:
    """Where the checkpoint of a recipe and a seed is kept."""
    return folder / f"{world.name}-{recipe_digest(world, steps)}-seed{seed}"


def make_student(folder: Path, world: World, *, seed: int, steps: int) -> Path:
    """The folder of a pretrained student, which is trained if it is not there yet.

    It appears whole or not at all; of two processes that make the same one, the later one throws its own away.
    """
    place = student_folder(folder, world, seed=seed, steps=steps)
    if place.exists():
        return place
    model, tokenizer = _pretrained(world, seed=seed, steps=steps)
    folder.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=".student-", dir=folder))
    try:
        model.save_pretrained(fresh)
        tokenizer.save_pretrained(fresh)
        os.replace(fresh, place)
    except OSError:
        if not place.exists():
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return place


def _pretrained(world: World, *, seed: int, steps: int) -> Student:
    rng = random.Random(seed)
    domain = world.domain
    problems = list(domain.sample(rng, domain.pretraining_problems, held_out=False).values())
    tokenizer = build_tokenizer(domain.tokens)
    words = garble_words(list(domain.tokens))

    def write() -> tuple[str, str]:
        return write_document(
            rng,
            rng.choice(problems),
            words,
            habits=world.habits,
            concepts=domain.concepts,
            generic_hints=domain.generic_hints,
        )

    return fit(build_model(tokenizer, seed=seed), tokenizer, write, steps=steps), tokenizer


@dataclass(frozen=True, slots=True)
class Start:
    """What a student is like before training, on problems of the training side."""

    unhinted: float
    """Probability of the right answer without a hint, computed, not sampled: median over problems of one concept."""
    plain: float
    """Share of sampled answers that are right without a hint, all families."""
    hinted: float
    """The same under the right hint, for problems that need a concept."""
    quoted: float
    """Share of the answers under the right hint that begin with it."""
    collapsed: float
    """Share of groups of four without any right answer, all families."""

    def breaches(self, world: World) -> list[str]:
        """What the world claims and this student does not show."""
        return [
            f"{world.name}: {name} is {getattr(self, name):.2g}, the world claims {low:g} to {high:g}"
            for name, (low, high) in asdict(world.claims).items()
            if not low <= getattr(self, name) <= high
        ]


def measure_start(world: World, place: Path, *, per_family: int, seed: int) -> Start:
    """Measure a pretrained student on `per_family` problems of each family, one group of four for each."""
    student = load_student(place)
    problems = list(world.problems(per_family, seed=seed, held_out=False).values())
    asked = [problem for problem in problems for _ in range(GROUP)]
    right = [world.correct(text, p) for text, p in zip(answers(world, student, asked, seed=seed), asked, strict=True)]
    groups = [right[start : start + GROUP] for start in range(0, len(right), GROUP)]
    needy = [problem for problem in asked if problem.concepts]
    rng = random.Random(seed)
    hints = [hint_for(rng, problem.concepts) for problem in needy]
    texts = answers(world, student, needy, seed=seed, hints=hints)
    return Start(
        unhinted=median(_probabilities(student, [problem for problem in problems if len(problem.concepts) == 1])),
        plain=fmean(right),
        hinted=fmean(world.correct(text, problem) for text, problem in zip(texts, needy, strict=True)),
        quoted=fmean(_bare(text).startswith(_bare(hint)) for text, hint in zip(texts, hints, strict=True)),
        collapsed=fmean(not any(group) for group in groups),
    )


def answers(
    world: World, student: Student, problems: Sequence[Exercise], *, seed: int, hints: Sequence[str] | None = None
) -> list[str]:
    """One sampled answer to each problem, under its hint if there are any."""
    prompts = [problem.question for problem in problems]
    if hints is not None:
        prompts = [str(add_hint(prompt, hint)) for prompt, hint in zip(prompts, hints, strict=True)]
    return sample_answers(*student, prompts, seed=seed, max_tokens=world.max_tokens, batch_size=BATCH)


def accuracy(
    world: World, student: Student, problems: Sequence[Exercise], *, samples: int, seed: int
) -> dict[str, float]:
    """Share of un-hinted answers that are right, by family."""
    asked = [problem for problem in problems for _ in range(samples)]
    solved: dict[str, list[bool]] = {}
    for problem, text in zip(asked, answers(world, student, asked, seed=seed), strict=True):
        solved.setdefault(problem.family, []).append(world.correct(text, problem))
    return {family: fmean(results) for family, results in sorted(solved.items())}


def _bare(text: str) -> str:
    return text.replace(" ", "")


@torch.no_grad()
def _probabilities(student: Student, problems: Sequence[Exercise]) -> list[float]:
    """The probability of each right answer, whole and with its end, after the bare question."""
    model, tokenizer = student
    found = []
    for problem in problems:
        prompt = tokenizer(problem.question).input_ids
        ids = torch.tensor([[*prompt, *tokenizer(problem.answer).input_ids, tokenizer.eos_token_id]])
        logits = model(input_ids=ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        found.append(math.exp(logits.gather(1, ids[0, len(prompt) :, None]).sum().item()))
    return found
