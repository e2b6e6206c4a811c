"""Several trainings in one process that take turns, one optimizer step at a time, so that their steps are paired."""

from __future__ import annotations

import cProfile
import gc
import pstats
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback


@dataclass(frozen=True, slots=True)
class Lap:
    """One step of one training: from the start of the step to the start of the next one, logs and data included."""

    seconds: float
    cpu: float
    """Processor seconds of the thread that trains, which other processes on the machine hardly change."""
    rerolled: int
    """Completions that the step's re-roll generated."""


class Relay:
    """Holds trainings of one process in threads of their own; exactly one of them runs at any moment.

    The steps of a round are neighbours in time, so what the machine does meanwhile hits all of them alike, and a ratio
    within a round is a fair one. Garbage is collected between laps, never in one. Use as a context manager.
    """

    def __init__(self, trainers: dict[str, Any]) -> None:
        self.names = tuple(trainers)
        self.profiles: dict[str, cProfile.Profile] = {}
        self._changed = threading.Condition()
        self._turn: str | None = None
        self._closed = False
        self._laps: dict[str, Lap] = {}
        self._errors: list[BaseException] = []
        self._order = random.Random(0)
        for name, trainer in trainers.items():
            trainer.add_callback(_StopAndGo(self, name, trainer))
        self._threads = [threading.Thread(target=self._run, args=(trainer.train,)) for trainer in trainers.values()]

    def __enter__(self) -> Relay:
        gc.disable()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        gc.enable()

    def rounds(self, count: int) -> list[dict[str, Lap]]:
        """`count` rounds of one lap of each training, in an order that is drawn anew for each round."""
        orders = [self._order.sample(self.names, len(self.names)) for _ in range(count)]
        return [{name: self._lap(name) for name in order} for order in orders]

    def profiled(self, count: int) -> dict[str, cProfile.Profile]:
        """Profiles of `count` further laps of each training."""
        self.profiles = {name: cProfile.Profile() for name in self.names}
        self.rounds(count)
        profiles, self.profiles = self.profiles, {}
        return profiles

    def pause(self, name: str, seconds: float) -> None:
        """Return when `seconds` of the turns of `name` have passed: a wait that stands still while others run.

        So a mentor in the background works in its own training's time, and neither hides nor burdens another's.
        """
        with self._changed:
            while seconds > 0 and not self._closed:
                self._changed.wait_for(lambda: self._closed or self._turn == name)
                since = time.perf_counter()
                self._changed.wait_for(lambda: self._closed or self._turn != name, timeout=seconds)
                seconds -= time.perf_counter() - since

    def await_turn(self, name: str) -> bool:
        """Wait for the next lap of `name`; False if there is none, and the training is to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._turn == name)
            return not self._closed

    def finish(self, name: str, lap: Lap) -> None:
        """End the lap of `name`, which has the turn."""
        with self._changed:
            self._laps[name], self._turn = lap, None
            self._changed.notify_all()

    def _lap(self, name: str) -> Lap:
        gc.collect()
        with self._changed:
            self._turn = name
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._turn is None or self._errors)
            if self._errors:
                raise RuntimeError(f"the training {name!r} failed") from self._errors[0]
            return self._laps[name]

    def _run(self, train: Callable[[], Any]) -> None:
        torch.set_num_threads(1)  # holds for this thread
        try:
            train()
        except BaseException as error:  # raised again by the thread that measures
            with self._changed:
                self._errors.append(error)
                self._changed.notify_all()


def time_by_function(profiles: dict[str, cProfile.Profile], measured: str, baseline: str, *, steps: int) -> str:
    """Where `measured` spends more time than `baseline`: milliseconds a step, by function and profiler included."""
    own = {
        name: {where: entry[2] * 1000 / steps for where, entry in pstats.Stats(profile).stats.items()}
        for name, profile in profiles.items()
    }
    extra = {where: own[measured].get(where, 0.0) - own[baseline].get(where, 0.0) for where in own[measured]}
    lines = [f"{measured:>10} {'more than':>10} {baseline}; milliseconds a step"]
    for where in sorted(extra, key=extra.__getitem__, reverse=True)[:25]:
        file, line, function = where
        place = "/".join(Path(file).parts[-3:])
        lines.append(f"{own[measured][where]:10.2f} {extra[where]:10.2f} {place}:{line} {function}")
    return "\n".join(lines)


class _StopAndGo(TrainerCallback):
    """Stops a training before each step until its turn comes, and times what happens in between."""

    def __init__(self, relay: Relay, name: str, trainer: Any) -> None:
        self._relay = relay
        self._name = name
        self._trainer = trainer
        self._started: tuple[float, float, int] | None = None

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._started is not None:
            wall, cpu = time.perf_counter(), time.thread_time()
            if (profile := self._relay.profiles.get(self._name)) is not None:
                profile.disable()
            before = self._started
            self._relay.finish(self._name, Lap(wall - before[0], cpu - before[1], self._trainer.rerolled - before[2]))
        control.should_training_stop = not self._relay.await_turn(self._name)
        if (profile := self._relay.profiles.get(self._name)) is not None:
            profile.enable()
        self._started = time.perf_counter(), time.thread_time(), self._trainer.rerolled
