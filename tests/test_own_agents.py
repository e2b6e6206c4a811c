"""Agents of the user's own in the place of the package's."""

from __future__ import annotations

import json

import pytest
import said

from trl_mentor import Mentor, ScriptedBackend
from trl_mentor.agents import JUDGMENT, Agent, Agents
from trl_mentor.errors import ConfigError, ReplyError
from trl_mentor.records import Attempt, CollapsedGroup, HintOrigin, Quality, Role, Verdict, VerdictSource

GROUP = CollapsedGroup("How many primes lie below 100?", (Attempt("24", 0.0), Attempt("thirty", 0.0)), answer="25")
HINT = "Which whole numbers have exactly two divisors?"
BETTER = "Think about whether 1 has two different divisors."
SCHEMA = {"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]}


def parse_score(text: str) -> Verdict:
    """HIGH for 4 and 5 of 5 points."""
    try:
        score = json.loads(text)["score"]
    except (ValueError, KeyError, TypeError):
        raise ReplyError("there is no score; reply with an object that has one") from None
    return Verdict(Quality.HIGH if score >= 4 else Quality.LOW, f"{score} of 5 points", VerdictSource.JUDGE)


def guide(judge: Agent[Verdict], *judgments: str):
    """The guidance of a mentor whose judge says these things, and the backend that was asked."""
    script = {
        Role.ATTRIBUTION: said.diagnosis("counts 1 as prime"),
        Role.GENERATION: HINT,
        Role.JUDGMENT: judgments,
        Role.REPAIR: said.repaired(BETTER),
    }
    backend = ScriptedBackend(script)
    (guidance,) = Mentor(backend, agents=Agents(judgment=judge), max_retry=1).guide([GROUP])
    return guidance, backend


def test_a_judge_of_the_users_own_decides_what_is_repaired_and_what_is_accepted():
    guidance, _ = guide(Agent(Role.JUDGMENT, parse_score, schema=SCHEMA), '{"score": 2}', '{"score": 5}')
    assert (guidance.hint, guidance.origin) == (BETTER, HintOrigin.ACCEPTED)
    assert [draft.verdict.critique for draft in guidance.drafts] == ["2 of 5 points", "5 of 5 points"]


def test_a_reply_that_its_parser_refuses_is_asked_for_again_in_its_form():
    guidance, backend = guide(Agent(Role.JUDGMENT, parse_score, schema=SCHEMA), "four, I think", '{"score": 4}')
    assert guidance.hint == HINT
    again = [request for request in backend.requests if request.role is Role.JUDGMENT][1]
    assert "there is no score" in again.messages[-1]["content"]
    assert json.dumps(SCHEMA) in again.messages[-1]["content"]


def test_a_parser_that_breaks_leaves_the_hint_unaccepted_and_the_run_alone():
    guidance, _ = guide(Agent(Role.JUDGMENT, lambda text: 1 / 0), "fine", "fine", "fine", "fine")
    assert guidance.origin is HintOrigin.FALLBACK
    assert {draft.verdict.source for draft in guidance.drafts} == {VerdictSource.UNREADABLE}


def test_a_parser_that_returns_another_kind_of_thing_costs_the_group_and_says_so():
    guidance, _ = guide(Agent(Role.JUDGMENT, lambda text: "HIGH"), "HIGH")
    assert (guidance.hint, guidance.origin) == (None, HintOrigin.FAILED)
    assert "quality" in guidance.reason


def test_agents_that_are_none_or_in_the_wrong_place_are_refused_at_construction():
    with pytest.raises(ConfigError, match=r"generation is an agent for judgment; give an Agent\(Role.GENERATION"):
        Agents(generation=JUDGMENT)
    with pytest.raises(ConfigError, match="attribution is <function"):
        Agents(attribution=lambda text: ())
    with pytest.raises(ConfigError, match="agents is Agent"):
        Mentor(ScriptedBackend({}), agents=JUDGMENT)
