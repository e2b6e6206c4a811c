"""Whether the policy can be re-rolled under a lesson, and what is left of a lesson that does not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trl_mentor.assembly import completion_text
from trl_mentor.records import Guidance, HintOrigin, Lesson, Prepared, Prompt
from trl_mentor.strategies.base import Strategy


@dataclass(frozen=True, slots=True)
class Objection:
    """Why the policy cannot be re-rolled under a lesson."""

    reason: str
    too_long: bool = False
    """True when a shorter hint would help."""


def special_tokens(tokenizer: Any) -> dict[int, str]:
    """The special tokens of a tokenizer by id: those with a role, and those that are only marked so when added.

    Turn marks such as Llama's `<|eot_id|>` may be among the latter alone.
    """
    with_role = dict(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True))
    added = getattr(tokenizer, "added_tokens_decoder", {})
    return with_role | {number: str(token) for number, token in added.items() if token.special}


def objection(
    lesson: Lesson,
    original: Prompt,
    *,
    special_tokens: Iterable[str],
    count_tokens: Callable[[Prompt], int],
    context_room: float,
    engine_room: float,
    completion_room: float,
) -> Objection | None:
    """What speaks against re-rolling a policy under a lesson, or None; of its rolls the first alone is looked at.

    `context_room` and `engine_room` are the tokens left for a prompt, `completion_room` those for a completion. An
    engine refuses what it has no room for; a context that the plain prompt exceeds is no limit.
    """
    given, attempt = (lesson.rolls[0].given, lesson.rolls[0].attempt) if lesson.rolls else (None, None)
    for name, text in (("hint", lesson.hint or ""), ("demonstration", given or ""), ("attempt", attempt or "")):
        for token in special_tokens:
            # Some tokenizers have an ordinary word or sign for padding.
            if len(token) > 1 and not token.isalnum() and token in text:
                return Objection(f"the {name} holds {token!r}, which is a special token to the policy")
    if given is not None:
        tokens = count_tokens(given) + 1
        if tokens <= completion_room:
            return None
        return Objection(
            f"the demonstration has {tokens} tokens with its end, more than the {completion_room:g} of "
            "max_completion_length"
        )
    hinted, plain = count_tokens(lesson.prompt or ""), count_tokens(original)
    if hinted > engine_room or hinted > context_room >= plain:
        left = min(context_room, engine_room) if context_room >= plain else engine_room
        which = "the prompt" if lesson.hint is None else "with its hint the prompt"
        reason = f"{which} has {hinted} tokens, too long for the {left} that the context leaves"
        return Objection(reason, too_long=True)
    return None


def fitted_openings(
    plain: Sequence[Prompt],
    wanted: Sequence[Prompt],
    objection_to: Callable[[Lesson, Prompt], Objection | None],
    *,
    special_tokens: Iterable[str],
) -> tuple[list[Prompt], Objection | None]:
    """The wanted prompts of first rolls, or the plain ones where the policy cannot take those, and the first reason.

    Rows of a group follow each other and are looked at once.
    """
    tokens, found = list(special_tokens), list(wanted)
    objections: list[Objection] = []
    for i, (old, new) in enumerate(zip(plain, wanted, strict=True)):
        if i and (old, new) == (plain[i - 1], wanted[i - 1]):
            found[i] = found[i - 1]
        elif old != new:
            before, after = completion_text(old), completion_text(new)
            added = " ".join(token for token in tokens if after.count(token) > before.count(token))
            objection = objection_to(Lesson(new, hint=added), old)
            if objection is not None:
                objections.append(objection)
                found[i] = old
    return found, objections[0] if objections else None


def fitted(
    prepared: Prepared, strategy: Strategy, objection_to: Callable[[Lesson, Prompt], Objection | None]
) -> Prepared:
    """The lesson, shortened if it has to be, or without a prompt if the policy cannot be re-rolled under it."""
    group, lesson = prepared.assignment.group, prepared.lesson
    plain = group.prompt if lesson.example is None else lesson.example["prompt"]
    if lesson.rolls:
        return Prepared(prepared.assignment, _fitted_rolls(lesson, plain, objection_to))
    while lesson.prompt is not None:
        if isinstance(lesson.prompt, str | list) and lesson.prompt:
            objection = objection_to(lesson, plain)
        else:
            objection = Objection(f"strategy {strategy.name!r} prepared the prompt {lesson.prompt!r:.40}")
        if objection is None:
            return Prepared(prepared.assignment, lesson)
        shorter = strategy.shorten(group, lesson) if objection.too_long else None
        if shorter is not None and len(str(shorter.prompt)) >= len(str(lesson.prompt)):
            shorter = None  # a strategy that gets nowhere
        lesson = _refused(lesson, objection.reason) if shorter is None else shorter
    return Prepared(prepared.assignment, lesson)


def _fitted_rolls(
    lesson: Lesson, original: Prompt, objection_to: Callable[[Lesson, Prompt], Objection | None]
) -> Lesson:
    """The lesson with those of its rolls that the policy can take; without a prompt if there are none."""
    single = [replace(lesson, prompt=roll.prompt, hint=roll.hint, rolls=(roll,)) for roll in lesson.rolls]
    objections = [objection_to(item, original) for item in single]
    kept = tuple(roll for roll, found in zip(lesson.rolls, objections, strict=True) if found is None)
    if kept:
        return replace(lesson, prompt=kept[0].prompt, hint=kept[0].hint, rolls=kept)
    reason = next(found.reason for found in objections if found is not None)
    return _refused(lesson, reason)


def _refused(lesson: Lesson, reason: str) -> Lesson:
    """What is left of a lesson that the policy cannot take; who wrote it or not, the journal has the reason."""
    if lesson.guidance is None:
        return Lesson(prompt=None, guidance=Guidance(None, HintOrigin.NOT_ASKED, reason=reason))
    return Lesson(prompt=None, guidance=lesson.guidance.without_hint(reason))
