"""The mentor and the rewards of the soak: the first fails in every way known, the second collapse by chance."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tiny

from trl_mentor.records import Message, Reply, Role, Usage

ROWS = 12
"""Completions of a generation batch over all ranks: three groups of four, which straddle two ranks, and four."""
GROUP = 4
DEADLINE = 0.3
CONCURRENCY = 2
GOOD = {
    Role.ATTRIBUTION: '{"misconceptions": ["confuses w1 with w2"]}',
    Role.GENERATION: tiny.HINT,
    Role.JUDGMENT: '{"critique": "fine", "verdict": "HIGH"}',
    Role.REPAIR: json.dumps({"hint": f"{tiny.HINT} w33"}),
}
LONG = "\n".join(" ".join(f"w{i}" for i in range(start, start + 9)) for start in range(20))


class UnreliableMentor:
    """A backend that does all that endpoints and models do: mostly well, now and then slow, wrong, or not at all."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._lock = threading.Lock()

    def chat(
        self, messages: Sequence[Message], *, role: Role, timeout: float, schema: Mapping[str, Any] | None = None
    ) -> Reply:
        with self._lock:
            mood, delay = self._dice.random(), self._dice.uniform(0.0, 0.02)
        good = GOOD[role]
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
    lambda messages: Reply('{"critique": "too vague", "verdict": "LOW"}'),
    lambda messages: Reply('{"critique": "fine", "verdict": "HIGH"} {"critique": "vague", "verdict": "LOW"}'),
    lambda messages: Reply("w30 <eos> w31"),
    lambda messages: Reply(LONG),  # has to be shortened to fit
    lambda messages: Reply(LONG.replace("\n", " ")),  # one sentence, so that nothing of it fits
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
