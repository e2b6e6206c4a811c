"""One real intervention: the mentor is asked about a failure of the policy, or one made up for the first row."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trl_mentor.assembly import question_text
from trl_mentor.cli.check_endpoint import not_asked
from trl_mentor.cli.check_findings import Finding, Setup, fail, ok, skipped, warn
from trl_mentor.errors import ConfigError
from trl_mentor.factory import build_backend, build_mentor
from trl_mentor.mentor_pool import describe, outcome_of
from trl_mentor.records import Attempt, CollapsedGroup, Guidance, HintOrigin, Role

MADE_UP = ("I am not sure, but my answer is 0.", "I do not know how to begin.")
"""The attempts of the failure: wrong for nearly every question, and of no particular form."""


def ask_for_hint(setup: Setup, group: CollapsedGroup | None, *, asked: bool) -> tuple[list[Finding], Guidance | None]:
    """Findings about the replies and their speed, and what the mentor did; `asked` says whether it can be asked."""
    why = not_asked(setup) or ("" if asked else "the model does not reply")
    why = why or ("" if setup.usable_rows else "no rows with a usable prompt")
    if why:
        return [skipped("replies", why), skipped("speed", why)], None
    try:
        # A reply from an earlier check would say nothing about the endpoint.
        mentor = build_mentor(replace(setup.settings, mentor_cache_dir="none"))
    except ConfigError as error:
        why = "see the finding on replies"
        return [fail("replies", str(error), "correct the setting that the message names"), skipped("speed", why)], None
    (guidance,) = mentor.guide([_made_up(setup) if group is None else group])
    return [_replies(setup, guidance), _speed(setup, guidance)], guidance


def _made_up(setup: Setup) -> CollapsedGroup:
    row = setup.usable_rows[0]
    attempts = tuple(Attempt(text, 0.0) for text in MADE_UP)
    return CollapsedGroup(question_text(row["prompt"]), attempts, setup.answer(row), prompt=row["prompt"])


def _replies(setup: Setup, guidance: Guidance) -> Finding:
    errors = [f"{call.role}: {call.error}" for call in guidance.calls if call.error]
    figures = _figures(guidance)
    said = [error.partition("; it begins: ")[0] for error in errors]  # the reply itself may say anything
    cut = [error for error, why in zip(errors, said, strict=True) if "cut off" in why or "but thinking" in why]
    if cut:
        limit = setup.training.mentor_max_tokens
        fix = f"raise mentor_max_tokens ({limit}), or turn thinking off with mentor_thinking or mentor_extra_body"
        thinks = any(call.thinking_chars for call in guidance.calls) or "but thinking" in cut[0]
        if thinks and guidance.origin is not HintOrigin.ACCEPTED:
            return fail("replies", f"the thinking uses up mentor_max_tokens: {cut[0]}", fix, **figures)
        if guidance.origin is not HintOrigin.FAILED:
            return warn("replies", f"a reply was cut off by mentor_max_tokens: {cut[0]}", fix, **figures)
    if guidance.origin is HintOrigin.FAILED:
        return fail("replies", f"no hint: {guidance.reason}", _failure_fix(setup, guidance), **figures)
    unread = [error for error, why in zip(errors, said, strict=True) if "timeout" not in why]
    if len(unread) == len(guidance.calls):
        fix = (
            "see the reply above; if it is prose, the endpoint may ignore the schema or think too long "
            "(mentor_thinking, mentor_max_tokens); else take a stronger mentor: as it is, hints are the fixed one"
        )
        return warn("replies", f"no reply could be read: {unread[0]}", fix, **figures)
    if guidance.origin is HintOrigin.FALLBACK:
        fix = "look at one with `trl-mentor hint`; if most hints are refused, the mentor is too weak for the task"
        return warn("replies", f"readable, but the failure got the fallback hint: {guidance.reason}", fix)
    found = f"{len(guidance.calls)} calls, {len(errors)} of them not readable, a hint was accepted"
    return ok("replies", found, **figures)


def _speed(setup: Setup, guidance: Guidance) -> Finding:
    training, figures = setup.training, _figures(guidance)
    served = [call for call in guidance.calls if call.usage.completion_tokens]
    slowest = max((call.seconds for call in guidance.calls), default=0.0)
    found = f"{len(guidance.calls)} calls in {guidance.seconds:.1f} s, the slowest {slowest:.1f} s"
    if served:
        rate = sum(call.usage.completion_tokens for call in served) / max(sum(call.seconds for call in served), 1e-9)
        found += f", {rate:.0f} tokens/s written"
        figures["tokens_per_second"] = rate
    late = guidance.origin is HintOrigin.FAILED and "deadline" in guidance.reason
    if late or guidance.seconds > training.mentor_deadline:
        fix = _failure_fix(setup, guidance)
        return fail("speed", f"{found}: too slow for mentor_deadline {training.mentor_deadline:g} s", fix, **figures)
    if slowest > 0.5 * training.mentor_call_timeout:
        fix = "raise mentor_call_timeout, lower mentor_max_tokens or turn thinking off: a busy server is slower"
        return warn("speed", f"{found}, of mentor_call_timeout {training.mentor_call_timeout:g} s", fix, **figures)
    return ok("speed", found, **figures)


def _figures(guidance: Guidance) -> dict[str, Any]:
    usage = [call.usage for call in guidance.calls]
    return {
        "origin": str(guidance.origin),
        "calls": len(guidance.calls),
        "seconds": guidance.seconds,
        "prompt_tokens": sum(item.prompt_tokens for item in usage),
        "cached_tokens": sum(item.cached_tokens for item in usage),
        "completion_tokens": sum(item.completion_tokens for item in usage),
        "thinking_tokens": sum(item.thinking_tokens for item in usage),
    }


def _failure_fix(setup: Setup, guidance: Guidance) -> str:
    training = setup.training
    if "deadline" in guidance.reason or "within" in guidance.reason:
        return (
            f"raise mentor_deadline ({training.mentor_deadline:g}) and mentor_call_timeout "
            f"({training.mentor_call_timeout:g}), take a faster mentor, lower mentor_max_tokens, or turn thinking off"
        )
    return "look at the calls with `trl-mentor hint`, and at the server's log"


SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"word": {"type": "string"}, "number": {"type": "integer"}},
    "required": ["word", "number"],
    "additionalProperties": False,
}


def check_schema(setup: Setup, *, asked: bool) -> Finding:
    """Does the endpoint hold the model to a JSON schema; if not, replies are read all the same."""
    why = not_asked(setup) or ("" if asked else "the model does not reply")
    if why:
        return skipped("structured output", why)
    backend = build_backend(setup.settings)
    ask = [{"role": "user", "content": "Name a colour and how many letters it has. Reply with JSON alone."}]
    reply = outcome_of(
        lambda: backend.chat(ask, role=Role.JUDGMENT, timeout=setup.training.mentor_call_timeout, schema=SCHEMA)
    )
    if hasattr(backend, "close"):
        backend.close()
    if isinstance(reply, Exception):
        found = f"a request with a schema fails: {describe(reply)}"
        return warn("structured output", found, "look at the server's log")
    parsed = outcome_of(lambda: json.loads(reply.text))
    if reply.truncated:
        return ok("structured output", "could not be told: the reply was cut off by mentor_max_tokens")
    if isinstance(parsed, dict) and set(parsed) == {"word", "number"}:
        return ok("structured output", "replies keep to a JSON schema", schema=True)
    found = "replies are free text: JSON is asked for in the prompt and read leniently"
    return ok("structured output", found, schema=False)
