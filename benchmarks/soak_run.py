"""The training that soak.py watches: one rank of a run with random collapse and an unreliable mentor.

Leaves in its directory, for each rank, a heartbeat, where it stood when it was asked with SIGUSR1, and at the end what
the rank saw. Started by soak.py under `torch.distributed.run`.
"""

from __future__ import annotations

import faulthandler
import hashlib
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from typing import Any

import psutil
import tiny
from datasets import Dataset
from transformers import TrainerCallback

from trl_mentor import Mentor, MentorGRPOTrainer
from trl_mentor.exchange import Exchange
from trl_mentor.records import Message, Reply, Role, Usage

ROWS = 12
"""Completions of a generation batch over all ranks: three groups of four, which straddle two ranks, and four."""
GROUP = 4
DEADLINE = 0.3
GOOD = {Role.ATTRIBUTION: "- confuses w1 with w2", Role.GENERATION: tiny.HINT, Role.REPAIR: f"{tiny.HINT} w33"}


class UnreliableMentor:
    """A backend that does all that endpoints and models do: mostly well, now and then slow, wrong, or not at all."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._lock = threading.Lock()

    def chat(self, messages: Sequence[Message], *, role: Role, timeout: float) -> Reply:
        with self._lock:
            mood, delay = self._dice.random(), self._dice.uniform(0.0, 0.02)
        good = GOOD.get(role, "VERDICT: HIGH\nCRITIQUE: fine")
        if mood < 0.70:
            time.sleep(delay)
            return Reply(good, Usage(10, 5))
        if mood < 0.72:
            time.sleep(1.5 * DEADLINE)
            return Reply(good)
        if mood < 0.73:
            time.sleep(5 * DEADLINE)
            raise TimeoutError("the mentor hung")
        if mood < 0.78:
            raise ConnectionError("no route to mentor")
        return WRONG[int(mood * 1e6) % len(WRONG)](messages)


WRONG: tuple[Callable[[Sequence[Message]], Any], ...] = (
    lambda messages: Reply("%%% \x00 {{ 7 * 7 }} <think>"),
    lambda messages: Reply(""),
    lambda messages: Reply("half a", truncated=True),
    lambda messages: Reply("\ud800 " * 50),
    lambda messages: Reply(str(messages)),  # an echo of the question, the attempts and the answer
    lambda messages: Reply("the answer is answer-1, answer-2, answer-3"),
    lambda messages: Reply("VERDICT: LOW\nCRITIQUE: too vague"),
    lambda messages: Reply("VERDICT: HIGH\nVERDICT: LOW"),
    lambda messages: Reply("w30 <eos> w31"),
    lambda messages: Reply(". ".join(" ".join(f"w{i}" for i in range(start, start + 9)) for start in range(20)) + "."),
    lambda messages: Reply("w30 w31", Usage(-1, 2**80)),
    lambda messages: None,
)


class RandomCollapse:
    """Rewards by chance, the same chance on every rank: it depends on the seed, the step, the roll and the group."""

    __name__ = "verifier"
    FIRST = ("collapsed", "collapsed", "mixed", "correct", "unscorable", "part of it unscorable")

    def __init__(self, seed: int, rank: int) -> None:
        self._seed, self._rank, self._step = seed, rank, -1
        self.rows = {"first": 0, "second": 0, "evaluation": 0}
        self.tokens = {"first": 0, "second": 0, "evaluation": 0}

    def __call__(
        self, completion_ids: list[list[int]], evaluation: list[bool], trainer_state: Any, **_: Any
    ) -> list[float | None]:
        step = trainer_state.global_step
        roll = "evaluation" if evaluation[0] else "second" if step == self._step else "first"
        if roll == "first":
            self._step = step  # one generation batch per optimizer step
        self.rows[roll] += len(completion_ids)
        self.tokens[roll] += sum(map(len, completion_ids))
        numbers = range(self._rank * len(completion_ids), (self._rank + 1) * len(completion_ids))
        return [self._reward(roll, step, number // GROUP, number % GROUP) for number in numbers]

    def _reward(self, roll: str, step: int, group: int, member: int) -> float | None:
        batch = random.Random(f"{self._seed} {roll} {step}").choice(("all", "none", "one", "any", "any", "any"))
        kind = random.Random(f"{self._seed} {roll} {step} {group}").choice(self.FIRST)
        if batch != "any":
            kind = "collapsed" if batch == "all" or (batch == "one" and group == step % 3) else "mixed"
        return {
            "collapsed": 0.0,
            "mixed": float(member % 2),
            "correct": 1.0,
            "unscorable": None,
            "part of it unscorable": 0.0 if member else None,
        }[kind]


class Heartbeat(TrainerCallback):
    """Leaves the number of the step in a file, and keeps how much memory the process used early and late."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.megabytes: list[int] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._path.write_text(str(state.global_step))
        if state.global_step % max(1, state.max_steps // 4) == 0:
            self.megabytes.append(psutil.Process().memory_info().rss >> 20)


def record_collectives() -> list[str]:
    """The names of the methods of `Exchange` in the order in which this rank calls them from now on."""
    calls: list[str] = []

    def recorded(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def call(*args: Any) -> Any:
            calls.append(name)
            return method(*args)

        return call

    for name in ("gather", "total", "from_main"):
        setattr(Exchange, name, recorded(name, getattr(Exchange, name)))
    return calls


def prompts(rows: int, *, evaluation: bool) -> Dataset:
    return Dataset.from_dict(
        {
            "prompt": [f"w{i} w{i}" for i in range(rows)],
            "answer": [f"answer-{i}" for i in range(rows)],
            "evaluation": [evaluation] * rows,
        }
    )


def train(folder: Path, options: dict[str, Any]) -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    calls, reward = record_collectives(), RandomCollapse(options["seed"], rank)
    heartbeat = Heartbeat(folder / f"rank{rank}.step")
    every = max(1, options["steps"] // 5)
    args = tiny.config(
        folder / "run",
        mentor_schedule=options["schedule"],
        mentor_queue_size=8,
        max_steps=options["steps"],
        per_device_train_batch_size=ROWS // world,
        per_device_eval_batch_size=ROWS // world,
        num_generations=GROUP,
        shuffle_dataset=True,
        eval_strategy="steps",
        eval_steps=every,
        save_strategy="steps",
        save_steps=every,
        save_total_limit=1,
    )
    trainer = MentorGRPOTrainer(
        tiny.model(),
        reward,
        args,
        prompts(29, evaluation=False),
        eval_dataset=prompts(ROWS // GROUP, evaluation=True),
        processing_class=tiny.tokenizer(),
        mentor=Mentor(UnreliableMentor(options["seed"]), deadline=DEADLINE, max_concurrency=2),
        callbacks=[heartbeat],
    )
    trainer.train()
    weights = hashlib.sha256(b"".join(value.numpy().tobytes() for value in trainer.model.state_dict().values()))
    queue = getattr(trainer.schedule, "queue", ())
    seen = {
        "world": trainer.accelerator.num_processes,
        "steps": trainer.state.global_step,
        "collectives": calls,
        "weights": weights.hexdigest(),
        "losses": [entry["loss"] for entry in trainer.state.log_history if "loss" in entry],
        "evaluations": sum("eval_reward" in entry for entry in trainer.state.log_history),
        "totals": asdict(trainer.mentor_totals),
        "rows": reward.rows,
        "tokens": reward.tokens,
        "waiting": len(queue),
        "megabytes": heartbeat.megabytes,
    }
    (folder / f"rank{rank}.json").write_text(json.dumps(seen))
    trainer.accelerator.end_training()


def main() -> None:
    folder, options = Path(sys.argv[1]), json.loads(sys.argv[2])
    rank = os.environ["RANK"]
    with (folder / f"rank{rank}.stack").open("w") as stack:
        faulthandler.register(signal.SIGUSR1, file=stack)
        (folder / f"rank{rank}.pid").write_text(str(os.getpid()))
        train(folder, options)


if __name__ == "__main__":
    main()
