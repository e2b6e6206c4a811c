"""Checks of the leak gate: its algebra works; the user's own rule loads, lets the fixed hint pass, raises nothing."""

from __future__ import annotations

import copy
from dataclasses import replace

from trl_mentor.assembly import question_text
from trl_mentor.cli.check_findings import Finding, Level, Setup, fail, ok, skipped, warn
from trl_mentor.cli.check_process import ENDED_FIX, UserCodeError, user_process
from trl_mentor.errors import ConfigError
from trl_mentor.leaks.math_equal import are_equal
from trl_mentor.mentor_pool import describe, outcome_of
from trl_mentor.records import CollapsedGroup
from trl_mentor.templating import PromptTemplates

_FIX = "a leak rule takes (hint, group) and returns why it refuses as one fixed sentence, or None; see docs/domains.md"


def check_algebra(setup: Setup) -> Finding:
    """Can math-verify be imported and does it see that two forms are equal; without it hints are refused unjudged."""
    if not setup.training.asks_mentor():
        return skipped("leak gate", "no mentor writes hints")
    found = outcome_of(lambda: are_equal("2\\sqrt{2}", "\\sqrt{8}"))
    if found is True:
        return ok("leak gate", "sees that two forms of an answer are equal")
    said = describe(found) if isinstance(found, Exception) else "it takes 2\\sqrt{2} and \\sqrt{8} for different"
    return fail("leak gate", f"math-verify does not work: {said}", "pip install --force-reinstall math-verify")


def check_leak_rule(setup: Setup) -> Finding:
    """Does `mentor_leak_rule` load and behave on the first rows; the package's own rules are tested with it."""
    training = setup.training
    if not training.asks_mentor():
        return skipped("leak rule", "no mentor writes hints")
    if training.mentor_leak_rule is None:
        return skipped("leak rule", "no mentor_leak_rule; the rules of the domain hold")
    try:
        fixed = PromptTemplates(training.mentor_domain, training.mentor_templates_dir).fallback
    except ConfigError:
        return skipped("leak rule", "the templates do not load")
    groups = [
        CollapsedGroup(question_text(row["prompt"]), (), setup.answer(row), prompt=row["prompt"])
        for row in setup.usable_rows
    ]
    cases = [(hint, group) for group in groups for hint in (fixed, group.answer or "")]
    try:
        with user_process(setup.options.reward_timeout) as process:
            said = process.ask("refusals", training.mentor_leak_rule, cases)
    except UserCodeError as ended:
        return fail("leak rule", f"it {ended}", ENDED_FIX)
    if "unknown" in said:
        return fail("leak rule", said["unknown"], "set mentor_leak_rule to the dotted path of a function")
    if "error" in said:
        return fail("leak rule", said["error"], _FIX)
    refusals = said["refusals"]
    if strict := [text for text in refusals[::2] if text is not None]:
        return warn("leak rule", f"it refuses the fixed fallback hint: {strict[0]}", "make it less strict")
    refused = sum(text is not None for text in refusals[1::2])
    return ok(
        "leak rule",
        f"lets the fixed hint through; refuses the bare answer on {refused} of {len(setup.usable_rows)} rows",
    )


def without_failed_rule(setup: Setup, finding: Finding) -> Setup:
    """The set-up for asking the mentor, who calls the leak rule in this process: one that failed might end it."""
    if finding.level is not Level.FAIL:
        return setup
    training = copy.copy(setup.training)
    training.mentor_leak_rule = None
    return replace(setup, training=training)
