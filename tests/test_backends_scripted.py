"""The scripted backend plays its script faithfully, from any number of threads."""

from __future__ import annotations

import dataclasses
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from trl_mentor.backends.base import Backend
from trl_mentor.backends.scripted import ScriptedBackend, ScriptedRequest
from trl_mentor.errors import BackendError, ConfigError, ReplyError
from trl_mentor.records import Reply, Role, Usage

QUESTION = [{"role": "system", "content": "You judge."}, {"role": "user", "content": "Is it good ?"}]


def test_it_is_a_backend():
    assert isinstance(ScriptedBackend({}), Backend)


def test_a_string_in_the_table_repeats_for_ever():
    backend = ScriptedBackend({Role.JUDGMENT: "HIGH"})
    assert [backend.chat(QUESTION, role=Role.JUDGMENT, timeout=1.0).text for _ in range(3)] == ["HIGH"] * 3


def test_a_sequence_is_consumed_in_order_and_its_exceptions_are_raised():
    whole = Reply("two", Usage(7, 3), truncated=True)
    backend = ScriptedBackend({Role.GENERATION: ["one", ReplyError("planted"), whole]})
    assert backend.chat(QUESTION, role=Role.GENERATION, timeout=1.0).text == "one"
    with pytest.raises(ReplyError, match="planted"):
        backend.chat(QUESTION, role=Role.GENERATION, timeout=1.0)
    assert backend.chat(QUESTION, role=Role.GENERATION, timeout=1.0) == whole


def test_an_exhausted_sequence_raises_an_error_that_names_the_role():
    backend = ScriptedBackend({Role.REPAIR: ["only one"], Role.JUDGMENT: "LOW"})
    backend.chat(QUESTION, role=Role.REPAIR, timeout=1.0)
    with pytest.raises(BackendError, match=r"'repair' are used up"):
        backend.chat(QUESTION, role=Role.REPAIR, timeout=1.0)
    assert backend.chat(QUESTION, role=Role.JUDGMENT, timeout=1.0).text == "LOW"


def test_a_role_that_the_table_lacks_raises_an_error_that_names_it():
    with pytest.raises(BackendError, match=r"no replies for role 'attribution'"):
        ScriptedBackend({Role.JUDGMENT: "LOW"}).chat(QUESTION, role=Role.ATTRIBUTION, timeout=1.0)


@pytest.mark.parametrize("replies", [3, ["fine", 3], None])
def test_a_table_with_a_value_of_another_kind_is_refused_at_construction(replies):
    with pytest.raises(ConfigError, match="judgment"):
        ScriptedBackend({Role.JUDGMENT: replies})


def test_a_function_sees_the_role_and_the_messages_and_may_raise():
    def script(role, messages):
        if role is Role.REPAIR:
            raise TimeoutError("planted")
        return f"{role}: {messages[-1]['content']}"

    backend = ScriptedBackend(script)
    assert backend.chat(QUESTION, role=Role.JUDGMENT, timeout=1.0).text == "judgment: Is it good ?"
    with pytest.raises(TimeoutError, match="planted"):
        backend.chat(QUESTION, role=Role.REPAIR, timeout=1.0)
    assert [request.role for request in backend.requests] == [Role.JUDGMENT, Role.REPAIR]


def test_usage_counts_the_words_of_the_messages_and_of_the_reply():
    reply = ScriptedBackend({Role.JUDGMENT: "grade is  HIGH"}).chat(QUESTION, role=Role.JUDGMENT, timeout=1.0)
    assert reply.usage == Usage(prompt_tokens=6, completion_tokens=3)


def test_requests_keep_what_was_asked_even_if_the_caller_changes_its_messages_later():
    backend = ScriptedBackend({Role.JUDGMENT: "HIGH"})
    messages = [{"role": "user", "content": "before"}]
    backend.chat(messages, role=Role.JUDGMENT, timeout=1.0)
    messages[0]["content"] = "after"
    assert backend.requests == [ScriptedRequest(Role.JUDGMENT, ({"role": "user", "content": "before"},))]
    with pytest.raises(dataclasses.FrozenInstanceError):
        backend.requests[0].role = Role.REPAIR


def test_each_reply_of_a_sequence_is_given_to_exactly_one_of_many_threads():
    replies = [str(number) for number in range(400)]
    backend = ScriptedBackend({Role.GENERATION: replies})

    def ask(_):
        return backend.chat(QUESTION, role=Role.GENERATION, timeout=1.0).text

    with ThreadPoolExecutor(16) as pool:
        given = list(pool.map(ask, range(400)))
    assert Counter(given) == Counter(replies)
    assert len(backend.requests) == 400
