"""Journals of made-up runs, written through the package's own Journal; hostile texts are among them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from trl_mentor.counters import Booking, Counters, count_causes, count_guidances, count_outcomes
from trl_mentor.journal import Journal
from trl_mentor.records import (
    Arm,
    Attempt,
    Call,
    Cause,
    CollapsedGroup,
    Draft,
    Evaluation,
    Event,
    EventKind,
    Guidance,
    HintOrigin,
    Intervention,
    Quality,
    RerollOutcome,
    Return,
    Role,
    RunInfo,
    Usage,
    Verdict,
    VerdictSource,
)
from trl_mentor.spending import RoleSpending, Spending
from trl_mentor.trial import prompt_key, recovery

HOSTILE = (
    "<script>window.hacked = 1</script>",
    "</textarea></title></style></script><img src=x onerror='window.hacked=2'>",
    "<!-- <script> ]]> --><svg onload=window.hacked=3>",
    "line\u2028separator\u2029and \u202edesrever\u202c text",
    "lone \ud800 surrogates \udfff, NUL \x00, escape \x1b[31m, \ufffe",
    "{{ 7 * 7 }} {% raw %} ${window.hacked} `</script>`",
    "&lt;b&gt; &amp; &#60;script&#62;",
    "$\\href{javascript:window.hacked=4}{x}$ and $\\text{<img src=x onerror=window.hacked=5>}$",
    "$\\newcommand{\\a}{\\b\\b}\\newcommand{\\b}{\\a\\a}\\a$ $" + "{" * 480 + "$ \\(\\frac{\\)",
)
"""What a page may show as text and nothing else."""

TOPICS = ("algebra", "geometry", "number theory", "<b>bold</b> & topics", "\u202eothers")
SENTENCES = (
    "Let $x = \\frac{a+b}{2}$ be the mean, so that $a \\le x \\le b$ holds.",
    "We substitute and obtain \\(x^2 + 2x + 1 = (x+1)^2\\), which is never negative.",
    "Therefore the sum is $$\\sum_{k=1}^{n} k = \\frac{n(n+1)}{2}$$ for every n.",
    "The price rises from $5 to $10, which is a factor of two.",
    "I multiply both sides by three and forget the sign of the second term.",
    "Counting the cases one by one, there are twelve of them, or so it seems.",
    "Hence the answer is \\[\\boxed{42}\\]",
)


def prose(rng: random.Random, sentences: int) -> str:
    return " ".join(rng.choice(SENTENCES).replace("two", str(rng.randint(2, 10**6))) for _ in range(sentences))


def made_up(rng: random.Random, number: int, *, step: int, length: int = 4) -> Intervention:
    """One intervention; every tenth has hostile texts everywhere, and questions come round from time to time."""
    hostile = rng.choice(HOSTILE) if number % 10 == 3 else ""
    question = f"Question {rng.randrange(2000)}: {prose(rng, 2)} {hostile}"
    attempts = tuple(
        Attempt(
            f"{prose(rng, length)} {hostile}", 0.0, rng.random() < 0.1, f"expected 42 {hostile}" if hostile else None
        )
        for _ in range(4)
    )
    if rng.random() < 0.3:
        attempts = attempts[:1] * 4
    cause = rng.choices([Cause.KNOWLEDGE, Cause.DUPLICATES, Cause.FORMAT, Cause.CUT_OFF], [6, 2, 1, 1])[0]
    arm = rng.choices([Arm.HINT, Arm.CONTROL, Arm.GENERIC], [6, 3, 1])[0]
    guidance = made_up_guidance(rng, hostile)
    chance = 0.6 if arm is Arm.HINT else 0.15
    successes = tuple(float(rng.random() < chance * rng.random() * 1.4) for _ in range(4))
    outcome = (
        RerollOutcome.STILL_COLLAPSED
        if not any(successes)
        else RerollOutcome.HINT_SATURATED
        if all(successes)
        else RerollOutcome.RESCUED
    )
    record = Intervention(
        step=step,
        strategy="mentor",
        group=CollapsedGroup(
            question, attempts, f"42 {hostile}", question, number % 16, cause, f"why {hostile}", rng.choice(TOPICS)
        ),
        guidance=guidance,
        outcome=outcome,
        completions=tuple(f"{prose(rng, length)} {hostile}" for _ in successes),
        successes=successes,
        rewards={"correct": successes, f"format {hostile}": (0.5,) * 4},
        reroll_tokens=rng.randint(100, 900),
        collapsed_at=step,
        arm=arm,
        reliances=tuple(-rng.random() for _ in successes) if arm is Arm.HINT else (),
    )
    if guidance.hint is None:
        skipped = {"outcome": RerollOutcome.SKIPPED, "completions": (), "successes": (), "rewards": {}, "arm": None}
        record = replace(record, **skipped, reroll_tokens=0, reliances=())
    return record


def made_up_guidance(rng: random.Random, hostile: str) -> Guidance:
    origin = rng.choices([HintOrigin.ACCEPTED, HintOrigin.FALLBACK, HintOrigin.FAILED], [8, 1, 1])[0]
    number = rng.randint(1, 3)
    drafts = [
        Draft(
            f"{prose(rng, 2)} {hostile}",
            Role.GENERATION if k == 0 else Role.REPAIR,
            1,
            Verdict(Quality.LOW, f"It says the answer. {hostile}", rng.choice(list(VerdictSource)[:3])),
        )
        for k in range(number)
    ]
    if origin is HintOrigin.ACCEPTED:
        drafts[-1] = replace(drafts[-1], verdict=Verdict(Quality.HIGH, "It fits.", VerdictSource.JUDGE))
    calls = tuple(
        Call(role, rng.random(), Usage(rng.randint(100, 900), rng.randint(5, 90), 50))
        for role in (Role.ATTRIBUTION, Role.GENERATION, *(Role.JUDGMENT,) * number)
    )
    hint = drafts[-1].text if origin is HintOrigin.ACCEPTED else "Read the question again."
    return Guidance(
        None if origin is HintOrigin.FAILED else hint,
        origin,
        (f"confuses sum and product {hostile}", "forgets a sign"),
        tuple(drafts),
        calls,
        sum(call.seconds for call in calls),
        "" if origin is HintOrigin.ACCEPTED else f"no draft was accepted {hostile}",
    )


def booked(records: list[Intervention], step: int, rng: random.Random) -> Booking:
    """What a batch of 64 groups with these collapsed ones is booked as."""
    roles: dict[str, RoleSpending] = {}
    for call in (call for record in records if record.guidance for call in record.guidance.calls):
        usage = call.usage
        spent = RoleSpending(
            1, 0, 0, 0, usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, 0, call.seconds
        )
        roles[call.role] = roles.get(call.role, RoleSpending()) + spent
    reroll = sum(record.reroll_tokens for record in records)
    withheld = sum(record.reroll_tokens for record in records if record.arm in (Arm.CONTROL, Arm.GENERIC))
    counted = Counters(
        batches=1,
        groups=64,
        collapsed=len(records),
        all_correct=rng.randint(0, 20),
        seconds=30.0,
        mentor_seconds=4.0,
        policy_tokens=20_000 + reroll,
        reroll_tokens=reroll,
        control_tokens=withheld,
        completions=256,
        successes=rng.randint(50, 150),
        mentor=Spending(roles, busy_seconds=5.0),
        recovery=recovery(records),
    )
    return Booking(
        step,
        counted
        + count_causes(record.group.cause for record in records)
        + count_outcomes(record.outcome for record in records)
        + count_guidances(record.guidance for record in records),
    )


def write_run(directory: Path, interventions: int, *, seed: int = 0, length: int = 4, batch: int = 16) -> Path:
    """A run with so many interventions, `batch` of them at each step; returns its directory."""
    rng = random.Random(seed)
    journal = Journal(directory / "mentor" / "journal.jsonl")
    journal.begin(0, RunInfo("mentor", "inline", "a/policy", "a-mentor", "math", 0, 4, 2, 0.3, 0.1, version="1"))
    for step, batch_records in enumerate(batches(rng, interventions, length=length, batch=batch)):
        for record in batch_records:
            journal.append(record)
        journal.book(booked(batch_records, step, rng))
        for record in batch_records[::3]:
            key = prompt_key(record.group.prompt)
            journal.returned(Return(step + 1, key, step, record.outcome, record.arm, rng.randint(0, 2), 4))
        if step % 50 == 0:
            journal.evaluated(Evaluation(step, {"eval_reward": rng.random()}))
    journal.note(Event(EventKind.PAUSED, f"an endpoint is left alone {HOSTILE[0]}", step=1))
    journal.close()
    return directory


def batches(rng: random.Random, interventions: int, *, length: int, batch: int) -> Iterator[list[Intervention]]:
    for step, begin in enumerate(range(0, interventions, batch)):
        numbers = range(begin, min(begin + batch, interventions))
        yield [made_up(rng, number, step=step, length=length) for number in numbers]
