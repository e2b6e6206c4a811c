"""Checks of the reward functions: do they load, and do they tell a right answer from a wrong one."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from trl_mentor.cli.check_findings import Finding, Setup, captured_warnings, fail, ok, skipped, warn
from trl_mentor.cli.check_process import ENDED_FIX, UserCodeError, UserProcess
from trl_mentor.cli.check_scoring import LoadedReward, RewardError, Scored, score, success_rule
from trl_mentor.cli.grpo import REWARDS
from trl_mentor.collapse import SuccessRule
from trl_mentor.errors import ConfigError
from trl_mentor.guards import warn_if_success_is_a_sum

_OPPOSITES = {"yes": "no", "no": "yes", "true": "false", "false": "true"}

FORMS: Mapping[str, Callable[[str], str]] = {
    "bare": lambda answer: answer,
    "sentence": lambda answer: f"The answer is {answer}.",
    "boxed": lambda answer: f"The answer is \\boxed{{{answer}}}.",
    "dollars": lambda answer: f"The final answer is ${answer}$.",
    "hashes": lambda answer: f"So we are done.\n#### {answer}",
    "answer tag": lambda answer: f"<think>\nLet me see.\n</think>\n<answer>{answer}</answer>",
    "boxed after thinking": lambda answer: f"<think>\nLet me see.\n</think>\nThe answer is \\boxed{{{answer}}}.",
    "code block": lambda answer: f"```\n{answer}\n```",
}
"""Usual forms of a completion with an answer in it."""

NO_ANSWER = "I do not know."
SLOW_SECONDS = 0.25
"""Seconds of a reward for one completion above which a warning is due."""

_FINAL = (re.compile(r"####\s*(.+?)\s*$"), re.compile(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}"))


def load_rewards(setup: Setup, process: UserProcess) -> tuple[Finding, Setup]:
    """The reward functions of the recipe; a reward model is left out, it is not loaded here."""
    names = setup.script.reward_funcs or []
    model = setup.script.reward_model_name_or_path
    fix = f"set reward_funcs to some of {sorted(REWARDS)} or to dotted paths that can be imported from here"
    if not names and not model:
        return fail("rewards load", "the recipe names no reward", fix), setup
    loaded: list[LoadedReward] = []
    for name in names:
        try:
            answer = process.ask("load_reward", name)
        except UserCodeError as ended:
            return fail("rewards load", f"importing {name!r} {ended}", ENDED_FIX), setup
        if "unknown" in answer:
            return fail("rewards load", answer["unknown"], fix), setup
        if "error" in answer:
            return fail("rewards load", answer["error"], "correct that module"), setup
        loaded.append(LoadedReward(process, len(loaded), **answer))
    try:
        found = _loaded(loaded, model, setup)
    except ConfigError as error:
        fix = f"set mentor_success_rewards to some of {[reward.name for reward in loaded]}"
        return fail("rewards load", str(error), fix), setup
    return found, replace(setup, rewards=loaded)


def _loaded(rewards: Sequence[LoadedReward], model: str | None, setup: Setup) -> Finding:
    names = [reward.name for reward in rewards]
    weights = setup.training.reward_weights
    if weights is not None and len(weights) != len(names) + bool(model):
        raise ConfigError(f"there are {len(weights)} reward_weights for {len(names) + bool(model)} rewards")
    if model:
        return warn("rewards load", f"{', '.join([model, *names])}; the reward model is not tried", "try it apart")
    success_rule(rewards, setup.training)
    with captured_warnings("trl_mentor.guards") as texts:
        if not setup.training.settings_problems:
            warn_if_success_is_a_sum(names, setup.settings)
    if texts:
        return warn("rewards load", " ".join(texts), "set mentor_success_rewards to the verifier")
    chosen = setup.training.mentor_success_rewards or names
    return ok("rewards load", f"{', '.join(names)}; success is decided by {', '.join(chosen)}")


def check_rewards(setup: Setup) -> Finding:
    """Does the success reward say yes to the reference answer in some usual form, and no to a wrong one."""
    rows = setup.usable_rows
    if not setup.rewards or not rows:
        return skipped("reward", "rewards or success rewards are wrong" if rows else "no rows with a usable prompt")
    if setup.script.reward_model_name_or_path:
        return skipped("reward", "a reward model takes part, which is not loaded here")
    rule = success_rule(setup.rewards, setup.training)
    try:
        return _judged(setup, rule, rows)
    except RewardError as error:
        return fail("reward", str(error), _failure_fix(str(error), setup))
    except UserCodeError as ended:
        return fail("reward", str(ended), ENDED_FIX)


def _judged(setup: Setup, rule: SuccessRule, rows: Sequence[Mapping[str, Any]]) -> Finding:
    threshold = rule.threshold
    blind = score(setup.rewards, rule, rows, [NO_ANSWER] * len(rows))
    fix = "name the verifier in mentor_success_rewards, or raise mentor_success_threshold above what failures get"
    if all(map(rule.succeeds, blind.successes)):
        values = _range(blind.successes)
        found = f"{NO_ANSWER!r} succeeds on all {len(rows)} rows: {values}, not at most {threshold:g}"
        return fail("reward", found, fix)
    known = [row for row in rows if setup.answer(row) is not None]
    if not known:
        return skipped("reward", f"no reference answers to try; {NO_ANSWER!r} fails, as it should")
    answers = [_final(str(setup.answer(row))) for row in known]
    right, scored = _by_form(setup, rule, known, answers)
    if not any(map(any, right.values())):
        return _never(setup, answers[0], scored, threshold)
    wrong, _ = _by_form(setup, rule, known, _wrong(answers))
    if fooled := [name for name in FORMS if all(wrong[name])]:
        shown = FORMS[fooled[0]](_wrong(answers)[0])
        return fail("reward", f"a wrong answer succeeds on all {len(known)} rows, such as {shown!r:.80}", fix)
    if fooled := [name for name in FORMS if any(wrong[name])]:
        found = f"a wrong answer succeeds on some rows ({', '.join(fooled)})"
        return warn("reward", found, "look at the verifier; what it takes for right is never mentored")
    return _sane(setup, right, scored, len(known))


def _sane(setup: Setup, right: Mapping[str, list[bool]], scored: Sequence[Scored], rows: int) -> Finding:
    solved = [any(column) for column in zip(*right.values(), strict=True)]
    forms = [name for name, hits in right.items() if any(hits)]
    which = "all" if len(forms) == len(FORMS) else ", ".join(forms)
    found = f"a right answer succeeds (forms: {which}), a wrong one fails, on {sum(solved)} of {rows} rows"
    slowest = min(scored, key=lambda item: item.seconds)
    seconds = slowest.seconds / rows
    if seconds > SLOW_SECONDS:
        batch = seconds * setup.training.per_device_train_batch_size * (setup.training.steps_per_generation or 1)
        found += f"; {slowest.slowest} takes {seconds:.2f} s a completion, {batch:.0f} s a batch on each rank"
        return warn("reward", found, "make it faster, or expect it in every step, twice where groups collapse")
    if not all(solved):
        missed = [number for number, hit in enumerate(solved) if not hit]
        return warn("reward", f"{found}; in no form on row(s) {missed}", "look at the answers of these rows")
    return ok("reward", found, forms=forms, seconds_per_completion=seconds)


def _never(setup: Setup, answer: str, scored: Sequence[Scored], threshold: float) -> Finding:
    tried = ", ".join(repr(form(answer)) for form in FORMS.values())
    values = _range([value for item in scored for value in item.successes])
    columns = " or ".join(map(repr, setup.answer_columns))
    return fail(
        "reward",
        f"no completion made from the reference answer succeeds: {values}, not above {threshold:g}; tried {tried}",
        f"check that column {columns} holds what the verifier compares with, that the verifier reads "
        "one of these forms, and mentor_success_rewards and mentor_success_threshold",
        tried=[form(answer) for form in FORMS.values()],
    )


def _by_form(
    setup: Setup, rule: SuccessRule, rows: Sequence[Mapping[str, Any]], answers: Sequence[str]
) -> tuple[dict[str, list[bool]], list[Scored]]:
    """For each form and row: does a completion of that form succeed."""
    scored = [score(setup.rewards, rule, rows, [form(answer) for answer in answers]) for form in FORMS.values()]
    hits = [[rule.succeeds(value) for value in item.successes] for item in scored]
    return dict(zip(FORMS, hits, strict=True)), scored


def _wrong(answers: Sequence[str]) -> list[str]:
    """For each answer a wrong one of its kind: another number, letter or word, or the answer of another row."""
    return [_another(answer, answers) for answer in answers]


def _another(answer: str, answers: Sequence[str]) -> str:
    number = answer.replace(",", "")
    if re.fullmatch(r"-?\d{1,12}(?:\.\d{1,6})?", number):
        return f"{float(number) + 1:.10g}"
    if re.fullmatch("[A-Z]", answer):
        return "B" if answer == "A" else "A"
    others = [other for other in answers if other.casefold() != answer.casefold()]
    return _OPPOSITES.get(answer.casefold()) or (others[0] if others else "another answer")


def _final(answer: str) -> str:
    """The bare answer at the end of a worked solution."""
    found = [match[-1] for pattern in _FINAL if (match := pattern.findall(answer))]
    return found[0] if found else answer.strip()


def _range(values: Sequence[float]) -> str:
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return "it could not be scored (None)"
    low, high = min(known), max(known)
    return f"success reward {low:g}" if low == high else f"success rewards from {low:g} to {high:g}"


def _failure_fix(error: str, setup: Setup) -> str:
    if isinstance(setup.usable_rows[0]["prompt"], str) and "TypeError" in error:
        return (
            "correct it; prompts are plain text here, so completions are too: a reward for conversations (TRL's own "
            "are) needs `prompt` as a list of messages"
        )
    if "raised ConfigError" in error:
        return "do what the message says"
    return "correct the function; TRL passes prompts, completions, completion_ids, every column, and **kwargs to it"
