"""What must be true of a chaos run. Knows nothing of the rules that the mentor itself goes by."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chaos_world import Exercise

from trl_mentor.records import Guidance, HintOrigin, Intervention

MOST_WORDS = 80

_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")
_NO_TEXT = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_MARKUP = re.compile(r"<\|.*?\|>|</?s>|\[/?INST\]|</?think(ing)?>|<(start|end)_of_turn>", re.IGNORECASE)
_RESULT = re.compile(r"\\f?box|```")


@dataclass(frozen=True, slots=True)
class Wrong:
    """A finding: the number of the exercise and what is wrong, in words."""

    exercise: int
    what: str


def bad_hints(
    guidances: Mapping[int, Guidance],
    exercises: Mapping[int, Exercise],
    log: Sequence[Mapping[str, Any]],
    fallback: str,
) -> list[Wrong]:
    """Hints that must not have been used. `log` is what the server did, `fallback` the fixed hint of the domain."""
    approved = {(entry["exercise"], _plain(entry["draft"] or "")) for entry in log if entry["approves"]}
    wrong = []
    for number, guidance in guidances.items():
        match guidance.origin, guidance.hint:
            case HintOrigin.ACCEPTED, str(hint):
                what = _fault_of(hint, exercises[number])
                if what is None and (number, _plain(hint)) not in approved:
                    what = "no reply of the judge approves it"
            case HintOrigin.FALLBACK, hint:
                what = None if hint == fallback else "the fallback is not the fixed hint"
            case HintOrigin.FAILED | HintOrigin.NOT_ASKED, None:
                what = None
            case origin, _:
                what = f"a hint, or none, of origin {origin}"
        wrong += [] if what is None else [Wrong(number, f"{what}: {guidance.hint!r:.200}")]
    return wrong


def unjournaled(guidances: Mapping[int, Guidance], journal: Sequence[Intervention]) -> list[Wrong]:
    """Interventions of which the journal has no line, another one, or one that does not say why there is no hint."""
    lines: dict[int, list[Intervention]] = {}
    for line in journal:
        lines.setdefault(line.group.index, []).append(line)
    wrong = []
    for number, guidance in guidances.items():
        found = lines.get(number, [])
        if len(found) != 1:
            wrong.append(Wrong(number, f"{len(found)} lines in the journal"))
        elif found[0].guidance != guidance:
            wrong.append(Wrong(number, "the journal says something else"))
        elif not found[0].group.cause or (guidance.origin is not HintOrigin.ACCEPTED and not guidance.reason.strip()):
            wrong.append(Wrong(number, f"no cause for {guidance.origin}"))
        elif guidance.origin is HintOrigin.FAILED and not _has_failed_call(guidance):
            wrong.append(Wrong(number, f"failed without a call that failed: {guidance.reason}"))
    return wrong


def _has_failed_call(guidance: Guidance) -> bool:
    """Or the reason says why none was made: the time was over, or the endpoint is left alone."""
    return any(call.error for call in guidance.calls) or bool(re.search("deadline|paused", guidance.reason))


def _fault_of(hint: str, exercise: Exercise) -> str | None:
    """What a hint breaks, whoever approved it; None if nothing."""
    plain = _plain(hint)
    if any(_plain(leak) in plain for leak in exercise.leaks):
        return "a planted leak"
    if any(re.search(tell, plain) for tell in exercise.tells):
        return "it tells the answer"
    if _NO_TEXT.search(hint) or _MARKUP.search(hint):
        return "control characters or markup"
    if _RESULT.search(hint):
        return "a boxed result or code"
    if not re.search(r"\w", hint) or len(hint.split()) > MOST_WORDS:
        return "blank or too long"
    return None


def _plain(text: str) -> str:
    """Lower case without disguises and layout, so that a hint is known again."""
    plain = unicodedata.normalize("NFKC", _INVISIBLE.sub("", text)).casefold()
    return " ".join(plain.split()).strip("`\"'* ")
