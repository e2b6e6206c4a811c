"""What the mentor does for one collapsed group: the loop of section 3.2 of the paper."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from trl_mentor.agents import Agent, Agents
from trl_mentor.backends.base import Backend
from trl_mentor.calls import Caller
from trl_mentor.errors import BackendError, DoubtfulReplyError, EndpointPausedError, NotAskedError, ReplyError
from trl_mentor.leaks.gate import WITHHELD, LeakGate
from trl_mentor.mentor_pool import describe, one_line, outcome_of
from trl_mentor.packing import pack_attempts, pack_feedback
from trl_mentor.reask import ask_again, worth_asking_again
from trl_mentor.records import (
    Ablation,
    CollapsedGroup,
    Draft,
    Guidance,
    HintOrigin,
    Message,
    Quality,
    Reply,
    Role,
    Verdict,
    VerdictSource,
)
from trl_mentor.replies import is_quoted, split_thinking
from trl_mentor.templating import PromptTemplates, Slot

T = TypeVar("T")

_SHOWN_CHARS = 200

_UNREADABLE = Verdict(
    Quality.LOW,
    "The review could not be read. Make the hint more specific and make sure that it gives nothing away.",
    VerdictSource.UNREADABLE,
)
_NO_CRITIQUE = "The reviewer refused the hint without saying why. Make it more specific and check that it is true."


@dataclass(frozen=True, slots=True)
class Plan:
    """The checked settings of a mentor; `Mentor` says what they mean."""

    backend: Backend
    templates: PromptTemplates
    fallback_hint: str
    max_retry: int
    max_refine: int
    ablation: Ablation | None
    gate: LeakGate
    attempt_budget: int
    call_timeout: float
    agents: Agents


class Tutorial:
    """The work on one group. Runs in a thread of its own; `failed` may be read from outside meanwhile."""

    def __init__(self, plan: Plan, group: CollapsedGroup, caller: Caller) -> None:
        self.plan, self.group, self.caller, self.clock = plan, group, caller, caller.clock
        self.attempts: tuple[str, ...] = ()
        self.feedback: tuple[str, ...] = ()
        self.diagnosis: tuple[str, ...] = ()
        self.drafts: list[Draft] = []
        self.started: float | None = None

    def run(self) -> Guidance:
        self.started = time.monotonic()
        self.attempts = tuple(pack_attempts(self.group.attempts, self.plan.attempt_budget))
        self.feedback = tuple(pack_feedback(self.group.attempts, self.plan.attempt_budget))
        backend_failures, why = 0, ""
        for attempt in range(1, self.plan.max_retry + 1):
            try:
                hint, verdict = self._attempt(attempt)
                if verdict.quality is Quality.HIGH:
                    return self._guidance(hint, HintOrigin.ACCEPTED)
                why = f"the last draft got LOW from: {verdict.source}"
            except ReplyError as error:
                why = str(error)
            except NotAskedError as error:
                if isinstance(error, EndpointPausedError) and self.caller.calls:
                    return self.failed(f"{why}; mentoring is paused now" if backend_failures else str(error))
                return self._guidance(None, HintOrigin.NOT_ASKED, str(error))
            except BackendError as error:
                backend_failures, why = backend_failures + 1, str(error)
        if self.clock.left() <= 0:
            return self.failed(f"the deadline of {self.clock.seconds:g} s passed")
        if backend_failures == self.plan.max_retry:
            return self.failed(f"the backend failed in every attempt: {why}")
        reason = f"no hint was accepted in {self.plan.max_retry} attempts: {why}"
        return self._guidance(self.plan.fallback_hint, HintOrigin.FALLBACK, reason)

    def failed(self, reason: str) -> Guidance:
        """No hint, with what was done so far."""
        self.caller.abandoned(reason)
        return self._guidance(None, HintOrigin.FAILED, reason)

    def _guidance(self, hint: str | None, origin: HintOrigin, reason: str = "") -> Guidance:
        seconds = time.monotonic() - self.started if self.started else 0.0
        return Guidance(hint, origin, self.diagnosis, tuple(self.drafts), tuple(self.caller.calls), seconds, reason)

    def _attempt(self, attempt: int) -> tuple[str, Verdict]:
        """One draft with its reviews and repairs: the last text and its verdict, so never a text without one."""
        if not self.diagnosis and self.plan.ablation is not Ablation.NO_ATTRIBUTION:
            self.diagnosis = self._diagnose()
        if self.plan.ablation is Ablation.NO_GENERATION:
            draft = Draft("; ".join(self.diagnosis), Role.ATTRIBUTION, attempt)
        else:
            draft = Draft(self._ask(self.plan.agents.generation), Role.GENERATION, attempt)
        verdict = self._review(draft)
        for _ in range(self.plan.max_refine - 1):
            if verdict.quality is Quality.HIGH:
                break
            repaired = self._ask(self.plan.agents.repair, draft=draft.text, critique=verdict.critique or _NO_CRITIQUE)
            draft = Draft(repaired, Role.REPAIR, attempt)
            verdict = self._review(draft)
        return draft.text, verdict

    def _diagnose(self) -> tuple[str, ...]:
        """The keywords that keep the answer back: the agent that writes hints reads them, and must not learn it."""
        keywords = self._ask(self.plan.agents.attribution)
        kept = tuple(keyword for keyword in keywords if not self.plan.gate.gives_away(keyword, self.group))
        if not kept:
            raise ReplyError("every phrase of the diagnosis gives the answer away")
        return kept

    def _review(self, draft: Draft) -> Verdict:
        self.drafts.append(draft)
        verdict = self._verdict(draft.text)
        self.drafts[-1] = replace(draft, verdict=verdict)
        return verdict

    def _verdict(self, hint: str) -> Verdict:
        critique = self.plan.gate.objection(hint, self.group)
        if critique is not None:
            return Verdict(Quality.LOW, critique, VerdictSource.RULES)
        if self.plan.ablation is Ablation.NO_JUDGE:
            return Verdict(Quality.HIGH, "", VerdictSource.SKIPPED)
        try:
            verdict = self._ask(self.plan.agents.judgment, draft=hint)
        except ReplyError:
            return _UNREADABLE
        # The judge knows the answer, the agent that reads the critique of a refused draft must not.
        told = verdict.quality is Quality.LOW and self.plan.gate.gives_away(verdict.critique, self.group)
        return replace(verdict, critique=WITHHELD) if told else verdict

    def _ask(self, agent: Agent[T], *, draft: str = "", critique: str = "") -> T:
        """What the agent says. Raises `BackendError` if there is no reply, `ReplyError` if it cannot be read.

        A reply that cannot be read is asked for once more, with the error; one that may be quoting is not.
        """
        plan, group, role = self.plan, self.group, agent.role
        slots: Mapping[str, Slot] = {
            "question": group.question,
            "answer": group.answer,
            "attempts": self.attempts,
            "feedback": self.feedback,
            "diagnosis": self.diagnosis,
            "earlier_hints": group.earlier_hints,
            "draft": draft,
            "critique": critique,
        }
        messages = outcome_of(lambda: plan.templates.messages(role, slots))
        if isinstance(messages, Exception):
            raise ReplyError(describe(messages))
        reply = self.caller.ask(role, messages, schema=agent.schema)
        result = self._read(agent, reply, messages)
        if isinstance(result, ReplyError) and not isinstance(result, DoubtfulReplyError) and worth_asking_again(reply):
            again = ask_again(messages, reply, str(result), agent.schema)
            result = self._read(agent, self.caller.ask(role, again, schema=agent.schema, retry=True), messages)
        if isinstance(result, Exception):
            raise ReplyError(describe(result))
        return result

    def _read(self, agent: Agent[T], reply: Reply, messages: Sequence[Message]) -> T | Exception:
        """What the last reply says, or the error, which its call then carries. `messages` is what was asked first."""
        result = outcome_of(lambda: agent.read(reply))
        visible, thinking = split_thinking(reply.text) if isinstance(reply.text, str) else ("", "")
        if agent.schema is not None and not isinstance(result, Exception) and is_quoted(visible, messages):
            result = DoubtfulReplyError("the whole reply stands in the prompt, where somebody else wrote it")
        self.caller.read(
            error=_with_beginning(result, reply) if isinstance(result, Exception) else None,
            thinking_chars=len(thinking) + len(reply.thinking),
        )
        return result


def _with_beginning(error: Exception, reply: Reply) -> str:
    """The error with what the reply begins with, for a person alone: the judge's reply may hold the answer."""
    visible, thinking = split_thinking(reply.text) if isinstance(reply.text, str) else ("", "")
    shown = one_line(visible or thinking or reply.thinking, _SHOWN_CHARS)
    return f"{describe(error)}; it begins: {shown!r}" if shown else describe(error)
