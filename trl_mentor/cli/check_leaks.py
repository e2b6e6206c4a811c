"""Checks of the leak gate: its algebra works; the user's own rule loads, lets the fixed hint pass, raises nothing."""

from __future__ import annotations

from trl_mentor.assembly import question_text
from trl_mentor.cli.check_findings import Finding, Setup, fail, ok, skipped, warn
from trl_mentor.errors import ConfigError
from trl_mentor.factory import load_leak_rule
from trl_mentor.leaks.math_equal import are_equal
from trl_mentor.mentor_pool import describe, outcome_of
from trl_mentor.records import CollapsedGroup
from trl_mentor.settings import StrategyKind
from trl_mentor.templating import PromptTemplates

_FIX = "a leak rule takes (hint, group) and returns why it refuses as one fixed sentence, or None; see docs/domains.md"


def check_algebra(setup: Setup) -> Finding:
    """Can math-verify be imported and does it see that two forms are equal; without it hints are refused unjudged."""
    if setup.training.mentor_strategy != StrategyKind.MENTOR:
        return skipped("leak gate", "no mentor writes hints")
    found = outcome_of(lambda: are_equal("2\\sqrt{2}", "\\sqrt{8}"))
    if found is True:
        return ok("leak gate", "sees that two forms of an answer are equal")
    said = describe(found) if isinstance(found, Exception) else "it takes 2\\sqrt{2} and \\sqrt{8} for different"
    return fail("leak gate", f"math-verify does not work: {said}", "pip install --force-reinstall math-verify")


def check_leak_rule(setup: Setup) -> Finding:
    """Does `mentor_leak_rule` load and behave on the first rows; the package's own rules are tested with it."""
    training = setup.training
    if training.mentor_leak_rule is None or training.mentor_strategy != StrategyKind.MENTOR:
        return skipped("leak rule", "no mentor_leak_rule; the rules of the domain hold")
    rule = outcome_of(lambda: load_leak_rule(training.mentor_leak_rule))
    if isinstance(rule, Exception):
        return fail("leak rule", describe(rule), "set mentor_leak_rule to the dotted path of a function")
    try:
        fixed = PromptTemplates(training.mentor_domain, training.mentor_templates_dir).fallback
    except ConfigError:
        return skipped("leak rule", "the templates do not load")
    refused = 0
    for row in setup.usable_rows:
        group = CollapsedGroup(question_text(row["prompt"]), (), setup.answer(row), prompt=row["prompt"])
        for hint in (fixed, group.answer or ""):
            said = outcome_of(lambda hint=hint, group=group: rule(hint, group))  # type: ignore[misc]
            if isinstance(said, Exception):
                return fail("leak rule", f"it raised {describe(said)}", _FIX)
            if said is not None and not (isinstance(said, str) and said.strip()):
                return fail("leak rule", f"it returned {said!r:.60}", _FIX)
            if said is not None and hint is fixed:
                return warn("leak rule", f"it refuses the fixed fallback hint: {said}", "make it less strict")
            refused += said is not None
    return ok(
        "leak rule",
        f"lets the fixed hint through; refuses the bare answer on {refused} of {len(setup.usable_rows)} rows",
    )
