"""One run of the comparison of strategies: the shipped trainer on a student of a world, up to a number of tokens."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any

from datasets import Dataset
from strategy_files import write_json
from strategy_methods import METHODS, Method
from strategy_noise import NoisyTutor
from strategy_specs import Spec, read_result, result_path
from strategy_students import Student, accuracy, make_student
from strategy_tutors import QualityTutor
from strategy_worlds import WORLDS, Exercise, World
from transformers import PrinterCallback, TrainerControl, TrainerState, TrainingArguments

from trl_mentor.backends.scripted import ScriptedBackend
from trl_mentor.bill import Bill
from trl_mentor.callback import MentorCallback
from trl_mentor.config import MentorGRPOConfig
from trl_mentor.counters import Counters
from trl_mentor.demo.student import load_student
from trl_mentor.demo.training import NUM_GENERATIONS, PROMPTS_PER_BATCH, BudgetWatch
from trl_mentor.grpo_trainer import MentorGRPOTrainer
from trl_mentor.mentor import Mentor
from trl_mentor.plain import plain_json
from trl_mentor.records import Completion

PROBLEM_SEED = 0
"""Of the problems, the same for all runs, so that runs differ in training alone."""
BATCHES = 10
"""At the beginning and at the end of a run, over which the collapsed share is averaged."""


def run_once(spec: Spec, folder: Path, students: Path) -> dict[str, Any]:
    """The result of a run, which is read if it is there and otherwise trained and written, whole or not at all."""
    done = read_result(folder, spec)
    if done is not None:
        return done
    world = WORLDS[spec.world]
    place = make_student(students, world, seed=spec.pretraining_seed, steps=spec.size.pretraining(world))
    with tempfile.TemporaryDirectory(prefix="strategies-") as scratch:
        result = {"spec": spec.identity(), **_train(spec, load_student(place), Path(scratch))}
    write_json(result_path(folder, spec), result)
    return result


class Observer(BudgetWatch):
    """Ends the run at its number of tokens, and evaluates without hints on the way."""

    def __init__(self, spec: Spec, student: Student) -> None:
        super().__init__(spec.size.tokens, lambda tokens, collapsed: None)
        self.curve: list[dict[str, Any]] = []
        self.families: Mapping[str, float] = {}
        self.evaluation_seconds = 0.0
        self._spec = spec
        self._student = student
        self._world = WORLDS[spec.world]
        per_family = spec.size.held_out_per_family
        self._problems = list(self._world.problems(per_family, seed=PROBLEM_SEED, held_out=True).values())

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._evaluate(0, 0, self._spec.size.samples)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        super().on_step_end(args, state, control, **kwargs)
        size = self._spec.size
        if control.should_training_stop:
            self._evaluate(self.tokens[-1], state.global_step, size.last_samples)
        elif self.tokens[-1] >= size.tokens * len(self.curve) / size.evaluations:
            self._evaluate(self.tokens[-1], state.global_step, size.samples)

    def _evaluate(self, tokens: int, step: int, samples: int) -> None:
        started = time.monotonic()
        self.families = accuracy(self._world, self._student, self._problems, samples=samples, seed=self._spec.seed)
        self.evaluation_seconds += time.monotonic() - started
        self.curve.append({"tokens": tokens, "step": step, "accuracy": round(fmean(self.families.values()), 4)})


def _train(spec: Spec, student: Student, scratch: Path) -> dict[str, Any]:
    world, method = WORLDS[spec.world], METHODS[spec.method]
    problems = world.problems(spec.size.train_per_family, seed=PROBLEM_SEED, held_out=False)
    observer = Observer(spec, student)
    trainer = MentorGRPOTrainer(
        model=student[0],
        reward_funcs=Reward(world, problems),
        args=_config(spec, world, method, scratch),
        train_dataset=Dataset.from_list(examples(world, problems, method)),
        processing_class=student[1],
        callbacks=[observer, MentorCallback(progress=False)],
        mentor=make_mentor(world, problems, method, seed=spec.seed) if method.asks else None,
    )
    trainer.remove_callback(PrinterCallback)
    observer.trainer = trainer
    started, cpu = time.monotonic(), time.process_time()
    trainer.train()
    totals = trainer.mentor_totals
    return {
        "curve": observer.curve,
        "families": {family: round(value, 4) for family, value in observer.families.items()},
        "tokens": totals.policy_tokens,
        "mentor_tokens": Bill.of(totals, priced=False).mentor_tokens,
        "steps": trainer.state.global_step,
        "collapsed": [round(fmean(part), 4) for part in (observer.collapsed[:BATCHES], observer.collapsed[-BATCHES:])],
        "seconds": {
            "all": round(time.monotonic() - started, 1),
            "cpu": round(time.process_time() - cpu, 1),
            "evaluations": round(observer.evaluation_seconds, 1),
        },
        "totals": _compact(totals),
        "versions": {name: version(name) for name in ("trl", "transformers", "torch")},
    }


def _compact(totals: Counters) -> dict[str, int]:
    """The counts that are not 0."""
    return {name: value for name, value in plain_json(totals).items() if isinstance(value, int) and value}


def examples(world: World, problems: Mapping[str, Exercise], method: Method) -> list[dict[str, Any]]:
    """The data set, with what rivals of MENTOR find in it: texts by a tutor who saw question and answer alone."""
    tutor = QualityTutor(world.domain, problems, method.tutoring)
    return [
        {
            "prompt": item.question,
            "answer": item.answer,
            "topic": item.family,
            "hint": tutor.static_hint(item.question),
            "hints": tutor.ladder(item.question),
            "demonstration": item.answer,
        }
        for item in problems.values()
    ]


class Reward:
    """1 for a right answer, otherwise 0."""

    def __init__(self, world: World, problems: Mapping[str, Exercise]) -> None:
        self.__name__ = "right"
        self._world = world
        self._problems = problems

    def __call__(self, prompts: Sequence[str], completions: Sequence[Completion], **kwargs: Any) -> list[float]:
        """One reward per completion; `prompts` are the questions without any hint."""
        pairs = zip(prompts, completions, strict=True)
        return [float(self._world.correct(str(completion), self._problems[prompt])) for prompt, completion in pairs]


def make_mentor(world: World, problems: Mapping[str, Exercise], method: Method, *, seed: int) -> Mentor:
    domain = world.domain
    tutor = (
        NoisyTutor(domain, problems, seed=seed) if method.noisy else QualityTutor(domain, problems, method.tutoring)
    )
    # The fallback hint of the package is made of words that the student has never read.
    return Mentor(
        ScriptedBackend(tutor), domain=domain.templates, fallback_hint=domain.generic_hints[0], **method.mentor
    )


def _config(spec: Spec, world: World, method: Method, scratch: Path) -> MentorGRPOConfig:
    common: dict[str, Any] = {
        "num_generations": NUM_GENERATIONS,
        "per_device_train_batch_size": NUM_GENERATIONS * PROMPTS_PER_BATCH,
        "max_completion_length": world.max_tokens,
        "learning_rate": spec.learning_rate,
        "lr_scheduler_type": "constant",
        "temperature": 1.0,
        "beta": 0.0,
        "max_steps": 100_000,
        "seed": spec.seed,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "dataloader_pin_memory": False,
        "report_to": "none",
        "logging_strategy": "no",
        "save_strategy": "no",
        "disable_tqdm": True,
    }
    if method.settings["mentor_strategy"] == "mentor":  # misconceptions make identical attempts
        common["mentor_routes"] = {"cut_off": "mentor", "duplicates": "mentor"}
    return MentorGRPOConfig(output_dir=str(scratch), **{**common, **method.settings})
