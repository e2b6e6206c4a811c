"""Probes: remembered prompts answered again without a hint and without being trained on, every so many steps.

A run of one epoch never sees a prompt twice, so that nothing else would show whether what was learnt carries over.
Every rank holds the same pool and so chooses the same prompts, without asking the others.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from trl_mentor.collapse import SuccessRule
from trl_mentor.counters import Counters
from trl_mentor.exchange import Exchange
from trl_mentor.plain import from_plain, plain_json, survives_json
from trl_mentor.records import Return, Row
from trl_mentor.reroll import plan_reroll
from trl_mentor.rolling import Request
from trl_mentor.transfer import Past, answered, transfer
from trl_mentor.trial import RECOVERED

POOL = 128
"""Most prompts that wait for a probe, of those that recovered on their re-roll and of the others, each with its data
set row. They are in every checkpoint."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A prompt that may be probed."""

    key: str
    past: Past
    example: Mapping[str, Any]
    """Its data set row, prompt and all, which reward functions are shown."""


class Prober:
    """Chooses what is probed and when. Each intervention is probed at most once, so that the answers count alike."""

    def __init__(self, *, every: int, prompts: int, seed: int) -> None:
        """`every` so many optimizer steps, or never with 0, up to so many `prompts`."""
        self._every = every
        self._prompts = prompts
        self._seed = seed
        self._asked_at = 0
        self._pool: dict[str, Candidate] = {}

    def keep(self, candidate: Candidate) -> None:
        """Put a prompt into the pool; if there are too many of its kind, one drawn by lot has to go."""
        if not self._every:
            return
        self._pool.pop(candidate.key, None)
        self._pool[candidate.key] = candidate
        alike = [item for item in self._pool.values() if _recovered(item) == _recovered(candidate)]
        if len(alike) > POOL:
            del self._pool[max(alike, key=self._lot).key]

    def forget(self, key: str) -> None:
        """Take out a prompt that came round in training."""
        self._pool.pop(key, None)

    def take(self, step: int) -> list[Candidate]:
        """What to probe now: half of it recovered, half of it not, where there are; empty if it is not the time.

        The first call at which another `every` steps are done is the time, though several batches make a step.
        """
        if not self._every or step // self._every <= self._asked_at // self._every:
            return []
        self._asked_at = step
        ready = sorted((item for item in self._pool.values() if item.past.step < step), key=self._lot)
        recovered = [item for item in ready if _recovered(item)]
        others = [item for item in ready if not _recovered(item)]
        share = max((self._prompts + 1) // 2, self._prompts - len(others))
        chosen = (recovered[:share] + others)[: self._prompts]
        for item in chosen:
            del self._pool[item.key]
        return chosen

    def state(self) -> dict[str, Any]:
        """What waits, as plain JSON; a prompt whose data set row is not plain JSON is left out."""
        kept = [plain_json(item) for item in self._pool.values() if survives_json(dict(item.example))]
        return {"asked_at": self._asked_at, "pool": kept}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned."""
        self._asked_at = state.get("asked_at", 0)
        candidates = [from_plain(Candidate, item) for item in state.get("pool", [])] if self._every else []
        self._pool = {item.key: item for item in candidates}

    def _lot(self, item: Candidate) -> float:
        return random.Random(f"{self._seed} {item.key} {item.past.step}").random()


def _recovered(item: Candidate) -> bool:
    return item.past.outcome in RECOVERED


def probe(
    asked: Sequence[Candidate],
    regenerate: Callable[[Sequence[Request]], list[Row]],
    exchange: Exchange,
    rule: SuccessRule,
    *,
    size: int,
    step: int,
) -> tuple[list[Return], Counters]:
    """Have these prompts, of which there are some, answered `size` times each, spread evenly over all ranks."""
    plan = plan_reroll(len(asked), group_size=size, world_size=exchange.world_size)
    share = [asked[number // size] for number in plan.share(exchange.rank)]
    rows = regenerate([Request(item.example["prompt"], item.example, hint=None) for item in share])
    gathered = exchange.gather([(rule.value(row.rewards), len(row.completion_ids)) for row in rows])
    values, tokens = [value for value, _ in gathered], sum(length for _, length in gathered)
    answers = [
        answered(item.key, item.past, values[size * position : size * (position + 1)], rule, step=step, probe=True)
        for position, item in enumerate(asked)
    ]
    found = [answer for answer in answers if answer.completions]
    return found, Counters(policy_tokens=tokens, probe_tokens=tokens, probed=transfer(found))


@contextmanager
def apart(device: torch.device, *names: int) -> Iterator[None]:
    """Random numbers of their own, which depend on `names`; those of training go on afterwards as if nothing was."""
    kind, devices = ("cuda", []) if device.type == "cpu" else (device.type, [device])
    with torch.random.fork_rng(devices, device_type=kind):
        torch.manual_seed(random.Random(" ".join(map(str, names))).getrandbits(32))
        yield
