"""One rank of `measure_steps.py`: trains each set-up in turn and notes the time of every step.

Started with `python -m torch.distributed.run --nproc_per_node N measure_steps_run.py SETUPS OUT`.
"""

from __future__ import annotations

import json
import math
import os
import random
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from overhead_world import FULL, HINT, trainer

from trl_mentor import Mentor, MentorGRPOTrainer
from trl_mentor.errors import BackendError
from trl_mentor.records import Message, Reply, Role, Usage

SCALE = replace(FULL, width=128)
GROUPS, GROUP_SIZE = SCALE.groups, SCALE.group_size
SHOWN = ("step_time", "mentor/seconds", "mentor/reroll_seconds", "mentor/lessons", "mentor/reroll_completions")


@dataclass(frozen=True, slots=True)
class Setup:
    """A training to time. Seconds and their spread describe one call to the mentor, which is lognormal."""

    name: str
    strategy: str = "mentor"
    schedule: str = "inline"
    collapsed: int = 0
    """Groups of each batch that collapse, of `GROUPS`."""
    call_seconds: float = 0.2
    call_spread: float = 0.25
    accept_rate: float = 1.0
    max_concurrency: int = 8
    slots: int = 8
    deadline: float = 60.0
    steps: int = 5
    warm_up: int = 1
    """First steps that are not counted; `steps` comes on top of them."""


class Slots:
    """A semaphore that is first come first served, as the queue of an endpoint is."""

    def __init__(self, free: int) -> None:
        self._free = free
        self._lock = threading.Lock()
        self._line: deque[threading.Event] = deque()

    def acquire(self, timeout: float) -> bool:
        """Whether there was a slot within `timeout` seconds."""
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            turn = threading.Event()
            self._line.append(turn)
        if turn.wait(timeout):
            return True
        with self._lock:
            if turn.is_set():
                return True
            self._line.remove(turn)
        return False

    def release(self) -> None:
        with self._lock:
            if self._line:
                self._line.popleft().set()
            else:
                self._free += 1


class TimedBackend:
    """Answers at once what its roles expect, after a random time in one of a limited number of slots."""

    def __init__(self, setup: Setup, seed: int) -> None:
        self._setup = setup
        self._rng = random.Random(seed)
        self._lock = threading.Lock()
        self._slots = Slots(setup.slots)

    def chat(
        self, messages: Sequence[Message], *, role: Role, timeout: float, schema: Mapping[str, Any] | None = None
    ) -> Reply:
        """The reply of a role; raises `BackendError` after `timeout` seconds."""
        ends = time.monotonic() + timeout
        with self._lock:
            seconds, good = self._seconds(), self._rng.random() < self._setup.accept_rate
        if not self._slots.acquire(timeout):
            raise BackendError("no slot in time")
        try:
            left = ends - time.monotonic()
            time.sleep(max(min(seconds, left), 0.0))
        finally:
            self._slots.release()
        if seconds > left:
            raise BackendError("out of time")
        verdict = json.dumps({"critique": "fine" if good else "say more", "verdict": "HIGH" if good else "LOW"})
        texts = {
            Role.ATTRIBUTION: json.dumps({"misconceptions": ["confuses w1 with w2"]}),
            Role.GENERATION: HINT,
            Role.JUDGMENT: verdict,
            Role.REPAIR: json.dumps({"hint": HINT}),
        }
        return Reply(texts[role], Usage(100, 20))

    def _seconds(self) -> float:
        sigma = math.sqrt(math.log1p(self._setup.call_spread**2))
        return self._setup.call_seconds * math.exp(self._rng.gauss(-(sigma**2) / 2, sigma))


def train(setup: Setup, *, seed: int, out: Path) -> Any:
    """The trainer of a set-up, after training."""
    mentor = None
    if setup.strategy == "mentor":
        backend = TimedBackend(setup, seed)
        mentor = Mentor(backend, max_concurrency=setup.max_concurrency, deadline=setup.deadline)
    ranks = int(os.environ["WORLD_SIZE"])
    made = trainer(
        MentorGRPOTrainer,
        SCALE,
        [index < setup.collapsed for index in range(GROUPS)],
        out,
        mentor=mentor,
        mentor_strategy=setup.strategy,
        mentor_schedule=setup.schedule,
        mentor_queue_size=1000,
        per_device_train_batch_size=SCALE.rows // ranks,
        max_steps=setup.warm_up + setup.steps,
    )
    if made.accelerator.num_processes != ranks:
        raise RuntimeError(f"expected {ranks} ranks, got {made.accelerator.num_processes}")
    made.train()
    return made


def main(setups: Sequence[Setup], out: Path, seed: int) -> None:
    """Train all set-ups; the main rank writes what each counted step logged."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, setup in enumerate(setups):
            made = train(setup, seed=seed + number, out=Path(folder) / str(number))
            log = [entry for entry in made.state.log_history if "step_time" in entry][setup.warm_up :]
            found[setup.name] = [{name: entry[name] for name in SHOWN} for entry in log]
    if made.accelerator.is_main_process:
        out.write_text(json.dumps(found), encoding="utf-8")
    # A process that exits with its process group open is now and then aborted by the group's threads.
    made.accelerator.end_training()


if __name__ == "__main__":
    main([Setup(**item) for item in json.loads(sys.argv[1])], Path(sys.argv[2]), int(sys.argv[3]))
