"""The gate between whatever the mentor writes and the policy: formal rules, the domain's, one of the user's."""

from __future__ import annotations

import inspect
import logging
from dataclasses import dataclass, field
from functools import partial

from trl_mentor.errors import ConfigError
from trl_mentor.leaks.hint_rules import HintLimits, check_hint, gives_away
from trl_mentor.leaks.rules import LeakRule, rules_of
from trl_mentor.mentor_pool import describe, outcome_of
from trl_mentor.records import CollapsedGroup

logger = logging.getLogger(__name__)

OWN_RULE = "A rule of this training refuses the hint: change what it gives away, and keep to one idea."
UNDECIDED = "A rule could not tell whether the hint gives the answer away: write it in plainer words."
WITHHELD = (
    "The reviewer's critique is withheld because it gives the answer away. Make the hint tell less than it does."
)


@dataclass(frozen=True, slots=True)
class LeakGate:
    """What may pass to the policy and to the agents that write for it. Deterministic, and asks no model."""

    domain: str = "math"
    limits: HintLimits = field(default_factory=HintLimits)
    own_rule: LeakRule | None = None
    """Asked last, about hints alone. One that raises, or returns no text and not None, refuses the hint."""
    _said: list[str] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raises `ConfigError` for a rule that cannot be called with a hint and a group."""
        if self.own_rule is not None:
            _check_rule(self.own_rule)

    def objection(self, hint: str, group: CollapsedGroup) -> str | None:
        """What speaks against a hint, in sentences that cannot carry the answer; None if nothing."""
        found = check_hint(hint, question=group.question, answer=group.answer, limits=self.limits)
        return found or self._domain_objection(hint, group) or self._own_objection(hint, group)

    def gives_away(self, text: str, group: CollapsedGroup) -> bool:
        """Whether a phrase of a diagnosis or a critique would tell the answer to an agent that must not know it."""
        found = gives_away(text, question=group.question, answer=group.answer)
        return found or self._domain_objection(text, group) is not None

    def _domain_objection(self, text: str, group: CollapsedGroup) -> str | None:
        for rule in rules_of(self.domain):
            said = outcome_of(partial(rule, text, group))
            if said is not None:
                return _undecided(rule, said) if isinstance(said, Exception) else said
        return None

    def _own_objection(self, hint: str, group: CollapsedGroup) -> str | None:
        if self.own_rule is None:
            return None
        rule = self.own_rule
        said = outcome_of(lambda: rule(hint, group))
        if said is None:
            return None
        if isinstance(said, Exception):
            if not self._said:
                self._said.append(describe(said))
                text = "trl-mentor: the leak rule %s raised %s; hints are refused while it does. This is said once."
                logger.warning(text, _name(rule), self._said[0])
            return f"{OWN_RULE} (The rule raised {type(said).__name__}.)"
        return said if isinstance(said, str) and said.strip() and not self.gives_away(said, group) else OWN_RULE


def _name(rule: LeakRule) -> str:
    return str(getattr(rule, "__name__", type(rule).__name__))


def _check_rule(rule: LeakRule) -> None:
    if not callable(rule):
        raise ConfigError(
            f"leak_rule is {rule!r}; give the function itself; the dotted path is for mentor_leak_rule in a recipe"
        )
    signature = outcome_of(lambda: inspect.signature(rule))
    if not isinstance(signature, inspect.Signature):
        return  # some functions written in C have none to look at
    problem = outcome_of(lambda: signature.bind("hint", None))
    if isinstance(problem, Exception):
        raise ConfigError(
            f"leak_rule is {_name(rule)}{signature}, which cannot be called with two arguments ({problem}); it is "
            "given the hint and the CollapsedGroup, and returns what speaks against the hint, or None"
        )


def _undecided(rule: LeakRule, error: Exception) -> str:
    _warn_once(_name(rule), type(error).__name__, describe(error))
    return UNDECIDED


_warned: set[tuple[str, str]] = set()


def _warn_once(rule: str, kind: str, error: str) -> None:
    """A broken installation would else look like a mentor whose hints are all bad."""
    if (rule, kind) not in _warned:
        _warned.add((rule, kind))
        logger.warning(
            "trl-mentor: "
            "the leak rule %s raised %s, so every hint that it cannot decide about is refused. If a module cannot be"
            " imported: pip install --force-reinstall math-verify. This is said once.",
            rule,
            error,
        )
