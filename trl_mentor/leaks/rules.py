"""The leak rules of each domain: what a hint must not hold besides the answer as it is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trl_mentor.leaks import code
from trl_mentor.leaks.choices import as_open_question, names_choice
from trl_mentor.leaks.disguises import holds_all_words, is_disguised_in
from trl_mentor.leaks.hidden_tests import quotes_hidden_test
from trl_mentor.leaks.hint_rules import CODE, COPIES_SOLUTION, GIVES_ANSWER, says_answer
from trl_mentor.leaks.last_step import leaves_last_step
from trl_mentor.leaks.math_leaks import states_equal
from trl_mentor.leaks.readings import folded, readings
from trl_mentor.records import CollapsedGroup

LeakRule = Callable[[str, CollapsedGroup], str | None]
"""What speaks against a hint for a group, as one fixed sentence for the agent that repairs it, or None.

The sentence must not be made from the answer: it is read by an agent that must not learn it.
"""

_READ = 10_000

DISGUISES_ANSWER = "The hint spells out or encodes the final answer: name the idea or the first move, and no result."
EQUALS_ANSWER = "The hint holds an expression that equals the final answer: stop before any result."
LAST_STEP = "The hint gives every value of the last step: say what to do next, and leave the values to the student."
NAMES_CHOICE = "The hint singles out one of the options: say how to tell them apart, and name none or several."
QUOTES_TEST = "The hint quotes a test that the question does not show: name the kind of input to think about instead."
TELLS_OUTPUT = "The hint tells what a test expects: name the kind of input to think about, and no output."


def spells_answer(hint: str, group: CollapsedGroup) -> str | None:
    """Letters and digits one by one, look-alikes, scales, signs and parts in words, encodings."""
    if not group.answer:
        return None
    question = group.question[:_READ]
    question = f"{question}\n{folded(question)}"
    for text in readings(hint, group.question):
        if says_answer(text, question=question, answer=group.answer):
            return GIVES_ANSWER
    if holds_all_words(hint, question=group.question, answer=group.answer):
        return GIVES_ANSWER
    found = is_disguised_in(hint, question=group.question, answer=group.answer)
    return DISGUISES_ANSWER if found else None


def equals_answer(hint: str, group: CollapsedGroup) -> str | None:
    """Expressions and lists of values that are mathematically the answer."""
    question, answer = as_open_question(group.question, group.answer or "")
    found = answer and states_equal(hint, question=question, answer=answer)
    return EQUALS_ANSWER if found else None


def gives_last_step(hint: str, group: CollapsedGroup) -> str | None:
    """Equations that are solved in one step, and two values with the operation that makes them the answer."""
    question, answer = as_open_question(group.question, group.answer or "")
    found = answer and leaves_last_step(hint, question=question, answer=answer)
    return LAST_STEP if found else None


def singles_out(hint: str, group: CollapsedGroup) -> str | None:
    """The right one of the question's options by letter, text, place or exclusion."""
    found = group.answer and names_choice(hint, question=group.question, answer=group.answer)
    return NAMES_CHOICE if found else None


def copies_program(hint: str, group: CollapsedGroup) -> str | None:
    """Statements of the reference solution, whatever the variables are called."""
    found = group.answer and code.copies_code(hint, question=group.question, answer=group.answer)
    return COPIES_SOLUTION if found else None


def tells_output(hint: str, group: CollapsedGroup) -> str | None:
    """The expected result of a test that the question does not show."""
    found = group.answer and code.tells_output(hint, question=group.question, answer=group.answer)
    return TELLS_OUTPUT if found else None


def quotes_test(hint: str, group: CollapsedGroup) -> str | None:
    """The input or expected result of a hidden test, as the verifier reported it for an attempt."""
    feedback = tuple(attempt.feedback for attempt in group.attempts if attempt.feedback)
    return QUOTES_TEST if feedback and quotes_hidden_test(hint, question=group.question, feedback=feedback) else None


def writes_pseudocode(hint: str, _: CollapsedGroup) -> str | None:
    """Statements line by line, in whatever language."""
    return CODE if code.is_pseudocode(hint) else None


GENERAL: tuple[LeakRule, ...] = (spells_answer, singles_out, gives_last_step, equals_answer)

DOMAIN_RULES: Mapping[str, tuple[LeakRule, ...]] = {
    "math": GENERAL,
    "general": GENERAL,
    "code": (*GENERAL, copies_program, tells_output, quotes_test, writes_pseudocode),
}


def rules_of(domain: str) -> tuple[LeakRule, ...]:
    """The rules of a domain, cheapest first; a domain of the user's own has the general ones."""
    return DOMAIN_RULES.get(domain, GENERAL)
