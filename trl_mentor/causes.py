r"""Why a group collapsed, decided before a mentor is asked, and what is done about each cause.

What says that nothing was judged comes before what says how the judged completions failed. Only an unmistakable sign
makes a group anything but `KNOWLEDGE`, because a cause that is found where it is not costs the group its mentor.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trl_mentor.answer_forms import answer_forms, tokenize
from trl_mentor.errors import ConfigError
from trl_mentor.records import Cause, Route

DEFAULT_ROUTES: Mapping[Cause, Route] = {
    Cause.CUT_OFF: Route.SKIP,
    Cause.FORMAT: Route.FORMAT_HINT,
    Cause.DUPLICATES: Route.SKIP,
    Cause.UNSCORABLE: Route.SKIP,
    Cause.VERIFIER_ERROR: Route.SKIP,
    Cause.KNOWLEDGE: Route.MENTOR,
}
ALWAYS_SKIPPED = (Cause.UNSCORABLE, Cause.VERIFIER_ERROR)
"""Rewards that could not judge the first roll would not judge a second one."""

WITHOUT_A_MENTOR: Mapping[Cause, Route] = dict.fromkeys(Cause, Route.MENTOR) | dict.fromkeys(
    ALWAYS_SKIPPED, Route.SKIP
)
"""As far as causes matter to strategies that treat every collapse alike."""

NOTHING_PARSED = ("[unparseable]", "[incomplete reasoning]")
"""What TRL's own accuracy rewards report where they found no answer to judge."""

_SHOWN = 120
_TAIL = 300
_FINAL = re.compile(
    r"(?:\\boxed\s?\{(.*)\}|<answer>(.*)</answer>|####(.+)|\banswer\s*(?:is)?[\s:=*$]+(.+))[\s.$*)\]]*$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Sign:
    """What one completion says about the cause."""

    text: str
    success: float
    """The success reward; NaN if it could not be scored."""
    divided: bool = False
    """Whether a reward that it is made of is above 0 or could not be scored, so that another one may fail it."""
    truncated: bool = False
    formats: tuple[float, ...] = ()
    """Values of the format rewards; NaN where there is none."""
    parsed: str | None = None
    """What the verifier says it read as the answer (`answer_parsed`); None if it does not say."""
    verifier_error: str | None = None
    """Why the verifier could not judge it."""

    @property
    def judged(self) -> bool:
        """Whether the success reward says that it failed; what could not be judged may be right."""
        return not math.isnan(self.success) and self.verifier_error is None


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause and what shows it, in one line; no line for `KNOWLEDGE`."""

    cause: Cause
    detail: str = ""


def find_cause(signs: Sequence[Sign], answer: str | None = None) -> Finding:
    """Why every judged completion of a group failed; `answer` is the reference answer."""
    judged = [sign for sign in signs if sign.judged]
    if not judged:
        errors = [sign.verifier_error for sign in signs if sign.verifier_error is not None]
        if errors:
            return Finding(Cause.VERIFIER_ERROR, f"the verifier failed: {errors[0]}")
        cut = ", and every one ran into the length limit" * all(sign.truncated for sign in signs)
        return Finding(Cause.UNSCORABLE, f"the success reward is None or NaN for every completion{cut}")
    if all(sign.truncated for sign in judged):
        return Finding(Cause.CUT_OFF, f"all {len(judged)} completions ran into the length limit")
    if len(judged) > 1 and len({sign.text for sign in judged}) == 1:
        return Finding(Cause.DUPLICATES, f"all {len(judged)} completions are the same: {_shown(judged[0].text)}")
    detail = _form_at_fault(judged, answer)
    return Finding(Cause.KNOWLEDGE) if detail is None else Finding(Cause.FORMAT, detail)


def _form_at_fault(judged: Sequence[Sign], answer: str | None) -> str | None:
    """What shows that the form alone was wrong. A verifier that reports what it read is believed."""
    reports = [sign.parsed for sign in judged]
    if all(report in NOTHING_PARSED for report in reports):
        end = _shown(judged[0].text, from_end=True)
        return f"the verifier found no answer to judge in {len(judged)} completions, of which one ends: {end}"
    read = [sign for sign in judged if sign.parsed is not None and sign.parsed not in NOTHING_PARSED]
    if not read and all(_breaks_the_form(sign) for sign in judged):
        return f"no completion of {len(judged)} has a format reward above 0"
    for sign in judged:
        refused = sign not in read and sign.success <= 0 and not sign.divided
        if refused and answer is not None and states_answer(sign.text, answer):
            end = _shown(sign.text, from_end=True)
            return f"the success reward does not count the reference answer, with which a completion ends: {end}"
    return None


def _breaks_the_form(sign: Sign) -> bool:
    values = [value for value in sign.formats if not math.isnan(value)]
    return bool(values) and all(value <= 0 for value in values)


def states_answer(text: str, answer: str) -> bool:
    r"""Whether the last line of a text gives this answer as the final one, and nothing else.

    As in `\boxed{12}`, `#### 12`, `The answer is 12.`; a line that merely holds or ends with it does not count.
    """
    lines = text[-_TAIL:].strip().splitlines()
    found = _FINAL.search(lines[-1]) if lines else None
    if found is None:
        return False
    stated = next(part for part in found.groups() if part is not None).strip(" .$*:")
    boxed = re.fullmatch(r"\\boxed\s?\{(.*)\}", stated)
    stated = boxed[1] if boxed else stated
    tokens = tokenize(stated[1:-1] if stated[:1] + stated[-1:] in ("()", "[]") else stated)
    return bool(tokens) and tokens in set(answer_forms(answer))


def _shown(text: str, *, from_end: bool = False) -> str:
    line = " ".join(text[-4 * _SHOWN :].split() if from_end else text[: 4 * _SHOWN].split())
    if len(line) > _SHOWN:
        line = f"...{line[-_SHOWN:]}" if from_end else f"{line[:_SHOWN]}..."
    return repr(line) if line else "nothing"


def format_columns(
    names: Sequence[str], format_rewards: Sequence[str] | None, success_rewards: Sequence[str] = ()
) -> tuple[int, ...]:
    """Columns of the rewards that pay for form.

    Without `format_rewards` those with `format` in their name, of which success rewards are none. Raises `ConfigError`
    for a name that is unknown, not unique, or that of a success reward.
    """
    if format_rewards is None:
        named = [i for i, name in enumerate(names) if "format" in name.casefold() and name not in success_rewards]
        return tuple(named) if len(named) < len(names) else ()  # what is paid for alone is success
    for name in format_rewards:
        if names.count(name) != 1:
            found = "is not one of" if name not in names else "is not unique among"
            raise ConfigError(
                f"mentor_format_rewards names {name!r}, which {found} the reward functions {list(names)}; "
                "use the names under which TRL logs them (rewards/<name>/mean), each of them unique"
            )
        if name in success_rewards:
            raise ConfigError(
                f"{name!r} is in mentor_format_rewards and in mentor_success_rewards; a reward says either that the "
                "form is right or that the answer is, so name it in one of them"
            )
    return tuple(names.index(name) for name in format_rewards)


def check_routes(overrides: Mapping[Any, Any] | None) -> dict[Cause, Route]:
    """The route of every cause, with these overrides. Raises `ConfigError` for a cause or route that is none."""
    routes = dict(DEFAULT_ROUTES)
    for cause, route in (overrides or {}).items():
        if cause not in list(Cause):
            raise ConfigError(f"mentor_routes names the cause {cause!r}; expected one of {', '.join(Cause)}")
        if route not in list(Route):
            raise ConfigError(f"mentor_routes sends {cause} to {route!r}; expected one of {', '.join(Route)}")
        if cause in ALWAYS_SKIPPED and route != Route.SKIP:
            raise ConfigError(
                f"mentor_routes sends {cause} to {route!r}; it can only be 'skip', because rewards that could not "
                "judge the completions could not judge the re-roll either"
            )
        routes[Cause(cause)] = Route(route)
    return routes
